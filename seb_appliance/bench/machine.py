"""Where a measurement was taken, and what a process has used of it (Linux; elsewhere: unknown)."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
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
