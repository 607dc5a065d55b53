"""How far something long has come, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int, str], None]


@contextmanager
def showing(first: str) -> Iterator[Progress]:
    """A line that moves (done, of how many in all, what is being done), first `first`; elsewhere
    nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    with console.status(first) as status:
        yield lambda done, total, phase: status.update(
            f"{phase}  {done:,} of {total:,}" if total else phase
        )
