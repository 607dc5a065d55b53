"""What commands print: tables for people, JSON for programs, bytes as they are. Always UTF-8."""

from __future__ import annotations

import io
import json
import os
import select
import stat
import sys
from collections.abc import Sequence
from typing import Any

from seb_appliance.cli.failures import OutputError

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


def as_utf8() -> None:
    """What is printed is UTF-8 whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


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
