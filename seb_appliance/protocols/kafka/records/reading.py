"""A record set of a producer, as it sends it for one partition, becomes new records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.formats.columns import Bytes
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.records.incoming import Incoming, ProducerOf
from seb_appliance.protocols.kafka.records.inflating import inflate
from seb_appliance.protocols.kafka.records.layout import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_FROM,
    HEAD,
    HEAD_BYTES,
    LENGTH_FROM,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchHead,
)
from seb_appliance.protocols.kafka.records.record_columns import RecordColumns
from seb_appliance.tasks import in_slices

# What takes about a millisecond. Beyond it, copies are avoided and a thread inflates.
_COPIED_BYTES_MAX: Final = limits.MIB
_INFLATED_HERE_BYTES: Final = 256 * limits.KIB


def read_batches(
    data: Bytes, max_bytes: int, max_records: int = limits.RECORDS_IN_BATCHES_MAX
) -> Incoming:
    """The records of a record set, in one go: for a small one, or off the event loop.

    `max_bytes`: the most that they may have, inflated. Several batches are taken as one if they
    are of one producer and their sequences follow each other. Timestamps are the client's, also in
    a batch that says LogAppendTime; -1 is none. Raises KafkaError.
    """
    reader = _Reader(data, max_bytes, max_records)
    for head, stored in reader.batches():
        codec = head.attributes & CODEC_BITS
        body = inflate(codec, stored, reader.left_bytes) if codec else None
        reader.begin(head, body)
        while reader.columns.step():
            pass
    return reader.incoming()


async def read_batches_in_slices(data: Bytes, max_bytes: int) -> Incoming:
    """As `read_batches`, with pauses for others. `data` must stay as it is until it returns."""
    reader = _Reader(data, max_bytes)
    async for head, stored in in_slices(reader.batches()):  # there may be many small ones
        codec = head.attributes & CODEC_BITS
        body = await _inflate(codec, stored, reader.left_bytes) if codec else None
        reader.begin(head, body)
        async for _ in in_slices(iter(reader.columns.step, False)):
            pass
    return reader.incoming()


async def _inflate(codec: int, stored: Bytes, max_bytes: int) -> Bytes:
    """Here if it stays small, else in a thread."""
    if len(stored) <= _INFLATED_HERE_BYTES:
        here_bytes = min(max_bytes, _INFLATED_HERE_BYTES)
        try:
            return inflate(codec, stored, here_bytes)
        except KafkaError as error:
            if error.code != ErrorCode.MESSAGE_TOO_LARGE or here_bytes == max_bytes:
                raise
    return await asyncio.to_thread(inflate, codec, stored, max_bytes)


class _Reader:
    """`left_bytes`: how much more the records may have, inflated."""

    def __init__(
        self, data: Bytes, max_bytes: int, max_records: int = limits.RECORDS_IN_BATCHES_MAX
    ) -> None:
        is_copied = not isinstance(data, bytes) and len(data) <= _COPIED_BYTES_MAX
        self._data: Bytes = bytes(data) if is_copied else data  # slices of bytes are the fastest
        self._at = 0
        self.columns = RecordColumns(max_records)
        self._stamp: ProducerOf | None = None
        self._first: BatchHead | None = None
        self._most_bytes = self.left_bytes = max_bytes

    def batches(self) -> Iterator[tuple[BatchHead, Bytes]]:
        """Head and stored records of each batch; it goes on once `columns` has read them."""
        data = memoryview(self._data)
        while self._at < len(data):
            head = _read_head(data[self._at :])
            self._follow(head)
            end = self._at + LENGTH_FROM + head.length
            yield head, data[self._at + HEAD_BYTES : end]
            self._at = end

    def begin(self, head: BatchHead, inflated: Bytes | None) -> None:
        """Let `columns` read the records of the batch that `batches` gave last. `inflated`: its
        records, None if they are not compressed."""
        at = self._at + HEAD_BYTES if inflated is None else 0
        body = self._data if inflated is None else inflated
        until = self._at + LENGTH_FROM + head.length if inflated is None else len(body)
        if until - at > self.left_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The records have {until - at} bytes; {self.left_bytes} are left for them.",
            )
        self.left_bytes -= until - at
        self.columns.begin(body, at, until, head.record_count, head.base_timestamp_ms)

    def incoming(self) -> Incoming:
        if self._first is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "There is no record batch.")
        return Incoming(
            self.columns.records(),
            self._stamp,
            bool(self._first.attributes & TRANSACTIONAL_BIT),
            self._most_bytes - self.left_bytes,
        )

    def _follow(self, head: BatchHead) -> None:
        """Count the batch to the producer."""
        stamp = _stamp_of(head)
        if self._first is None:
            self._first, self._stamp = head, stamp
            return
        if (head.attributes ^ self._first.attributes) & TRANSACTIONAL_BIT:
            raise _invalid("Batches of one partition are transactional, and others are not.")
        before = self._stamp
        if stamp is None or before is None:
            if stamp is not before:
                raise _invalid("Batches of one partition are of different producers.")
            return
        if not stamp.follows(before):
            raise _invalid("Batches of one partition are of different producers, or not in order.")
        self._stamp = before.and_then(stamp)


def _read_head(data: memoryview) -> BatchHead:
    """The checked head of a batch that lies inside `data`. Raises KafkaError."""
    if len(data) > MAGIC_AT and data[MAGIC_AT] in {0, 1}:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Records with magic {data[MAGIC_AT]} are not taken; magic {MAGIC} is "
            "(Kafka 0.11 and later).",
        )
    if len(data) < HEAD_BYTES:
        raise _corrupt(f"{len(data)} bytes are left where a record batch should be")
    head = BatchHead._make(HEAD.unpack_from(data))
    if head.magic != MAGIC:
        raise _corrupt(f"magic {head.magic} is not known")
    if not HEAD_BYTES <= head.length + LENGTH_FROM <= len(data):
        raise _corrupt(f"a batch of length {head.length} in {len(data)} bytes")
    if crc32c(data[CRC_FROM : LENGTH_FROM + head.length]) != head.crc:
        raise _corrupt("its CRC does not agree")
    if head.attributes & CONTROL_BIT:
        raise _invalid("Clients cannot send control batches.")
    if head.record_count < 1 or head.last_offset_delta != head.record_count - 1:
        raise _invalid(
            f"A batch of {head.record_count} records has the last offset {head.last_offset_delta}."
        )
    return head


def _stamp_of(head: BatchHead) -> ProducerOf | None:
    if head.producer_id == -1:
        if head.attributes & TRANSACTIONAL_BIT:
            raise _invalid("A transactional batch needs a producer id.")
        return None
    if head.producer_id < 0 or head.producer_epoch < 0 or head.base_sequence < 0:
        raise _invalid("The producer id, epoch or sequence of a batch is negative.")
    return ProducerOf(head.producer_id, head.producer_epoch, head.base_sequence, head.record_count)


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The record batch is damaged: {why}.")


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, text)
