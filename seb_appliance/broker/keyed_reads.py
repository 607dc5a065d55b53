"""Reading records out of the log by more than their range: chosen offsets, or one record key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.reads import Reads
from seb_appliance.broker.topic import Topic, gone
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.errors import OffsetExpiredError, OffsetOutOfRangeError

_AT_ONCE: Final = 1_000  # records that are looked through for the next ones chosen


def key_of(piece: BatchSlice, i: int | None = None) -> bytes | None:
    """The record key of record `i` of the batch (None: the first of the slice)."""
    keys = piece.batch.columns.keys
    return None if keys is None else keys.get(piece.begin if i is None else i)


async def pick(
    reads: Reads, topic: Topic, offsets: Sequence[int], max_bytes: int = limits.FETCH_BYTES_MAX
) -> tuple[list[BatchSlice], int]:
    """The records at these ascending offsets that are still there, as many as fit `max_bytes`, one
    at least; and how many of the offsets were dealt with.

    Raises TopicNotFoundError, CorruptObjectError, StoreError."""
    picked: list[BatchSlice] = []
    at, size_bytes = 0, 0
    while at < len(offsets):
        until = min(offsets[-1] + 1, topic.log_end_offset)
        request = ReadRequest(From(offset=offsets[at]), From(offset=until), _AT_ONCE)
        try:
            result = await reads.read(topic.name, request)
        except OffsetExpiredError as error:
            at = bisect_left(offsets, int(str(error.data["log_start_offset"])))
            continue
        except OffsetOutOfRangeError:
            if topic.deleted:  # and made anew under its name
                raise gone(topic) from None
            raise
        if result.topic_id != topic.topic_id:
            raise gone(topic)
        behind = bisect_left(offsets, result.next_offset)
        for piece in _chosen(result, offsets[at:behind]):
            size_bytes += _bytes_of(piece)
            if picked and size_bytes > max_bytes:
                return picked, bisect_left(offsets, piece.batch.offsets()[piece.begin])
            picked.append(piece)
        assert behind > at, (offsets[at], result.next_offset)
        at = behind
    return picked, len(offsets)


def _chosen(result: ReadResult, offsets: Sequence[int]) -> Iterator[BatchSlice]:
    """The records of a result that lie at these offsets, neighbours in one slice."""
    for piece in result.slices:
        there, begin, end = piece.batch.offsets(), piece.begin, piece.end
        first = bisect_left(offsets, there[begin])
        behind = bisect_right(offsets, there[end - 1])
        places = [
            (bisect_left(there, offset, begin, end), offset) for offset in offsets[first:behind]
        ]
        yield from _runs(piece, [i for i, offset in places if there[i] == offset])


def _runs(piece: BatchSlice, chosen: Sequence[int]) -> Iterator[BatchSlice]:
    """The records at these ascending places of the batch, neighbours in one slice."""
    begin = 0
    for end in range(1, len(chosen) + 1):
        if end == len(chosen) or chosen[end] != chosen[end - 1] + 1:
            yield BatchSlice(piece.batch, chosen[begin], chosen[end - 1] + 1, piece.stored)
            begin = end


def _bytes_of(piece: BatchSlice) -> int:
    """Of the values and record keys."""
    columns = piece.batch.columns
    size = columns.values.starts[piece.end] - columns.values.starts[piece.begin]
    if columns.keys is not None:
        size += columns.keys.starts[piece.end] - columns.keys.starts[piece.begin]
    return int(size)


async def read_key(reads: Reads, name: str, request: ReadRequest, key: bytes) -> ReadResult:
    """As `Reads.read`, but only records with this record key. It looks through 16 MiB of records at
    most, and at a log end it waits once: there may be none, though `next_offset` has moved on."""
    found: list[BatchSlice] = []
    room_records, room_bytes, looked_at = request.max_records, request.max_bytes, 0
    step = replace(request, max_records=limits.FETCH_RECORDS_MAX, max_bytes=limits.MIB)
    while True:
        result = await reads.read(name, step)
        for piece in result.slices:
            looked_at += len(piece.stored)
            places = _places_of(piece, key)
            for n, i in enumerate(places):
                size_bytes = _bytes_of(BatchSlice(piece.batch, i, i + 1, piece.stored))
                if room_records <= 0 or (size_bytes > room_bytes and (found or n)):
                    found += _runs(piece, places[:n])
                    return replace(result, slices=found, next_offset=int(piece.batch.offsets()[i]))
                room_records -= 1
                room_bytes -= size_bytes
            found += _runs(piece, places)
        if not result.slices or looked_at >= limits.KEY_FILTER_BYTES_MAX:
            return replace(result, slices=found)
        step = replace(step, start=From(offset=result.next_offset), wait_ms=0)


def _places_of(piece: BatchSlice, key: bytes) -> list[int]:
    """Where in the batch the records with this record key are."""
    keys = piece.batch.columns.keys
    if keys is None:
        return []
    listed = keys.slice(piece.begin, piece.end)
    return [i for i, found in enumerate(listed, piece.begin) if found == key]
