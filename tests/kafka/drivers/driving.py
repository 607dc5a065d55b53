"""What the drivers written in Python share: options in, events out, and when to stop."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

Options = dict[str, Any]


def tell(**event: Any) -> None:
    """One event, as a line of JSON."""
    print(json.dumps(event), flush=True)


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def told_to_stop() -> threading.Event:
    """Set when stdin ends: the test has seen enough."""
    stopping = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()
    return stopping


def numbers(options: Options) -> Iterator[int]:
    """The numbers to produce, at the wanted pace."""
    for n in range(options["first"], options["first"] + options["count"]):
        yield n
        if options["pause_ms"]:
            time.sleep(options["pause_ms"] / 1000)


def key_of(n: int) -> str:
    return f"k{n % 8}"


def run(roles: dict[str, Callable[[Options], None]]) -> None:
    """Play the role of argv[1] with the options of argv[2]; `done` is the last event."""
    roles[sys.argv[1]](json.loads(sys.argv[2]))
    tell(done=True)
