"""What a producer holds that is not acknowledged: bounded, by topic, filled from any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from seb_appliance import limits
from seb_appliance.client.batching import Batch, Delivery
from seb_appliance.client.failures import ClosedError
from seb_appliance.client.new_records import NewRecord

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
        """None: there is no room now (`when_room`). Raises ClosedError."""
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
