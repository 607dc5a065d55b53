"""Decoded sections: the bytes come from the section source, the batches are kept a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeAlias

from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import SectionRef, SectionSource
from seb_appliance.errors import BadBatchError, CorruptObjectError
from seb_appliance.formats import batch
from seb_appliance.formats.batch import Batch, BatchHeader

KEPT_BYTES: Final = 16 * 1024 * 1024
FETCHED_AHEAD_BYTES_MAX: Final = 8 * 1024 * 1024  # under way at one time
FETCHED_AHEAD_MAX: Final = 16
_DECODE_IN_THREAD_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A decoded batch and its bytes as they lie in the bucket."""

    batch: Batch
    stored: memoryview


# The batches of one section, in offset order.
DecodedSection: TypeAlias = "list[StoredBatch]"

_Place: TypeAlias = tuple[int, int]


class SectionReader:
    """Reads a section once for all who ask at the same time, and keeps the last 16 MiB decoded:
    what lies here was checked, and is handed out as it is."""

    def __init__(self, source: SectionSource, executor: Executor, counters: Counters) -> None:
        self._source = source
        self._counters = counters
        self._executor = executor
        self._kept: OrderedDict[_Place, tuple[DecodedSection, int]] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[_Place, asyncio.Task[DecodedSection]] = {}
        # What is fetched before it was asked for: bytes on their way, and what nobody read yet.
        self._coming: dict[_Place, int] = {}
        self._unread: set[_Place] = set()

    def at_hand(self, ref: SectionRef) -> DecodedSection | None:
        """As `read`, if that takes no I/O and no long work; else None. Raises
        CorruptObjectError."""
        place = (ref.entry.seq, ref.at)
        kept = self._kept.get(place)
        if kept is not None:
            self._kept.move_to_end(place)
            return kept[0]
        if ref.length > _DECODE_IN_THREAD_BYTES:
            return None
        data = self._source.at_hand(ref)
        if data is None:
            return None
        headers = _headers(data, ref)
        if _memory_bytes(headers) > _DECODE_IN_THREAD_BYTES:  # compressed
            return None
        return self._keep(place, _decode(data, ref), headers)

    async def read(self, ref: SectionRef) -> DecodedSection:
        """The section's batches. Raises CorruptObjectError, StoreError."""
        section = self.at_hand(ref)
        if section is not None:
            return section
        task = self._under_way.get((ref.entry.seq, ref.at)) or self._begin(ref)
        return await asyncio.shield(task)  # a reader that leaves must not end it for the others

    def fetch_ahead(self, ref: SectionRef) -> bool:
        """Begin to fetch a section that will be asked for soon, unless it is here or coming. False
        when enough are coming."""
        place = (ref.entry.seq, ref.at)
        if place in self._kept or place in self._under_way:
            return True
        coming_bytes = sum(self._coming.values()) + ref.length
        if len(self._coming) >= FETCHED_AHEAD_MAX or coming_bytes > FETCHED_AHEAD_BYTES_MAX:
            return False

        def arrived(task: asyncio.Task[DecodedSection]) -> None:
            del self._coming[place]
            failed = task.cancelled() or task.exception() is not None  # its reader will hear
            if not failed and place in self._kept:
                self._unread.add(place)

        self._coming[place] = ref.length
        self._begin(ref).add_done_callback(arrived)
        self._counters.fetched_ahead += 1
        return True

    def was_fetched_ahead(self, ref: SectionRef) -> bool:
        """Whether the section came before it was asked for; told to the first who asks."""
        if not self._unread:
            return False
        place = (ref.entry.seq, ref.at)
        found = place in self._unread
        self._unread.discard(place)
        return found

    def _begin(self, ref: SectionRef) -> asyncio.Task[DecodedSection]:
        place = (ref.entry.seq, ref.at)
        task = asyncio.create_task(self._fetch(ref))
        self._under_way[place] = task
        task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return task

    async def _fetch(self, ref: SectionRef) -> DecodedSection:
        data = await self._source.read(ref)
        headers = _headers(data, ref)
        if _memory_bytes(headers) > _DECODE_IN_THREAD_BYTES:
            loop = asyncio.get_running_loop()
            decoded = await loop.run_in_executor(self._executor, _decode, data, ref)
        else:
            decoded = _decode(data, ref)
        return self._keep((ref.entry.seq, ref.at), decoded, headers)

    def _keep(
        self, place: _Place, section: DecodedSection, headers: list[BatchHeader]
    ) -> DecodedSection:
        size_bytes = _memory_bytes(headers)
        if size_bytes <= KEPT_BYTES and place not in self._kept:
            self._kept[place] = (section, size_bytes)
            self._kept_bytes += size_bytes
            while self._kept_bytes > KEPT_BYTES:
                oldest, (_, oldest_bytes) = self._kept.popitem(last=False)
                self._kept_bytes -= oldest_bytes
                self._unread.discard(oldest)
        return section


def _headers(data: bytes, ref: SectionRef) -> list[BatchHeader]:
    """The checked headers of the section's batches."""
    try:
        headers = [header for _, header in batch.walk(data)]
    except BadBatchError as error:
        raise _corrupt(ref, error.detail) from error
    next_offset = ref.base_offset
    for header in headers:
        if header.base_offset != next_offset:
            raise _corrupt(ref, f"a batch begins at {header.base_offset}, not at {next_offset}")
        next_offset = header.last_offset + 1
    if next_offset != ref.last_offset + 1:
        raise _corrupt(ref, f"the batches end at {next_offset}, not at {ref.last_offset + 1}")
    return headers


def _memory_bytes(headers: list[BatchHeader]) -> int:
    """What the decoded batches take: their stored bytes, and the body of a compressed one."""
    return sum(
        header.total_bytes + (header.inflated_bytes if header.flags & batch.ZSTD else 0)
        for header in headers
    )


def _decode(data: bytes, ref: SectionRef) -> DecodedSection:
    whole = memoryview(data)
    decoded = []
    at = 0
    try:
        while at < len(data):
            found = batch.decode(data, at)
            end = at + found.header.total_bytes
            decoded.append(StoredBatch(found, whole[at:end]))
            at = end
    except BadBatchError as error:
        raise _corrupt(ref, error.detail) from error
    return decoded


def _corrupt(ref: SectionRef, why: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"offsets {ref.base_offset} to {ref.last_offset} cannot be read: {why}",
        offset=ref.base_offset,
        until=ref.last_offset + 1,
    )
