"""PNG files of pages, made small: a palette of 256 colours is enough for text and lines."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256


def smaller(png: bytes) -> bytes:
    """The same picture with the 256 colours that are most frequent; others become the nearest."""
    chunks = dict(_chunks(png))
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, kind, rest) == (8, 2, [0, 0, 0]), "RGB, not interlaced, as Chromium makes it"
    rows = _rows(zlib.decompress(chunks[b"IDAT"]), width * 3)
    pixels = [[row[at : at + 3] for at in range(0, len(row), 3)] for row in rows]
    counts = Counter(pixel for row in pixels for pixel in row)
    palette = [colour for colour, _ in counts.most_common(_COLOURS)]
    number = {colour: i for i, colour in enumerate(palette)}
    for colour in counts:
        if colour not in number:
            number[colour] = min(range(_COLOURS), key=lambda i: _distance(palette[i], colour))
    data = b"".join(b"\0" + bytes(number[pixel] for pixel in row) for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(data, 9)))
    return _SIGNATURE + b"".join(_chunk(*part) for part in (*parts, (b"IEND", b"")))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and content; IDAT in one."""
    at, data = len(_SIGNATURE), b""
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if name == b"IDAT":
            data += content
        else:
            yield name, content
        at += 12 + length
    yield b"IDAT", data


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def _rows(data: bytes, length: int) -> Iterator[bytes]:
    """The rows without their filters."""
    above = bytes(length)
    for begin in range(0, len(data), length + 1):
        row = bytearray(data[begin + 1 : begin + 1 + length])
        for i in range(length):
            left, up = (row[i - 3], above[i - 3]) if i >= 3 else (0, 0)
            row[i] = (row[i] + _predicted(data[begin], left, above[i], up)) & 255
        above = bytes(row)
        yield above


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind < 4:
        return (0, left, up, (left + up) // 2)[kind]
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))


def _distance(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
