"""Something small that is done again and again while the work of a job goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(name: str, every_s: float, do: Callable[[], object]) -> Iterator[None]:
    """Call `do` in a thread every so many seconds, for the first time after one pause. It raises
    nothing; the last call has ended when the context has."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_s):
            do()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
