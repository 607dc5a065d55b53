"""The records of a producer that are not acknowledged yet: batches by topic, in a bounded
buffer."""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator
from typing import Final

from seb_appliance import limits
from seb_appliance.client.failures import ClosedError
from seb_appliance.client.records import NewRecord
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s


class Batch:
    """Records of one topic that are sent together. It grows until it is sealed, and is then stored
    completely or not at all, except for records that the topic refuses."""

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

    @property
    def headers(self) -> dict[str, str]:
        """Of the request."""
        is_delayed = any(record.due_us is not None for record in self.records)
        return {"Seb-Deliver-At": "records"} if is_delayed else {}

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
    """The future result of one record. `await` it, or call `result()` in another thread."""

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
        """The offset of the acknowledged record; None if the appliance has forgotten it. Blocks: do
        not use it on an event loop. Raises ApplianceError, ClosedError, TimeoutError."""
        if not self._batch.is_settled:
            settled = threading.Event()
            self._batch.when_settled(settled.set)
            if not settled.wait(timeout_s):
                raise TimeoutError("the record was not acknowledged in time")
        return self._batch.offset(self._place)

    def __await__(self) -> Generator[object, None, int | None]:
        """The same, on an event loop."""
        if not self._batch.is_settled:
            yield from called_back(self._batch.when_settled).__await__()
        return self._batch.offset(self._place)


async def called_back(register: Callable[[Callable[[], None]], None]) -> None:
    """Wait until the callback that `register` takes is called, from any thread."""
    loop, called = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(called.set)

    register(tell)
    await called.wait()


BATCH_BYTES_MAX: Final = 8 * limits.MIB  # half of what a request may inflate to


class Buffer:
    """`max_bytes`: of all records that are not settled, soft by one record. A batch is full at
    `batch_bytes` or 10,000 records, and due when it is full or `linger_s` old."""

    def __init__(
        self,
        *,
        max_bytes: int,
        batch_bytes: int,
        linger_s: float,
        wake: Callable[[str], None],
    ) -> None:
        """`wake`: called, from the thread that adds, when a topic has something to look after."""
        self._max_bytes = max_bytes
        self._batch_bytes = min(batch_bytes, BATCH_BYTES_MAX)
        self._linger_s = linger_s
        self._wake = wake
        self._lock = threading.Lock()
        self._bytes = 0
        self._waiting: dict[str, deque[Batch]] = {}
        self._unsettled: set[Batch] = set()
        self._when_room: list[Callable[[], None]] = []
        self._is_closed = False

    def add(self, topic: str, record: NewRecord, now_s: float) -> Delivery | None:
        """None if the buffer is full (see `when_room`). Raises ClosedError."""
        size_bytes = record.size_bytes
        with self._lock:
            if self._is_closed:
                raise ClosedError("the producer is closed")
            if self._bytes and self._bytes + size_bytes > self._max_bytes:
                return None
            waiting = self._waiting.get(topic)
            if waiting is None:
                waiting = self._waiting[topic] = deque()
            newest = waiting[-1] if waiting else None
            is_news = False
            if newest is None or not self._fits(newest, size_bytes):
                newest = Batch(topic, now_s)
                waiting.append(newest)
                self._unsettled.add(newest)
                is_news = True
            self._bytes += size_bytes
            delivery = newest.add(record, size_bytes)
            if len(waiting) == 1 and self._is_full(newest):
                is_news = True
        if is_news:
            self._wake(topic)
        return delivery

    def take(self, topic: str, now_s: float, *, eager: bool) -> Batch | None:
        """The oldest batch if it is due, or `eager`. It gets no more records."""
        with self._lock:
            waiting = self._waiting.get(topic)
            if not waiting or not (eager or self._due_s(waiting, now_s) <= 0):
                return None
            return waiting.popleft()

    def due_s(self, topic: str, now_s: float) -> float | None:
        """In how many seconds the oldest batch is due; None: there is none."""
        with self._lock:
            waiting = self._waiting.get(topic)
            return self._due_s(waiting, now_s) if waiting else None

    def settled(self, batch: Batch) -> None:
        """Its bytes are free again."""
        with self._lock:
            if batch not in self._unsettled:
                return
            self._unsettled.remove(batch)
            self._bytes -= batch.size_bytes
            tell, self._when_room = self._when_room, []
        for callback in tell:
            callback()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Called once when there may be room, from whatever thread makes it; at once when nothing
        is in the way."""
        with self._lock:
            if self._unsettled and not self._is_closed:
                self._when_room.append(callback)
                return
        callback()

    def unsettled(self) -> list[Batch]:
        with self._lock:
            return list(self._unsettled)

    def topics(self) -> list[str]:
        """Those that have batches waiting."""
        with self._lock:
            return [topic for topic, waiting in self._waiting.items() if waiting]

    def close(self) -> None:
        """Nothing more comes in."""
        with self._lock:
            self._is_closed = True
            tell, self._when_room = self._when_room, []
        for callback in tell:
            callback()

    def _fits(self, batch: Batch, size_bytes: int) -> bool:
        return (
            batch.count < limits.RECORDS_PER_REQUEST_MAX
            and batch.size_bytes + size_bytes <= self._batch_bytes
        )

    def _is_full(self, batch: Batch) -> bool:
        return (
            batch.count == limits.RECORDS_PER_REQUEST_MAX or batch.size_bytes >= self._batch_bytes
        )

    def _due_s(self, waiting: deque[Batch], now_s: float) -> float:
        oldest = waiting[0]
        if len(waiting) > 1 or self._is_full(oldest):
            return 0.0
        return max(0.0, oldest.opened_s + self._linger_s - now_s)
