"""Projection of what makes retries safe: results of requests, and producers.

broker/remembered.py keeps the same in memory by the same rules. The rows are the same whether
entries come one by one or many at once: results are taken together only while all of them find
room; producers are taken entry by entry, because one that is forgotten begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    delete,
    func,
    insert,
    select,
    tuple_,
)

from seb_appliance import limits
from seb_appliance.broker.append.retry_results import (
    Producer,
    RememberedRequest,
    first_append,
    owner_of,
    weight_of,
)
from seb_appliance.formats.contents import ProducerAppend, RequestResult
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import Append, TopicDeleted
from seb_appliance.state import rows
from seb_appliance.state.found import checksum_of, checksum_where, one_of, rows_with
from seb_appliance.state.room import Owned, gone_for_room
from seb_appliance.state.schema import producers, requests

_REQUESTS: Final = Owned((requests.c.owner,), requests.c.place, requests.c.weight)
_PRODUCERS: Final = Owned((producers.c.topic_id,), producers.c.place)
_PLACES_TAKEN: Final = select(func.coalesce(func.sum(requests.c.weight), 0))
_PLACES_IN_ENTRY: Final = 1 << 20  # more than one entry can hold

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_result: Final = msgspec.msgpack.Decoder(RequestResult).decode
_KEY: Final = tuple_(producers.c.topic_id, producers.c.producer_id)
_decode_recent: Final = msgspec.msgpack.Decoder(tuple[ProducerAppend, ...]).decode


def project(connection: Connection, entries: Sequence[Entry], place: int) -> tuple[int, int]:
    """Apply what `entries` say; how much the file's checksum grows by it, and the place of the
    newest request, which was `place` before."""
    added, place = _project_requests(connection, entries, place)
    return added + _project_producers(connection, entries), place


def to_request(row: rows.ResultRow) -> RememberedRequest:
    return RememberedRequest(_decode_result(row.result), row.created_us, row.place)


def to_producer(row: rows.ResultRow) -> Producer:
    recent = _decode_recent(row.recent)
    return Producer(row.topic_id, row.producer_id, row.epoch, recent, row.used_us)


# --- requests ---


def _project_requests(
    connection: Connection, entries: Sequence[Entry], place: int
) -> tuple[int, int]:
    more = sum(weight_of(result) for entry in entries for result in entry.contents.results)
    taken = connection.execute(_PLACES_TAKEN).scalar_one() if more else 0
    all_find_room = taken + more <= limits.REMEMBERED_REQUESTS_MAX
    added = 0
    for together in [entries] if all_find_room else [[entry] for entry in entries]:
        cutoff_us = together[-1].header.created_us - limits.REMEMBERED_REQUESTS_US
        fresh: dict[str, rows.Row] = {}
        for entry in together:
            for result in entry.contents.results:
                place += weight_of(result)
                fresh[result.scope.hex()] = _of_result(result, place, entry.header.created_us)
        added += _replace(connection, requests.c.scope, list(fresh), list(fresh.values()))
        added -= _forget_old(connection, requests, requests.c.created_us, cutoff_us)
        if not all_find_room:
            added -= _make_room(connection, _REQUESTS, limits.REMEMBERED_REQUESTS_MAX)
    return added, place


def _of_result(result: RequestResult, place: int, created_us: int) -> rows.Row:
    return {
        "scope": result.scope.hex(),
        "place": place,
        "created_us": created_us,
        "result": _encode(result),
        "owner": owner_of(result.scope),
        "weight": weight_of(result),
    }


# --- producers ---

# A topic and the append of a producer to it.
_Step = tuple[int, ProducerAppend]


def _project_producers(connection: Connection, entries: Sequence[Entry]) -> int:
    added = 0
    for entry in entries:
        deleted = [op.topic_id for op in entry.contents.operations if isinstance(op, TopicDeleted)]
        steps = [step for step in _steps(entry) if step[0] not in deleted]
        if not steps and not deleted and entry is not entries[-1]:
            continue
        cutoff_us = entry.header.created_us - limits.PRODUCER_IDLE_US
        added -= _forget_old(connection, producers, producers.c.used_us, cutoff_us)
        if deleted:
            added -= _forget_topics(connection, deleted)
        if steps:
            grown, more = _apply(connection, entry, steps)
            added += grown
            if more > 0:  # counting them walks an index: a known producer spares that
                added -= _make_room(connection, _PRODUCERS, limits.PRODUCERS_MAX)
    return added


def _steps(entry: Entry) -> Iterator[_Step]:
    for operation in entry.contents.operations:
        if isinstance(operation, Append):
            section = entry.contents.sections[operation.section]
            for append in section.producers:
                yield section.topic_id, append


def _forget_topics(connection: Connection, topic_ids: Sequence[int]) -> int:
    """Delete the producers of deleted topics, however many these are; their checksum."""
    which = one_of(producers.c.topic_id, topic_ids)
    gone = checksum_where(connection, producers, which)
    connection.execute(delete(producers).where(which))
    return gone


def _apply(connection: Connection, entry: Entry, steps: Sequence[_Step]) -> tuple[int, int]:
    """How much the checksum grows, and how many producers there are more."""
    named = {(topic_id, append.producer_id) for topic_id, append in steps}
    wanted = _json(sorted(named), "$[0]", "$[1]")
    before = connection.execute(select(producers).where(_KEY.in_(wanted))).all()
    fresh = _after(entry, steps, before)
    if before:
        connection.execute(delete(producers).where(_KEY.in_(wanted)))
    connection.execute(insert(producers), fresh)
    added = checksum_of(producers, (row.values() for row in fresh))
    return added - checksum_of(producers, before), len(fresh) - len(before)


def _after(
    entry: Entry, steps: Sequence[_Step], before: Sequence[rows.ResultRow]
) -> list[rows.Row]:
    """The rows of all producers that the steps name, once these were taken."""
    after: dict[tuple[int, str], rows.Row] = {}
    known = {(row.topic_id, row.producer_id): to_producer(row) for row in before}
    header = entry.header
    for i, (topic_id, append) in enumerate(steps):
        key = (topic_id, append.producer_id)
        known[key] = (
            known[key].after(append, header.created_us)
            if key in known
            else first_append(topic_id, append, header.created_us)
        )
        after[key] = {
            "topic_id": topic_id,
            "producer_id": append.producer_id,
            "place": header.seq * _PLACES_IN_ENTRY + i,
            "epoch": append.epoch,
            "recent": _encode(known[key].recent),
            "used_us": header.created_us,
        }
    return list(after.values())


# --- both ---


def _replace(
    connection: Connection, key: Column[Any], keys: list[str], fresh: list[rows.Row]
) -> int:
    """Put `fresh` in the place of the rows with these keys; what the checksum grows by."""
    if not fresh:
        return 0
    table = key.table
    assert isinstance(table, Table)
    before = rows_with(connection, key, keys)
    if before:
        connection.execute(delete(table).where(key.in_(_json(keys))))
    connection.execute(insert(table), fresh)
    return checksum_of(table, (row.values() for row in fresh)) - checksum_of(table, before)


def _forget_old(connection: Connection, table: Table, time: Column[Any], cutoff_us: int) -> int:
    """Delete the rows from before `cutoff_us`; their checksum. Times ascend with places, so all
    rows are looked at only when one has to go."""
    oldest_us = connection.execute(select(time).order_by(table.c.place).limit(1)).scalar()
    if oldest_us is None or oldest_us >= cutoff_us:
        return 0
    return _delete(connection, table, time < cutoff_us)


def _make_room(connection: Connection, owned: Owned, most: int) -> int:
    """Delete what finds no room; its checksum."""
    table = owned.place.table
    assert isinstance(table, Table)
    gone = gone_for_room(connection, owned, most)
    return _delete(connection, table, owned.place.in_(_json(gone))) if gone else 0


def _delete(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    gone = connection.execute(select(table).where(which)).all()
    connection.execute(delete(table).where(which))
    return checksum_of(table, gone)


def _json(values: Sequence[Any], *paths: str) -> Select[Any]:
    """The values as rows of one column; or as one column for each path into them."""
    value = func.json_each(msgspec.json.encode(values).decode()).table_valued("value").c.value
    return select(*(func.json_extract(value, path) for path in paths)) if paths else select(value)
