"""Commits of lake tables: decides what is due, and adds its events to the journal.

A commit is in force once its event is stored. Its metadata is printed after that and before the
table's next event, so that readers are one commit behind at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from seb_appliance import limits
from seb_appliance.broker.access.audit import Action, Actor, AuditedWrites
from seb_appliance.broker.access.grants import grants_admin
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.lake.due import (
    by_offset,
    expired,
    keeps_removed_for_long,
    oldest_kept,
    rewritten,
    stale,
    to_merge,
)
from seb_appliance.broker.lake.jobs import Part, PrintJob, WriteJob, Written
from seb_appliance.broker.lake.lags import TableLags
from seb_appliance.broker.lake.names import has_checkpoint, location_of, names_in_use, unused
from seb_appliance.broker.lake.notes import CommitRefusedError, TableNotes, TablePlace
from seb_appliance.broker.lake.table import LakeFile, LakeTable, TableHead
from seb_appliance.broker.lake.turns import Turns
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.upkeep.rewrite_jobs import SectionPlace
from seb_appliance.errors import (
    BadRequestError,
    NotFoundError,
    OutcomeUnknownError,
    OverloadedError,
)
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.lake.columns import columns_of
from seb_appliance.formats.lake.tables import TableOp
from seb_appliance.formats.operations import TableDropped, TableEvent, TableSet
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices

# Whether a table (id) rests after a failure.
Rests = Callable[[str], bool]

_PRINTED_WITHIN_S: Final = 5.0  # for which an operator waits
_REPAIRED_WITHIN_S: Final = 15.0
_ROWS_AT_ONCE: Final = 500  # of the index, in one slice


class TableCommits:
    """`place` is None where tables cannot be written. `foreign`: tables (by id) whose metadata in
    the bucket was written by someone else, with the key. `has_strays`: objects may lie below
    `tables/` that nothing needs. `incomplete`: tables whose earlier metadata is gone or
    damaged."""

    def __init__(
        self,
        catalog: Catalog,
        index: SectionIndex,
        writes: Writes,
        clock: LogClock,
        settings: BrokerSettings,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.place: TablePlace | None = None
        self.foreign: dict[str, str] = {}
        self.incomplete: set[str] = set()
        self.has_strays = True
        self._tables = catalog.tables
        self._catalog = catalog
        self._index = index
        self._writes = writes
        self._audited = AuditedWrites(writes)
        self._clock = clock
        self._settings = settings
        self._random_bytes = random_bytes
        self._last: dict[str, Window] = {}  # with the last event of each table
        self.lags = TableLags(catalog, clock, writes.linger, settings)
        self._turns = Turns()  # of changes
        self._repairs: set[str] = set()
        self._notes: dict[str, TableNotes] = {}

    def notes(self, table_id: str) -> TableNotes:
        return self._notes.setdefault(table_id, TableNotes())

    # --- what a table is ---

    async def set_next(self) -> bool:
        """Make or change one table whose topic asks for it, of their owners in turn; False if all
        are as asked, or wait for room: whoever made the topics of tables leaves as much for others,
        as in `Shares`."""
        tables = {one.head.definition.topic_id: one for one in self._tables.all()}
        held = Counter(self.owner_of(one.head.definition) for one in tables.values())
        free_after = limits.TABLES_MAX - len(tables) - 1
        asking: dict[str, Topic] = {}  # of each owner the first one
        async for topic in in_slices(self._catalog.topics()):
            owner = self._owner(topic)
            if topic.deleted or not topic.settings.table_formats or owner in asking:
                continue
            table = tables.get(topic.topic_id)
            needs = 0 if owner == OPERATOR or table is not None else held[owner] + 1
            has_room = table is not None or free_after >= needs
            if has_room and self._asked(topic, table) is not None:
                asking[owner] = topic
        for owner in sorted(asking, key=self._turns.place_s):
            table = self._tables.of_topic(asking[owner].topic_id)
            event = self._asked(asking[owner], table)
            if event is not None:  # else it was changed meanwhile
                await self._add(event, table.head.number if table else 0)
                self._turns.had(owner, 1.0)
                return True
        return False

    def _asked(self, topic: Topic, table: LakeTable | None) -> TableSet | None:
        """How the table is to be changed now; None if it is not, or cannot be yet."""
        if topic.deleted:
            return None
        if table is not None and (
            self._tables.get(table.head.table_id) is not table or not self._may_change(table.head)
        ):
            return None
        return self._wanted(topic, table)

    def owner_of(self, definition: TableSet) -> str:
        """Whose share the table takes."""
        return self._owner(self._catalog.find_id(definition.topic_id) or definition)

    def _owner(self, of: Topic | TableSet) -> str:
        """Whose share its table takes; of admins and of who is gone, the operators'."""
        key = self._catalog.api_keys.get(of.owner or OPERATOR)
        return OPERATOR if key is None or grants_admin(key.grants) else key.api_key_id

    def _wanted(self, topic: Topic, table: LakeTable | None) -> TableSet | None:
        """How the topic's settings describe the table; None if it is so already."""
        assert self.place is not None
        settings = topic.settings
        schemas = table.head.schemas if table else []
        columns = columns_of(settings.table_columns or "", schemas)
        if table is None:
            table_id = self._random_bytes(8).hex()
            location, paused = location_of(table_id, topic.name), False
            owner = self._owner(topic) or UNSET
        else:
            one = table.head.definition
            table_id, location, paused, owner = one.table_id, one.location, one.paused, one.owner
        event = TableSet(
            table_id=table_id,
            topic_id=topic.topic_id,
            name=topic.name,
            location=location,
            address=self.place.address,
            formats=settings.table_formats,
            columns=columns,
            paused=paused,
            owner=owner,
        )
        return None if table is not None and event == table.head.definition else event

    def is_settled(self, table_id: str) -> bool:
        """Whether no event of the table is in flight."""
        last = self._last.get(table_id)
        return last is None or last.is_done

    def _is_published(self, head: TableHead) -> bool:
        """Whether the metadata of the last commit is known to be in the bucket."""
        published = self._tables.published(head.table_id)
        return published is not None and published.number == head.number

    def _may_change(self, head: TableHead) -> bool:
        """Only the metadata of the last event can be printed: the next one waits for it."""
        return self.is_settled(head.table_id) and self._is_published(head)

    async def _add(self, event: TableEvent, number: int = 0) -> None:
        """`number`: of the table's last event."""

        def admit(window: Window) -> None:
            table = self._tables.get(event.table_id)
            if (table.head.number if table else 0) != number or not self.is_settled(event.table_id):
                raise CommitRefusedError("the table was changed in the meantime")
            self._last[event.table_id] = window
            window.add_event(event, encoded_bytes(event))

        await self._writes.operate(admit, self._writes.linger.default_ms)

    # --- commits ---

    def state(self, table: LakeTable) -> str:
        """`detached` (the topic is gone), `off`, `foreign`, `paused`, `backfill` (before the first
        commit reached the log end), `behind` or `live`."""
        topic = self._catalog.find_id(table.head.definition.topic_id)
        if topic is None:
            return "detached"
        if not topic.settings.table_formats:
            return "off"
        if table.head.table_id in self.foreign:
            return "foreign"
        if table.head.definition.paused:
            return "paused"
        if table.head.newest is None:
            return "backfill"
        return "behind" if self.lags.is_late(table, topic.settings) else "live"

    def writable(self, rests: Rests) -> list[tuple[LakeTable, Topic, TopicSettings]]:
        """The tables that may be committed to now, with their topics' effective settings."""
        found = []
        for table in self._tables.all():
            head = table.head
            topic = self._catalog.find_id(head.definition.topic_id)
            if topic is None or head.definition.paused or rests(head.table_id):
                continue
            is_free = head.table_id not in self.foreign and self._may_change(head)
            if topic.settings.table_formats and is_free:
                found.append((table, topic, self._settings.effective(topic.settings)))
        return found

    async def waiting_bytes(self, table: LakeTable, topic: Topic) -> int:
        """About how many are stored that the table does not have. Raises TopicNotFoundError,
        CorruptObjectError."""
        offset = max(table.head.next_offset, topic.log_start_offset)
        return await self._index.bytes_from(topic, offset)

    async def append_of(self, table: LakeTable, topic: Topic, settings: TopicSettings) -> WriteJob:
        """The next commit of new records. Raises TopicNotFoundError, CorruptObjectError."""
        first = max(table.head.next_offset, topic.log_start_offset)
        as_of = self._catalog.position.seq  # what changes from here on may be missed
        sections, most = limits.TABLE_JOB_SECTIONS, limits.TABLE_JOB_BYTES
        parts, end = await self._parts(topic, first, topic.log_end_offset, sections, most)
        return self._job(table, settings, "append", first=first, end=end, as_of=as_of, parts=parts)

    async def _parts(
        self, topic: Topic, first: int, until: int, sections: float = inf, most: float = inf
    ) -> tuple[tuple[Part, ...], int]:
        """Where the records from `first` up to `until` lie, up to about so many sections and bytes,
        and their end."""
        assert self.place is not None
        parts: list[Part] = []
        offset, total = first, 0
        while offset < until and total < most and len(parts) < sections:
            owner, rows, end = await self._index.rows_of(topic, offset)
            row = rows.row_of(offset)
            while parts and parts[-1].place.base_offset >= rows.bases[row]:  # merged meanwhile
                total -= parts.pop().place.length
            behind = min(row + _ROWS_AT_ONCE, len(rows))
            end = min(end, until)
            while row < behind and rows.bases[row] < end and total < most:
                ref = self._catalog.section_ref(owner, rows, row)
                key = self.place.key_of(ref.entry)
                topic_id, ends = ref.topic_id, (ref.base_offset, ref.last_offset)
                place = SectionPlace(key, topic_id, *ends, ref.at, ref.length, ref.crc)
                parts.append(Part(place, end))
                total += ref.length
                row += 1
            # Between rows of a compacted topic's ancestor, offsets may be missing.
            offset = min(rows.bases[row] if row < len(rows) else rows.end, end)
            await asyncio.sleep(0)
        return tuple(parts), min(offset, until)

    async def upkeep_of(
        self, table: LakeTable, topic: Topic, settings: TopicSettings
    ) -> WriteJob | None:
        """A commit that merges small files, or writes or removes old ones, if one is due. Raises
        TopicNotFoundError, CorruptObjectError."""
        assert settings.table_file_bytes is not None
        age_us, now_s = self._clock.age_us, self._clock.monotonic_s()
        notes = self.notes(table.head.table_id)
        # It looks at every file, which takes milliseconds where there are thousands.
        is_incomplete = table.head.table_id in self.incomplete
        seen = (table.head.number, settings, tuple(topic.runs), is_incomplete)
        if notes.kept_up == seen and now_s < notes.keep_up_s:
            return None
        files = by_offset(table)
        if old := expired(files, settings.table_retention_ms, age_us):
            return self._job(table, settings, "delete", removed=old)
        rebuild = settings.table_rebuild is True
        if one := stale(files, topic, table.head.schema, rebuild=rebuild):
            return await self._anew(table, topic, settings, one)
        if small := to_merge(files, settings.table_file_bytes, age_us, notes.unmerged):
            return self._job(table, settings, "replace", removed=small, is_merge=True)
        if table.head.is_unlisted:
            return self._job(table, settings, "replace")
        if is_incomplete or keeps_removed_for_long(table, age_us):
            job = self._job(table, settings, "replace", is_whole=is_incomplete)
            return replace(job, oldest=table.head.number + 1)
        notes.kept_up = seen
        notes.keep_up_s = now_s + limits.RETENTION_EVERY_S
        return None

    async def _anew(
        self, table: LakeTable, topic: Topic, settings: TopicSettings, old: LakeFile
    ) -> WriteJob | None:
        first, end = old.file.first_offset, old.file.last_offset + 1
        as_of = self._catalog.position.seq
        parts, _ = await self._parts(topic, first, end)
        if topic.log_start_offset > first:  # trimmed meanwhile: the table alone has these rows
            return None
        return self._job(
            table, settings, "delete", first=first, end=end, as_of=as_of, parts=parts, removed=[old]
        )

    def _job(
        self,
        table: LakeTable,
        settings: TopicSettings,
        op: TableOp,
        *,
        first: int = 0,
        end: int = 0,
        as_of: int = 0,
        parts: tuple[Part, ...] = (),
        removed: list[LakeFile] | None = None,
        is_merge: bool = False,
        is_whole: bool = False,
    ) -> WriteJob:
        assert settings.table_file_bytes is not None
        assert settings.table_snapshots is not None
        gone = removed or []
        names = rewritten(table.head, gone, is_whole=is_whole or table.head.is_unlisted)
        touched = [one for one in table.living() if one.manifest in names]
        gone_names = tuple(one.file.name for one in gone)
        return WriteJob(
            table.head.copy(),
            op,
            self._random_bytes(8),
            settings.table_file_bytes,
            oldest_kept(table.head, settings.table_snapshots),
            first,
            end,
            as_of,
            parts,
            gone_names if is_merge else (),
            gone_names,
            names,
            tuple(touched),
        )

    async def commit(self, job: WriteJob, written: Written) -> None:
        """Add what the job has made to the journal. Raises CommitRefusedError if the table has
        changed since."""
        event, began_s = written.commit, self._clock.monotonic_s()
        table = self._tables.get(job.head.table_id)
        if table is None or table.head.number != job.head.number:
            raise CommitRefusedError("the table was changed in the meantime")
        assert event.number == table.head.number + 1, event
        if encoded_bytes(event) > limits.SWITCH_BYTES_MAX:
            raise CommitRefusedError("the commit is too large for an entry")
        await self._add(event, job.head.number)
        if event.op == "replace" and not job.merged:  # it printed the list of all files
            self.incomplete.discard(event.table_id)
        if event.op == "append":
            self.lags.wait_from(table, began_s)

    # --- metadata ---

    def next_print(self, rests: Rests) -> PrintJob | None:
        """The metadata of a last commit that is not known to be in the bucket."""
        for table in self._tables.all():
            head = table.head
            is_free = self.is_settled(head.table_id) and head.table_id not in self.foreign
            if not is_free or rests(head.table_id):
                continue
            if not self._is_published(head) or head.table_id in self._repairs:
                return self.print_job(table, is_first=self._tables.published(head.table_id) is None)
        return None

    def print_job(self, table: LakeTable, *, is_first: bool = False) -> PrintJob:
        head = table.head
        repair = head.table_id in self._repairs
        needs_living = bool(head.delta_from) and has_checkpoint(head.number, head.delta_from)
        living = tuple(table.living()) if needs_living else None
        return PrintJob(head.copy(), tuple(table.listed()), living, is_first and not repair, repair)

    def printed(self, job: PrintJob, foreign: str) -> None:
        """The job was done, or stopped at an object that someone else wrote."""
        table_id = job.head.table_id
        if not job.repair and table_id in self._repairs:  # asked for meanwhile: it is printed again
            return
        if foreign:
            self.foreign[table_id] = foreign
            return
        self._repairs.discard(table_id)
        table = self._tables.get(table_id)
        if table is not None and table.head.number == job.head.number:
            self._tables.publish(table.head)

    def strays(self, listed: Iterable[str]) -> list[str]:
        """Of the keys below the locations of tables those that nothing needs, now or later. Call it
        while no job runs; none are known while an event is in flight."""
        tables = self._tables.all()
        if not all(map(self.is_settled, self._last)):
            return []
        used = {table.head.definition.location: names_in_use(table) for table in tables}
        return unused(listed, used)

    def hold(self, topic: Topic) -> int | None:
        """Records from this offset on wait for the topic's table, and retention keeps them for a
        while; None: nothing does."""
        table = self._tables.of_topic(topic.topic_id)
        if table is None or not topic.settings.table_formats or self.place is None:
            return None
        hold_ms = self._settings.effective(topic.settings).table_hold_ms
        assert hold_ms is not None
        waits = self.lags.records(table) > 0 and self.lags.seconds(table) * 1_000 <= hold_ms
        return table.head.next_offset if waits else None

    # --- operators ---

    def find(self, name: str) -> LakeTable:
        """The table of the topic, or the table with this id. Raises NotFoundError."""
        topic = self._catalog.find(name)
        table = self._tables.get(name)
        if table is None and topic is not None:
            table = self._tables.of_topic(topic.topic_id)
        if table is None:
            raise NotFoundError(f"There is no table {name[:150]!r}.")
        return table

    async def pause(self, name: str, by: Actor, *, paused: bool) -> bool:
        """Whether that changed anything. Raises NotFoundError, OverloadedError."""
        if self.find(name).head.definition.paused == paused:
            return False

        def event_of(head: TableHead) -> TableSet:
            if not self._may_change(head):
                unprinted = OverloadedError("The table's metadata is not stored yet; try again.")
                raise Refusal(unprinted, None)
            return replace(head.definition, paused=paused)

        await self._wait(_PRINTED_WITHIN_S, lambda: self._is_published(self.find(name).head))
        await self._operate(name, by, "table_paused" if paused else "table_resumed", event_of)
        return True

    async def drop(self, name: str, by: Actor) -> None:
        """Forget the table and remove its objects. Raises NotFoundError; BadRequestError while the
        topic still asks for a table."""
        definition = self.find(name).head.definition
        topic = self._catalog.find_id(definition.topic_id)
        if topic is not None and topic.settings.table_formats:
            raise BadRequestError(
                f"Topic {topic.name!r} still asks for a table: set its setting table to none first."
            )
        await self._operate(
            name, by, "table_dropped", lambda head: TableDropped(table_id=head.table_id)
        )
        self.has_strays = True

    async def repair(self, name: str, by: Actor) -> None:
        """Replace metadata that someone else wrote; returns once that is done. Raises
        NotFoundError, OutcomeUnknownError."""
        table_id = self.find(name).head.table_id
        await self._operate(name, by, "table_repaired", lambda _: None)
        self._repairs.add(table_id)
        self.foreign.pop(table_id, None)
        if not await self._wait(_REPAIRED_WITHIN_S, lambda: table_id not in self._repairs):
            # Only this process knows of it: the bucket does not tell once it has ended.
            raise OutcomeUnknownError(
                "The metadata is not replaced yet. It will be, unless the appliance ends before; "
                "ask again, a repair can be repeated."
            )

    async def _wait(self, within_s: float, is_so: Callable[[], bool]) -> bool:
        """An event that is in flight may have to wait for a stretched window, too."""
        until_s = self._clock.monotonic_s() + within_s + self._writes.linger.stretched_s
        while not is_so() and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(0.05)
        return is_so()

    async def _operate(
        self, name: str, by: Actor, action: str, event_of: Callable[[TableHead], TableEvent | None]
    ) -> None:
        def admit(window: Window) -> Action:
            head = self.find(name).head
            if not self.is_settled(head.table_id):
                busy = OverloadedError("The table is being changed; try again.")
                raise Refusal(busy, self._last[head.table_id])
            if (event := event_of(head)) is not None:
                self._last[head.table_id] = window
                window.add_event(event, encoded_bytes(event))
            return Action(action, "table", head.definition.name)

        table_id = self.find(name).head.table_id
        await self._writes.once_stored(self._last.get(table_id))
        await self._audited.store(admit, by)
