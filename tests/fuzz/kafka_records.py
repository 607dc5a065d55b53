"""Targets: record sets of producers of the Kafka protocol.

A change is most often caught by the CRC, so each input is decoded as it is, and as the records of a
batch of each codec.
"""

from __future__ import annotations

import contextlib
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.values import BatchSlice, NewRecords
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.protocols.kafka.errors import KafkaError
from seb_appliance.protocols.kafka.records.reading import read_batches
from seb_appliance.protocols.kafka.records.writing import batches_of
from tests.fuzz.formats import NUMBERS
from tests.fuzz.target import Target
from tests.unit.protocols.kafka.golden_batches import LIBRDKAFKA
from tests.unit.protocols.kafka.record_sets import RECORDS_AT, Sent, made, with_body, with_crc

_CODECS: Final = 5
_STORED_US_MAX: Final = 2**60


def _same_again(records: NewRecords) -> None:
    """What was read is stored, written for a consumer, and read again."""
    count = len(records.values)
    times_us = [
        0 if time_us is None or not 0 <= time_us < _STORED_US_MAX else time_us
        for time_us in records.timestamps_us or [None] * count
    ]
    columns = Columns(
        int64s(times_us),
        BinaryColumn.of(records.values),
        None if records.keys is None else BinaryColumn.of(records.keys),
        None if records.headers is None else BinaryColumn.of(records.headers),
    )
    stored = batch.encode(columns, base_offset=0, created_us=0)
    piece = BatchSlice(batch.decode(stored), 0, count, memoryview(stored))
    again = read_batches(b"".join(batches_of([piece])), limits.REQUEST_BYTES_MAX).records
    assert (again.values, again.keys) == (records.values, records.keys)
    assert again.headers == records.headers
    assert again.timestamps_us == times_us


def check_kafka_batches(data: bytes) -> None:
    for sent in (data, with_crc(data) if len(data) >= RECORDS_AT else data):
        with contextlib.suppress(KafkaError):
            _same_again(read_batches(sent, limits.MIB).records)
    read_batches(data, limits.MIB)


def check_kafka_records(data: bytes) -> None:
    """The first byte chooses the codec."""
    sent = with_body(_THREE, data[1:], data[0] % _CODECS if data else 0)
    _same_again(read_batches(sent, limits.MIB).records)


_THREE: Final = made(
    Sent(b"a", b"k", [(b"h", b"1"), (b"h", None)]),
    Sent(None, b"k", [(b"h", b"1")]),
    Sent(b"c" * 70),
)
_BATCHES: Final = (_THREE, *LIBRDKAFKA.values())

TARGETS: Final = (
    Target("kafka_batches", check_kafka_batches, _BATCHES, NUMBERS, (KafkaError,)),
    Target(
        "kafka_records",
        check_kafka_records,
        tuple(bytes([one[RECORDS_AT - 39]]) + one[RECORDS_AT:] for one in _BATCHES),
        (*NUMBERS, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1", b"\xff\xff\xff\xff\x0f", b"kafka-headers"),
        (KafkaError,),
    ),
)
