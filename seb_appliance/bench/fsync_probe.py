"""How long fsync takes meanwhile, on the disk on which the bucket is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

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
