"""Delayed records in SQLite: what queues ask of them, against a list of all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from seb_appliance.broker.ports import DelayedTopic, DelayRange
from seb_appliance.formats.operations import DelaysPassed, RecordsDelayed
from seb_appliance.formats.queues.queues import Delay
from seb_appliance.state import schema
from seb_appliance.state.rows import delays
from seb_appliance.state.rows.delays import DelayReader
from seb_appliance.state.tables import Tables

# Gaps, lengths and due times of ranges.
RANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 5)), max_size=12)


def rows_of(ranges: Sequence[tuple[int, int, int]]) -> list[DelayRange]:
    rows, offset = [], 0
    for gap, count, due_us in ranges:
        first = offset + gap
        offset = first + count
        rows.append(DelayRange(due_us, first, offset))
    return rows


@settings(max_examples=100, deadline=None)
@given(ranges=RANGES, at=st.integers(0, 40), until_us=st.integers(0, 6), most=st.integers(1, 20))
def test_sqlite_answers_as_a_list_of_all_would(
    ranges: list[tuple[int, int, int]],
    at: int,
    until_us: int,
    most: int,
    tmp_path_factory,
) -> None:
    path: Path = tmp_path_factory.mktemp("delays") / "state.db"
    known = rows_of(ranges)
    connection = sqlite3.connect(path)
    schema.create(connection)
    rows = Tables(connection)
    given_ = tuple(Delay(one.first, one.end - one.first, one.due_us) for one in known)
    delays.project(rows, RecordsDelayed(topic_id=1, delays=given_))
    with patch.object(delays, "_LAST_TO_GO", delays._LAST_TO_GO.replace("19999", "4")):
        delays.project(rows, DelaysPassed(topic_id=1, until_us=until_us))
    passed = [one for one in sorted(known) if one.due_us <= until_us][:5]
    known = [one for one in known if one not in passed]
    connection.commit()
    total = sum(one.end - one.first for one in known)
    expected = [DelayedTopic(1, total, known[0].first)] if known else []
    assert delays.load(connection) == expected
    connection.close()

    async def asked() -> None:
        reader = DelayReader(path)
        until = [(1, at)]
        below = [one._replace(end=min(one.end, at)) for one in known if one.first < at]
        assert (
            await reader.by_time(until, (2, 5), most)
            == [one for one in sorted(below) if one[:2] > (2, 5)][:most]
        )
        reach = [one for one in known if one.end > at][:most]
        assert await reader.by_offset([(1, 1_000)], at, most) == reach
        await reader.close()

    asyncio.run(asked())
