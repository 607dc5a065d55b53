"""The objects of the bucket: LIST them once, read each once, and check its bytes."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.errors import BadBatchError, CorruptObjectError, ObjectMissingError
from seb_appliance.formats import entry, segment
from seb_appliance.formats.contents import Section
from seb_appliance.formats.entry import EntryHeader
from seb_appliance.formats.operations import StoredSection
from seb_appliance.ops.checks.findings import Findings
from seb_appliance.storage import layout
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.layout import Claim, SnapshotName
from seb_appliance.storage.objects.merging import batches_of
from seb_appliance.storage.stores.object_store import ObjectInfo, too_many


class Runs:
    """Numbers that come in ascending order and are mostly neighbours: 16 bytes for each run."""

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")

    def add(self, number: int) -> None:
        if self.lasts and self.lasts[-1] == number - 1:
            self.lasts[-1] = number
        else:
            self.firsts.append(number)
            self.lasts.append(number)

    def holds(self, first: int, last: int) -> bool:
        """Whether it has every number from `first` to `last`; True for an empty range."""
        if first > last:
            return True
        run = bisect_right(self.firsts, first) - 1
        return run >= 0 and last <= self.lasts[run]


@dataclass(slots=True)
class Listing:
    """Everything below our folder. `entries`: seqs, by writer in mode B; `objects`: segments and
    packed objects, by key; `adopted`: the Go broker's files that are in force, beside it."""

    entries: dict[Claim | None, Runs] = field(default_factory=dict)
    entry_count: int = 0
    entry_bytes: int = 0
    objects: dict[str, ObjectInfo] = field(default_factory=dict)
    adopted: dict[str, ObjectInfo] = field(default_factory=dict)
    snapshots: list[SnapshotName] = field(default_factory=list)
    bases: list[Claim] = field(default_factory=list)
    has_info: bool = False
    first_entry_key: str = ""

    def has_entries(self, claim: Claim | None, first: int, last: int) -> bool:
        runs = self.entries.get(claim)
        return runs.holds(first, last) if runs is not None else first > last

    @property
    def total_bytes(self) -> int:
        of_records = (*self.objects.values(), *self.adopted.values())
        return self.entry_bytes + sum(info.size for info in of_records)


async def list_bucket(store: RetryingStore, findings: Findings) -> Listing:
    """LIST our folder once, page by page. Foreign objects are findings. Raises StoreUnusableError
    for a listing without end."""
    listing, after, listed = Listing(), "", 0
    while page := await store.list_after(layout.OURS, after):
        listed += len(page)
        if listed - listing.entry_count > limits.LISTED_OBJECTS_MAX:
            raise too_many(store, layout.OURS, limits.LISTED_OBJECTS_MAX)
        if listing.entry_count > limits.LISTED_ENTRIES_MAX:
            raise too_many(store, layout.JOURNAL, limits.LISTED_ENTRIES_MAX)
        for info in page:
            if not _take(listing, info):
                findings.add(
                    "foreign_object",
                    info.key,
                    f"{info.size:,} bytes at a key that no appliance uses",
                )
        after = page[-1].key
    listing.snapshots.sort()
    return listing


async def list_adopted(store: RetryingStore, listing: Listing, in_force: Collection[str]) -> None:
    """LIST those files of the Go broker that are among the keys `in_force`."""
    places = (layout.parse_go_batch(key) for key in in_force)
    for name in sorted({place[0] for place in places if place is not None}):
        folder, after = f"{name}/", ""
        while page := await store.list_after(folder, after):
            listing.adopted.update((info.key, info) for info in page if info.key in in_force)
            after = page[-1].key


def _take(listing: Listing, info: ObjectInfo) -> bool:
    """Note one object; False if no appliance makes such a key."""
    key = info.key
    if key.startswith(layout.JOURNAL):
        place = layout.parse_entry(key)
        if place is None:
            return False
        claim, seq = place
        listing.entries.setdefault(claim, Runs()).add(seq)
        listing.entry_count += 1
        listing.entry_bytes += info.size
        listing.first_entry_key = listing.first_entry_key or key
        return True
    if key.startswith(layout.SNAPSHOTS):
        name = layout.parse_snapshot(key)
        if name is not None:
            listing.snapshots.append(name)
        return name is not None
    if key.startswith((layout.SEGMENTS, layout.PACKED)):
        if layout.epoch_of(key) is None:
            return False
        listing.objects[key] = info
        return True
    if key.startswith((layout.BASES, layout.CLAIMS)):
        claim = layout.parse_claim(key)
        if claim is not None and key.startswith(layout.BASES):
            listing.bases.append(claim)
        return claim is not None
    listing.has_info = listing.has_info or key == layout.BUCKET
    return key == layout.BUCKET or key.startswith(layout.PROBE)


SectionId = tuple[int, int]  # topic id, base offset


@dataclass(slots=True)
class Verdict:
    """`faults`: what is wrong, in words. `bad_sections`: those that cannot be read; None: all."""

    header: EntryHeader | None = None
    faults: list[str] = field(default_factory=list)
    bad_sections: set[SectionId] | None = field(default_factory=set)

    def add(self, sections: Iterable[Section | StoredSection], fault: str) -> None:
        """These sections cannot be read."""
        assert self.bad_sections is not None
        self.bad_sections.update((section.topic_id, section.base_offset) for section in sections)
        self.faults.append(fault)

    def condemn(self, fault: str) -> Verdict:
        """No section can be read."""
        self.faults.append(fault)
        self.bad_sections = None
        return self


def check_entry(key: str, body: bytes, bucket_id: bytes) -> Verdict:
    """A journal entry that lies at `key`."""
    verdict = Verdict()
    place = layout.parse_entry(key)
    assert place is not None, key
    claim, seq = place
    try:
        found = entry.decode(body)
    except BadBatchError as error:
        return verdict.condemn(error.detail)
    header = verdict.header = found.header
    if header.seq != seq:
        return verdict.condemn(f"it is entry {header.seq}, unlike its key")
    if claim is not None and claim != Claim(header.epoch, header.writer_id):
        return verdict.condemn("it belongs to another writer than its key says")
    if header.bucket_id != bucket_id:
        return verdict.condemn(f"it belongs to another bucket ({header.bucket_id.hex()})")
    for section in found.contents.sections:
        data = entry.section_bytes(header, body, section.start, section.length)
        _check_section(verdict, section, data)
    return verdict


def check_segment(
    key: str, body: bytes, bucket_id: bytes, wanted: Sequence[StoredSection]
) -> Verdict:
    """A segment or packed object at `key`; `wanted`: the sections of it that are in force."""
    verdict = Verdict()
    try:
        index = segment.decode(body)
    except BadBatchError as error:
        return verdict.condemn(error.detail)
    if index.bucket_id != bucket_id:
        return verdict.condemn(f"it belongs to another bucket ({index.bucket_id.hex()})")
    if not layout.is_key_of(key, index.topic_id, index.base, index.last):
        return verdict.condemn("its header names other topics or offsets than its key")
    for section in index.sections:
        data = memoryview(body)[section.at : section.at + section.length]
        _check_section(verdict, section, data)
    missing = set(wanted).difference(index.sections)
    if missing:
        verdict.add(missing, f"{len(missing)} of {len(wanted)} sections in force are missing in it")
    return verdict


def check_adopted(body: bytes, sections: Sequence[StoredSection]) -> Verdict:
    """A file of the Go broker with these `sections`: one, while it is in force."""
    verdict = Verdict()
    for section in sections:
        if (section.at, section.length) != (0, len(body)):
            return verdict.condemn(f"it has {len(body)} bytes, the log says {section.length}")
        _check_section(verdict, section, memoryview(body))
    return verdict


def _check_section(verdict: Verdict, section: Section | StoredSection, data: memoryview) -> None:
    fault = _section_fault(section, data)
    if fault:
        where = f"offsets {section.base_offset} to {section.last_offset}"
        verdict.add([section], f"topic {section.topic_id}, {where}: {fault}")


def _section_fault(section: Section | StoredSection, data: memoryview) -> str:
    if crc32c(data) != section.crc:
        return "the CRC of the section does not match"
    records, largest_us = 0, 0
    try:
        for found, _ in batches_of(bytes(data), section.base_offset, section.last_offset):
            records += found.header.count
            largest_us = max(largest_us, found.header.largest_timestamp_us)
    except BadBatchError as error:
        return error.detail
    if records != section.record_count:
        return f"it has {records} records, the section says {section.record_count}"
    if largest_us != section.largest_timestamp_us:
        return "the largest timestamp does not match"
    return ""


_READS_OF_A_BAD_OBJECT: Final = 3  # a bit may have flipped in transit
_FAULTS_TOLD: Final = 5  # of one object


class ObjectReader:
    """Reads each object of the bucket once. `bad`: the damaged sections of damaged objects (None:
    all); `gone`: keys that were listed but do not exist any more. `wanted`: the sections in force
    of each object, by its key."""

    def __init__(
        self,
        store: RetryingStore,
        findings: Findings,
        progress: Progress,
        bucket_id: bytes,
    ) -> None:
        self.bad: dict[str, set[SectionId] | None] = {}
        self.gone: set[str] = set()
        self.wanted: Mapping[str, list[StoredSection]] = {}
        self.read_objects = self.read_bytes = 0
        self._store = store
        self._findings = findings
        self._progress = progress
        self._bucket_id = bucket_id
        self._total = 0
        self._last: EntryHeader | None = None  # the entry that was read last, and its folder
        self._last_folder = ""

    async def read_all(self, listing: Listing) -> None:
        """Every journal entry, then every segment, packed object and file of the Go broker."""
        self._total = listing.entry_count + len(listing.objects) + len(listing.adopted)
        after = ""
        while page := await self._store.list_after(layout.JOURNAL, after):
            entries = [info for info in page if layout.parse_entry(info.key) is not None]
            await self._read_groups(entries)
            after = page[-1].key
        await self._read_groups([*listing.objects.values(), *listing.adopted.values()])

    async def read_one(self, key: str) -> bool:
        """Check an object that is newer than the listing; False if it does not exist."""
        verdict = await self._read(key)
        if verdict is not None:
            self._note(key, verdict)
        return verdict is not None

    async def _read_groups(self, infos: list[ObjectInfo]) -> None:
        for group in _groups(infos):
            verdicts = await together(
                (self._read(info.key) for info in group), limits.FSCK_READS_AT_ONCE
            )
            for info, verdict in zip(group, verdicts, strict=True):
                if verdict is None:
                    self.gone.add(info.key)
                else:
                    self.read_bytes += info.size
                    self._note(info.key, verdict)
            self.read_objects += len(group)
            self._progress(self.read_objects, self._total, "reading every object")

    async def _read(self, key: str) -> Verdict | None:
        """None: it does not exist."""
        verdict = Verdict()
        for _ in range(_READS_OF_A_BAD_OBJECT):
            try:
                body = await self._store.get(key)
            except ObjectMissingError:
                return None
            except CorruptObjectError as error:  # it is too large to be read
                return verdict.condemn(error.detail)
            verdict = await asyncio.to_thread(self._check, key, body)
            if not verdict.faults:
                break
        return verdict

    def _check(self, key: str, body: bytes) -> Verdict:
        if key.startswith(layout.JOURNAL):
            return check_entry(key, body, self._bucket_id)
        if layout.parse_go_batch(key) is not None:
            return check_adopted(body, self.wanted.get(key, ()))
        return check_segment(key, body, self._bucket_id, self.wanted.get(key, ()))

    def _note(self, key: str, verdict: Verdict) -> None:
        if verdict.header is not None:
            self._check_chain(key, verdict.header)
        if verdict.faults:
            code = "entry_damaged" if key.startswith(layout.JOURNAL) else "segment_damaged"
            self._findings.add(code, key, "; ".join(verdict.faults[:_FAULTS_TOLD]))
            self.bad[key] = verdict.bad_sections

    def _check_chain(self, key: str, header: EntryHeader) -> None:
        """Entries below the floor are not replayed, but must still continue each other."""
        before, self._last = self._last, header
        folder = key.rpartition("/")[0]
        if (
            before is not None
            and self._last_folder == folder
            and before.seq + 1 == header.seq
            and not header.follows(before.position)
        ):
            self._findings.add("log_broken", key, f"it does not continue entry {before.seq}")
        self._last_folder = folder


def _groups(infos: list[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """Groups that fit in memory together; a larger object is a group of its own."""
    group: list[ObjectInfo] = []
    size = 0
    for info in infos:
        if group and size + info.size > limits.FSCK_READ_BYTES:
            yield group
            group, size = [], 0
        group.append(info)
        size += info.size
    if group:
        yield group
