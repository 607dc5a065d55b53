"""One whole `seb fsck`: its steps in order, and its report as plain data."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from seb_appliance.broker.ports import LoadedState
from seb_appliance.clock import Clock, SystemClock
from seb_appliance.errors import BadBatchError, StartError, StoreError, StoreUnusableError
from seb_appliance.formats.entry import HEADER_BYTES, read_header
from seb_appliance.ops.checks.coverage import Coverage, InForce, unreferenced
from seb_appliance.ops.checks.findings import Findings, Problem
from seb_appliance.ops.checks.lake import LakeCheck
from seb_appliance.ops.checks.local_files import KeyIndexCheck, LocalFiles
from seb_appliance.ops.checks.objects import Listing, ObjectReader, list_adopted, list_bucket
from seb_appliance.ops.checks.reference import DigestDatabase, Reference
from seb_appliance.ops.host.data_directory import data_directory_if_free
from seb_appliance.ops.host.scratch import scratch_folder
from seb_appliance.ops.host.stores import make_store
from seb_appliance.settings import Settings
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bucket_info import (
    BucketInfo,
    read_bucket_info,
    refuse_unfinished_copy,
)
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore, given_up
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.stores.store_clock import StoreClock

ANSWER_WITHIN_S: Final = 60.0
EXIT_CLEAN: Final = 0
EXIT_PROBLEMS: Final = 65
_LOOKS: Final = 3  # at a bucket that changes during the check
_PRINTED_WITHIN_S: Final = 2.0  # is the metadata of a table's commit, by a running appliance


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """`quick`: read the log's tables only, no object whole; `full`: compare every row of the key
    index, and read every row of lake tables; `repair`: repair local files. `data`: a data directory
    that we have locked, or None."""

    quick: bool = False
    full: bool = False
    repair: bool = False
    data: Path | None = None
    grace_ms: int = 0


@dataclass(slots=True)
class CheckReport:
    """`counts`: what was checked. `repaired`: what was repaired, in words."""

    bucket: str
    mode: Mode
    bucket_id: bytes
    seq: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    repaired: list[str] = field(default_factory=list)

    @property
    def unrepaired(self) -> int:
        """How many problems remain: each repair is of one."""
        return self.findings.total - len(self.repaired)


async def check(
    settings: Settings,
    progress: Progress,
    *,
    quick: bool = False,
    full: bool = False,
    repair: bool = False,
    bucket_only: bool = False,
) -> tuple[dict[str, Any], int]:
    """Check the bucket, and the data directory unless a server uses it; data for the terminal or
    JSON, and the exit code. Raises StartError."""
    clock, raw = SystemClock(), make_store(settings, must_exist=True)
    store = RetryingStore(raw, clock, random.random, give_up_after_s=ANSWER_WITHIN_S)
    try:
        with data_directory_if_free(settings.data) as is_free:
            is_local = is_free and not bucket_only
            if repair and not is_local:
                raise StartError(
                    f"--repair needs the data directory {settings.data} for itself: stop the "
                    "appliance first. Nothing was done."
                )
            options = CheckOptions(
                quick=quick,
                full=full,
                repair=repair,
                data=settings.data if is_local else None,
                grace_ms=settings.garbage_grace_ms,
            )
            report = await check_bucket(store, clock, options, progress)
    except StoreError as error:
        raise given_up(error) from error
    finally:
        await store.close()
    if is_local:
        local = "checked"
    elif bucket_only:
        local = "not checked (--bucket-only)"
    elif (settings.data / "lock").exists():
        local = f"not checked: an appliance runs on {settings.data}"
    else:
        local = f"not checked: there is no data directory {settings.data}"
    data = {
        "verdict": _verdict(report),
        "bucket": report.bucket,
        "bucket_id": report.bucket_id.hex(),
        "fencing_mode": report.mode,
        "seq": report.seq,
        "looked_at": report.counts,
        "local_files": local,
        "problems_total": report.findings.total,
        "problems": [problem.as_data() for problem in report.findings.problems],
        "repaired": report.repaired,
    }
    return data, EXIT_PROBLEMS if report.unrepaired else EXIT_CLEAN


def _verdict(report: CheckReport) -> str:
    by = report.findings.by_severity
    parts = {
        "DAMAGED": by["damage"],
        "leftovers": by["leftover"],
        "local files differ": by["local"],
        "repaired": len(report.repaired),
    }
    return ", ".join(f"{words} ({n:,})" for words, n in parts.items() if n) or "clean"


async def check_bucket(
    store: RetryingStore, clock: Clock, options: CheckOptions, progress: Progress
) -> CheckReport:
    """Check everything. Raises StoreUnusableError when there is no bucket, or half a copy of one,
    StoreError when it does not answer."""
    await refuse_unfinished_copy(store)
    findings = Findings()
    progress(0, 0, "listing the bucket")
    listing = await list_bucket(store, findings)
    mode, bucket_id = await _identity(store, listing, findings)
    report = CheckReport(store.description, mode, bucket_id, findings=findings)
    with scratch_folder("seb-fsck-") as folder:
        reference = Reference(
            await DigestDatabase.open(folder / "reference.sqlite"),
            folder,
            store,
            clock,
            findings,
            progress,
            mode=mode,
            bucket_id=bucket_id,
        )
        try:
            await _Check(store, clock, options, progress, report, listing, reference).run(folder)
            report.seq = (await reference.database.position()).seq
        finally:
            await reference.database.close()
    report.counts |= {
        "journal_entries": listing.entry_count,
        "segments": len(listing.objects) + len(listing.adopted),
        "snapshots": len(listing.snapshots),
        "bytes": listing.total_bytes,
        "entries_replayed": reference.entries_replayed,
        "snapshots_compared": reference.snapshots_compared,
    }
    return report


@dataclass(frozen=True, slots=True)
class _Check:
    store: RetryingStore
    clock: Clock
    options: CheckOptions
    progress: Progress
    report: CheckReport
    listing: Listing
    reference: Reference

    async def run(self, folder: Path) -> None:
        report, reference, findings = self.report, self.reference, self.report.findings
        local = None
        if self.options.data is not None:
            local = LocalFiles(self.options.data, folder, findings)
            if (seq := await local.read_state()) is not None:
                reference.stop_at(seq)
        await reference.follow(self.listing)
        report.bucket_id = reference.bucket_id
        if report.mode == "B":
            await self._check_info()
        await reference.check_snapshots(self.listing.snapshots)
        reader = ObjectReader(self.store, findings, self.progress, reference.bucket_id)
        reader.wanted = InForce(await reference.database.load(), report.mode).by_object
        await list_adopted(self.store, self.listing, reader.wanted)
        if not self.options.quick:
            await reader.read_all(self.listing)
        report.counts |= {"objects_read": reader.read_objects, "bytes_read": reader.read_bytes}
        coverage, state = await self._cover(reader)
        if reference.is_whole:
            await self._check_lake(state)
        if local is None:
            return
        self.progress(0, 0, "checking local files")
        await local.compare_state(reference)
        if local.key_index.exists():
            check = KeyIndexCheck(local.key_index, folder, self.store, coverage, findings)
            await check.run(state, reference.bucket_id, full=self.options.full)
            report.counts["key_index_sections"] = check.checked
        report.counts["cached_entries"] = local.check_cache(reference.bucket_id)
        if self.options.repair:
            report.repaired += await local.repair(reference, findings.problems)

    async def _cover(self, reader: ObjectReader) -> tuple[Coverage, LoadedState]:
        """A problem counts if two looks show it, with the changes between them applied."""
        reference, report = self.reference, self.report
        problems: list[Problem] | None = None
        for _ in range(_LOOKS):
            await reference.catch_up()
            state = await reference.database.load()
            in_force = InForce(state, report.mode)
            reader.wanted = in_force.by_object
            self.progress(0, 0, "comparing the log with the objects")
            coverage = Coverage(in_force, reference.database, self.listing, reader)
            seen = await coverage.problems()
            known = set(seen)
            problems = seen if problems is None else [one for one in problems if one in known]
            if not problems:
                break
        report.findings.add_all(problems or [])
        report.counts |= {
            "topics": len(state.topics),
            "objects_in_force": len(in_force.by_object),
            "objects_condemned": len(state.garbage),
        }
        if reference.is_whole:
            now_us = StoreClock(self.clock, self.store).wall_us()
            grace_ms = self.options.grace_ms
            strays = unreferenced(in_force, self.listing, now_us=now_us, grace_ms=grace_ms)
            report.findings.add_all(list(strays))
        return coverage, state

    async def _check_lake(self, state: LoadedState) -> None:
        """A problem counts if each look shows it: an appliance may commit and print meanwhile."""
        self.progress(0, 0, "checking lake tables")
        problems: list[Problem] | None = None
        for looks_left in reversed(range(_LOOKS)):
            look = LakeCheck(self.store, state, self.options.quick, self.options.full)
            seen = await look.problems()
            problems = seen if problems is None else [one for one in problems if one in seen]
            if not problems:
                break
            if looks_left:
                await self.clock.sleep(_PRINTED_WITHIN_S)
                await self.reference.catch_up()
                state = await self.reference.database.load()
        self.report.findings.add_all(problems or [])
        self.report.counts |= {
            "tables": len(state.lake_tables),
            "table_files": look.files,
            "table_strays": look.strays,
        }

    async def _check_info(self) -> None:
        """In mode B bucket.json is a copy of what the bases say."""
        right = BucketInfo(bucket_id=self.reference.bucket_id.hex(), mode="B")
        try:
            info = await read_bucket_info(self.store)
        except StoreUnusableError:
            info = None
        if info != right:
            detail = "it is missing, or differs from the bases"
            self.report.findings.add("bucket_info_differs", layout.BUCKET, detail)


async def _identity(
    store: RetryingStore, listing: Listing, findings: Findings
) -> tuple[Mode, bytes]:
    """Fencing mode and bucket id, also if bucket.json is damaged or missing. Raises
    StoreUnusableError when the bucket holds nothing of an appliance."""
    info, code, detail = None, "bucket_info_missing", "it does not exist"
    try:
        info = await read_bucket_info(store)
    except StoreUnusableError as error:
        code, detail = "bucket_info_damaged", error.detail
    if listing.bases:  # they hold the same
        return "B", info.id_bytes if info else bytes(16)
    if info is not None:
        return info.mode, info.id_bytes
    if not listing.first_entry_key:
        raise StoreUnusableError(f"{store.description} is not the bucket of an appliance")
    findings.add(code, layout.BUCKET, detail)
    key = listing.first_entry_key
    head = await store.get_range(key, 0, HEADER_BYTES)
    try:
        return "A", read_header(head.data).bucket_id
    except BadBatchError as error:
        raise StoreUnusableError(f"neither {layout.BUCKET} nor {key} can be read") from error
