"""A bounded search through a topic for records that match a filter, forwards or backwards."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.ui.records.json_paths import Condition
from seb_appliance.ui.records.rows import Look, RecordRow, decoded, parts, places, row, unpacked

_STEP_RECORDS: Final = 500  # searched without a break; about a millisecond
_STEP_BYTES: Final = 256 * limits.KIB
_RANGE_BYTES_MAX: Final = 4 * _STEP_BYTES  # as stored, in memory at one time


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter; empty members match everything. `text` is searched in the value and the record key.
    `header` is a name, or `name=text`. `where`: about the value as JSON."""

    text: bytes = b""
    header: str = ""
    key: bytes | None = None
    where: Condition | None = None

    @property
    def is_empty(self) -> bool:
        return self == Filter()

    def fits(self, key: bytes | None, value: bytes | None, packed: bytes | None) -> bool:
        if self.key is not None and key != self.key:
            return False
        if self.text and self.text not in (value or b"") and self.text not in (key or b""):
            return False
        if self.where is not None and not self.where.fits(decoded(value)):
            return False
        if not self.header:
            return True
        name, has_text, text = self.header.partition("=")
        found = unpacked(packed).get(name.strip())
        return found is not None and (not has_text or text.strip().encode() in found)

    def of(self, result: ReadResult) -> ReadResult:
        """The result with its matching records alone."""
        if self.is_empty:
            return result
        slices = []
        for piece in result.slices:
            fitting = [i for i in range(piece.begin, piece.end) if self.fits(*parts(piece, i))]
            for _, run in groupby(enumerate(fitting), key=lambda pair: pair[1] - pair[0]):
                found = [i for _, i in run]
                slices.append(replace(piece, begin=found[0], end=found[-1] + 1))
        return replace(result, slices=slices)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, in the order in which it went: `begin` to `end` (exclusive) are the
    offsets that were searched, with `records` records of about `size_bytes` as stored."""

    rows: list[RecordRow]
    begin: int
    end: int
    records: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for `most` records at most, within the limits of one search."""

    broker: Broker
    topic: str
    wanted: Filter
    most: int
    look: Look

    async def forwards(self, start: From, until: From | None = None) -> Found:
        """The first matching records from `start` on, ascending. Raises what `Broker.read`
        raises."""
        rows: list[RecordRow] = []
        begin: int | None = None
        records = size_bytes = 0
        while True:
            at_once = self.most - len(rows) if self.wanted.is_empty else _STEP_RECORDS
            result = await self._read(start, until, at_once)
            end = result.next_offset
            for piece, i in places(result):
                offset = int(piece.batch.offsets()[i])
                begin = offset if begin is None else begin
                records += 1
                if self.wanted.fits(*parts(piece, i)):
                    rows.append(row(piece, i, self.look))
                    if len(rows) == self.most:
                        end = offset + 1
                        break
            size_bytes += _stored_bytes(result)
            done = len(rows) == self.most or not result.slices or end >= result.log_end_offset
            if done or _is_spent(records, size_bytes):
                begin = end if begin is None else begin
                ends = (result.log_start_offset, result.log_end_offset)
                return Found(rows, begin, end, records, size_bytes, *ends)
            await asyncio.sleep(0)
            start = From(offset=end)

    async def backwards(self, before: int | None = None, lowest: int = 0) -> Found:
        """The last matching records from offset `lowest` on and below `before` (default: the log
        end), descending. Raises what `Broker.read` raises."""
        view = self.broker.topics.get(self.topic)
        end = view.log_end_offset
        begin = end = end if before is None else min(before, end)
        lowest = max(lowest, view.log_start_offset)
        rows: list[RecordRow] = []
        records = size_bytes = 0
        # Offsets read at one time: more where records are small or offsets have gaps.
        width = self.most
        while begin > lowest and len(rows) < self.most:
            low = max(lowest, begin - width)
            pieces, stored_bytes = await self._range(low, begin)
            if stored_bytes > _RANGE_BYTES_MAX and width > 1:
                width = max(1, width // 8)  # large records: fewer at one time
                continue
            size_bytes += stored_bytes
            if stored_bytes < _STEP_BYTES and len(pieces) < _STEP_RECORDS:
                width *= 4
            begin = low
            for piece, i in reversed(pieces):
                records += 1
                if self.wanted.fits(*parts(piece, i)):
                    rows.append(row(piece, i, self.look))
                    if len(rows) == self.most:
                        begin = rows[-1].offset
                        break
                if not records % _STEP_RECORDS:
                    await asyncio.sleep(0)
            if _is_spent(records, size_bytes):
                break
            await asyncio.sleep(0)
        ends = (view.log_start_offset, view.log_end_offset)
        return Found(rows, begin, end, records, size_bytes, *ends)

    async def _range(self, begin: int, end: int) -> tuple[list[tuple[BatchSlice, int]], int]:
        """The records of a range of offsets, and their stored bytes; cut off where these are more
        than may be in memory at one time."""
        found: list[tuple[BatchSlice, int]] = []
        stored_bytes = 0
        while begin < end and stored_bytes <= _RANGE_BYTES_MAX:
            result = await self._read(From(offset=begin), From(offset=end), _STEP_RECORDS)
            found += places(result)
            stored_bytes += _stored_bytes(result)
            if result.next_offset <= begin:
                break
            begin = result.next_offset
            await asyncio.sleep(0)
        return found, stored_bytes

    async def _read(self, start: From, until: From | None, at_once: int) -> ReadResult:
        wanted = ReadRequest(start, until, at_once, _STEP_BYTES)
        return await self.broker.read(self.topic, wanted)


def _stored_bytes(result: ReadResult) -> int:
    return sum(len(piece.stored) for piece in result.slices)


def _is_spent(records: int, size_bytes: int) -> bool:
    return size_bytes >= limits.SCANNED_BYTES_MAX or records >= limits.SCANNED_RECORDS_MAX
