"""Work queues in SQLite: the rows that one event changes, and loading all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from seb_appliance.broker.queues.intervals import Intervals
from seb_appliance.broker.queues.progress import Queue
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.operations import (
    QueueDeleted,
    QueueEvent,
    QueueProgressed,
    QueueSet,
)
from seb_appliance.formats.queues.queues import FailedDelivery, OffsetRange, QueueSettings
from seb_appliance.state.tables import Tables

_settings: Final = msgspec.json.Decoder(QueueSettings).decode

_OF_QUEUE: Final = ("queue_topics", "queue_ranges", "queue_failures")
_COUNTS: Final = """
SELECT acked, rejected, lost FROM queue_topics WHERE queue = :queue AND topic_id = :topic_id
"""
# From the last one down, so that whoever reads them stops at the first that does not touch.
_RANGES: Final = """
SELECT first_offset, end_offset FROM queue_ranges
WHERE queue = :queue AND topic_id = :topic_id AND first_offset <= :end
ORDER BY first_offset DESC
"""
_BETWEEN: Final = (
    'queue = :queue AND topic_id = :topic_id AND "offset" >= :begin AND "offset" < :end'
)


def project(tables: Tables, event: QueueEvent, created_us: int) -> None:
    """Apply an event to the rows, as broker/queues/progress.py does in memory."""
    match event:
        case QueueSet(queue=name):
            _set(tables, event, created_us)
            for topic_id in event.left:
                _forget(tables, queue=name, topic_id=topic_id)
            for start in event.starts:
                key = {"queue": name, "topic_id": start.topic_id}
                _count(tables, key, {})
                _settle(tables, key, 0, start.offset)
        case QueueProgressed(queue=name, topic_id=topic_id):
            if not tables.rows("SELECT 1 FROM queues WHERE name = :name", name=name):
                raise CorruptObjectError(f"progress of queue {name!r}, which is not there")
            _progress(tables, {"queue": name, "topic_id": topic_id}, event)
        case QueueDeleted(queue=name):
            if tables.delete("queues", name=name) != 1:
                raise CorruptObjectError(f"{event} of a queue that is not there")
            _forget(tables, queue=name)


def forget_topic(tables: Tables, topic_id: int) -> None:
    """The topic was deleted."""
    query = "SELECT queue FROM queue_topics WHERE topic_id = :topic_id"
    for (queue,) in tables.rows(query, topic_id=topic_id):
        _forget(tables, queue=queue, topic_id=topic_id)


def _set(tables: Tables, event: QueueSet, created_us: int) -> None:
    query = "SELECT owner FROM queues WHERE name = :name"
    owner = tables.value(query, name=event.queue)
    tables.delete("queues", name=event.queue)
    settings = msgspec.json.encode(event.settings).decode()
    owner = event.owner if owner is None else owner
    tables.insert("queues", [(event.queue, settings, owner, created_us)])


def _progress(tables: Tables, key: dict[str, Any], event: QueueProgressed) -> None:
    for failure in event.failed:
        tables.delete("queue_failures", **key, offset=failure.offset)
        tables.insert("queue_failures", [(*key.values(), *msgspec.structs.astuple(failure))])
    grown = {}
    for ranges, counter in event.outcomes():
        grown[counter] = sum(_settle(tables, key, *one) for one in _joined(ranges))
    _count(tables, key, grown)


def _joined(ranges: Iterable[OffsetRange]) -> Intervals:
    return Intervals((one.begin, one.end) for one in ranges)


def _settle(tables: Tables, key: dict[str, Any], begin: int, end: int) -> int:
    """How many of these offsets were not settled before."""
    tables.delete_where("queue_failures", _BETWEEN, **key, begin=begin, end=end)
    known, first, behind = 0, begin, end
    touching = []
    for at, until in tables.each(_RANGES, **key, end=end):
        if until < begin:
            break
        touching.append(at)
        known += until - at
        first, behind = min(first, at), max(behind, until)
    for at in touching:
        tables.delete("queue_ranges", **key, first_offset=at)
    tables.insert("queue_ranges", [(*key.values(), first, behind)])
    return behind - first - known


def _count(tables: Tables, key: dict[str, Any], grown: dict[str, int]) -> None:
    """Add to the numbers; there is a row of each topic on which something happened."""
    found = tables.rows(_COUNTS, **key)
    acked, rejected, lost = found[0] if found else (0, 0, 0)
    row = (
        acked + grown.get("acked", 0),
        rejected + grown.get("rejected", 0),
        lost + grown.get("lost", 0),
    )
    tables.delete("queue_topics", **key)
    tables.insert("queue_topics", [(*key.values(), *row)])


def _forget(tables: Tables, **key: Any) -> None:
    for table in _OF_QUEUE:
        tables.delete(table, **key)


def load(connection: sqlite3.Connection) -> list[Queue]:
    """All queues, by name."""
    rows = connection.execute("SELECT * FROM queues ORDER BY name")
    queues = {
        name: Queue(name, _settings(settings), owner, set_us)
        for name, settings, owner, set_us in rows
    }
    for queue, topic_id, acked, rejected, lost in connection.execute("SELECT * FROM queue_topics"):
        progress = queues[queue].on(topic_id)
        progress.acked, progress.rejected, progress.lost = acked, rejected, lost
    for queue, topic_id, begin, end in connection.execute("SELECT * FROM queue_ranges"):
        queues[queue].on(topic_id).settled.add(begin, end)
    for queue, topic_id, *failure in connection.execute("SELECT * FROM queue_failures"):
        failed = FailedDelivery(*failure)
        queues[queue].on(topic_id).failed[failed.offset] = failed
    return list(queues.values())
