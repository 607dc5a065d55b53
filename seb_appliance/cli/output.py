"""What commands print: tables for people, JSON for programs, bytes as they are. Always UTF-8."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from seb_appliance.cli.errors import WRONG, CommandError, OutputError
from seb_appliance.errors import printable

Cell = str | int | None


class Quantity(str):
    """A number with its unit: aligned as numbers are."""

    __slots__ = ()


def write(data: bytes) -> None:
    """To stdout, unbuffered. Raises OutputError, BrokenPipeError."""
    sys.stdout.flush()
    sink = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)  # counts written bytes
    left = memoryview(data)
    try:
        while left:
            taken = sink.write(left)
            if taken is None:  # non-blocking, shared with another process
                select.select([], [sink], [])
            else:
                left = left[taken:]
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error), len(data) - len(left)) from error


def goes_to_a_file() -> bool:
    """Whether stdout is a file. The reader of a pipe may draw on the same terminal."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # no descriptor, as in a test
        return False


@contextmanager
def bounded_nesting() -> Iterator[None]:
    """Around what makes text of data that others wrote. Raises CommandError."""
    try:
        yield
    except RecursionError as error:
        raise CommandError("the data is nested too deeply to be shown", WRONG) from error


def say(text: str) -> None:
    write(f"{text}\n".encode())


def say_json(value: Any) -> None:
    # What is no Unicode, as a file's name may be, becomes JSON's escape of it.
    with bounded_nesting():
        text = json.dumps(value, indent=2, ensure_ascii=False)
    say(text.encode(errors="backslashreplace").decode())


def tell(text: str) -> None:
    """To stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def table(names: Sequence[str], rows: Iterable[Sequence[Cell]], nothing: str) -> str:
    """Columns under their names, numbers to the right with their thousands marked; `nothing` when
    there is no row."""
    rows = list(rows)
    if not rows:
        return nothing
    shown = [[cell_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    right = [
        all(not isinstance(cell, str) or isinstance(cell, Quantity) for cell in column)
        for column in zip(*rows, strict=True)
    ]
    return "\n".join(
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in (names, *shown)
    )


def cell_text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else printable(cell)


def size(count: int) -> Quantity:
    """Rounded, in a readable unit."""
    if count < 1024:
        return Quantity(f"{count} B")
    amount, units = count / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    return Quantity(f"{amount:.1f} {units[0]}")


def span(seconds: float) -> Quantity:
    """Rounded, in a readable unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return Quantity(f"{seconds / length:.0f} {unit}")
    return Quantity(f"{seconds:z.1f} s")


def moment(time: str | None) -> str | None:
    """A time of the API to the second, in UTC."""
    return None if time is None else f"{time[:19].replace('T', ' ')}Z"


def outline(value: dict[str, Any] | list[Any], indent: str = "") -> str:
    """One member a line, names aligned, nested members indented; without empty lists and maps, and
    with control characters escaped."""
    if isinstance(value, list):
        return "\n".join(_item(item, indent) for item in value)
    shown = {printable(name): item for name, item in value.items() if item not in ([], {})}
    width = max((len(name) for name, item in shown.items() if not _is_nested(item)), default=0)
    return "\n".join(
        f"{indent}{name}\n{outline(item, indent + '  ')}"
        if _is_nested(item)
        else f"{indent}{name:<{width}}  {_plain(item)}"
        for name, item in shown.items()
    )


def _item(item: Any, indent: str) -> str:
    if not _is_nested(item):
        return f"{indent}- {_plain(item)}"
    return f"{indent}- {outline(item, indent + '  ').lstrip()}"


def _is_nested(value: object) -> bool:
    """Whether it needs lines of its own; a list of scalars does not."""
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict)


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return printable(str(value))


Counted = Callable[[int, int, str], None]

BAR_CELLS: Final = 30
EVERY_S: Final = 0.1


class Progress:
    """A progress line on stderr, if that is a terminal and `wanted`. Erased at the end."""

    def __init__(
        self, *, wanted: bool = True, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_shown = wanted and sys.stderr.isatty()
        self._monotonic_s = monotonic_s
        self._next_s = 0.0

    def __enter__(self) -> Self:
        return self

    def show(self, phase: str, done: float | None) -> None:
        """`done`: 0 to 1; None: unknown."""
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
    """A progress line: `first`, then what the work reports (done, total or 0 if unknown, phase)."""
    with Progress() as progress:
        progress.show(first, None)
        yield lambda done, total, phase: progress.show(
            f"{phase}  {done:,} of {total:,}" if total else phase, done / total if total else None
        )
