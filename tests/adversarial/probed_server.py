"""`seb …` on an event loop that measures itself: SIGUSR1 writes its longest slices to a file.

    python -m tests.adversarial.probed_server FILE serve --bucket …

A slice is what runs between two looks for new events: nobody else is served meanwhile. It is
measured in processor time of its thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from seb_appliance.cli import main as seb

KEPT: Final = 10
NOTED_S: Final = 0.003


class Probe(selectors.DefaultSelector):
    """The loop's selector, which also measures what lies between two calls of it. `longest`: since
    the last `write`, in seconds, each with the handle that ran longest in it."""

    def __init__(self) -> None:
        super().__init__()
        self._longest: list[tuple[float, int, str]] = []
        self._number = 0
        self._began_s = time.thread_time()
        self._handle: tuple[float, str] = (0.0, "")

    def select(self, timeout: float | None = None) -> Any:
        took_s = time.thread_time() - self._began_s
        if took_s > NOTED_S:
            self._number += 1
            heapq.heappush(self._longest, (took_s, self._number, self._handle[1]))
            if len(self._longest) > KEPT:
                heapq.heappop(self._longest)
        self._handle = (0.0, "")
        try:
            return super().select(timeout)
        finally:
            self._began_s = time.thread_time()

    def watch_handles(self) -> None:
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began_s = time.thread_time()
            run(handle)
            took_s = time.thread_time() - began_s
            if took_s > self._handle[0]:
                self._handle = (took_s, repr(handle)[:500] if took_s > NOTED_S else "")

        asyncio.Handle._run = timed  # type: ignore[method-assign]

    def write(self, path: Path) -> None:
        """All since the last time, the longest first."""
        longest, self._longest = sorted(self._longest, reverse=True), []
        text = json.dumps([{"ms": took_s * 1000, "what": what} for took_s, _, what in longest])
        written = path.with_suffix(".new")
        written.write_text(text)
        written.replace(path)


def main() -> None:
    path = Path(sys.argv[1])
    sys.argv[1:2] = []
    probe = Probe()
    probe.watch_handles()

    def probed_loop() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(probe)
        loop.add_signal_handler(signal.SIGUSR1, probe.write, path)
        return loop

    uvloop.new_event_loop = probed_loop
    seb()


if __name__ == "__main__":
    main()
