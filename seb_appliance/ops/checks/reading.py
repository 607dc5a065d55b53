"""Reading every object of the bucket once, some side by side, and holding it against the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import ObjectMissingError
from seb_appliance.formats.entry import EntryHeader
from seb_appliance.formats.operations import StoredSection
from seb_appliance.ops.checks.findings import Findings
from seb_appliance.ops.checks.listing import Listing
from seb_appliance.ops.checks.object_checks import (
    SectionId,
    Verdict,
    check_adopted,
    check_entry,
    check_segment,
    compare_sections,
)
from seb_appliance.storage import layout
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.stores.object_store import ObjectInfo

_READS_OF_A_BAD_OBJECT: Final = 3  # a bit may have been flipped on the way
_FAULTS_TOLD: Final = 5  # of one object


class ObjectReader:
    """`bad`: of objects that are damaged, the sections that are (None: all); `gone`: keys that
    were listed and then not there. `wanted`: the sections in force of each object, by its key."""

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
        """Check an object that came after the listing; False if it is not there."""
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
        """None: it is not there."""
        verdict = Verdict()
        for _ in range(_READS_OF_A_BAD_OBJECT):
            try:
                body = await self._store.get(key)
            except ObjectMissingError:
                return None
            verdict = await asyncio.to_thread(self._check, key, body)
            if not verdict.faults:
                break
        return verdict

    def _check(self, key: str, body: bytes) -> Verdict:
        if key.startswith(layout.JOURNAL):
            return check_entry(key, body, self._bucket_id)
        if layout.parse_go_batch(key) is not None:
            return check_adopted(body, self.wanted.get(key, ()))
        verdict, sections = check_segment(key, body, self._bucket_id)
        difference = compare_sections(verdict, self.wanted.get(key, ()), sections)
        if difference:
            verdict.faults.append(difference)
        return verdict

    def _note(self, key: str, verdict: Verdict) -> None:
        if verdict.header is not None:
            self._check_chain(key, verdict.header)
        if verdict.faults:
            code = "entry_damaged" if key.startswith(layout.JOURNAL) else "segment_damaged"
            self._findings.add(code, key, "; ".join(verdict.faults[:_FAULTS_TOLD]))
            self.bad[key] = verdict.bad_sections

    def _check_chain(self, key: str, header: EntryHeader) -> None:
        """Entries below the floor are replayed by nobody; but neighbours must still be such."""
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
    """Of so many bytes that they can be in memory together, or one that is larger."""
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
