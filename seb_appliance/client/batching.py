"""Records of one topic gather in batches, and learn their offsets from them."""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_left
from collections.abc import Callable, Generator

from seb_appliance.client.new_records import NewRecord
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s


class Batch:
    """Records of one topic that are sent together. Grows until it is sealed; is then stored as a
    whole, or not at all, but for records that the topic is found not to take."""

    def __init__(self, topic: str, opened_s: float) -> None:
        self.topic = topic
        self.opened_s = opened_s
        self.records: list[NewRecord] = []
        self.size_bytes = 0
        self.count = 0
        self._first_offset: int | None = None
        self._error: Exception | None = None
        self._settled = False
        self._dropped: list[int] = []  # places, ascending
        self._why_dropped: Exception | None = None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def add(self, record: NewRecord, size_bytes: int) -> Delivery:
        self.records.append(record)
        self.size_bytes += size_bytes
        place = self.count
        self.count = place + 1
        return Delivery(self, place)

    def encode(self, now_us: int, zstd_level: int | None) -> bytes:
        """As record batches on the wire."""
        keys = [record.key for record in self.records]
        headers = [record.headers for record in self.records]
        columns = Columns(
            int64s([record.timestamp_us for record in self.records]),
            BinaryColumn.of([record.value for record in self.records]),
            BinaryColumn.of(keys) if any(key is not None for key in keys) else None,
            BinaryColumn.of(headers) if any(headers) else None,
        )
        return batch.encode(columns, base_offset=0, created_us=now_us, zstd_level=zstd_level)

    def drop_larger(self, most_bytes: int, error: Exception) -> bool:
        """Records with a larger value fail with `error` and are sent no more. False, and nothing
        happens, if these are all or none of them, or others were dropped before."""
        dropped = [i for i, r in enumerate(self.records) if len(r.value or b"") > most_bytes]
        if self._dropped or len(dropped) in (0, self.count):
            return False
        self._dropped, self._why_dropped = dropped, error
        self.records = [r for r in self.records if len(r.value or b"") <= most_bytes]
        return True

    def stored(self, first_offset: int | None) -> None:
        """`first_offset` None: stored, but the appliance has forgotten where."""
        self._settle(first_offset, None)

    def failed(self, error: Exception) -> None:
        self._settle(None, error)

    def _settle(self, first_offset: int | None, error: Exception | None) -> None:
        with self._lock:
            if self._settled:
                return
            self._first_offset, self._error, self._settled = first_offset, error, True
            callbacks, self._callbacks = self._callbacks, []
        self.records = []
        for callback in callbacks:
            callback()

    @property
    def is_settled(self) -> bool:
        return self._settled

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call it once, from whatever thread settles this; at once if that has happened."""
        with self._lock:
            if not self._settled:
                self._callbacks.append(callback)
                return
        callback()

    def offset(self, place: int) -> int | None:
        """Of a settled batch. Raises what it failed with."""
        assert self._settled
        before = bisect_left(self._dropped, place)
        if self._why_dropped is not None and self._dropped[before : before + 1] == [place]:
            raise self._why_dropped
        if self._error is not None:
            raise self._error
        return None if self._first_offset is None else self._first_offset + place - before


class Delivery:
    """What becomes of one record. `await` it, or ask `result()` on another thread."""

    __slots__ = ("_batch", "_place")

    def __init__(self, batch: Batch, place: int) -> None:
        self._batch = batch
        self._place = place

    @property
    def topic(self) -> str:
        return self._batch.topic

    def done(self) -> bool:
        """Whether it was acknowledged, or has failed."""
        return self._batch.is_settled

    def result(self, timeout_s: float | None = None) -> int | None:
        """Its offset, once it is acknowledged; None if the appliance has forgotten that. Blocks:
        not for use on an event loop. Raises ApplianceError, ClosedError, TimeoutError."""
        if not self._batch.is_settled:
            settled = threading.Event()
            self._batch.when_settled(settled.set)
            if not settled.wait(timeout_s):
                raise TimeoutError("the record was not acknowledged in time")
        return self._batch.offset(self._place)

    def __await__(self) -> Generator[object, None, int | None]:
        """The same, on an event loop."""
        if not self._batch.is_settled:
            loop = asyncio.get_running_loop()
            settled: asyncio.Future[None] = loop.create_future()

            def tell() -> None:
                if not settled.done():
                    settled.set_result(None)

            self._batch.when_settled(lambda: call_on(loop, tell))
            yield from settled
        return self._batch.offset(self._place)


def call_on(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """From any thread."""
    loop.call_soon_threadsafe(callback)
