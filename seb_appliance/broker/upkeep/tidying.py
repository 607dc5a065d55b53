"""Tidying: decides what to rewrite, trim and remove, and activates the results in the journal.

Decisions rest on the applied state. Until a switch is applied, the state can only shrink (trims,
deleted topics), and applying the switch leaves that out. Switches come one at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from seb_appliance import limits
from seb_appliance.broker.append.admission import AdmittedTopic, Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.ports import EntryRef, Journal, SectionSource
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic, pinned_below
from seb_appliance.broker.upkeep.due import (
    Compactions,
    due_entries,
    due_objects,
    kept_from,
    overdue_s,
    place_of,
    tombstones_until_us,
)
from seb_appliance.broker.upkeep.external_compactions import ExternalCompactions
from seb_appliance.broker.upkeep.rewrite_jobs import Compaction, RewriteJob, Rewritten, SectionPlace
from seb_appliance.errors import FencedError, ImportRefusedError, TopicNotFoundError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import (
    OBJECTS_PER_SWITCH_MAX,
    ObjectsAdopted,
    ObjectsCondemned,
    ObjectsRemoved,
    ReplacedRange,
    SegmentsReplaced,
    StoredObject,
    TopicCompacted,
)
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices


class SwitchRefusedError(Exception):
    """The result of a job no longer fits the active state; its objects are garbage."""


class Tidying:
    """Reads and writes no object itself. `stored`, `untidied`: for figures."""

    def __init__(
        self,
        catalog: Catalog,
        index: SectionIndex,
        writes: Writes,
        source: SectionSource,
        clock: LogClock,
        settings: BrokerSettings,
        shares: AllShares,
        random_bytes: Callable[[int], bytes],
        journal: Journal,
    ) -> None:
        self.settings = settings.tidy
        self.external = external = ExternalCompactions(
            catalog, source, clock, settings, shares, random_bytes, journal
        )
        self.compactions = Compactions(catalog, clock, settings, external.holds)
        self.stored = catalog.stored
        self.untidied = catalog.untidied
        self._catalog = catalog
        self._index = index
        self._admission = writes.admission
        self._writes = writes
        self._clock = clock
        self._random_bytes = random_bytes
        self._journal = journal
        self._known_keys: set[str] | None = None  # of active objects, once something is adopted
        self._last: Window | None = None  # of the last event from here, except trims
        # Retention leaves records from this offset on alone (None: no such offset).
        self.held_from: Callable[[Topic], int | None] = lambda _: None

    async def retain(self) -> int:
        """Move log start offsets by retention; how many topics were trimmed."""
        due: list[tuple[Topic, TopicSettings, int]] = []
        async for topic in in_slices(self._catalog.topics()):
            settings = topic.settings
            limited = (settings.retention_ms, settings.retention_bytes) != (None, None)
            if not (settings.deletes and limited):
                continue
            try:
                start = await kept_from(self._index, topic, self._clock)
            except TopicNotFoundError:  # deleted meanwhile
                continue
            if (held := self.held_from(topic)) is not None:
                start = min(start, held)
            if start > topic.log_start_offset and not topic.deleted:
                due.append((topic, settings, start))
        trimmed = 0

        def admit(window: Window) -> bool:
            nonlocal trimmed
            for topic, settings, start in due:
                known = self._admission.find(topic.name)
                # An earlier window may have replaced the topic, or changed its retention.
                same = topic.topic_id, settings
                if known is not None and (known.topic_id, known.settings) == same:
                    trimmed += self._admission.admit_topic_trimmed(window, topic.name, start)
            return trimmed > 0

        if due:
            await self._writes.operate(admit, self._writes.linger.default_ms)
            await self._measure([topic for topic, _, _ in due])
        return trimmed

    async def _measure(self, topics: Iterable[Topic]) -> None:
        async for topic in in_slices(topics):
            if not topic.purged:
                await self._index.measure(topic)

    @property
    def is_settled(self) -> bool:
        """No event from here is in flight. Until then nothing new is decided: a switch whose caller
        timed out may still be applied."""
        return self._last is None or self._last.is_done

    async def measure(self) -> None:
        """Update the size of topics whose merged or deleted rows are not in memory."""
        await self._measure([t for t in self._catalog.with_rows() if not t.is_measured])

    async def next_job(self) -> RewriteJob | None:
        """What to rewrite next; None when nothing is due."""
        held = self.external.inputs()
        living = (found for found in self.stored.all() if found.sections)
        # Objects first: entries are always due under load.
        objects = due_objects((one for one in living if one.ref.key not in held), self.settings)
        if objects:
            return self._job(sections=await self._places({one.ref.object_id for one in objects}))
        plan = await self.compactions.next()
        if plan is not None:
            return self._job(compactions=plan[0], sections=plan[1])
        waiting = self.untidied.entries
        count = due_entries(waiting, self.settings, self._now_us())
        entries = tuple(self._catalog.entry_ref(seq) for seq, _, _ in islice(waiting, count))
        return self._job(entries=entries) if entries else None

    def _job(
        self,
        entries: tuple[EntryRef, ...] = (),
        sections: Sequence[SectionPlace] = (),
        compactions: tuple[Compaction, ...] = (),
    ) -> RewriteJob:
        topics = self._catalog.with_rows()
        return RewriteJob(
            bucket_id=self._journal.bucket_id,
            epoch=self._journal.epoch,
            name=self._random_bytes(8),
            segment_bytes=self.settings.segment_bytes,
            log_starts={topic.topic_id: topic.held_offset for topic in topics},
            compressed=frozenset(
                topic.topic_id
                for topic in topics
                if (known := self._admission.find(topic.name)) is not None
                and known.effective.compression == "zstd"
            ),
            entries=entries,
            sections=tuple(sections),
            compactions=compactions,
        )

    async def _places(self, object_ids: set[int]) -> list[SectionPlace]:
        places = []
        async for topic in in_slices(self._catalog.with_rows()):
            rows = [row for row, seq in enumerate(topic.stored.seqs) if -seq in object_ids]
            places += [place_of(self._catalog, topic, row) for row in rows]
        return places

    async def check_unchanged(self, job: RewriteJob) -> None:
        """Raise SwitchRefusedError early, before the job reads anything."""
        ranges = (ReplacedRange(i.topic_id, i.base_offset, i.last_offset) for i in job.compactions)
        await self._check(job, Rewritten(tuple(ranges), ()))

    async def switch(self, job: RewriteJob, made: Rewritten) -> None:
        """Activate what `job` has made. Raises SwitchRefusedError; nothing was changed then."""
        assert self.is_settled
        until = job.entries[-1].seq if job.entries else 0
        event = SegmentsReplaced(
            replaced=made.replaced, objects=made.objects, inputs=job.inputs, entries_until=until
        )
        size_bytes = encoded_bytes(event)

        def admit(window: Window) -> None:
            self._check_wanted(job.compactions)
            self._last = window
            window.add_event(event, size_bytes)
            for item in job.compactions:
                compacted = TopicCompacted(
                    topic_id=item.topic_id,
                    base_offset=item.base_offset,
                    last_offset=item.last_offset,
                )
                self._admission.admit_topic_compacted(window, item.name, compacted)

        if size_bytes > limits.SWITCH_BYTES_MAX:
            raise SwitchRefusedError("the operation is too large for an entry")
        await self._check(job, made)
        await self._writes.operate(admit, self._writes.linger.default_ms)
        topics = (self._catalog.find_rows(replaced.topic_id) for replaced in made.replaced)
        await self._measure(topic for topic in topics if topic is not None)

    async def _check(self, job: RewriteJob, made: Rewritten) -> None:
        """Every input is active or was trimmed, and no entry of the job has an active section that
        was not an input. This stays true until the switch is applied, except for trimmed or deleted
        records: only a switch replaces sections."""
        living = {found.ref.key: found.ref.object_id for found in self.stored.all()}
        for stored in made.objects:
            if stored.key in living or stored.key in self.stored.garbage:
                raise SwitchRefusedError(f"{stored.key} was active before")
        if job.entries:
            await self._check_entries(job, made)
            return
        inputs = {living.get(key, 0) for key in job.inputs}
        for replaced in made.replaced:
            topic = self._catalog.find_rows(replaced.topic_id)
            if topic is not None and topic.held_offset <= replaced.last_offset:
                _check_stored(topic, replaced, inputs)

    def _check_wanted(self, compactions: Sequence[Compaction]) -> None:
        """Refuse if a change of a topic since the plan forbids what its compaction removed."""
        for item in compactions:
            if self._admission.is_held(item.name):
                raise SwitchRefusedError(
                    f"topic {item.name!r} was deleted and only its forks are left"
                )
            known = self._admission.find(item.name)
            if known is None or known.topic_id != item.topic_id:
                continue
            if not known.effective.compacts:
                raise SwitchRefusedError(f"topic {item.name!r} is no longer compacted")
            topic = self._catalog.find_id(item.topic_id)
            # A fork may need records of the range as they are.
            is_pinned = topic is not None and pinned_below(topic.needs) > item.base_offset
            if is_pinned or (known.forked_in is not None and not known.forked_in.is_done):
                raise SwitchRefusedError(f"topic {item.name!r} was forked in the meantime")
            if self._keeps_tombstones_now(known, item):
                raise SwitchRefusedError(f"topic {item.name!r} now keeps tombstones for longer")

    def _keeps_tombstones_now(self, known: AdmittedTopic, item: Compaction) -> bool:
        """Whether the tombstone retention was raised, so that removed tombstones must stay."""
        topic = self._catalog.find_rows(item.topic_id)
        if topic is None or not len(topic.stored) or item.tombstones_until_us is None:
            return False
        begin = topic.stored.row_of(max(item.base_offset, topic.stored.bases[0]))
        until_us = tombstones_until_us(topic, begin, known.effective, self._clock)
        return until_us < item.tombstones_until_us

    async def _check_entries(self, job: RewriteJob, made: Rewritten) -> None:
        untidied = self.untidied.entries
        first_seq, until = job.entries[0].seq, job.entries[-1].seq
        if not untidied or untidied[0][0] != first_seq or until - first_seq + 1 != len(job.entries):
            raise SwitchRefusedError("the entries were merged in the meantime")
        covered = {replaced.topic_id: replaced for replaced in made.replaced}
        if len(covered) != len(made.replaced):
            raise SwitchRefusedError("a topic has two ranges in the entries")
        async for topic in in_slices(self._catalog.with_rows()):
            if topic.purged:
                continue
            begin = topic.entries_begin
            replaced = covered.get(topic.topic_id)
            if replaced is not None and replaced.last_offset >= begin:
                if replaced.base_offset > begin:
                    raise SwitchRefusedError(f"topic {topic.topic_id} begins at {begin} now")
                begin = replaced.last_offset + 1
            if begin < topic.log_end_offset:
                rows = await self._index.own_rows_of(topic, begin)
                row = rows.row_of(begin)
                if rows.seqs[row] <= until:
                    raise SwitchRefusedError(f"topic {topic.topic_id} has more in those entries")

    async def adopt(self, objects: Sequence[StoredObject]) -> None:
        """Let at most 1,024 `objects` that are in the bucket continue the logs of their topics,
        without appending records. Nothing else may activate objects meanwhile. Raises
        ImportRefusedError, and as every write; nothing was changed then."""
        event = ObjectsAdopted(objects=tuple(objects))
        size_bytes = encoded_bytes(event)
        assert len(objects) <= OBJECTS_PER_SWITCH_MAX, len(objects)
        assert size_bytes <= limits.SWITCH_BYTES_MAX, size_bytes

        def admit(window: Window) -> None:
            for topic, end_offset in self._ends_after(objects):
                topic.next_offset = end_offset
                topic.appended_in = window
            window.add_event(event, size_bytes)

        await self._writes.operate(admit, 0)
        if self._known_keys is not None:
            self._known_keys.update(one.key for one in objects)

    def _ends_after(self, objects: Sequence[StoredObject]) -> list[tuple[AdmittedTopic, int]]:
        """Each topic, and its log end offset afterwards. Raises Refusal."""
        garbage = self.stored.garbage
        if self._known_keys is None:
            self._known_keys = self.stored.keys()
        ends: dict[int, int] = {}
        topics: dict[int, AdmittedTopic] = {}
        for one in objects:
            if one.key in self._known_keys or one.key in garbage:
                raise _refusal(f"{one.key} is or was active already")
            for section in one.sections:
                if section.topic_id not in topics:
                    topics[section.topic_id] = topic = self._topic_to_continue(section.topic_id)
                    ends[section.topic_id] = topic.next_offset
                if section.base_offset != ends[section.topic_id]:
                    raise _refusal(
                        f"{one.key} begins at offset {section.base_offset}, but the log ends at "
                        f"{ends[section.topic_id]}"
                    )
                ends[section.topic_id] = section.last_offset + 1
        return [(topics[topic_id], end) for topic_id, end in ends.items()]

    def _topic_to_continue(self, topic_id: int) -> AdmittedTopic:
        applied = self._catalog.find_id(topic_id)
        known = self._admission.find(applied.name) if applied is not None else None
        if applied is None or known is None or known.topic_id != topic_id:
            raise _refusal(f"there is no topic of the id {topic_id}")
        if applied.had_entries or applied.log_end_offset != known.next_offset:
            raise _refusal(f"topic {applied.name!r} has records in journal entries")
        if known.is_closed:
            raise _refusal(f"topic {applied.name!r} is a stream that was closed")
        return known

    def unused(self) -> list[str]:
        """Keys of objects without active sections, at most as many as one entry names."""
        return self.stored.unused()[: limits.KEYS_PER_ENTRY_MAX]

    def strays(self, listed: Sequence[tuple[str, int | None]]) -> list[str]:
        """Of the keys of all segments and packed objects in the bucket, each with the epoch in its
        name, those that nothing refers to, now or later. Call it while no job runs. Raises
        FencedError for a later epoch."""
        stored = self.stored
        living = {*stored.keys(), *self.external.keys()}
        found = []
        for key, epoch in listed:
            if epoch is not None and epoch > self._journal.epoch:
                raise FencedError(f"another appliance (epoch {epoch}) has written {key}")
            if epoch is not None and key not in living and key not in stored.garbage:
                found.append(key)
        # A store may list a key twice while it moves it.
        return list(dict.fromkeys(found))[: limits.KEYS_PER_ENTRY_MAX]

    async def condemn(self, keys: Sequence[str]) -> None:
        """Write to the journal that nothing will ever refer to these objects again."""
        in_force = {found.ref.key for found in self.stored.all() if found.sections}
        assert not in_force.intersection(keys), keys
        await self._note(ObjectsCondemned(keys=tuple(keys)))

    def removable(self) -> list[str]:
        """Condemned objects whose grace time is over."""
        grace_us, age_us = self.settings.grace_ms * 1000, self._clock.age_us
        garbage = self.stored.garbage
        keys = [key for key, since_us in garbage.items() if age_us(since_us) >= grace_us]
        return keys[: limits.KEYS_PER_ENTRY_MAX]

    async def removed(self, keys: Sequence[str]) -> None:
        """Write to the journal that these condemned objects were deleted."""
        await self._note(ObjectsRemoved(keys=tuple(keys)))

    async def _note(self, event: ObjectsCondemned | ObjectsRemoved) -> None:
        assert self.is_settled

        def admit(window: Window) -> None:
            self._last = window
            window.add_event(event, encoded_bytes(event))

        await self._writes.operate(admit, self._writes.linger.default_ms)

    @property
    def tidied_seq(self) -> int:
        """Entries up to this one hold nothing active."""
        entries = self.untidied.entries
        return entries[0][0] - 1 if entries else self._catalog.position.seq

    @property
    def writers(self) -> list[EntryRef]:
        """Every writer's first entry, oldest first."""
        return self._catalog.writers

    @property
    def overdue_s(self) -> float:
        """For how long a job has been due for the waiting entries; 0 when none is."""
        return overdue_s(self.untidied.entries, self.settings, self._now_us())

    def _now_us(self) -> int:
        """The current time on the clock of the oldest entry that is not tidied."""
        waiting = self.untidied.entries
        return self._clock.cutoff_us(0, waiting[0][2]) if waiting else 0


def _check_stored(topic: Topic, replaced: ReplacedRange, inputs: set[int]) -> None:
    """The range holds exactly sections of these objects. Raises SwitchRefusedError."""
    rows = topic.stored
    begin = bisect_left(rows.bases, replaced.base_offset)
    end = bisect_right(rows.bases, replaced.last_offset)
    if begin == end or rows.end_of(end - 1) != replaced.last_offset + 1:
        raise SwitchRefusedError(f"the sections in {replaced} have changed")
    if rows.bases[begin] != replaced.base_offset and begin > 0:
        raise SwitchRefusedError(f"the sections in {replaced} now begin at another offset")
    if not inputs.issuperset(-seq for seq in rows.seqs[begin:end]):
        raise SwitchRefusedError(f"the sections in {replaced} were already replaced")


def _refusal(why: str) -> Refusal:
    return Refusal(ImportRefusedError(f"Nothing was imported: {why}."), None)
