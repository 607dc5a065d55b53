"""A sealed window is an entry that every start can read."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance.broker.append.sealing import seal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.values import NewBatches, NewRecords, Prepared
from seb_appliance.errors import (
    InternalError,
)
from seb_appliance.formats import batch
from seb_appliance.formats.operations import (
    TopicDeleted,
)
from tests.unit.broker.conftest import House


@pytest.mark.parametrize("times_us", [[0], [3, 1, 2]])
def test_a_section_tells_the_latest_of_its_records_times(times_us: list[int]) -> None:
    window = Window()
    for time_us in times_us:
        window.add_value(1, 0, None, b"a", time_us, 1)
    (section,) = seal(window, 9).contents.sections
    assert section.largest_timestamp_us == max(times_us)


async def test_an_event_that_no_start_could_read_stops_the_writer_and_is_not_stored(
    house: House,
) -> None:
    entries = len(house.journal.entries)
    event = TopicDeleted(topic_id=2**53)
    storing = asyncio.ensure_future(
        house.broker._writes.operate(lambda window: window.add_event(event))
    )
    await house.clock.advance(1)
    with pytest.raises(InternalError):
        await storing
    assert len(house.journal.entries) == entries


def test_neighbouring_plain_appends_become_one_batch_and_client_batches_stay() -> None:
    window = Window()
    for value in (b"a", b"b"):
        window.add_value(1, 5, None, value, 7, 1)
    made = batch.encode_value(b"c", 8, base_offset=0, created_us=0)
    client = NewBatches([(batch.read_header(made), memoryview(made)[batch.HEADER_BYTES :])], 1)
    window.add_records(1, 7, None, Prepared(client, 1, 1, [], 8))
    window.add_value(1, 8, None, b"d", 9, 1)
    sealed = seal(window, 10)
    headers = [header for _, header in batch.walk(b"".join(sealed.parts))]
    assert [(header.base_offset, header.count) for header in headers] == [(5, 2), (7, 1), (8, 1)]
    (section,) = sealed.contents.sections
    assert (section.base_offset, section.last_offset, section.record_count) == (5, 8, 4)


@pytest.mark.parametrize("values", [[None], [b"a", None]])
def test_a_null_without_record_key_is_stored_as_one(values: list[bytes | None]) -> None:
    window = Window()
    times_us = [7] * len(values)
    window.add_records(
        1, 0, None, Prepared(NewRecords(values), len(values), 1, times_us, times_us[-1])
    )
    (part,) = seal(window, 10).parts
    columns = batch.decode(part).columns
    assert (columns.values.slice(), columns.keys) == (values, None)
