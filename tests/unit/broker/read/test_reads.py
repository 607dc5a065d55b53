"""Reading by offset, by time, from the end, and waiting there."""

import asyncio
import itertools
from dataclasses import replace
from unittest import mock

import pytest

from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.topic import IndexRows
from seb_appliance.broker.values import From, NewBatches, NewRecords, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadBatchError,
    CorruptObjectError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    StoreError,
    TopicNotFoundError,
)
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from tests.support.fakes import START_US, settle
from tests.unit.broker.conftest import ADMIN, House


async def three_entries(house: House) -> None:
    for values in ((b"a", b"b"), (b"c",), (b"d", b"e")):
        await house.appended("t", *values)


async def test_a_read_goes_from_entry_to_entry(house: House) -> None:
    await three_entries(house)
    assert await house.values("t") == [b"a", b"b", b"c", b"d", b"e"]
    assert await house.values("t", From(offset=1)) == [b"b", b"c", b"d", b"e"]


async def test_max_records_and_until_cut_in_the_middle_of_a_batch(house: House) -> None:
    await three_entries(house)
    result = await house.broker.read("t", ReadRequest(From(offset=1), max_records=3))
    assert result.next_offset == 4
    until = ReadRequest(From(offset=1), until=From(offset=4))
    assert (await house.broker.read("t", until)).next_offset == 4
    assert await house.values("t", From(offset=1), max_records=3) == [b"b", b"c", b"d"]


async def test_max_bytes_is_soft_at_least_one_record_comes(house: House) -> None:
    await house.appended("t", b"x" * 100, b"y" * 100, b"z" * 100)
    assert await house.values("t", max_bytes=1) == [b"x" * 100]
    assert await house.values("t", max_bytes=200) == [b"x" * 100, b"y" * 100]
    assert await house.values("t", max_bytes=299) == [b"x" * 100, b"y" * 100]


async def test_what_is_read_as_it_is_stored_are_the_same_slices(house: House) -> None:
    await three_entries(house)
    for begin, until in itertools.combinations(range(6), 2):
        for most in range(1, 6):
            asked = ReadRequest(From(offset=begin), From(offset=until), most)
            plain = await house.broker.read("t", asked)
            house.broker._reads._sections._kept.clear()
            stored = await house.broker.read("t", replace(asked, as_stored=True))
            assert all(isinstance(piece.batch, batch.Undecoded) for piece in stored.slices)
            assert stored.next_offset == plain.next_offset
            assert [(piece.begin, piece.end, piece.stored) for piece in stored.slices] == [
                (piece.begin, piece.end, piece.stored) for piece in plain.slices
            ]


async def test_max_bytes_of_what_is_read_as_it_is_stored_leaves_no_record_behind(
    house: House,
) -> None:
    await house.appended("t", *[b"x" * 100] * 50)
    for max_bytes in (1, 250, 4_000, 10_000):
        asked = ReadRequest(max_bytes=max_bytes, start=From(offset=0), as_stored=True)
        seen = 0
        while seen < 50:
            house.broker._reads._sections._kept.clear()
            result = await house.broker.read("t", replace(asked, start=From(offset=seen)))
            assert 1 <= result.next_offset - seen <= max(1, max_bytes // 100)
            seen = result.next_offset


async def test_the_last_n_and_latest(house: House) -> None:
    await three_entries(house)
    assert await house.values("t", From(last=2)) == [b"d", b"e"]
    assert await house.values("t", From(last=99)) == [b"a", b"b", b"c", b"d", b"e"]
    assert await house.values("t", From(latest=True)) == []


async def test_a_time_finds_the_first_record_of_that_time_or_later(house: House) -> None:
    for value, timestamp_us in ((b"a", 100), (b"late", 50), (b"b", 200), (b"c", 300)):
        records = NewRecords([value], timestamps_us=[timestamp_us])
        await house.done(
            house.broker.appends.append(
                ADMIN, "t", records, house.broker.pending.reserve(OPERATOR, 1)
            )
        )
    for timestamp_us, expected in ((0, b"a"), (100, b"a"), (101, b"b"), (200, b"b"), (300, b"c")):
        values = await house.values("t", From(timestamp_us=timestamp_us))
        assert values[0] == expected, timestamp_us
    assert await house.values("t", From(timestamp_us=301)) == []


async def test_an_offset_beyond_the_log_end_is_refused(house: House) -> None:
    await three_entries(house)
    assert await house.values("t", From(offset=5)) == []
    with pytest.raises(OffsetOutOfRangeError) as refused:
        await house.values("t", From(offset=6))
    assert refused.value.data == {"log_end_offset": 5}


async def test_a_waiting_reader_is_woken_by_an_applied_entry(house: House) -> None:
    await three_entries(house)
    request = ReadRequest(From(latest=True), wait_ms=60_000)
    reader = asyncio.ensure_future(house.broker.read("t", request))
    await house.clock.advance(5)
    assert not reader.done()
    await house.appended("t", b"f")
    assert (await reader).next_offset == 6


async def test_a_waiting_reader_leaves_with_nothing_when_its_time_is_up(house: House) -> None:
    await house.topic("t")
    reader = asyncio.ensure_future(
        house.broker.read("t", ReadRequest(From(latest=True), wait_ms=1_000))
    )
    await house.clock.advance(0.999)
    assert not reader.done()
    await house.clock.advance(0.001)
    assert (await reader).slices == []
    assert house.clock.armed == 0


async def test_a_reader_is_not_woken_before_its_record_is_stored(house: House) -> None:
    await house.topic("t")
    reader = asyncio.ensure_future(
        house.broker.read("t", ReadRequest(From(latest=True), wait_ms=60_000))
    )
    house.journal.hold()
    writer = house.append("t", b"a")
    await house.clock.advance(5)
    assert not reader.done()
    assert (await house.broker.read("t", ReadRequest(From(earliest=True)))).slices == []
    house.journal.release()
    await house.clock.advance(1)
    await writer
    assert (await reader).next_offset == 1


async def test_deleting_the_topic_wakes_its_readers_with_not_found(house: House) -> None:
    await house.topic("t")
    reader = asyncio.ensure_future(
        house.broker.read("t", ReadRequest(From(latest=True), wait_ms=60_000))
    )
    await settle()
    await house.done(house.broker.topics.delete("t"))
    with pytest.raises(TopicNotFoundError):
        await reader


async def test_stopping_sends_waiting_readers_home(house: House) -> None:
    await house.topic("t")
    reader = asyncio.ensure_future(
        house.broker.read("t", ReadRequest(From(latest=True), wait_ms=60_000))
    )
    await settle()
    house.broker.stop_accepting()
    assert (await reader).slices == []


async def test_readers_of_one_section_fetch_it_once(house: House) -> None:
    await house.appended("t", b"a")
    await asyncio.gather(*(house.values("t") for _ in range(10)))
    assert house.source.reads == 1


async def test_a_read_ends_where_the_topic_was_trimmed_meanwhile(house: House) -> None:
    await three_entries(house)

    async def trim() -> None:
        house.source.pause = None
        await house.done(house.broker.topics.trim("t", 4))

    house.source.pause = trim
    result = await house.broker.read("t", ReadRequest(From(offset=0)))
    values = [v for s in result.slices for v in s.batch.columns.values.slice(s.begin, s.end)]
    assert values == [b"a", b"b", b"c"][: result.next_offset]
    assert 0 < result.next_offset < result.log_start_offset == 4
    with pytest.raises(OffsetExpiredError):
        await house.values("t", From(offset=result.next_offset))


async def test_who_waits_where_the_topic_is_trimmed_is_told_so(house: House) -> None:
    await house.appended("t", b"a")
    request = ReadRequest(From(offset=1), wait_ms=10_000)
    reading = asyncio.create_task(house.broker.read("t", request))
    await settle()
    house.journal.hold()
    appending = house.append("t", b"b", b"c")
    trimming = asyncio.create_task(house.broker.topics.trim("t", 3))
    await house.clock.advance(0.005)
    house.journal.release()
    await house.clock.advance(1)
    await asyncio.gather(appending, trimming)
    with pytest.raises(OffsetExpiredError):
        await reading


async def test_what_was_read_is_served_while_the_bucket_is_away(house: House) -> None:
    await house.appended("t", b"a")
    await house.values("t")
    await house.appended("t", b"b")
    house.source.away = True
    assert await house.values("t", max_records=1) == [b"a"]
    with pytest.raises(StoreError):
        await house.values("t", From(offset=1))
    house.source.away = False
    assert await house.values("t") == [b"a", b"b"]


async def test_client_made_batches_come_back_restamped(house: House) -> None:
    await house.appended("t", b"first")
    columns = Columns(int64s([START_US, START_US]), BinaryColumn.of([b"x", b"y"]))
    made = batch.encode(columns, base_offset=0, created_us=0, zstd_level=3)
    stored = memoryview(made)[batch.HEADER_BYTES :]
    records = NewBatches([(batch.read_header(made), stored)] * 2, largest_value_bytes=1)
    reservation = house.broker.pending.reserve(OPERATOR, len(made))
    answer = await house.done(house.broker.appends.append(ADMIN, "t", records, reservation))
    assert (answer.offset, answer.count) == (1, 4)
    assert await house.values("t") == [b"first", b"x", b"y", b"x", b"y"]


async def test_a_batch_that_brings_its_own_offsets_is_refused(house: House) -> None:
    columns = Columns(int64s([START_US]), BinaryColumn.of([b"x"]))
    made = batch.encode(columns, base_offset=7, created_us=0)
    stored = memoryview(made)[batch.HEADER_BYTES :]
    records = NewBatches([(batch.read_header(made), stored)], largest_value_bytes=1)
    with pytest.raises(BadBatchError):
        await house.broker.appends.append(
            ADMIN, "t", records, house.broker.pending.reserve(OPERATOR, 1)
        )


async def test_a_reader_of_an_idle_appliance_makes_it_look_for_a_newer_writer(
    house: House,
) -> None:
    await house.appended("t", b"a")
    await house.values("t")
    assert house.journal.confirmations == 0
    await house.clock.advance(31)
    house.journal.fenced = True
    await house.values("t")
    await settle()
    assert house.journal.confirmations == 1
    assert house.broker.failure is not None
    assert not (await house.broker.readiness()).ready


# --- at once ---


def at_once(house: House, start: From | None = None, **limits: int) -> ReadResult | None:
    return house.broker.read_nowait("t", ReadRequest(start or From(earliest=True), **limits))


async def test_what_is_in_memory_is_read_at_once_with_the_same_answer(house: House) -> None:
    await three_entries(house)
    for request in (
        ReadRequest(From(earliest=True)),
        ReadRequest(From(offset=1), max_records=3),
        ReadRequest(From(offset=1), until=From(offset=4), wait_ms=1_000),
        ReadRequest(From(last=2), max_bytes=1),
        ReadRequest(From(latest=True)),
    ):
        read = await house.broker.read("t", request)
        assert house.broker.read_nowait("t", request) == read


async def test_a_section_that_is_not_in_memory_is_not_read_at_once(house: House) -> None:
    await three_entries(house)
    await house.values("t", max_records=2)
    assert at_once(house, max_records=2) is not None
    counted = house.broker.counters.reads
    assert at_once(house) is None
    assert house.source.reads == 1
    assert house.broker.counters.reads == counted
    house.source.in_memory = True
    assert at_once(house) == await house.broker.read("t", ReadRequest(From(earliest=True)))
    assert house.source.reads == 1


async def test_a_reader_that_would_wait_is_not_answered_at_once(house: House) -> None:
    await three_entries(house)
    assert at_once(house, From(latest=True), wait_ms=1) is None
    assert at_once(house, From(timestamp_us=1)) is None
    assert house.clock.armed == 0


async def test_a_read_at_once_refuses_what_a_read_refuses(house: House) -> None:
    with pytest.raises(TopicNotFoundError):
        at_once(house)
    await three_entries(house)
    with pytest.raises(OffsetOutOfRangeError):
        at_once(house, From(offset=6), wait_ms=1)


async def test_many_batches_are_collected_like_one_by_one(house: House) -> None:
    values = [bytes([65 + i]) * (1 + i % 7) for i in range(40)]
    for i in range(0, 40, 4):
        await house.appended("t", *values[i : i + 4])
    for begin in range(0, 40, 3):
        for max_bytes in (1, 5, 20, 1_000):
            for max_records in (1, 3, 4, 9, 100):
                for end in (begin + 2, 40):
                    expected = []
                    for value in values[begin:end][:max_records]:
                        size = sum(map(len, [*expected, value]))
                        if expected and size > max_bytes:
                            break
                        expected.append(value)
                    got = await house.values(
                        "t",
                        From(offset=begin),
                        until=From(offset=end),
                        max_bytes=max_bytes,
                        max_records=max_records,
                    )
                    assert got == expected, (begin, max_bytes, max_records, end)


async def test_an_index_that_lacks_an_offset_is_an_error_and_no_endless_read(house: House) -> None:
    await three_entries(house)
    short = mock.patch.object(IndexRows, "end_of", lambda rows, row: rows.bases[row] + 1)
    with short, pytest.raises(CorruptObjectError, match="lacks 1"):
        await house.values("t", From(offset=1))
    assert await house.values("t", From(offset=1)) == [b"b", b"c", b"d", b"e"]
