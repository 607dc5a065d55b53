"""P17: a lake table holds the records of its topic below its `next_offset`, once each.

What a reader finds is looked at while everything goes wrong (`Onlooker`), and once more when all is
calm; which records it should have found is known from the journal alone (`Promises`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.lake.names import HINT, metadata_name
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.lake.tables import TableFile
from seb_appliance.formats.operations import TableCommitted, TableDropped, TableSet
from seb_appliance.storage.layout import TABLES
from tests.simulation.fold import Fold
from tests.simulation.history import Row
from tests.simulation.log import Log, Record
from tests.simulation.world import World
from tests.support.plain_tables import decode, rows_of

LOOK_EVERY_S = 0.8
Rows = list[tuple[int, bytes | None]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader found below `location`: of snapshot `number`, or that the object `missing` is
    not there. `is_last`: all was calm, and all work on the table was done."""

    location: str
    number: int
    next_offset: int = 0
    rows: Rows = field(default_factory=list)
    missing: str = ""
    is_last: bool = False


def read_now(objects: dict[str, bytes], location: str, number: int = 0, *, last: bool) -> Seen:
    """The newest snapshot, or this one. Takes no time."""

    async def get(key: str) -> bytes:
        return objects[key]

    try:
        hint = int(objects[location + HINT])
        found = decode(objects[location + metadata_name(hint)])
        number = number or (found[-1][0] if found else 0)
        rows, next_offset = _now(rows_of(get, location, number))
    except KeyError as missing:
        return Seen(location, number, missing=str(missing.args[0]), is_last=last)
    return Seen(location, number, next_offset, rows, is_last=last)


def _now(reading: Coroutine[Any, Any, Any]) -> Any:
    try:
        reading.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


class Onlooker:
    """Reads all tables in the bucket again and again."""

    def __init__(self, world: World) -> None:
        self.seen: list[Seen] = []
        self.foreign: dict[str, str] = {}
        self._world = world

    async def look(self) -> None:
        while not self._world.over:
            await asyncio.sleep(LOOK_EVERY_S)
            objects = self._world.bucket.objects
            for key in [key for key in objects if key.startswith(TABLES) and key.endswith(HINT)]:
                location = key.removesuffix(HINT)
                found = read_now(objects, location, last=False)
                # A hint that landed late may name what is gone since: the next look mends it.
                is_old = location + metadata_name(int(objects[key]) + 1) in objects
                if not (found.missing and is_old):
                    self.seen.append(found)
            self.look_at_writers()

    def look_at_writers(self) -> None:
        """One that was taken over and has not noticed it takes the next writer's for foreign."""
        for machine in self._world.machines:
            process = machine.process
            if process is None or process.broker is None:
                continue
            if self._world.is_newest_writer(process):
                self.foreign |= process.broker.table_commits.foreign

    def look_last(self, broker: Broker) -> None:
        """At every snapshot that is kept."""
        self.foreign |= broker.table_commits.foreign
        for table in broker.tables.all():
            head, objects = table.head, self._world.bucket.objects
            location = head.definition.location
            if head.newest is not None:
                is_live = broker.table_commits.state(table) == "live"
                self.seen.append(read_now(objects, location, last=is_live))
                assert self.seen[-1].missing or self.seen[-1].number == head.newest.number
            for one in head.snapshots[:-1]:
                seen = read_now(objects, location, one.number, last=False)
                self.seen.append(seen)


def unsettled(broker: Broker) -> str:
    """Which table still waits for something, as a sentence; "" when none does."""
    commits = broker.table_commits
    for table in broker.tables.all():
        head, state = table.head, commits.state(table)
        published = broker.tables.published(head.table_id)
        works = state not in ("off", "detached", "paused")
        if published is None or published.number != head.number:
            return f"{head.definition.name} is not printed ({state})"
        if not commits.is_settled(head.table_id) or (works and commits.lags.records(table) > 0):
            return (
                f"{head.definition.name} waits for {commits.lags.records(table)} records ({state})"
            )
    missing = [t.name for t in broker._catalog.topics() if _lacks_a_table(broker, t.topic_id)]
    return f"{missing} have no table" if missing else ""


def _lacks_a_table(broker: Broker, topic_id: int) -> bool:
    topic = broker._catalog.find_id(topic_id)
    asks = topic is not None and bool(topic.settings.table_formats)
    return asks and broker.tables.of_topic(topic_id) is None


@dataclass
class _Promise:
    """`after`: by commit, the end of what it covers and the offsets that are in it."""

    topic_id: int
    has: set[int] = field(default_factory=set)
    next: int = 0
    files: dict[str, TableFile] = field(default_factory=dict)
    after: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    is_dropped: bool = False


class Promises:
    """What the journal promises of each table. `wrong`: of its commits themselves."""

    def __init__(self, entries: Sequence[Entry], log: Log) -> None:
        self.wrong: list[str] = []
        self._log = log
        self._by_id: dict[str, _Promise] = {}
        self._by_location: dict[str, _Promise] = {}
        self._fold = Fold()
        for entry in entries:
            for event in entry.contents.operations:
                match event:
                    case TableSet(table_id=table_id) if table_id not in self._by_id:
                        promise = _Promise(event.topic_id)
                        self._by_id[table_id] = self._by_location[event.location] = promise
                    case TableCommitted():
                        self._commit(self._by_id[event.table_id], event, entry.header.created_us)
                    case TableDropped(table_id=table_id):
                        self._by_id[table_id].is_dropped = True
            self._fold.apply(entry)

    def _commit(self, table: _Promise, event: TableCommitted, now_us: int) -> None:
        name = f"commit {event.number} of the table of {self._log.names[table.topic_id]}"
        topic = self._fold.topics.get(table.topic_id)
        for covered in event.ranges:
            begin = covered.first
            if begin != table.next and topic is not None and begin > topic.log_start_offset:
                self.wrong.append(f"P17 {name} begins at {begin}, and the table ends {table.next}")
            table.has |= set(range(begin, covered.next))
            table.next = covered.next
        gone = [table.files.pop(each) for each in event.removed]
        table.files |= {each.name: each for each in event.added}
        if event.op == "delete" and not event.added and topic is not None:
            table.has -= self._expired(table, gone, name, now_us)
        table.after[event.number] = (table.next, tuple(sorted(table.has)))

    def _expired(
        self, table: _Promise, gone: Sequence[TableFile], name: str, now_us: int
    ) -> set[int]:
        settings = self._fold.topics[table.topic_id].settings
        if settings.table_retention_ms is None:  # a compaction left nothing of a file
            return set()
        offsets = {i for each in gone for i in range(each.first_offset, each.last_offset + 1)}
        records = self._log.of(table.topic_id)
        for offset in offsets & table.has:
            # Its age was measured before the event got a time of its own.
            if now_us - records[offset].created_us < settings.table_retention_ms * 1_000:
                self.wrong.append(f"P17 {name} removes offset {offset} too early")
        return offsets

    def violations(self, seen: Sequence[Seen], left: dict[int, list[Row]]) -> Iterator[str]:
        """`left`: what the log still had of each topic when all was calm."""
        yield from self.wrong
        for one in seen:
            table = self._by_location.get(one.location)
            if table is None:
                yield f"P17 nobody made a table at {one.location}"
            elif one.missing and not table.is_dropped:
                yield f"P17 snapshot {one.number} cannot be read: {one.missing} is not there"
            elif not one.missing and one.number:
                yield from self._wrong_rows(one, table)
                found = {offset for offset, _ in one.rows} - {
                    row[0] for row in left.get(table.topic_id, [])
                }
                if one.is_last and found and self._log.names[table.topic_id] == "state":
                    yield f"P17 the table of state still has {found}, which a compaction removed"

    def _wrong_rows(self, one: Seen, table: _Promise) -> Iterator[str]:
        records = self._log.of(table.topic_id)
        name = f"commit {one.number} of the table of {self._log.names[table.topic_id]}"
        end, offsets = table.after[one.number]
        if one.next_offset != end:
            yield f"P17 {name} says that it has all below {one.next_offset}, and not {end}"
        if self._log.names[table.topic_id] == "state":
            yield from _wrong_compacted(one, records, set(offsets), end, name)
            return
        expected = [(offset, records[offset].value) for offset in offsets]
        if one.rows != expected:
            found = [offset for offset, _ in one.rows]
            yield f"P17 {name} has {found}, and should have {list(offsets)} with their values"


def _wrong_compacted(
    one: Seen, records: Sequence[Record], offsets: set[int], end: int, name: str
) -> Iterator[str]:
    """A compacted topic's table may lack records of which newer ones are in the log."""
    rows = dict(one.rows)
    if len(rows) != len(one.rows) or not rows.keys() <= offsets:
        yield f"P17 {name} has {[offset for offset, _ in one.rows]} of {sorted(offsets)}"
        return
    for offset, value in one.rows:
        if records[offset].value != value:
            yield f"P17 {name} has {value!r} at {offset}, and the log {records[offset].value!r}"
    newest = {record.key: record for record in records}
    shown = {records[offset].key: value for offset, value in sorted(one.rows)}
    for key, record in newest.items():
        if record.offset not in offsets or record.offset in rows:
            continue
        if record.value is not None:
            yield f"P17 {name} lacks the newest record of {key!r}, at {record.offset} < {end}"
        elif one.is_last and shown.get(key) is not None:
            yield f"P17 {name} shows {shown[key]!r} of {key!r}, deleted at {record.offset}"
