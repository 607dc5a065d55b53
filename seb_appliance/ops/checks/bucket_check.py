"""What `seb fsck` does and says, as plain data. Part of the composition root, like app.py."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from seb_appliance.clock import SystemClock
from seb_appliance.errors import StartError, StoreError
from seb_appliance.ops.checks.check import CheckOptions, CheckReport, check_bucket
from seb_appliance.ops.checks.findings import Problem
from seb_appliance.ops.host.data_directory import data_directory_if_free
from seb_appliance.ops.host.stores import make_store
from seb_appliance.settings import Settings
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore, given_up

EXIT_CLEAN: Final = 0
EXIT_PROBLEMS: Final = 65
ANSWER_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BucketCheck:
    """`data` is for the terminal or JSON."""

    data: dict[str, Any]
    exit_code: int


async def check(
    settings: Settings,
    progress: Progress,
    *,
    quick: bool = False,
    full: bool = False,
    repair: bool = False,
    bucket_only: bool = False,
) -> BucketCheck:
    """Check the bucket, and the data directory while no server has it. Raises StartError."""
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
    local = "checked" if is_local else _why_not(settings, bucket_only=bucket_only)
    return BucketCheck(_told(report, local), EXIT_PROBLEMS if report.unrepaired else EXIT_CLEAN)


def _why_not(settings: Settings, *, bucket_only: bool) -> str:
    if bucket_only:
        return "not checked (--bucket-only)"
    if (settings.data / "lock").exists():
        return f"not checked: an appliance runs on {settings.data}"
    return f"not checked: there is no data directory {settings.data}"


def _told(report: CheckReport, local: str) -> dict[str, Any]:
    findings = report.findings
    return {
        "verdict": _verdict(report),
        "bucket": report.bucket,
        "bucket_id": report.bucket_id.hex(),
        "fencing_mode": report.mode,
        "seq": report.seq,
        "looked_at": report.counts,
        "local_files": local,
        "problems_total": findings.total,
        "problems": [_problem(problem) for problem in findings.problems],
        "repaired": report.repaired,
    }


def _verdict(report: CheckReport) -> str:
    by = report.findings.by_severity
    if not report.findings.total:
        return "clean"
    parts = []
    if by["damage"]:
        parts.append(f"DAMAGED ({by['damage']:,})")
    if by["leftover"]:
        parts.append(f"leftovers ({by['leftover']:,})")
    if by["local"]:
        parts.append(f"local files differ ({by['local']:,})")
    if report.repaired:
        parts.append(f"repaired ({len(report.repaired):,})")
    return ", ".join(parts)


def _problem(problem: Problem) -> dict[str, Any]:
    told: dict[str, Any] = {
        "code": problem.code,
        "severity": problem.severity,
        "object": problem.subject,
        "detail": problem.detail,
        "advice": problem.advice,
    }
    if problem.topic is not None:
        told["topic"] = problem.topic
    if problem.offsets is not None:
        first, last = problem.offsets
        told |= {"first_offset": first, "last_offset": last}
    return told
