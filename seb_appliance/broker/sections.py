"""Decoded sections: the bytes come from the section source, the batches are kept a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor
from dataclasses import dataclass

from seb_appliance.broker.ports import SectionRef, SectionSource
from seb_appliance.errors import BadBatchError, CorruptObjectError
from seb_appliance.formats import batch
from seb_appliance.formats.batch import Batch

_DECODE_IN_THREAD_BYTES = 64 * 1024
_KEPT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A decoded batch and its bytes as they lie in the bucket."""

    batch: Batch
    stored: memoryview


class SectionReader:
    """Reads a section once for all who ask at the same time, and keeps the last 16 MiB decoded."""

    def __init__(self, source: SectionSource, executor: Executor) -> None:
        self._source = source
        self._executor = executor
        self._kept: OrderedDict[tuple[int, int], list[StoredBatch]] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[tuple[int, int], asyncio.Task[list[StoredBatch]]] = {}

    async def read(self, ref: SectionRef) -> list[StoredBatch]:
        """The section's batches, in offset order. Raises CorruptObjectError, StoreError."""
        place = (ref.entry.seq, ref.at)
        kept = self._kept.get(place)
        if kept is not None:
            self._kept.move_to_end(place)
            return kept
        task = self._under_way.get(place)
        if task is None:
            task = asyncio.create_task(self._fetch(ref))
            self._under_way[place] = task
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        return await asyncio.shield(task)  # a reader that leaves must not end it for the others

    async def _fetch(self, ref: SectionRef) -> list[StoredBatch]:
        data = await self._source.read(ref)
        try:
            if len(data) > _DECODE_IN_THREAD_BYTES:
                loop = asyncio.get_running_loop()
                decoded = await loop.run_in_executor(self._executor, _decode, data, ref)
            else:
                decoded = _decode(data, ref)
        except BadBatchError as error:
            raise CorruptObjectError(
                f"offsets {ref.base_offset} to {ref.last_offset} cannot be read: {error.detail}",
                offset=ref.base_offset,
                until=ref.last_offset + 1,
            ) from error
        self._keep((ref.entry.seq, ref.at), decoded, len(data))
        return decoded

    def _keep(self, place: tuple[int, int], decoded: list[StoredBatch], size: int) -> None:
        if size > _KEPT_BYTES:
            return
        self._kept[place] = decoded
        self._kept_bytes += size
        while self._kept_bytes > _KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= sum(len(item.stored) for item in oldest)


def _decode(data: bytes, ref: SectionRef) -> list[StoredBatch]:
    decoded = []
    next_offset = ref.base_offset
    for at, header in batch.walk(data):
        if header.base_offset != next_offset:
            raise BadBatchError(f"a batch begins at {header.base_offset}, not at {next_offset}")
        next_offset = header.last_offset + 1
        stored = memoryview(data)[at : at + header.total_bytes]
        decoded.append(StoredBatch(batch.decode(data, at), stored))
    if next_offset != ref.last_offset + 1:
        raise BadBatchError(f"the batches end at {next_offset}, not at {ref.last_offset + 1}")
    return decoded
