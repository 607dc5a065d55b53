"""Whether each offset from log start to log end lies in exactly one readable section."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace

from seb_appliance import limits
from seb_appliance.broker.ports import LoadedState, TopicRow
from seb_appliance.formats.operations import StoredSection
from seb_appliance.ops.checks.findings import Problem
from seb_appliance.ops.checks.objects import Listing, ObjectReader
from seb_appliance.state.database import StateDatabase
from seb_appliance.storage import layout
from seb_appliance.storage.layout import Claim, Mode


@dataclass(frozen=True, slots=True)
class Place:
    """A section in force: offsets `base` to `last`, and bytes of the object at `key`. Records from
    `end` on belong to the parent only, not to the topic."""

    topic_id: int  # of whose section it is
    key: str
    base: int
    last: int
    at: int
    length: int
    crc: int
    end: int = limits.OFFSET_MAX + 1

    @property
    def answers_until(self) -> int:
        """The offset after its last record of the topic."""
        return min(self.last + 1, self.end)


@dataclass(slots=True)
class InForce:
    """What is in force as of `state`'s position. `by_object`: sections by the key of their object;
    `homeless`: sections whose object is not in force."""

    state: LoadedState
    mode: Mode
    by_object: dict[str, list[StoredSection]] = field(default_factory=lambda: defaultdict(list))
    by_topic: dict[int, list[tuple[str, StoredSection]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    homeless: list[StoredSection] = field(default_factory=list)

    def __post_init__(self) -> None:
        keys = {row.object_id: row.key for row in self.state.objects}
        for object_id, section in self.state.stored:  # by topic and offset
            key = keys.get(object_id)
            if key is None:
                self.homeless.append(section)
            else:
                self.by_object[key].append(section)
                self.by_topic[section.topic_id].append((key, section))

    def key_of_entry(self, seq: int) -> str:
        if self.mode == "A":
            return layout.create_only_key(seq)
        writers = self.state.writers
        writer = writers[bisect_right(writers, seq, key=lambda row: row.first_seq) - 1]
        return layout.claimed_key(Claim(writer.epoch, writer.writer_id), seq)


class Coverage:
    """One look at what is in force."""

    def __init__(
        self, in_force: InForce, database: StateDatabase, listing: Listing, reader: ObjectReader
    ) -> None:
        self._in_force = in_force
        self._database = database
        self._listing = listing
        self._reader = reader
        self._present: dict[str, bool] = {}  # of keys that were not listed
        self._topics = {row.topic_id: row for row in in_force.state.topics}
        self._paged_ends = {row.topic_id: row.end_offset for row in in_force.state.paged}
        self._fresh: dict[int, list[Place]] = defaultdict(list)
        for entry in in_force.state.entries:
            for section in entry.sections:
                self._fresh[section.topic_id].append(
                    Place(
                        section.topic_id,
                        in_force.key_of_entry(entry.ref.seq),
                        section.base_offset,
                        section.last_offset,
                        entry.sections_at + section.start,
                        section.length,
                        section.crc,
                    )
                )

    async def problems(self) -> list[Problem]:
        """What is missing, present twice, or unreadable."""
        detail = "its object is not in force"
        found = [
            Problem("condemned_in_force", "the log", detail, None, (s.base_offset, s.last_offset))
            for s in self._in_force.homeless
        ]
        for topic in self._in_force.state.topics:
            if not topic.deleted:  # their remaining records are read by forks
                found += await self._of_topic(topic)
        return found + self._epoch_entries()

    async def places(self, topic: TopicRow) -> AsyncIterator[Place]:
        """The sections in force that hold the topic's records, by offset; those that a fork shares
        belong to its parents."""
        begin = topic.log_start_offset
        while True:
            owner, end = self._owner_of(topic, begin)
            async for place in self._own_places(owner, begin, end):
                yield replace(place, end=end)
            if owner is topic:
                return
            begin = end

    def _owner_of(self, topic: TopicRow, offset: int) -> tuple[TopicRow, int]:
        """The topic whose sections hold `offset`, and up to which offset (exclusive)."""
        end = limits.OFFSET_MAX + 1
        while offset < topic.fork_offset:
            end = min(end, topic.fork_offset)
            assert topic.parent_id is not None, topic
            topic = self._topics[topic.parent_id]
        return topic, end

    async def _own_places(self, topic: TopicRow, begin: int, end: int) -> AsyncIterator[Place]:
        """The topic's own sections with offsets from `begin` up to `end`."""
        at = max(begin, topic.fork_offset)
        for key, section in self._in_force.by_topic.get(topic.topic_id, ()):
            at = max(at, section.last_offset + 1)
            if section.last_offset >= begin and section.base_offset < end:
                yield Place(
                    topic.topic_id,
                    key,
                    section.base_offset,
                    section.last_offset,
                    section.at,
                    section.length,
                    section.crc,
                )
        while at < end and (page := await self._database.index_page(topic.topic_id, at)):
            for row in range(page.row_of(at), len(page)):
                if page.bases[row] < end:
                    yield Place(
                        topic.topic_id,
                        self._in_force.key_of_entry(page.seqs[row]),
                        page.bases[row],
                        page.end_of(row) - 1,
                        page.starts[row],
                        page.lengths[row],
                        page.crcs[row],
                    )
            at = page.end
        for place in self._fresh.get(topic.topic_id, ()):
            if place.last >= at and place.base < end:
                yield place

    async def _of_topic(self, topic: TopicRow) -> list[Problem]:
        found: list[Problem] = []
        expected = topic.log_start_offset
        first, last_key = True, "the log"
        async for place in self.places(topic):
            if place.base > expected:
                found.append(_hole(topic.name, place.key, expected, place.base - 1))
            elif place.base < expected and not first:
                again = place.base, min(expected, place.answers_until) - 1
                detail = "another section holds these offsets, too"
                found.append(Problem("offsets_twice", place.key, detail, topic.name, again))
            first = False
            expected = max(expected, place.answers_until)
            last_key = place.key
            if fault := await self._fault(place):
                readable_from = max(place.base, topic.log_start_offset)
                lost = (readable_from, place.answers_until - 1)
                found.append(Problem("records_lost", place.key, fault, topic.name, lost))
        end = max(self._paged_ends.get(topic.topic_id, 0), topic.fork_offset)
        if expected < end:
            found.append(_hole(topic.name, last_key, expected, end - 1))
        return found

    async def _fault(self, place: Place) -> str:
        """Why the section cannot be read, or ""."""
        if not await self._is_present(place.key):
            return "the object is not in the bucket"
        if place.key not in self._reader.bad:
            return ""
        bad = self._reader.bad[place.key]
        is_bad = bad is None or (place.topic_id, place.base) in bad
        return "the object is damaged" if is_bad else ""

    async def _is_present(self, key: str) -> bool:
        if key in self._reader.gone:
            return False
        entry = layout.parse_entry(key)
        if entry is None:
            listed = key in self._listing.objects or key in self._listing.adopted
        else:
            claim, seq = entry
            listed = self._listing.has_entries(claim, seq, seq)
        if listed:
            return True
        if key not in self._present:
            self._present[key] = await self._reader.read_one(key)
        return self._present[key]

    def _epoch_entries(self) -> list[Problem]:
        """In mode A the first entry of each writer stays: its key fences the previous writer."""
        if self._in_force.mode == "B":
            return []
        found = []
        runs = self._listing.entries.get(None)
        for writer in self._in_force.state.writers:
            seq, key = writer.first_seq, layout.create_only_key(writer.first_seq)
            if runs is None or not runs.lasts or seq > runs.lasts[-1]:
                continue  # newer than the listing
            if not runs.holds(seq, seq) or key in self._reader.gone:
                detail = "the first entry of each writer must be kept"
                found.append(Problem("epoch_entry_missing", key, detail))
        return found


def unreferenced(
    in_force: InForce, listing: Listing, *, now_us: int, grace_ms: int
) -> Iterator[Problem]:
    """Objects outside the journal that nothing refers to, older than the grace time."""
    known = {row.key for row in in_force.state.objects}
    known.update(row.key for row in in_force.state.garbage)
    for key, info in listing.objects.items():
        age_us = now_us - (info.modified_us or 0)
        if key not in known and age_us > grace_ms * 1000:
            detail = f"{info.size:,} bytes that nothing refers to"
            yield Problem("object_unreferenced", key, detail)


def _hole(topic: str, key: str, first: int, last: int) -> Problem:
    detail = "no section holds these offsets"
    return Problem("offsets_missing", key, detail, topic, (first, last))
