"""Tables that forget their oldest rows when they are full: the audit, requests, producers.

broker/append/retry_results.py keeps requests and producers in memory by the same rules. The rows
are the same whether entries come one by one, many at once, or after a snapshot: results are taken
together only while all of them find room; producers are taken entry by entry, because one that is
forgotten begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.append.retry_results import (
    Producer,
    RememberedRequest,
    owner_of,
    producer_after,
    weight_of,
)
from seb_appliance.broker.shares import ForgettingShares
from seb_appliance.formats.contents import ProducerAppend, RequestResult
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import Append, AuditNoted, Event, TopicDeleted
from seb_appliance.state.tables import Row, Tables, one_of

_ROWS_AT_ONCE: Final = 100
_PLACES_IN_ENTRY: Final = 1 << 20  # more than one entry can hold

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_result: Final = msgspec.msgpack.Decoder(RequestResult).decode
_decode_recent: Final = msgspec.msgpack.Decoder(tuple[ProducerAppend, ...]).decode


@dataclass(frozen=True, slots=True)
class _Owned:
    """A table and its columns: the owner of a row, its place in the order, its weight."""

    table: str
    owner: tuple[str, ...]
    place: str
    weight: str = "1"


_AUDIT: Final = _Owned("audit", ("actor", "action"), "number")
_REQUESTS: Final = _Owned("requests", ("owner",), "place", "weight")
_PRODUCERS: Final = _Owned("producers", ("topic_id",), "place")


# --- audit ---


def project_audit(tables: Tables, events: Sequence[Event]) -> None:
    """Add the actions among `events`. Whoever has most rows of one action loses the oldest of them,
    so that many changes of one actor push out neither those of others nor the actor's other ones.
    The numbers follow from the journal, because the newest row is never deleted."""
    noted = [event for event in events if isinstance(event, AuditNoted)]
    if not noted:
        return
    newest = tables.value("SELECT max(number) FROM audit") or 0
    kept = tables.value("SELECT count(*) FROM audit")
    fresh = [
        # Without the version, the members of the event are the columns.
        (number, *msgspec.structs.astuple(event)[1:])
        for number, event in enumerate(noted, newest + 1)
    ]
    while fresh:
        room = max(1, limits.AUDIT_KEPT + 1 - kept)
        some, fresh = fresh[:room], fresh[room:]
        tables.insert("audit", some)
        kept += len(some) - _make_room(tables, _AUDIT, limits.AUDIT_KEPT, kept + len(some))


# --- requests ---


def project_requests(tables: Tables, entries: Sequence[Entry], place: int) -> int:
    """Apply the results in `entries`; the place of the newest request, which was `place` before."""
    more = sum(weight_of(result) for entry in entries for result in entry.contents.results)
    taken = tables.value("SELECT coalesce(sum(weight), 0) FROM requests") if more else 0
    all_find_room = taken + more <= limits.REMEMBERED_REQUESTS_MAX
    for together in [entries] if all_find_room else [[entry] for entry in entries]:
        fresh: dict[str, Row] = {}
        for entry in together:
            for result in entry.contents.results:
                place += weight_of(result)
                scope, created_us = result.scope.hex(), entry.header.created_us
                owner, weight = owner_of(result.scope), weight_of(result)
                fresh[scope] = (scope, place, created_us, _encode(result), owner, weight)
        if fresh:
            tables.delete_in("requests", "scope", list(fresh))
            tables.insert("requests", fresh.values())
        cutoff_us = together[-1].header.created_us - limits.REMEMBERED_REQUESTS_US
        _forget_old(tables, "requests", "created_us", cutoff_us)
        if not all_find_room:
            _make_room(tables, _REQUESTS, limits.REMEMBERED_REQUESTS_MAX)
    return place


def to_request(row: Row) -> RememberedRequest:
    _, place, created_us, result, *_ = row
    return RememberedRequest(_decode_result(result), created_us, place)


# --- producers ---


def project_producers(tables: Tables, entries: Sequence[Entry]) -> None:
    for entry in entries:
        deleted = [op.topic_id for op in entry.contents.operations if isinstance(op, TopicDeleted)]
        appends = [append for append in _appends(entry) if append[0] not in deleted]
        if not appends and not deleted and entry is not entries[-1]:
            continue
        cutoff_us = entry.header.created_us - limits.PRODUCER_IDLE_US
        _forget_old(tables, "producers", "used_us", cutoff_us)
        if deleted:
            tables.delete_in("producers", "topic_id", deleted)
        # Counting the producers reads a whole index: only new producers need that.
        if appends and _apply(tables, entry, appends) > 0:
            _make_room(tables, _PRODUCERS, limits.PRODUCERS_MAX)


def to_producer(row: Row) -> Producer:
    topic_id, producer_id, _, epoch, recent, used_us = row
    return Producer(topic_id, producer_id, epoch, _decode_recent(recent), used_us)


def _appends(entry: Entry) -> Iterator[tuple[int, ProducerAppend]]:
    """The topic and the append of each producer in the entry."""
    for operation in entry.contents.operations:
        if isinstance(operation, Append):
            section = entry.contents.sections[operation.section]
            for append in section.producers:
                yield section.topic_id, append


def _apply(tables: Tables, entry: Entry, appends: Sequence[tuple[int, ProducerAppend]]) -> int:
    """Replace the rows of the producers that appended; how many rows this adds."""
    keys = one_of(sorted({(topic_id, append.producer_id) for topic_id, append in appends}))
    which = (
        "(topic_id, producer_id) IN"
        " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys))"
    )
    before = tables.rows(f"SELECT * FROM producers WHERE {which}", keys=keys)  # noqa: S608
    tables.delete_where("producers", which, keys=keys)
    known = {(row[0], row[1]): to_producer(row) for row in before}
    after: dict[tuple[int, str], Row] = {}
    used_us = entry.header.created_us
    for i, (topic_id, append) in enumerate(appends):
        key = (topic_id, append.producer_id)
        known[key] = producer_after(known.get(key), topic_id, append, used_us)
        place = entry.header.seq * _PLACES_IN_ENTRY + i
        after[key] = (*key, place, append.epoch, _encode(known[key].recent), used_us)
    tables.insert("producers", after.values())
    return len(after) - len(before)


# --- forgetting ---


def _forget_old(tables: Tables, table: str, time: str, cutoff_us: int) -> None:
    """Delete the rows from before `cutoff_us`. Times ascend with places, so one row tells whether
    there are any."""
    oldest_us = tables.value(f"SELECT {time} FROM {table} ORDER BY place LIMIT 1")  # noqa: S608
    if oldest_us is not None and oldest_us < cutoff_us:
        tables.delete_where(table, f"{time} < :cutoff_us", cutoff_us=cutoff_us)


def _make_room(tables: Tables, owned: _Owned, limit: int, count: int | None = None) -> int:
    """Delete the rows that have to go so that the others find room within `limit`, as
    `ForgettingShares` says; how many went. `count`: of the rows, if it is known."""
    if count is not None and count <= limit:
        return 0
    gone = _gone_for_room(tables, owned, limit)
    return tables.delete_in(owned.table, owned.place, gone) if gone else 0


def _gone_for_room(tables: Tables, owned: _Owned, limit: int) -> list[int]:
    """The places of the rows that have to go."""
    shares = ForgettingShares(owned.table, limit, "rows")
    oldest: dict[str | None, Iterator[Row]] = {None: _oldest(tables, owned, {})}
    columns = ", ".join(owned.owner)
    totals = f"SELECT sum({owned.weight}), {columns} FROM {owned.table} GROUP BY {columns}"  # noqa: S608
    for total, *values in tables.rows(totals):
        name = _name(values)
        shares.take_anyway(name, total)
        oldest[name] = _oldest(tables, owned, dict(zip(owned.owner, values, strict=True)))
    gone: dict[int, None] = {}
    for loser in shares.losers():
        place, weight, owner = next(row for row in oldest[loser] if row[0] not in gone)
        gone[place] = None
        shares.give_back(owner, weight)
    return list(gone)


def _oldest(tables: Tables, owned: _Owned, values: dict[str, object]) -> Iterator[Row]:
    """Place, weight and owner's name of each row of one owner (no `values`: of all), the oldest
    first."""
    where = " AND ".join([f"{owned.place} > :after", *(f"{name} = :{name}" for name in values)])
    query = (
        f"SELECT {owned.place}, {owned.weight}, {', '.join(owned.owner)} FROM {owned.table}"  # noqa: S608
        f" WHERE {where} ORDER BY {owned.place} LIMIT {_ROWS_AT_ONCE}"
    )
    after = 0
    while found := tables.rows(query, after=after, **values):
        for after, weight, *owner in found:
            yield after, weight, _name(owner)


def _name(values: Sequence[object]) -> str:
    return "\n".join(map(str, values))
