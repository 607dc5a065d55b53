"""Seeded changes of known inputs: what is tried where no coverage-guided engine is installed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final

INPUT_BYTES_MAX: Final = 64 * 1024
CHANGES_MAX: Final = 4

_DIGITS: Final = re.compile(rb"[0-9]+")
_POWERS: Final = (0, 7, 8, 15, 16, 31, 32, 53, 63, 64)
_NUMBERS: Final = (
    *(b"%d" % (2**power + more) for power in _POWERS for more in (-1, 0, 1)),
    *(b"-1", b"-0", b"00", b"1e999", b"1.0", b"9" * 309, b"9" * 5_000),
)
_PIECES: Final = (
    *(bytes([byte]) * length for byte in (0, 1, 0x7F, 0x80, 0xFF) for length in (1, 2, 4, 8)),
    b"\r\n", b"\n", b" ", b"\t", b'"', b"'", b"\\", b"%", b"%00", b"%ff", b";", b",", b":", b"=",
    b".", b"..", b"/", b"*", b"{", b"}", b"[", b"]", b"null", b"true", b"\\ud800", b"\xed\xa0\x80",
    b"\xef\xbb\xbf", b"\xc3\xa9", b"\xd9\xa1", b"e", b"+", b"-", b"<!--",
)  # fmt: skip


def mutations(seeds: Sequence[bytes], words: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Without end; the same for the same arguments."""
    draw = random.Random(seed)
    pieces = (*_PIECES, *words, *words)
    while True:
        data = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, CHANGES_MAX)):
            _change(draw, data, seeds, pieces)
        yield bytes(data[:INPUT_BYTES_MAX])


def _change(
    draw: random.Random, data: bytearray, seeds: Sequence[bytes], pieces: Sequence[bytes]
) -> None:
    at = draw.randint(0, len(data))
    kind = draw.randrange(8)
    if kind == 0:
        data[at:at] = draw.choice(pieces)
    elif kind == 1:
        piece = draw.choice(pieces)
        data[at : at + len(piece)] = piece
    elif kind == 2:
        del data[at : at + draw.choice((1, 1, 2, 4, 8, 64))]
    elif kind == 3 and data:
        data[at % len(data)] ^= 1 << draw.randrange(8)
    elif kind == 4 and (found := list(_DIGITS.finditer(data))):
        begin, end = draw.choice(found).span()
        data[begin:end] = draw.choice(_NUMBERS)
    elif kind == 5:
        begin = draw.randint(0, len(data))
        data[at:at] = data[begin : begin + draw.randint(1, 64)] * draw.choice((1, 1, 2, 50))
    elif kind == 6:
        other = draw.choice(seeds)
        data[at:] = other[draw.randint(0, len(other)) :]
    elif kind == 7 and draw.random() < 0.2:
        del data[at:]
