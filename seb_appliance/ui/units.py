"""Formats numbers, times and bytes for people: filters of the templates."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from markupsafe import Markup

from seb_appliance import limits
from seb_appliance.quantities import counted

_NOTHING: Final = "-"
_SECOND_US: Final = 1_000_000


def count(number: float | None) -> str:
    """A number with thousands separators; below ten with one digit of a fraction, below one with
    two."""
    if number is None:
        return _NOTHING
    if number == int(number) or abs(number) >= 10:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 1 else f"{number:.2g}"


def size(count_bytes: float | None) -> str:
    """An approximate size, such as 1.5 MiB."""
    if count_bytes is None:
        return _NOTHING
    amount = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def rate(per_second: float | None) -> str:
    return _NOTHING if per_second is None else f"{count(per_second)}/s"


def size_rate(per_second: float | None) -> str:
    return _NOTHING if per_second is None else f"{size(per_second)}/s"


def span(seconds: float | None) -> str:
    """An approximate duration, such as 38 ms, 1.2 s, 5 min, 3 h, 12 d."""
    if seconds is None:
        return _NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:z.1f} ms"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def share(part: float | None) -> str:
    return _NOTHING if part is None else f"{part * 100:z.1f} %"


def money(amount: float | None, currency: str = "$") -> str:
    """With two fraction digits, or more if they would all be 0."""
    if amount is None:
        return _NOTHING
    digits = 2 if amount == 0 or abs(amount) >= 0.01 else 5
    return f"{amount:,.{digits}f} {currency}"


def moment(at_us: int) -> str:
    """UTC, to the second."""
    return _utc(at_us).strftime("%Y-%m-%d %H:%M:%SZ")


def moment_ms(at_us: int) -> str:
    """UTC, to the millisecond."""
    return f"{moment(at_us)[:-1]}.{at_us // 1000 % 1000:03}Z"


def time_tag(at_us: int | None, words: Callable[[int], str] = moment) -> Markup | str:
    """`<time>` to the second; its title has the full time."""
    if at_us is None:
        return _NOTHING
    exact = exact_time(at_us)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, words(at_us))


def time_tag_ms(at_us: int) -> Markup | str:
    return time_tag(at_us, moment_ms)


def ago(at_us: int | None, now_us: int) -> Markup | str:
    """`<time>` with the age; its title has the full time."""
    if at_us is None:
        return _NOTHING
    exact = exact_time(at_us)
    seconds = (now_us - at_us) / _SECOND_US
    words = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, words)


def _utc(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // _SECOND_US, UTC)


def exact_time(at_us: int) -> str:
    """UTC, to the microsecond, as RFC 3339 writes it."""
    return _utc(at_us).strftime("%Y-%m-%dT%H:%M:%S") + f".{at_us % _SECOND_US:06}Z"


_GOOD: Final = frozenset({"active", "live"})
_BAD: Final = frozenset({"failing", "expired", "foreign", "behind"})


def pill(state: str) -> Markup:
    """A state in a word, in its colour."""
    kind = "good" if state in _GOOD else "bad" if state in _BAD else "warn"
    return Markup('<span class="pill {}">{}</span>').format(kind, state)


def marked(text: str, needle: str) -> Markup:
    """The text with `<mark>` around each `needle`."""
    if not needle:
        return Markup.escape(text)
    found = Markup("<mark>{}</mark>").format(needle)
    return found.join(text.split(needle))


FILTERS: Final = {
    "count": count,
    "counted": counted,
    "size": size,
    "rate": rate,
    "size_rate": size_rate,
    "span": span,
    "share": share,
    "money": money,
    "moment": moment,
    "time_tag": time_tag,
    "time_tag_ms": time_tag_ms,
    "ago": ago,
    "pill": pill,
    "marked": marked,
}


Show = Literal["json", "text", "hex"]
SHOWS: Final[tuple[Show, ...]] = ("json", "text", "hex")
# Control characters but tab and line feed; marks that join or turn text; lone surrogates.
_UNSEEN: Final = re.compile(
    "\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_HEX_LINE: Final = 16


@dataclass(frozen=True, slots=True)
class Shown:
    """A formatted value. `kind`: JSON, text, hex or tombstone. `is_cut`: the value is longer."""

    text: str
    kind: str
    is_cut: bool = False


def visible(text: str) -> str:
    """Escapes invisible characters and those that change the text direction."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _UNSEEN.sub(escape, text)


def short(content: bytes) -> str:
    """A record key or similar bytes: text if it is UTF-8, else `0x…`."""
    try:
        return visible(content.decode())
    except UnicodeDecodeError:
        return f"0x{content.hex()}"


def shown(value: bytes | None, show: Show, most: int) -> Shown:
    """At most `most` characters of it: pretty JSON if it is wanted and the value is JSON, else
    text if it is UTF-8, else hex."""
    if value is None:
        return Shown("", "tombstone")
    if show == "hex":
        return _hex(value, most)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _hex(value, most)
    pretty = _pretty(value) if show == "json" else None
    kind, text = ("text", text) if pretty is None else ("JSON", pretty)
    return Shown(visible(text[:most]), kind, len(text) > most)


def lines_of(value: bytes | None) -> list[str]:
    """The lines to compare: of formatted JSON, else of text, else of hex."""
    return shown(value, "json", 1 << 30).text.splitlines() if value is not None else ["(tombstone)"]


def _pretty(value: bytes) -> str | None:
    """Formatted JSON; None if the value is not a JSON object or list."""
    if value.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.format(value, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _hex(value: bytes, most: int) -> Shown:
    """Lines of 16 bytes: place, bytes, and ASCII."""
    lines = max(1, most // 80)
    dumped = []
    for begin in range(0, min(len(value), lines * _HEX_LINE), _HEX_LINE):
        part = value[begin : begin + _HEX_LINE]
        plain = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        dumped.append(f"{begin:08x}  {part.hex(' '):<47}  {plain}")
    return Shown("\n".join(dumped), "hex", len(value) > lines * _HEX_LINE)


@dataclass(frozen=True, slots=True)
class Line:
    """`kind`: same, gone or new; gap where lines that are the same are left out."""

    kind: str
    text: str


def differences(before: bytes | None, after: bytes | None) -> list[Line] | None:
    """The differing lines of formatted JSON, else of text; empty if the versions are equal, None if
    they are too large to compare. May take some tens of milliseconds."""
    if max(len(before or b""), len(after or b"")) > limits.VALUE_SHOWN_BYTES_MAX:
        return None
    old, new = lines_of(before), lines_of(after)
    if max(len(old), len(new)) > limits.COMPARED_LINES_MAX:
        return None
    kinds = {"-": "gone", "+": "new", " ": "same", "@": "gap"}
    compared = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]  # without the head
    return [Line(kinds[one[0]], "" if one[0] == "@" else one[1:]) for one in compared]


def neighbours(
    values: Sequence[bytes | None],
) -> list[list[Line] | None]:
    """The difference of each version, newest first, from the next older one; None for the
    oldest."""
    return [differences(values[i + 1], values[i]) for i in range(len(values) - 1)]
