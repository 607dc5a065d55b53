"""A producer for programs without an event loop."""

from __future__ import annotations

import contextlib
import datetime
import functools
import threading
from collections.abc import Iterator
from types import TracebackType

from seb_appliance import limits
from seb_appliance.client.batching import Delivery
from seb_appliance.client.blocking import Blocking, blocking
from seb_appliance.client.new_records import Data, Headers, Value
from seb_appliance.client.producing import PATIENCE_S, AsyncProducer, Compression
from seb_appliance.client.transacting import Transaction


class Producer(Blocking[AsyncProducer]):
    """As AsyncProducer; it sends in a thread of its own. May be used by several threads at once.

    `with` sends everything before it ends, also when its body was left by an exception or Ctrl-C.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        linger_ms: float = 5,
        batch_bytes: int = 1 * limits.MIB,
        buffer_bytes: int = 32 * limits.MIB,
        compression: Compression = "zstd",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Raises ConfigurationError."""
        super().__init__(
            functools.partial(
                AsyncProducer,
                url,
                api_key,
                linger_ms=linger_ms,
                batch_bytes=batch_bytes,
                buffer_bytes=buffer_bytes,
                compression=compression,
                patience_s=patience_s,
            )
        )

    def send(
        self,
        topic: str,
        value: Value,
        *,
        key: Data | None = None,
        headers: Headers | None = None,
        timestamp: datetime.datetime | None = None,
    ) -> Delivery:
        """Take a record; `result()` of what this returns waits for its offset. `value`: bytes, or
        text; None for a tombstone; what JSON has (dict, list, number, bool) is stored as JSON.
        `timestamp`: now unless given. Blocks while the buffer is full. Raises BadRecordError,
        ClosedError."""
        producer = self._inner
        record = producer.record(topic, value, key, headers, timestamp)
        while (delivery := producer.add(topic, record)) is None:
            room = threading.Event()
            producer.buffer.when_room(room.set)
            room.wait()
        return delivery

    flush = blocking(AsyncProducer.flush)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """`with`: as AsyncProducer.transaction."""
        with self._inner.open_transaction() as transaction:
            yield transaction
            self._wait_for(self._inner.store(transaction))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._wait_for(self._inner.__aexit__(kind, error, trace))
        finally:
            self._thread.stop()
