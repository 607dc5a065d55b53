"""Record batches that are none: (fact, name, bytes, status, code)."""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from seb_appliance import limits, zstd
from tests.http.test_produce import make_batch
from tests.unit.formats.samples import with_body

GOOD: Final = make_batch([b"a", b"b"], keys=[b"k", None])


def _damaged(at: int, data: bytes) -> bytes:
    return GOOD[:at] + data + GOOD[at + len(data) :]


def _rewritten(at: int, layout: str, value: int) -> bytes:
    """With a field of the header changed, and a CRC that agrees."""
    body = bytearray(GOOD)
    struct.pack_into(layout, body, at, value)
    struct.pack_into("<I", body, 64, crc32c(bytes(body[:64])))
    return bytes(body)


_BAD: Final = (
    (77, "text", b"hello, this is no record batch, but long enough to be one, or is it not? No."),
    (77, "another magic", _damaged(0, b"SEB!")),
    (77, "a version to come", _damaged(4, b"\x03")),
    (77, "version 1", b"seb!\x01\x00" + bytes(40)),
    (77, "a wrong CRC of the header", _damaged(64, b"\0\0\0\0")),
    (77, "a wrong CRC of the body", _damaged(100, b"\xff")),
    (77, "cut in its header", GOOD[:40]),
    (77, "cut in its body", GOOD[:-8]),
    (77, "bytes behind it", GOOD + b"\0" * 8),
    (77, "a stored length of 2 GiB", _rewritten(56, "<I", 2**31)),
    (77, "an inflated length of 2 GiB", _rewritten(60, "<I", 2**31)),
    (77, "an unknown flag", _rewritten(18, "<H", 1 << 12)),
    (78, "no records", _rewritten(14, "<I", 0)),
    (78, "2^32-1 records", _rewritten(14, "<I", 2**32 - 1)),
    (79, "offsets of its own", _rewritten(24, "<q", 5)),
    (79, "a negative offset", _rewritten(24, "<q", -1)),
    (81, "a zstd bomb", with_body(GOOD, zstd.compress(b"\0" * limits.MIB) * 64, flags=256,
     inflated_bytes=8)),
    (28, "a tombstone without a record key", make_batch([None])),
    (29, "headers that are no msgpack", make_batch([b"a"], headers=[b"\xc1"])),
    (29, "headers that promise 2^32-1 members", make_batch([b"a"],
     headers=[b"\xdf\xff\xff\xff\xff"])),
)  # fmt: skip
BATCHES: Final = (
    *((fact, name, body, 400, "bad_batch") for fact, name, body in _BAD),
    (81, "17 MiB of zeros in 2 KiB", make_batch([b"\0" * (17 * limits.MIB)], zstd_level=3), 413,
     "request_too_large"),
    (31, "a record over 1 MiB", make_batch([b"x" * (limits.MIB + 1)]), 413, "record_too_large"),
    (55, "a record key over 64 KiB", make_batch([b""], keys=[b"k" * 65_537]), 413,
     "record_too_large"),
    (54, "a time before 1970", make_batch([b"x"], timestamp_us=-1), 400, "bad_parameter"),
    (54, "a time of the year 38514", make_batch([b"x"], timestamp_us=1 << 60), 400,
     "bad_parameter"),
)  # fmt: skip
