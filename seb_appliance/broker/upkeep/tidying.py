"""Tidying: what is due, and putting its results in force. Reads and writes no object itself.

Decided on what is applied. What may still come before a switch in the journal can only take away
(a trim, a deleted topic), and whoever applies the switch leaves that out; switches come one at a
time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from seb_appliance import limits
from seb_appliance.broker.append.admission import Admission, AdmittedTopic
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.ports import EntryRef
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.settings import TidySettings
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic, pinned_below
from seb_appliance.broker.upkeep.compaction import Compactions, place_of, tombstones_until_us
from seb_appliance.broker.upkeep.due import due_entries, due_objects, kept_from, overdue_s
from seb_appliance.broker.upkeep.external_compactions import ExternalCompactions
from seb_appliance.broker.upkeep.rewrite_jobs import Compaction, RewriteJob, Rewritten, SectionPlace
from seb_appliance.broker.upkeep.stored_objects import LivingObject
from seb_appliance.errors import FencedError, TopicNotFoundError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import (
    ObjectsCondemned,
    ObjectsRemoved,
    ReplacedRange,
    SegmentsReplaced,
    TopicCompacted,
)
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices


class SwitchRefusedError(Exception):
    """The result of a job no longer fits the active state; its objects are garbage."""


class Tidying:
    """Decides what to rewrite, trim and remove, and writes the results to the journal."""

    def __init__(
        self,
        catalog: Catalog,
        index: SectionIndex,
        admission: Admission,
        writes: Writes,
        clock: LogClock,
        settings: TidySettings,
        random_bytes: Callable[[int], bytes],
        *,
        bucket_id: bytes,
        epoch: Callable[[], int],
        linger: Linger,
        compactions: Compactions,
        external: ExternalCompactions,
    ) -> None:
        self.settings = settings
        self.compactions = compactions
        self.external = external
        self._catalog = catalog
        self._index = index
        self._admission = admission
        self._writes = writes
        self._clock = clock
        self._random_bytes = random_bytes
        self._bucket_id = bucket_id
        self._epoch = epoch
        self._linger = linger
        self._last: Window | None = None  # that holds an operation of ours (trims apart)

    # --- retention ---

    async def retain(self) -> int:
        """Move log start offsets as retention asks; how many topics were trimmed."""
        due: list[tuple[Topic, TopicSettings, int]] = []
        async for topic in in_slices(self._catalog.topics()):
            settings = topic.settings
            has_retention = (
                settings.retention_ms is not None or settings.retention_bytes is not None
            )
            if not (settings.deletes and has_retention):
                continue
            try:
                start = await kept_from(self._index, topic, self._clock)
            except TopicNotFoundError:  # deleted meanwhile
                continue
            if start > topic.log_start_offset and not topic.deleted:
                due.append((topic, settings, start))
        trimmed = 0

        def admit(window: Window) -> bool:
            nonlocal trimmed
            for topic, settings, start in due:
                known = self._admission.find(topic.name)
                # An earlier window may have deleted or replaced the topic, or changed its
                # settings: then the retention of before no longer counts.
                is_same = known is not None and known.topic_id == topic.topic_id
                if known is not None and is_same and known.settings == settings:
                    trimmed += self._admission.admit_topic_trimmed(window, topic.name, start)
            return trimmed > 0

        if due:
            await self._writes.operate(admit, self._linger.default_ms)
            await self._measure([topic for topic, _, _ in due])
        return trimmed

    async def _measure(self, topics: Iterable[Topic]) -> None:
        async for topic in in_slices(topics):
            if not topic.purged:
                await self._index.measure(topic)

    @property
    def is_settled(self) -> bool:
        """Nothing of ours is under way in the journal. Until then nothing new is decided: a switch
        whose caller gave up waiting may come into force yet."""
        return self._last is None or self._last.is_done

    async def measure(self) -> None:
        """Update the size of topics whose merged or deleted rows are not in memory."""
        await self._measure([t for t in self._catalog.with_rows() if not t.is_measured])

    # --- jobs ---

    async def next_job(self) -> RewriteJob | None:
        """What should be rewritten next; None when nothing is due."""
        objects = self._due_objects()  # first: entries are always due under load
        if objects:
            return self._job(sections=await self._places({one.ref.object_id for one in objects}))
        plan = await self.compactions.next()
        if plan is not None:
            return self._job(sections=plan.places, compactions=plan.compactions)
        waiting = self._catalog.untidied.entries
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
            bucket_id=self._bucket_id,
            epoch=self._epoch(),
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
            inputs=tuple(dict.fromkeys(place.key for place in sections)),
            compactions=compactions,
        )

    def _due_objects(self) -> list[LivingObject]:
        held = self.external.inputs()
        living = (found for found in self._catalog.stored.all() if found.sections)
        return due_objects((one for one in living if one.ref.key not in held), self.settings)

    async def _places(self, object_ids: set[int]) -> list[SectionPlace]:
        places = []
        async for topic in in_slices(self._catalog.with_rows()):
            rows = [row for row, seq in enumerate(topic.stored.seqs) if -seq in object_ids]
            places += [place_of(self._catalog, topic, row) for row in rows]
        return places

    # --- putting in force ---

    def is_in_force(self, keys: Iterable[str]) -> bool:
        """Whether all these objects are active."""
        return self._catalog.stored.keys().issuperset(keys)

    async def check_unchanged(self, job: RewriteJob) -> None:
        """Raise SwitchRefusedError early, before the job reads anything."""
        ranges = (ReplacedRange(i.topic_id, i.base_offset, i.last_offset) for i in job.compactions)
        await self._check(job, Rewritten(tuple(ranges), ()))

    async def switch(self, job: RewriteJob, made: Rewritten) -> None:
        """Put what `job` has made in force. Raises SwitchRefusedError; nothing was changed then."""
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
        await self._writes.operate(admit, self._linger.default_ms)
        topics = (self._catalog.find_rows(replaced.topic_id) for replaced in made.replaced)
        await self._measure(topic for topic in topics if topic is not None)

    async def _check(self, job: RewriteJob, made: Rewritten) -> None:
        """Every input is still in force, or was trimmed; and no entry of the job has a section in
        force that was not an input. What holds now holds when the switch is applied, but for what
        is trimmed or deleted until then: nothing else than a switch replaces sections."""
        living = {found.ref.key: found.ref.object_id for found in self._catalog.stored.all()}
        for stored in made.objects:
            if stored.key in living or stored.key in self._catalog.stored.garbage:
                raise SwitchRefusedError(f"{stored.key} was in force before")
        if job.entries:
            await self._check_entries(job, made)
            return
        inputs = {living.get(key, 0) for key in job.inputs}
        for replaced in made.replaced:
            topic = self._catalog.find_rows(replaced.topic_id)
            if topic is not None and topic.held_offset <= replaced.last_offset:
                _check_stored(topic, replaced, inputs)

    def _check_wanted(self, compactions: Sequence[Compaction]) -> None:
        """Refuse if a change of the topic since the plan forbids what its compaction removed."""
        for item in compactions:
            if self._admission.is_held(item.name):
                raise SwitchRefusedError(f"of topic {item.name!r} only forks are left")
            known = self._admission.find(item.name)
            if known is None or known.topic_id != item.topic_id:
                continue
            if not known.effective.compacts:
                raise SwitchRefusedError(f"topic {item.name!r} is not compacted any more")
            topic = self._catalog.find_id(item.topic_id)
            # A fork may need records of the range as they are.
            is_pinned = topic is not None and pinned_below(topic.needs) > item.base_offset
            if is_pinned or (known.forked_in is not None and not known.forked_in.is_done):
                raise SwitchRefusedError(f"topic {item.name!r} was forked meanwhile")
            if self._keeps_tombstones_now(known, item):
                raise SwitchRefusedError(f"topic {item.name!r} keeps tombstones for longer now")

    def _keeps_tombstones_now(self, known: AdmittedTopic, item: Compaction) -> bool:
        """Whether the tombstone retention was raised, so that removed tombstones should stay."""
        topic = self._catalog.find_rows(item.topic_id)
        if topic is None or not len(topic.stored) or item.tombstones_until_us is None:
            return False
        begin = topic.stored.row_of(max(item.base_offset, topic.stored.bases[0]))
        until_us = tombstones_until_us(topic, begin, known.effective, self._clock)
        return until_us < item.tombstones_until_us

    async def _check_entries(self, job: RewriteJob, made: Rewritten) -> None:
        untidied = self._catalog.untidied.entries
        first_seq, until = job.entries[0].seq, job.entries[-1].seq
        if not untidied or untidied[0][0] != first_seq or until - first_seq + 1 != len(job.entries):
            raise SwitchRefusedError("the entries were tidied meanwhile")
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

    # --- garbage ---

    def unused(self) -> list[str]:
        """Keys of objects that hold nothing in force any more, as many as one entry names."""
        return self._catalog.stored.unused()[: limits.KEYS_PER_ENTRY_MAX]

    def strays(self, listed: Sequence[tuple[str, int | None]]) -> list[str]:
        """Of all keys of segments and packed objects in the bucket, each with the epoch in its
        name, those that nothing refers to, nor may yet. Call it while no job is under way. Raises
        FencedError for the name of a later epoch."""
        stored = self._catalog.stored
        living = {*stored.keys(), *self.external.keys()}
        found = []
        for key, epoch in listed:
            if epoch is not None and epoch > self._epoch():
                raise FencedError(f"another appliance (epoch {epoch}) has written {key}")
            if epoch is not None and key not in living and key not in stored.garbage:
                found.append(key)
        # A store may show a key twice, while it is moved about; a state holds it once.
        return list(dict.fromkeys(found))[: limits.KEYS_PER_ENTRY_MAX]

    async def condemn(self, keys: Sequence[str]) -> None:
        """Say in the journal that nothing refers to these objects, nor ever will."""
        assert self.is_settled
        in_force = {found.ref.key for found in self._catalog.stored.all() if found.sections}
        assert not in_force.intersection(keys), keys
        await self._note(ObjectsCondemned(keys=tuple(keys)))

    def removable(self) -> list[str]:
        """Condemned objects whose grace time is over: they may be deleted."""
        grace_us, age_us = self.settings.grace_ms * 1000, self._clock.age_us
        garbage = self._catalog.stored.garbage
        keys = [key for key, since_us in garbage.items() if age_us(since_us) >= grace_us]
        return keys[: limits.KEYS_PER_ENTRY_MAX]

    async def removed(self, keys: Sequence[str]) -> None:
        """These condemned objects were deleted."""
        assert self.is_settled
        await self._note(ObjectsRemoved(keys=tuple(keys)))

    async def _note(self, event: ObjectsCondemned | ObjectsRemoved) -> None:
        def admit(window: Window) -> None:
            self._last = window
            window.add_event(event, encoded_bytes(event))

        await self._writes.operate(admit, self._linger.default_ms)

    # --- entries ---

    @property
    def tidied_seq(self) -> int:
        """Entries up to this one hold nothing in force."""
        entries = self._catalog.untidied.entries
        return entries[0][0] - 1 if entries else self._catalog.position.seq

    @property
    def writers(self) -> list[EntryRef]:
        """Every writer's first entry, oldest first."""
        return self._catalog.writers

    @property
    def waiting_bytes(self) -> int:
        """Bytes of entries that are not tidied."""
        return self._catalog.untidied.total_bytes

    @property
    def overdue_s(self) -> float:
        """For how long a job has been due for them; 0 when none is, or not for long."""
        return overdue_s(self._catalog.untidied.entries, self.settings, self._now_us())

    def _now_us(self) -> int:
        """The time by which entries that are not tidied have the age of the oldest of them."""
        waiting = self._catalog.untidied.entries
        return self._clock.cutoff_us(0, waiting[0][2]) if waiting else 0

    def entries_gone(self, until_seq: int) -> None:
        """Tidied entries up to this one are not in the bucket any more."""
        self._catalog.untidied.gone(until_seq)

    @property
    def stored_bytes(self) -> int:
        """Of journal entries, segments, packed objects and garbage in the bucket, as far as is
        known: what an earlier process had tidied or condemned, and not removed, is not."""
        return self._catalog.untidied.stored_bytes + self._catalog.stored.stored_bytes

    @property
    def waiting_entries(self) -> int:
        return len(self._catalog.untidied.entries)

    @property
    def objects(self) -> int:
        """Segments and packed objects in force."""
        return len(self._catalog.stored)

    @property
    def object_sizes(self) -> list[tuple[int, int]]:
        """Of each of them its bytes, and how many of these are in force."""
        return [(found.length, found.living_bytes) for found in self._catalog.stored.all()]

    @property
    def garbage(self) -> int:
        """Condemned objects that were not deleted yet."""
        return len(self._catalog.stored.garbage)


def _check_stored(topic: Topic, replaced: ReplacedRange, inputs: set[int]) -> None:
    """What lies in the range are sections of these objects, to its end."""
    rows = topic.stored
    begin = bisect_left(rows.bases, replaced.base_offset)
    end = bisect_right(rows.bases, replaced.last_offset)
    if begin == end or rows.end_of(end - 1) != replaced.last_offset + 1:
        raise SwitchRefusedError(f"what lies in {replaced} has changed")
    if rows.bases[begin] != replaced.base_offset and begin > 0:
        raise SwitchRefusedError(f"what lies in {replaced} begins elsewhere now")
    if not inputs.issuperset(-seq for seq in rows.seqs[begin:end]):
        raise SwitchRefusedError(f"what lies in {replaced} was replaced already")
