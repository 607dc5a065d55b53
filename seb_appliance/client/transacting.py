"""A transaction: records for several topics and the commit of a group, stored all or nothing."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.client.batching import Batch, Delivery
from seb_appliance.client.failures import ApplianceError, ClosedError, no_answer
from seb_appliance.client.records import (
    BadRecordError,
    Data,
    Headers,
    NewRecord,
    Value,
    headers_of,
    new_record,
    time_of,
)
from seb_appliance.client.transport import Caller

# In base64 these are 15 MiB; a request may have 16, and there is JSON around each record.
BYTES_MAX: Final = 11 * limits.MIB


class _Produced(msgspec.Struct):
    offset: int


class _Stored(msgspec.Struct):
    """What is needed of the answer."""

    produced: dict[str, _Produced]


class Transaction:
    """Collects records while it is open. `transaction()` of a producer or a consumer creates one.
    For one thread, or one event loop. `wall_us`: the time of records without a timestamp."""

    def __init__(
        self,
        wall_us: Callable[[], int],
        new_key: Callable[[], str] = lambda: f"client-{secrets.token_hex(12)}",
    ) -> None:
        self._wall_us = wall_us
        self._new_key = new_key
        self._batches: dict[str, Batch] = {}
        self._count = 0
        self._bytes = 0
        self._is_over = False

    def send(
        self,
        topic: str,
        value: Value,
        *,
        key: Data | None = None,
        headers: Headers | None = None,
        timestamp: datetime.datetime | None = None,
        delay: datetime.datetime | datetime.timedelta | None = None,
    ) -> Delivery:
        """Like `send` of a producer. The returned delivery has its offset after the transaction was
        stored, at the end of `with`. Raises BadRecordError, ClosedError."""
        if self._is_over:
            raise ClosedError("the transaction is over")
        record = new_record(topic, value, key, headers, timestamp, delay, self._wall_us())
        size_bytes = record.size_bytes
        if self._count == limits.RECORDS_PER_REQUEST_MAX or self._bytes + size_bytes > BYTES_MAX:
            most = f"{limits.RECORDS_PER_REQUEST_MAX:,} records of {BYTES_MAX >> 20} MiB"
            raise BadRecordError(f"value: a transaction has at most {most} in all")
        batch = self._batches.get(topic)
        if batch is None:
            if len(self._batches) == limits.TRANSACTION_TOPICS_MAX:
                most = f"{limits.TRANSACTION_TOPICS_MAX} topics"
                raise BadRecordError(f"topic: a transaction has at most {most}")
            batch = self._batches[topic] = Batch(topic, 0.0)
        self._count += 1
        self._bytes += size_bytes
        return batch.add(record, size_bytes)

    async def store(
        self,
        caller: Caller,
        commit: Mapping[str, object] | None = None,
        ack: Mapping[str, object] | None = None,
    ) -> None:
        """Send the records, with the body of a `commit` or an `ack`. If the answer is lost, the
        request is sent again with the same Idempotency-Key and takes effect once. Raises
        ApplianceError."""
        self._is_over = True
        if not self._batches and commit is None and ack is None:
            return
        produce = {
            topic: [_shown(record) for record in batch.records]
            for topic, batch in self._batches.items()
        }
        request = caller.endpoint.request(
            "POST",
            "/v1/transactions",
            body=msgspec.json.encode({"produce": produce, "commit": commit, "ack": ack}),
            headers={"Idempotency-Key": self._new_key()},
        )
        answer = await caller.ask(request, is_known_again=True)
        try:
            produced = msgspec.json.decode(answer.body, type=_Stored).produced
            offsets = {topic: produced[topic].offset for topic in self._batches}
        except (msgspec.DecodeError, KeyError) as error:
            raise no_answer(caller.endpoint.address, "what it says cannot be read") from error
        for topic, batch in self._batches.items():
            batch.stored(offsets[topic])

    def give_up(self, error: BaseException) -> None:
        """The transaction is not stored, or that is unknown: fail its deliveries."""
        self._is_over = True
        if not isinstance(error, ApplianceError):
            error = ClosedError("the transaction was cancelled")
        for batch in self._batches.values():
            batch.failed(error)


@contextlib.contextmanager
def opened(
    wall_us: Callable[[], int], failed: Callable[[], None] = lambda: None
) -> Iterator[Transaction]:
    """Stores the transaction at the end of the block. If the block fails, the transaction is
    cancelled and `failed` is called."""
    transaction = Transaction(wall_us)
    try:
        yield transaction
    except BaseException as error:
        transaction.give_up(error)
        failed()
        raise


def _shown(record: NewRecord) -> dict[str, Any]:
    """As the body has it."""
    shown: dict[str, Any] = {"timestamp": time_of(record.timestamp_us)}
    if record.value is None:
        shown["value"] = None
    else:
        shown["value_base64"] = record.value
    if record.due_us is not None:
        shown["deliver_at"] = time_of(record.due_us)
    if record.key is not None:
        shown["key_base64"] = record.key
    if record.headers:
        shown["headers_base64"] = headers_of(record.headers)
    return shown
