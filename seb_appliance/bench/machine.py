"""Where a measurement was taken, and what a process has used of it (Linux; elsewhere: unknown)."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

_PROC: Final = Path("/proc")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    processor: str
    cores: int
    memory_bytes: int | None
    system: str
    python: str
    uvloop: bool


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Of the measured process: the most memory that it ever had, processor time since it began."""

    peak_bytes: int
    cpu_s: float


def this_machine() -> Machine:
    return Machine(
        processor=_field(_PROC / "cpuinfo", "model name") or platform.machine(),
        cores=os.cpu_count() or 1,
        memory_bytes=_kib(_PROC / "meminfo", "MemTotal"),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        uvloop=importlib.util.find_spec("uvloop") is not None,
    )


def usage_of(pid: int) -> Usage | None:
    """None where /proc does not tell, or when the process is gone."""
    peak_bytes = _kib(_PROC / str(pid) / "status", "VmHWM")
    try:
        after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if peak_bytes is None:
        return None
    ticks = int(after_name[11]) + int(after_name[12])
    return Usage(peak_bytes=peak_bytes, cpu_s=ticks / os.sysconf("SC_CLK_TCK"))


def allow_many_files() -> None:
    """Raise our own limit of open files to what the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _field(path: Path, name: str) -> str | None:
    try:
        for line in path.read_text().splitlines():
            if line.partition(":")[0].strip() == name:
                return line.partition(":")[2].strip()
    except OSError:
        return None
    return None


def _kib(path: Path, name: str) -> int | None:
    text = _field(path, name)
    return None if text is None else int(text.split()[0]) * 1024


# How long fsync takes meanwhile, on the disk on which the bucket is.


FILE_BYTES: Final = 4_096
EVERY_S: Final = 0.02


class FsyncProbe:
    """Writes a small file in `folder` and syncs it, fifty times a second, in a thread. Only what
    lies between `begin` and `end` counts."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._path = folder / "fsync-probe"
        self._clock = clock
        self._is_over = threading.Event()
        self._counts = False
        self._seconds: list[float] = []
        self._thread = threading.Thread(target=self._run, name="fsync", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def count(self, counts: bool) -> None:
        """From now on what is measured counts, or no more."""
        self._counts = counts

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def samples(self) -> int:
        return len(self._seconds)

    def p99_us(self) -> int:
        """µs; of no sample: 0."""
        ordered = sorted(self._seconds)
        return int(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e6) if ordered else 0

    def _run(self) -> None:
        content = os.urandom(FILE_BYTES)
        while not self._is_over.wait(EVERY_S):
            began_s = self._clock()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if self._counts:
                self._seconds.append(self._clock() - began_s)
