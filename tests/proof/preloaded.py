"""Libraries between a process and the system: I/O errors by chance, a clock that jumps."""

from __future__ import annotations

from pathlib import Path

STEP_CACHED_S = 1
_LIBRARIES = [Path("/usr/lib"), Path("/usr/local/lib")]


class NotInstalledError(Exception):
    """`.ci/install-faults` installs what is missing."""


def _library(name: str) -> str:
    for folder in _LIBRARIES:
        for path in sorted(folder.rglob(name)):
            return str(path)
    raise NotInstalledError(f"{name} is not there: run .ci/install-faults")


def failing_writes(probability: float) -> dict[str, str]:
    """The environment of a process whose positioned writes and syncs of files fail now and then,
    as those of SQLite do; what it sends to sockets is not touched."""
    points = ("posix/io/rw/pwrite", "posix/io/sync/fsync", "posix/io/sync/fdatasync")
    rules = [f"enable_random name={point},probability={probability}" for point in points]
    libraries = (_library("fiu_run_preload.so"), _library("fiu_posix_preload.so"))
    return {"LD_PRELOAD": " ".join(libraries), "FIU_ENABLE": "\n".join(rules)}


def jumping_clock(step: Path) -> dict[str, str]:
    """The environment of a process whose wall clock is off by what the file at `step` says (as
    `-1h` or `+10y`). The process reads the file once a second: at each look at the clock, this
    alone would take all its time. Its monotonic clock is not touched."""
    step.write_text("+0\n")
    return {
        "LD_PRELOAD": _library("libfaketime.so.1"),
        "FAKETIME_TIMESTAMP_FILE": str(step),
        "FAKETIME_CACHE_DURATION": str(STEP_CACHED_S),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
