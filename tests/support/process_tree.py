"""Processor time and memory of a process and what it started, as the kernel counts them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """Of a process that runs, however deep; not itself."""
    found = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def cpu_s(pid: int, *, and_ended: bool = False) -> float:
    """Processor time of a process, in seconds; `and_ended`: and of its children that have ended. 0
    if it has ended itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if and_ended else 13])) / _TICKS_A_SECOND


class Spent:
    """Processor time of all that a process has started since, while it is asked for often enough:
    what ends between two questions counts as it was at the first."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, float] = {}

    def now_s(self) -> float:
        for child in descendants(self._pid):
            self._seen[child] = max(self._seen.get(child, 0.0), cpu_s(child, and_ended=True))
        return sum(self._seen.values())


def pss_bytes(pid: int) -> int:
    """Memory of a process; what it shares with others is divided among them. 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


Pids = Callable[[], Sequence[int]]


@contextmanager
def peak_pss(groups: Mapping[str, Pids], every_s: float = 0.1) -> Iterator[dict[str, int]]:
    """The bytes of each group of processes when their sum was largest; complete after the block.
    This takes processor time: measure that apart."""
    peak: dict[str, int] = {}
    over = threading.Event()

    def watch() -> None:
        while True:
            now = {name: sum(map(pss_bytes, pids())) for name, pids in groups.items()}
            if sum(now.values()) > sum(peak.values()):
                peak.update(now)
            if over.wait(every_s):
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
