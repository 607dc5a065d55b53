"""What a record set of a producer becomes, and what is refused of it, with which code."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.values import NewRecords
from seb_appliance.protocols.kafka.errors import KafkaError
from seb_appliance.protocols.kafka.records import reading
from seb_appliance.protocols.kafka.records.incoming import ProducerOf
from seb_appliance.protocols.kafka.records.reading import read_batches, read_batches_in_slices
from seb_appliance.protocols.kafka.records.record_columns import RecordColumns
from tests.unit.protocols.kafka.golden_batches import LIBRDKAFKA
from tests.unit.protocols.kafka.record_sets import (
    ATTRIBUTES_AT,
    CRC_AT,
    RECORDS_AT,
    T_MS,
    Sent,
    changed,
    made,
    with_body,
    with_crc,
)

ROOM = limits.MIB
LENGTH_AT, MAGIC_AT, LAST_DELTA_AT, BASE_TIME_AT = 8, 16, 23, 27
PRODUCER_AT, EPOCH_AT, SEQUENCE_AT, COUNT_AT = 43, 51, 53, 57
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08

binaries = st.binary(max_size=200)
times_ms = st.integers(0, 2**45)
names = st.text(max_size=5).map(str.encode)
headers = st.lists(st.tuples(names, binaries), max_size=limits.RECORD_HEADERS_MAX)
sent = st.builds(Sent, st.none() | binaries, st.none() | binaries, headers, times_ms)


def code_of(data: bytes, room: int = ROOM) -> int:
    with pytest.raises(KafkaError) as caught:
        read_batches(data, room)
    return caught.value.code


@given(st.lists(sent, min_size=1, max_size=40), st.sampled_from([bytes, memoryview]))
def test_what_kafka_python_sends_is_read(records: list[Sent], kind: type) -> None:
    read, stamp, is_transactional, _ = read_batches(kind(made(*records)), ROOM)
    assert read.values == [record.value for record in records]
    assert (read.keys or [None] * len(records)) == [record.key for record in records]
    assert read.timestamps_us == [record.time_ms * 1000 for record in records]
    assert (stamp, is_transactional) == (None, False)


def test_columns_that_no_record_has_are_none() -> None:
    assert read_batches(made(Sent(time_ms=-1)), ROOM).records == NewRecords([b"v"])


def test_a_timestamp_of_minus_one_is_none() -> None:
    records = made(Sent(time_ms=5), Sent(time_ms=-1))
    assert read_batches(records, ROOM).records.timestamps_us == [5000, None]


def test_a_clients_log_append_time_is_ignored() -> None:
    batch = changed(made(Sent(time_ms=5), Sent(time_ms=9)), ATTRIBUTES_AT, ">h", LOG_APPEND_TIME)
    assert read_batches(batch, ROOM).records.timestamps_us == [5000, 9000]


def test_the_producer_and_its_transaction_are_told() -> None:
    incoming = read_batches(made(Sent(), Sent(), producer=(7, 3, 11), in_txn=1), ROOM)
    assert (incoming.stamp, incoming.is_transactional) == (ProducerOf(7, 3, 11, 2), True)


def test_batches_of_one_producer_in_order_are_taken_as_one() -> None:
    last = 2**31 - 1
    incoming = read_batches(
        made(Sent(b"a"), producer=(7, 3, last)) + made(Sent(b"b", b"k"), producer=(7, 3, 0)), ROOM
    )
    assert incoming.stamp == ProducerOf(7, 3, last, 2)
    assert (incoming.records.values, incoming.records.keys) == ([b"a", b"b"], [None, b"k"])


@pytest.mark.parametrize("producer", [(7, 3, 13), (7, 4, 12), (8, 3, 12), (-1, -1, -1)])
def test_batches_of_several_producers_or_with_a_gap_are_refused(
    producer: tuple[int, int, int],
) -> None:
    assert code_of(made(Sent(), producer=(7, 3, 11)) + made(Sent(), producer=producer)) == 87
    assert code_of(made(Sent(), producer=producer) + made(Sent(), producer=(7, 3, 11))) == 87


def test_a_batch_outside_the_transaction_of_the_one_before_is_refused() -> None:
    first = made(Sent(), producer=(7, 3, 11), in_txn=1)
    assert code_of(first + made(Sent(), producer=(7, 3, 12))) == 87


@pytest.mark.parametrize(
    ("at", "layout", "number", "code"),
    [
        (MAGIC_AT, ">b", 0, 43),
        (MAGIC_AT, ">b", 1, 43),
        (MAGIC_AT, ">b", 3, 2),
        (LENGTH_AT, ">i", -1, 2),
        (LENGTH_AT, ">i", 48, 2),
        (LENGTH_AT, ">i", 2**31 - 1, 2),
        (ATTRIBUTES_AT, ">h", CONTROL, 87),
        (ATTRIBUTES_AT, ">h", TRANSACTIONAL, 87),  # without a producer id
        (ATTRIBUTES_AT, ">h", 5, 76),
        (COUNT_AT, ">i", 0, 87),
        (COUNT_AT, ">i", -1, 87),
        (COUNT_AT, ">i", 1, 87),
        (COUNT_AT, ">i", 2**31 - 1, 87),
        (LAST_DELTA_AT, ">i", 2, 87),
        (PRODUCER_AT, ">q", -2, 87),
        (PRODUCER_AT, ">q", 5, 87),  # epoch and sequence are -1
    ],
)
def test_a_wrong_head_is_refused(at: int, layout: str, number: int, code: int) -> None:
    assert code_of(changed(made(Sent(), Sent()), at, layout, number)) == code


def test_a_wrong_crc_is_told_as_such() -> None:
    batch = bytearray(made(Sent()))
    batch[CRC_AT] ^= 1
    assert code_of(bytes(batch)) == 2


def test_no_batch_is_refused_and_half_a_batch_too() -> None:
    assert code_of(b"") == 87
    batch = made(Sent(b"a" * 50))
    assert {code_of(batch[:end]) for end in range(1, len(batch))} == {2}
    assert code_of(batch + batch[:20]) == 2


def test_so_many_records_as_the_head_says_must_be_there() -> None:
    for count in (1, 3, 100_000):
        batch = changed(made(Sent(), Sent()), LAST_DELTA_AT, ">i", count - 1)
        assert code_of(changed(batch, COUNT_AT, ">i", count)) == 87
    batch = changed(batch, LAST_DELTA_AT, ">i", limits.RECORDS_IN_BATCHES_MAX)
    assert code_of(changed(batch, COUNT_AT, ">i", limits.RECORDS_IN_BATCHES_MAX + 1)) == 10


PLAIN = made(Sent(b"v"))  # its records: length, attributes, time, offset, no key, 1 byte, headers
BODY = PLAIN[RECORDS_AT:]


@pytest.mark.parametrize(
    "body",
    [
        BODY[:-1],
        BODY + b"\0",
        b"\x0f" + BODY[1:],  # a negative length
        b"\x10" + BODY[1:],  # a length that is too large
        BODY[:3] + b"\x02" + BODY[4:],  # offset 1
        BODY[:3] + b"\x01" + BODY[4:],  # offset -1
        BODY[:4] + b"\x03" + BODY[5:],  # a key of -2 bytes
        b"\x0c" + BODY[1:5] + b"\x03\0",  # a value of -2 bytes
        b"\x0c" + BODY[1:-1],  # no place for headers
        BODY[:5] + b"\xfe\xff\xff\xff\xff\x01v\0",  # a value that ends beyond all
        BODY[:4] + b"\xfe\xff\xff\xff\x0f" + BODY[5:],
        BODY[:-1] + b"\x02",  # a header that is not there
        BODY[:-1] + b"\xff" * 11,
        b"\xff" * 20,
        b"",
    ],
)
def test_records_that_do_not_decode_are_refused(body: bytes) -> None:
    assert read_batches(with_body(PLAIN, BODY, 0), ROOM).records.values == [b"v"]
    assert code_of(with_body(PLAIN, body, 0)) in {87, 10}


def test_a_record_key_at_its_limit_is_taken_and_one_beyond_it_refused() -> None:
    key = bytes(limits.RECORD_KEY_BYTES_MAX)
    assert read_batches(made(Sent(b"", key)), ROOM).records.keys == [key]
    assert code_of(made(Sent(b"", key + b"a"))) == 10


def test_records_beyond_the_room_for_them_are_refused() -> None:
    batch = made(Sent(bytes(1000)))
    exact = len(batch) - RECORDS_AT
    assert read_batches(batch, exact).records.values == [bytes(1000)]
    assert code_of(batch, exact - 1) == 10
    assert code_of(batch + batch, 2 * exact - 1) == 10


@pytest.mark.parametrize("kind", [bytes, memoryview])
async def test_slices_give_the_same_records(kind: type) -> None:
    records = [Sent(b"%d" % i * 50, b"k%d" % i, [(b"h", b"%d" % i)]) for i in range(4_000)]
    data = kind(made(*records) + made(*records))
    assert len(data) > reading._COPIED_BYTES_MAX
    assert await read_batches_in_slices(data, 2**24) == read_batches(data, 2**24)
    values = read_batches(data, 2**24).records.values
    assert {type(value) for value in values} == {bytes}


async def test_others_have_turns_while_a_large_set_is_read() -> None:
    data = made(Sent(b"a" * 100)) * 20_000  # a batch each
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await read_batches_in_slices(data, 2**24)
    beside.cancel()
    assert turns >= 5


@pytest.mark.parametrize(("value_bytes", "steps"), [(0, 15), (200 * limits.KIB, 499)])
def test_a_step_ends_after_so_many_records_or_bytes(value_bytes: int, steps: int) -> None:
    sent = made(*[Sent(bytes(value_bytes))] * 1_000)
    columns = RecordColumns()
    columns.begin(sent, RECORDS_AT, len(sent), 1_000, T_MS)
    assert sum(1 for _ in iter(columns.step, False)) == steps


@pytest.mark.parametrize("name", LIBRDKAFKA)
def test_whatever_is_changed_is_read_or_refused(name: str) -> None:
    chance = random.Random(1)
    for _ in range(1500):
        batch = bytearray(LIBRDKAFKA[name])
        for _ in range(chance.choice((1, 1, 2, 5))):
            batch[chance.randrange(len(batch))] = chance.randrange(256)
        for data in (bytes(batch), with_crc(bytes(batch))):
            try:
                records = read_batches(data, ROOM).records
            except KafkaError:
                continue
            columns = (records.values, records.keys, records.headers, records.timestamps_us)
            assert {len(column) for column in columns if column is not None} == {3}
