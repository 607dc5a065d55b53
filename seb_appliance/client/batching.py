"""Records of one topic gather in batches, and learn their offsets from them."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.client.failures import ClientError
from seb_appliance.client.records import timestamp_us
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

RECORD_OVERHEAD_BYTES: Final = 40  # of one in the buffer, beside its own bytes; about

Value = bytes | str | None
Headers = Mapping[str, bytes | str]


class BadRecordError(ClientError, ValueError):
    """No topic can hold this record; nothing was sent."""


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A checked record. `headers`: packed as they are stored."""

    value: bytes | None
    key: bytes | None
    headers: bytes
    timestamp_us: int

    @property
    def size_bytes(self) -> int:
        key_bytes = 0 if self.key is None else len(self.key)
        return len(self.value or b"") + key_bytes + len(self.headers) + RECORD_OVERHEAD_BYTES


def new_record(
    value: Value,
    key: bytes | str | None,
    headers: Headers | None,
    timestamp: datetime.datetime | None,
    now_us: int,
) -> NewRecord:
    """What would be refused whatever the topic is refused here, so that it takes no other record
    along. Raises BadRecordError."""
    value = value.encode() if isinstance(value, str) else value
    key = key.encode() if isinstance(key, str) else key
    if value is None and key is None:
        raise BadRecordError("a tombstone (value None) needs a record key")
    if value is not None and len(value) > limits.RECORD_BYTES_MAX:
        raise BadRecordError(f"a record of {len(value)} bytes is larger than 16 MiB")
    if key is not None and len(key) > limits.RECORD_KEY_BYTES_MAX:
        raise BadRecordError(f"a record key of {len(key)} bytes is larger than 64 KiB")
    if timestamp is not None:
        try:
            now_us = timestamp_us(timestamp)
        except ValueError as error:
            raise BadRecordError(str(error)) from error
    if now_us < 0:
        raise BadRecordError("a timestamp is before 1970")
    return NewRecord(value, key, _packed(headers) if headers else b"", now_us)


def _packed(headers: Headers) -> bytes:
    plain = {k: v.encode() if isinstance(v, str) else bytes(v) for k, v in headers.items()}
    packed = msgspec.msgpack.encode(plain)
    if len(plain) > limits.RECORD_HEADERS_MAX or len(packed) > limits.RECORD_HEADERS_BYTES_MAX:
        raise BadRecordError(f"{len(plain)} headers of {len(packed)} bytes are too many")
    return packed


class Batch:
    """Records of one topic that are sent together. Grows until it is sealed; is then stored as a
    whole, or not at all."""

    def __init__(self, topic: str, opened_s: float) -> None:
        self.topic = topic
        self.opened_s = opened_s
        self.records: list[NewRecord] = []
        self.size_bytes = 0
        self.count = 0
        self._first_offset: int | None = None
        self._error: Exception | None = None
        self._settled = False
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
        if self._error is not None:
            raise self._error
        return None if self._first_offset is None else self._first_offset + place


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
