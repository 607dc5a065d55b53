"""One whole check, in the order in which each step needs the ones before; and what it came to."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from seb_appliance.broker.ports import LoadedState
from seb_appliance.clock import Clock
from seb_appliance.errors import BadBatchError, StoreUnusableError
from seb_appliance.formats.entry import HEADER_BYTES, read_header
from seb_appliance.ops.checks.coverage import Coverage, InForce, same, unreferenced
from seb_appliance.ops.checks.findings import Findings, Problem
from seb_appliance.ops.checks.key_index_check import KeyIndexCheck
from seb_appliance.ops.checks.listing import Listing, list_adopted, list_bucket
from seb_appliance.ops.checks.local_files import LocalFiles
from seb_appliance.ops.checks.reading import ObjectReader
from seb_appliance.ops.checks.reference import Reference
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bucket_info import BucketInfo, read_bucket_info
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.stores.store_clock import StoreClock

_LOOKS: Final = 3  # at a bucket that changes while it is looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """`quick`: no object is read whole, only the log's tables; `full`: every row of the key index;
    `repair`: put local files in order. `data`: a data directory that we have locked, or None."""

    quick: bool = False
    full: bool = False
    repair: bool = False
    data: Path | None = None
    grace_ms: int = 0


@dataclass(slots=True)
class CheckReport:
    """`counts`: what was looked at. `repaired`: what was done, in words."""

    bucket: str
    mode: Mode
    bucket_id: bytes
    seq: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    repaired: list[str] = field(default_factory=list)

    @property
    def unrepaired(self) -> int:
        """Problems that are still there: each repair is of one."""
        return self.findings.total - len(self.repaired)


async def check_bucket(
    store: RetryingStore,
    clock: Clock,
    options: CheckOptions,
    progress: Progress,
) -> CheckReport:
    """Look at everything. Raises StoreUnusableError when there is no bucket to look at, StoreError
    when it does not answer."""
    findings = Findings()
    progress(0, 0, "listing the bucket")
    listing = await list_bucket(store, findings)
    mode, bucket_id = await _what_bucket(store, listing, findings)
    with tempfile.TemporaryDirectory(prefix="seb-fsck-") as name:
        report = CheckReport(store.description, mode, bucket_id, findings=findings)
        check = _Check(store, clock, options, progress, report, listing, Path(name))
        await check.run()
    return report


class _Check:
    def __init__(
        self,
        store: RetryingStore,
        clock: Clock,
        options: CheckOptions,
        progress: Progress,
        report: CheckReport,
        listing: Listing,
        folder: Path,
    ) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._progress = progress
        self._report = report
        self._findings = report.findings
        self._listing = listing
        self._folder = folder

    async def run(self) -> None:
        report, listing = self._report, self._listing
        reference = await Reference.open(
            self._folder,
            self._store,
            self._clock,
            self._findings,
            self._progress,
            mode=report.mode,
            bucket_id=report.bucket_id,
        )
        try:
            await self._with(reference)
            report.seq = (await reference.position()).seq
        finally:
            await reference.close()
        report.counts |= {
            "journal_entries": listing.entry_count,
            "segments": len(listing.objects) + len(listing.adopted),
            "snapshots": len(listing.snapshots),
            "bytes": listing.total_bytes,
            "entries_replayed": reference.entries_replayed,
            "snapshots_compared": reference.snapshots_compared,
        }

    async def _with(self, reference: Reference) -> None:
        local = None
        if self._options.data is not None:
            local = LocalFiles(self._options.data, self._folder, self._findings)
            if (seq := await local.read_state()) is not None:
                reference.stop_at(seq)
        await reference.follow(self._listing)
        self._report.bucket_id = reference.bucket_id
        await self._check_info(reference)
        await reference.check_snapshots(self._listing.snapshots)
        reader = ObjectReader(self._store, self._findings, self._progress, reference.bucket_id)
        reader.wanted = InForce(await reference.state(), self._report.mode).by_object
        await list_adopted(self._store, self._listing, reader.wanted)
        if not self._options.quick:
            await reader.read_all(self._listing)
        self._report.counts |= {
            "objects_read": reader.read_objects,
            "bytes_read": reader.read_bytes,
        }
        coverage, state = await self._cover(reference, reader)
        if local is not None:
            await self._check_local(local, reference, coverage, state)

    async def _cover(
        self, reference: Reference, reader: ObjectReader
    ) -> tuple[Coverage, LoadedState]:
        """What is wrong in two looks, with what came between them applied, is wrong."""
        problems: list[Problem] | None = None
        for _ in range(_LOOKS):
            await reference.catch_up()
            state = await reference.state()
            in_force = InForce(state, self._report.mode)
            reader.wanted = in_force.by_object
            self._progress(0, 0, "comparing what is in force with what is there")
            coverage = Coverage(in_force, reference.database, self._listing, reader)
            seen = await coverage.problems()
            problems = seen if problems is None else same(problems, seen)
            if not problems:
                break
        self._findings.add_all(problems or [])
        self._report.counts |= {
            "topics": len(state.topics),
            "objects_in_force": len(in_force.by_object),
            "objects_condemned": len(state.garbage),
        }
        if reference.is_whole:
            now_us = StoreClock(self._clock, self._store).wall_us()
            grace_ms = self._options.grace_ms
            strays = unreferenced(in_force, self._listing, now_us=now_us, grace_ms=grace_ms)
            self._findings.add_all(list(strays))
        return coverage, state

    async def _check_info(self, reference: Reference) -> None:
        """In mode B bucket.json is a copy of what the bases say."""
        if self._report.mode == "A":
            return
        right = BucketInfo(bucket_id=reference.bucket_id.hex(), mode="B")
        try:
            info = await read_bucket_info(self._store)
        except StoreUnusableError:
            info = None
        if info != right:
            detail = "it is missing, or says something else than the bases"
            self._findings.add("bucket_info_differs", layout.BUCKET, detail)

    async def _check_local(
        self, local: LocalFiles, reference: Reference, coverage: Coverage, state: LoadedState
    ) -> None:
        self._progress(0, 0, "checking local files")
        await local.compare_state(reference)
        if local.has_key_index:
            check = KeyIndexCheck(
                local.key_index,
                self._folder,
                self._store,
                coverage,
                self._findings,
            )
            await check.run(state, reference.bucket_id, full=self._options.full)
            self._report.counts["key_index_sections"] = check.checked
        cached = local.check_cache(reference.bucket_id)
        self._report.counts["cached_entries"] = cached
        if self._options.repair:
            self._report.repaired += await local.repair(reference, self._findings.problems)


async def _what_bucket(
    store: RetryingStore, listing: Listing, findings: Findings
) -> tuple[Mode, bytes]:
    """Fencing mode and bucket id, also where bucket.json is damaged or gone. Raises
    StoreUnusableError when there is nothing of ours."""
    info = None
    try:
        info = await read_bucket_info(store)
    except StoreUnusableError as error:
        damage = partial(findings.add, "bucket_info_damaged", layout.BUCKET, error.detail)
    else:
        damage = partial(findings.add, "bucket_info_missing", layout.BUCKET, "it is not there")
    if listing.bases:  # which say what it says
        return "B", info.id_bytes if info else bytes(16)
    if info is not None:
        return info.mode, info.id_bytes
    if not listing.first_entry_key:
        raise StoreUnusableError(f"{store.description} holds no bucket of an appliance")
    damage()
    key = listing.first_entry_key
    head = await store.get_range(key, 0, HEADER_BYTES)
    try:
        return "A", read_header(head.data).bucket_id
    except BadBatchError as error:
        raise StoreUnusableError(f"neither {layout.BUCKET} nor {key} can be read") from error
