"""The line that moves while something takes long: on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

Counted = Callable[[int, int, str], None]

BAR_CELLS: Final = 30
EVERY_S: Final = 0.1


class Progress:
    """On stderr, if that is a terminal and `wanted`. Gone when the work is over."""

    def __init__(
        self, *, wanted: bool = True, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_shown = wanted and sys.stderr.isatty()
        self._monotonic_s = monotonic_s
        self._next_s = 0.0

    def __enter__(self) -> Self:
        return self

    def show(self, phase: str, done: float | None) -> None:
        """`done`: 0 to 1; None: nobody knows."""
        if not self._is_shown or self._monotonic_s() < self._next_s:
            return
        self._next_s = self._monotonic_s() + EVERY_S
        filled = round(min(1.0, done or 0.0) * BAR_CELLS)
        bar = "█" * filled + "·" * (BAR_CELLS - filled) if done else ""
        sys.stderr.write(f"\r\033[K{phase} {bar}")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


@contextmanager
def showing(first: str) -> Iterator[Counted]:
    """A line for work that counts what is done, of how many in all (0: nobody knows), and says what
    that is; before it counts, `first`."""
    with Progress() as progress:
        progress.show(first, None)
        yield lambda done, total, phase: progress.show(
            f"{phase}  {done:,} of {total:,}" if total else phase, done / total if total else None
        )
