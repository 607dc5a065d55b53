"""Pictures for docs/ keep what they show when they are made small."""

from __future__ import annotations

import struct
import zlib

from tests.support.small_png import _chunk, _chunks, _rows, smaller


def png(rows: list[bytes]) -> bytes:
    """An RGB picture of rows with their filters."""
    header = struct.pack(">IIBBBBB", (len(rows[0]) - 1) // 3, len(rows), 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def test_a_picture_of_few_colours_stays_as_it_is() -> None:
    plain = bytes(range(10, 19))
    made = smaller(
        png(
            [
                b"\0" + plain,
                b"\1" + bytes([10, 11, 12, 3, 3, 3, 3, 3, 3]),  # less what is left of it
                b"\2" + bytes(9),  # less what is above it
                b"\3" + bytes([5, 6, 6, 2, 2, 2, 2, 2, 2]),  # less the mean of both
                b"\4" + bytes(9),  # less the nearer of both, or the corner
            ]
        )
    )
    chunks = dict(_chunks(made))
    palette, data = chunks[b"PLTE"], zlib.decompress(chunks[b"IDAT"])
    for row in range(4):
        numbers = data[row * 4 + 1 : row * 4 + 4]
        assert b"".join(palette[3 * one : 3 * one + 3] for one in numbers) == plain


def test_a_colour_too_many_becomes_the_nearest() -> None:
    first = b"".join(bytes([value, 0, 0]) * 2 for value in range(256))
    chunks = dict(_chunks(smaller(png([b"\0" + first + bytes([9, 1, 0])]))))
    number = zlib.decompress(chunks[b"IDAT"])[-1]
    assert chunks[b"PLTE"][3 * number : 3 * number + 3] == bytes([9, 0, 0])
    assert list(_rows(b"\0abc", 3)) == [b"abc"]
