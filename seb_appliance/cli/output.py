"""What commands print: tables for people, JSON for programs, bytes as they are. Always UTF-8."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from seb_appliance.cli.remote import OutputError

Cell = str | int | None


class Quantity(str):
    """A number with its unit: aligned as numbers are."""

    __slots__ = ()


def write(data: bytes) -> None:
    """To stdout, at once: whoever reads us gets it now, or we learn that nobody does. Raises
    OutputError, BrokenPipeError."""
    sys.stdout.flush()
    sink = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)  # unbuffered: so many are written
    left = memoryview(data)
    try:
        while left:
            taken = sink.write(left)
            if taken is None:  # it does not block; whoever started us shares it
                select.select([], [sink], [])
            else:
                left = left[taken:]
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error), len(data) - len(left)) from error


def goes_to_a_file() -> bool:
    """Whether stdout does. At the other end of a pipe somebody may draw on the same terminal."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # there is none, as in a test
        return False


def say(text: str) -> None:
    write(f"{text}\n".encode())


def say_json(value: Any) -> None:
    say(json.dumps(value, indent=2, ensure_ascii=False))


def tell(text: str) -> None:
    """To stderr: what is not the result itself."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def table(names: Sequence[str], rows: Sequence[Sequence[Cell]], nothing: str) -> str:
    """Columns under their names, numbers to the right with their thousands marked; `nothing` when
    there is no row."""
    if not rows:
        return nothing
    shown = [[cell_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    right = [_is_right(column) for column in zip(*rows, strict=True)]
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


def _is_right(column: Sequence[Cell]) -> bool:
    return all(cell is None or isinstance(cell, int | Quantity) for cell in column)


def printable(text: str) -> str:
    """Control characters come escaped: a name may hold a terminal's commands."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def size(count: int) -> Quantity:
    """About so many bytes, in the unit that a person would take."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            digits = 0 if unit == "B" else 1
            return Quantity(f"{amount:.{digits}f} {unit}")
        amount /= 1024
    return Quantity(f"{amount:.1f} TiB")


def span(seconds: float) -> Quantity:
    """About how long, in the unit that a person would take."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return Quantity(f"{seconds / length:.0f} {unit}")
    return Quantity(f"{seconds:.1f} s")


def moment(time: str | None) -> str | None:
    """A time of the API to the second, in UTC."""
    return None if time is None else f"{time[:19].replace('T', ' ')}Z"


# Plain data as an indented outline, safe to print to a terminal.


def outline(value: dict[str, Any] | list[Any], indent: str = "") -> str:
    """One member a line, names aligned, nested ones below it; empty lists and maps are left out.

    Control characters come escaped: a record may hold a terminal's commands.
    """
    if isinstance(value, list):
        return "\n".join(_item(item, indent) for item in value)
    shown = {name: item for name, item in value.items() if item not in ([], {})}
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
    """Whether it needs lines of its own; a list of words does not."""
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


# The line that moves while something takes long: on a terminal, nothing elsewhere.


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
