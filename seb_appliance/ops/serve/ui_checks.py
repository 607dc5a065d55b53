"""What doctor and fsck found, as the page of storage shows it: from the data of their commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.ops.jobs.check_job import CheckKeeper, Found
from seb_appliance.ui.options import CheckKind, CheckShown, Figure, Remark
from seb_appliance.ui.units import count

_TITLES: Final[dict[CheckKind, str]] = {"doctor": "Doctor", "fsck": "Fsck"}
_ABOUT: Final[dict[CheckKind, str]] = {
    "doctor": "Tests the bucket with small objects below its probe/ folder (in fencing mode B some "
    "hundreds of requests), and looks at the disk and SQLite.",
    "fsck": "Replays the log and compares it with what lies in the bucket. The quick kind: no "
    "object is read whole; on the machine, seb fsck reads all of them.",
}
_COUNTED: Final = {
    "journal_entries": "Journal entries",
    "segments": "Segments",
    "snapshots": "Snapshots",
    "topics": "Topics",
    "entries_replayed": "Entries replayed",
    "snapshots_compared": "Snapshots compared",
}


def checks_shown(keeper: CheckKeeper) -> list[CheckShown]:
    """Both kinds, whether they ever ran or not; none where they cannot."""
    if not keeper.is_possible:
        return []
    return [_shown(keeper, kind) for kind in _TITLES]


def _shown(keeper: CheckKeeper, kind: CheckKind) -> CheckShown:
    title, about = _TITLES[kind], _ABOUT[kind]
    progress = keeper.progress if keeper.running == kind else ""
    found = keeper.found.get(kind)
    if found is None:
        return CheckShown(kind, title, about, progress)
    figures, remarks = _doctor(found) if kind == "doctor" else _fsck(found)
    return CheckShown(
        kind,
        title,
        about,
        progress,
        found.finished_us,
        found.seconds,
        found.is_well,
        found.failure or _verdict(found.data["verdict"]),
        figures,
        remarks,
    )


def _verdict(words: str) -> str:
    return {
        "clean": "Clean: nothing is wrong.",
        "fit to run": "Fit to run.",
    }.get(words, f"{words[:1].upper()}{words[1:]}.")


def _doctor(found: Found) -> tuple[list[Figure], list[Remark]]:
    bucket, machine = found.data.get("bucket", {}), found.data.get("machine", {})
    checks: Mapping[str, str] = bucket.get("checks", {})
    figures = [Figure("Store allows", bucket["store allows"])] if "store allows" in bucket else []
    if "put p50" in bucket:
        figures.append(Figure("PUT", f"{bucket['put p50']}", f"p50; p99 {bucket['put p99']}"))
    if "store's clock" in bucket:
        figures.append(Figure("The store's clock", bucket["store's clock"]))
    figures += [
        Figure(name.capitalize(), words)
        for name, words in machine.items()
        if name.startswith("disk")
    ]
    if "sqlite" in machine:
        figures.append(Figure("SQLite", machine["sqlite"]))
    if checks:
        passed = sum(words.startswith("ok") for words in checks.values())
        figures.append(Figure("Checks passed", f"{passed} of {len(checks)}"))
    remarks = [Remark("Warning", words) for words in bucket.get("warnings", [])]
    remarks += [
        Remark(name, words.removeprefix("NO").strip())
        for name, words in checks.items()
        if not words.startswith("ok")
    ]
    return figures, remarks


def _fsck(found: Found) -> tuple[list[Figure], list[Remark]]:
    counted: Mapping[str, Any] = found.data.get("looked_at", {})
    figures = [
        Figure(words, count(counted[name])) for name, words in _COUNTED.items() if name in counted
    ]
    remarks = [
        Remark(f"{problem['code']}: {_place(problem)}", problem["detail"], problem["advice"])
        for problem in found.data.get("problems", [])[: limits.CHECK_PROBLEMS_SHOWN]
    ]
    more = found.data.get("problems_total", 0) - len(remarks)
    if more > 0:
        remarks.append(Remark(f"{count(more)} more", "seb fsck on the machine names them all."))
    return figures, remarks


def _place(problem: Mapping[str, Any]) -> str:
    where = str(problem["object"])
    if "topic" in problem:
        where += f", topic {problem['topic']}"
    if "first_offset" in problem:
        first, last = problem["first_offset"], problem["last_offset"]
        where += f", offsets {count(first)} to {count(last)}"
    return where
