"""Records that prove themselves, and request bodies made of them with one join each.

A value is text: 16 hex digits of its request's number, 8 of a CRC-32C over what follows, 4 of its
producer, 4 of its place in the request, then filler that differs from record to record. All but
the number is the same in each request of a producer, so that a body is the number joined between
parts that were made once.
"""

from __future__ import annotations

import base64
import functools
import json
import random
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

VALUE_HEAD_BYTES: Final = 32
PRODUCERS_MAX: Final = 0x10000

assert VALUE_HEAD_BYTES < limits.BENCH_RECORD_BYTES_MIN

_NUMBER: Final = b"@" * 16  # stands where the request's number goes; the filler holds no such text
_FILLER_BYTES: Final = 4 * limits.MIB


class BodyMaker(Protocol):
    """Bodies of one producer. Each of its requests has a number, counted from 0."""

    @property
    def content_type(self) -> str: ...

    def make(self, number: int) -> bytes: ...


class Identity(NamedTuple):
    """What a record says it is. `place`: its index in its request."""

    producer: int
    number: int
    place: int


class JoinedBodies:
    """Bodies that differ in the number only."""

    def __init__(self, content_type: str, template: bytes) -> None:
        self.content_type = content_type
        self._parts = template.split(_NUMBER)

    def make(self, number: int) -> bytes:
        return (b"%016x" % number).join(self._parts)


class BatchBodies:
    """Record batches of format version 2, made as a client would, with the CRC of each."""

    content_type = "application/vnd.seb.batch"

    def __init__(self, values: Sequence[bytes], created_us: int) -> None:
        columns = Columns(int64s([created_us] * len(values)), BinaryColumn.of(values))
        whole = batch.encode(columns, base_offset=0, created_us=created_us)
        self._header = batch.read_header(whole)
        self._padding = whole[batch.HEADER_BYTES + self._header.stored_bytes :]
        stored = whole[batch.HEADER_BYTES : batch.HEADER_BYTES + self._header.stored_bytes]
        self._parts = stored.split(_NUMBER)

    def make(self, number: int) -> bytes:
        stored = (b"%016x" % number).join(self._parts)
        header = msgspec.structs.replace(self._header, body_crc=crc32c(stored))
        return header.pack() + stored + self._padding


def values_of(producer: int, count: int, record_bytes: int) -> list[bytes]:
    """The values of a producer's requests, the number left open."""
    filler = _filler(_FILLER_BYTES)
    room = record_bytes - VALUE_HEAD_BYTES
    values = []
    for place in range(count):
        at = (producer * count + place) * record_bytes % len(filler)
        text = (filler[at : at + room] + filler * (1 + room // len(filler)))[:room]
        rest = b"%04x%04x" % (producer, place) + text
        values.append(_NUMBER + b"%08x" % crc32c(rest) + rest)
    return values


def make_bodies(kind: str, values: Sequence[bytes], created_us: int) -> BodyMaker:
    """`kind`: single, json, ndjson or batch."""
    if kind == "batch":
        return BatchBodies(values, created_us)
    if kind == "single":
        return JoinedBodies("application/octet-stream", values[0])
    objects = [json.dumps({"value": value.decode()}).encode() for value in values]
    if kind == "ndjson":
        return JoinedBodies("application/x-ndjson", b"\n".join(objects))
    return JoinedBodies("application/json", b'{"records":[' + b",".join(objects) + b"]}")


def identify(value: bytes) -> Identity | None:
    """What a value says it is; None when its checksum says that it is not what was sent."""
    rest = value[24:]
    try:
        if crc32c(rest) != int(value[16:24], 16):
            return None
        return Identity(int(rest[:4], 16), int(value[:16], 16), int(rest[4:8], 16))
    except ValueError:
        return None


@functools.cache
def _filler(size: int) -> bytes:
    """Text that does not compress below three quarters, the same in every run."""
    return base64.b64encode(random.Random(7).randbytes(size * 3 // 4))  # noqa: S311 - no secret
