"""Bytes of records as a person reads them. What would not be seen, or would turn the text around
it, is written out: `\\u202e`. Escaping for HTML is the template's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

Show = Literal["json", "text", "hex"]
SHOWS: Final[tuple[Show, ...]] = ("json", "text", "hex")
# Control characters but tab and line feed; marks that join or turn text; lone surrogates.
_UNSEEN: Final = re.compile(
    "\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_HEX_LINE: Final = 16


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as it is shown. `kind`: JSON, text, hex or tombstone; `is_cut`: there is more."""

    text: str
    kind: str
    is_cut: bool = False


def visible(text: str) -> str:
    return _UNSEEN.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def short(content: bytes) -> str:
    """A record key or the like: text if it is UTF-8, else `0x…`."""
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
    """To be compared: of pretty JSON, else of text, else of hex."""
    return shown(value, "json", 1 << 30).text.splitlines() if value is not None else ["(tombstone)"]


def _pretty(value: bytes) -> str | None:
    """None if it is no JSON, or JSON that has no parts."""
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
