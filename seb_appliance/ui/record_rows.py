"""Records as rows of a table, and a bounded look through a topic for those that fit."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.errors import BadRequestError
from seb_appliance.ui.texts import Show, Shown, short, shown, visible

_STEP_RECORDS: Final = 1_000  # looked through without a break; about a millisecond
_STEP_BYTES: Final = 256 * limits.KIB
_IN_LIST: Final = 1_000  # characters of a value in a list
_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes])


@dataclass(frozen=True, slots=True)
class RecordRow:
    """`key` None: it has none; `key64`: the record key in base64url, for queries. `size_bytes` of
    the value."""

    offset: int
    timestamp_us: int
    key: str | None
    key64: str
    headers: list[tuple[str, str]]
    value: Shown
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty members let everything through. `text` is looked for in value and record key; `header`
    is a name, or `name=text`."""

    text: bytes = b""
    header: str = ""
    key: bytes | None = None

    @property
    def is_empty(self) -> bool:
        return not self.text and not self.header and self.key is None

    def fits(self, key: bytes | None, value: bytes | None, packed: bytes | None) -> bool:
        if self.key is not None and key != self.key:
            return False
        if self.text and self.text not in (value or b"") and self.text not in (key or b""):
            return False
        if not self.header:
            return True
        name, has_text, text = self.header.partition("=")
        found = unpacked(packed).get(name.strip())
        return found is not None and (not has_text or text.strip().encode() in found)


@dataclass(frozen=True, slots=True)
class Found:
    """`begin` to `next_offset` were looked at: `records` of them, about `size_bytes` as stored."""

    rows: list[RecordRow]
    begin: int
    next_offset: int
    records: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int


def unpacked(packed: bytes | None) -> dict[str, bytes]:
    return _headers.decode(packed) if packed else {}


def key64(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def key_of(text: str) -> bytes:
    """Raises BadRequestError."""
    try:
        return base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError("The record key is not base64url.") from error


def rows(result: ReadResult, show: Show, most: int = _IN_LIST) -> list[RecordRow]:
    """All records of a result; of each value at most `most` characters."""
    return [row(piece, i, show, most) for piece, i in places(result)]


def places(result: ReadResult) -> Iterator[tuple[BatchSlice, int]]:
    for piece in result.slices:
        for i in range(piece.begin, piece.end):
            yield piece, i


def parts(piece: BatchSlice, i: int) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Record key, value and packed headers of record `i`."""
    columns = piece.batch.columns
    return (
        None if columns.keys is None else columns.keys.get(i),
        columns.values.get(i),
        None if columns.headers is None else columns.headers.get(i),
    )


def row(piece: BatchSlice, i: int, show: Show, most: int = _IN_LIST) -> RecordRow:
    key, value, packed = parts(piece, i)
    return RecordRow(
        int(piece.batch.offsets()[i]),
        int(piece.batch.columns.timestamps_us[i]),
        None if key is None else short(key),
        "" if key is None else key64(key),
        [(visible(name), short(content)) for name, content in unpacked(packed).items()],
        shown(value, show, most),
        len(value or b""),
    )


async def look(
    broker: Broker, topic: str, start: From, most: int, wanted: Filter, show: Show
) -> Found:
    """The first `most` records from `start` on that fit, within what one look reads. Raises what
    `Broker.read` raises."""
    step = ReadRequest(start, max_records=_STEP_RECORDS, max_bytes=_STEP_BYTES)
    if wanted.is_empty:
        step = ReadRequest(start, max_records=most, max_bytes=limits.FETCH_BYTES_DEFAULT)
    found: list[RecordRow] = []
    begin: int | None = None
    records, size_bytes = 0, 0
    while True:
        result = await broker.read(topic, step)
        next_offset = result.next_offset
        for piece, i in places(result):
            offset = int(piece.batch.offsets()[i])
            begin = offset if begin is None else begin
            records += 1
            if wanted.fits(*parts(piece, i)):
                found.append(row(piece, i, show))
                if len(found) == most:
                    next_offset = offset + 1
                    break
        size_bytes += sum(len(piece.stored) for piece in result.slices)
        done = (
            wanted.is_empty
            or len(found) == most
            or not result.slices
            or next_offset >= result.log_end_offset
        )
        if done or size_bytes >= limits.SCANNED_BYTES_MAX or records >= limits.SCANNED_RECORDS_MAX:
            begin = next_offset if begin is None else begin
            ends = (result.log_start_offset, result.log_end_offset)
            return Found(found, begin, next_offset, records, size_bytes, *ends)
        await asyncio.sleep(0)
        step = ReadRequest(From(offset=next_offset), None, _STEP_RECORDS, _STEP_BYTES)
