"""Values as people write them: `250ms`, `7d`, `8MiB`, `on`, `0.5`.

One grammar for flags, `SEB_*` variables, the settings file, forms and query parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final

_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SWITCHES: Final = {
    "true": True, "on": True, "yes": True, "1": True,
    "false": False, "off": False, "no": False, "0": False,
}  # fmt: skip
_QUANTITY: Final = re.compile(r"(\d{1,15})([A-Za-z]*)", re.ASCII)


def duration_ms(text: str) -> int:
    """Milliseconds of `250ms`, `10s`, `5m`, `12h`, `7d`; only 0 needs no unit.

    Raises ValueError that ends a sentence: "… is not a duration such as 250ms, 10s or 7d".
    """
    if text.isdigit() and text.strip("0"):
        raise ValueError(f"{text[:100]!r} has no unit; write {text[:20]}ms or {text[:20]}s")
    return _parse(text, _MS, "a duration such as 250ms, 10s or 7d")


def size_bytes(text: str) -> int:
    """Bytes of `512B`, `64KiB`, `8MiB`, `1GiB`; a bare number is bytes. Raises ValueError."""
    return _parse(text, _BYTES, "a size such as 64KiB or 8MiB")


def format_duration(milliseconds: int) -> str:
    """The shortest exact form: 90000 is `90s`, 60000 is `1m`."""
    return _format(milliseconds, _MS)


def format_size(size: int) -> str:
    """The shortest exact form: 8388608 is `8MiB`."""
    return _format(size, _BYTES)


def switch(text: str, *, lenient: bool = False) -> bool:
    """`on` or `off`; `lenient`: also `true`, `yes`, `1` and their opposites. Raises ValueError."""
    if text.lower() not in _SWITCHES or not (lenient or text in ("on", "off")):
        raise ValueError(f"{text!r} is neither on nor off")
    return _SWITCHES[text.lower()]


def whole(text: str) -> int:
    """Raises ValueError."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text[:100]!r} is not a whole number")
    return int(text)


def ratio(text: str) -> float:
    """Raises ValueError. A factor may be above 1."""
    with suppress(ValueError):
        number = float(text)
        if 0 <= number < inf:  # refuses nan, too
            return number
    raise ValueError(f"{text[:100]!r} is not a number such as 0.5")


def format_value(kind: str, value: Any) -> str:
    """`value` as the reader of its kind takes it."""
    if kind == "duration":
        return format_duration(value)
    if kind == "size":
        return format_size(value)
    if kind == "switch":
        return "on" if value else "off"
    if kind == "names":
        return ", ".join(value)
    return f"{value:g}" if kind == "ratio" else str(value)


def _parse(text: str, units: dict[str, int], what: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(f"{text!r} is not {what}")
    return int(match[1]) * units[match[2] or next(iter(units))]


def _format(amount: int, units: dict[str, int]) -> str:
    smallest = next(iter(units))
    unit = next(
        (u for u, size in reversed(units.items()) if amount and amount % size == 0), smallest
    )
    return f"{amount // units[unit]}{unit}"


def counted(number: int, noun: str) -> str:
    """`1 entry`, `1,200 entries`: the noun is given in the singular."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number:,} {plural}"


READERS: Final[dict[str, Callable[[str], Any]]] = {
    "duration": duration_ms,
    "size": size_bytes,
    "number": whole,
    "switch": switch,
    "ratio": ratio,
    "text": str,
    "names": lambda text: [name for one in text.split(",") if (name := one.strip())],
}
