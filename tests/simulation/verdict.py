"""The properties P1 to P16 that apply without HTTP, over what clients were told and the true log.

Linear: the offset is the witness. Each violation begins with the property's number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seb_appliance.broker.topics.catalog import Catalog
from tests.simulation.history import Call, History, Row
from tests.simulation.log import Log, Record


def violations(history: History, log: Log, readable: dict[int, list[Row]]) -> Iterator[str]:
    """`readable`: by topic id, what is left to read in the end, after a start from the bucket
    alone. The properties of groups, API keys and settings are asked of that start itself."""
    yield from history.violations
    for topic_id, records in log.records.items():
        yield from _offsets(topic_id, records, log.forks.get(topic_id, (0, 0))[1])
    yield from _calls(history, log)
    yield from _served(history, log)
    for topic_id, rows in readable.items():
        yield from _readable(log, topic_id, rows, history.trimmed.get(topic_id, 0))


def _offsets(topic_id: int, records: Sequence[Record], begin: int) -> Iterator[str]:
    for expected, record in enumerate(records, begin):
        if record.offset != expected:
            yield f"P3 offset {record.offset} of topic {topic_id} stands where {expected} should"
            return


def _calls(history: History, log: Log) -> Iterator[str]:
    places: dict[bytes, tuple[int, int]] = {}
    counts: Counter[bytes] = Counter()
    for topic_id, records in log.records.items():
        for record in records:
            places[record.mark] = (topic_id, record.offset)
            counts[record.mark] += 1
    for mark, count in counts.items():
        if count > 1:
            yield f"P10 {mark!r} is in the log {count} times"
    known = {mark for call in history.calls for mark in call.marks}
    for mark in counts.keys() - known:
        yield f"P8 nobody sent {mark!r}"
    for call in history.calls:
        yield from _as_told(call, [places.get(mark) for mark in call.marks])
    yield from _together(history.calls, log)
    yield from _real_time_order(history.calls, places)


def _as_told(call: Call, places: list[tuple[int, int] | None]) -> Iterator[str]:
    nowhere = [None] * len(places)
    name = f"{call.marks[0]!r} ({call.outcome}, topic {call.topic_id}, offset {call.offset})"
    if call.outcome == "acked" and call.offset >= 0:
        expected = [(call.topic_id, call.offset + i) for i in range(len(places))]
        if places != expected:
            yield f"P1 {name} is at {places}"
    elif call.outcome == "refused":
        if places != nowhere:
            yield f"P9 {name} is at {places}"
    elif places != nowhere or call.outcome == "acked":
        first = places[0]
        if first is None or places != [(first[0], first[1] + i) for i in range(len(places))]:
            yield f"{'P1' if call.outcome == 'acked' else 'P9'} {name} is torn: {places}"


def _together(calls: Sequence[Call], log: Log) -> Iterator[str]:
    """A transaction is in one entry, or in none."""
    entries: dict[int, set[int | None]] = {}
    for call in calls:
        if call.together:
            entries.setdefault(call.together, set()).add(log.entry_of.get(call.marks[0]))
    for number, found in entries.items():
        if len(found) > 1:
            yield f"P9 transaction {number} is in the entries {found}"


def _real_time_order(calls: Sequence[Call], places: dict[bytes, tuple[int, int]]) -> Iterator[str]:
    """P4: what was sent after an acknowledgement lies behind what was acknowledged."""
    by_topic: dict[int, list[tuple[int, Call]]] = {}
    for call in calls:
        place = places.get(call.marks[0])
        if place is not None:
            by_topic.setdefault(place[0], []).append((place[1], call))
    for found in by_topic.values():
        earliest_s = float("inf")
        for offset, call in sorted(found, key=lambda item: item[0], reverse=True):
            if call.sent_s > earliest_s:
                yield f"P4 {call.marks[0]!r} at {offset} was sent after one behind it was answered"
            if call.outcome == "acked":
                earliest_s = min(earliest_s, call.answered_s)


def _served(history: History, log: Log) -> Iterator[str]:
    for (topic_id, offset), (key, value) in history.served.items():
        records = log.of(topic_id)
        if offset >= len(records) or (records[offset].key, records[offset].value) != (key, value):
            yield f"P8 {value!r} was served at {offset} of topic {topic_id}, and is not in the log"


def _readable(log: Log, topic_id: int, rows: Sequence[Row], trimmed: int) -> Iterator[str]:
    records = log.of(topic_id)
    name = log.names[topic_id]
    found = dict.fromkeys(offset for offset, _, _ in rows)
    for offset, key, value in rows:
        record = records[offset] if offset < len(records) else None
        if record is None or (record.key, record.value) != (key, value):
            yield f"P7 {name} holds {value!r} at {offset} in the end: not what the log has there"
            return
    if name == "state":
        yield from _compacted(records, found.keys())
        return
    begin = rows[0][0] if rows else len(records)
    if name != "feed" and begin != 0 and records:
        yield f"P1 {name} begins at {begin}, and nobody trimmed it"
    if list(found) != list(range(begin, len(records))):
        yield f"P1 {name} has {len(found)} records in the end, from {begin}; the log {len(records)}"
    if begin < trimmed:
        yield f"P11 {name} begins at {begin}, and was trimmed to {trimmed}"


def _compacted(records: Sequence[Record], left: Iterator[int] | object) -> Iterator[str]:
    """P15: the newest record of each record key is there, or it is a tombstone; and no older one
    shows again."""
    kept = set(left)  # type: ignore[call-overload]
    newest = {record.key: record for record in records}
    shown = {record.key: record for record in records if record.offset in kept}
    for key, record in newest.items():
        if record.offset in kept:
            continue
        if record.value is not None:
            yield f"P15 the newest record of {key!r}, at {record.offset}, is gone"
        elif key in shown:
            value = shown[key].value
            yield f"P15 {key!r} was deleted at {record.offset}, and {value!r} shows again"


def catalog_digest(catalog: Catalog) -> dict[str, object]:
    """What memory holds, in a form that can be compared (P14)."""
    topics = {
        topic.topic_id: (
            topic.name,
            topic.settings,
            topic.log_start_offset,
            topic.log_end_offset,
            tuple(topic.runs),
            tuple(zip(topic.stored.bases, topic.stored.lengths, topic.stored.crcs, strict=True)),
            topic.entries_begin,
            (topic.parent.topic_id if topic.parent else None, topic.fork_offset),
            topic.stream,
        )
        for topic in catalog.topics()
    }
    groups = {
        name: (
            {topic_id: item.offset for topic_id, item in group.offsets.items()},
            (group.lease.generation, group.lease.holder) if group.lease else None,
        )
        for name in catalog.groups.names("", 1_000)
        if (group := catalog.groups.get(name)) is not None
    }
    return {
        "position": catalog.position,
        "topics": topics,
        "groups": groups,
        "api keys": sorted(key.api_key_id for key in catalog.api_keys.all()),
        "users": catalog.users.all(),
        "documents": list(catalog.documents.all()),
        "requests": list(catalog.requests),
        "producers": sorted((key, p) for key, p in catalog.producers._by_id.items()),
        "objects": sorted((o.ref.key, o.living_bytes) for o in catalog.stored.all()),
        "queues": [queue.copy() for queue in catalog.queues],
        "tables": {t.head.table_id: t.copy() for t in catalog.tables.all()},
        "garbage": sorted(catalog.stored.garbage),
        "untidied": list(catalog.untidied.entries),
    }
