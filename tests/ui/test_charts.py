"""The charts: what they show, as a picture and as a table."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from msgspec.structs import replace

from seb_appliance.ui.history import History, Sample
from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROW_US = 300_000_000
SAMPLE = Sample(0, 15.0, 300, 15_360, 30, 60, 9, 1, 45, 0.038, 0.11, 4096)


@pytest_asyncio.fixture(loop_scope="module")
async def now_us(seb: RunningAppliance) -> AsyncIterator[int]:
    """A minute of samples, a gap of ten minutes, and a minute in which nothing was stored. Each
    lies in one line of the table."""
    history = History()
    at_us = seb.appliance.clock.wall_us() // ROW_US * ROW_US - 1_000_000
    for age_s in (780, 765, 750, 735):
        history.add(replace(SAMPLE, at_us=at_us - age_s * 1_000_000))
    for age_s in (45, 30, 15, 0):
        idle = replace(SAMPLE, records_in=0, put_p50_s=None, put_p99_s=None)
        history.add(replace(idle, at_us=at_us - age_s * 1_000_000))
    kept = seb.appliance.history.history
    rings, kept._rings = kept._rings, history._rings
    yield at_us
    kept._rings = rings


async def test_a_chart_has_gaps_where_there_are_no_samples(olga: Visitor, now_us: int) -> None:
    drawn = (await olga.get("/ui/charts/overview")).json()
    assert drawn["step_s"] == 15
    records, latency = drawn["charts"][0], drawn["charts"][3]
    assert records["unit"] == "rate"
    (values,) = [line["values"] for line in records["lines"]]
    assert len(values) == 241
    assert [value for value in values if value is not None] == [20.0] * 4 + [0.0] * 4
    first = next(place for place, value in enumerate(values) if value is not None)
    at_s = drawn["first_s"] + first * 15
    assert at_s <= now_us / 1e6 - 780 < at_s + 15
    assert values[first + 4 : first + 49] == [None] * 45
    assert [line["name"] for line in latency["lines"]] == ["p50", "p99"]
    p50, p99 = (line["values"] for line in latency["lines"])
    assert [value for value in p50 if value is not None] == [0.038] * 4
    assert [value for value in p99 if value is not None] == [0.11] * 4


@pytest.mark.parametrize("span", ["24h", "7d", "30d"])
async def test_a_longer_chart_has_means_and_few_points(
    olga: Visitor, now_us: int, span: str
) -> None:
    drawn = (await olga.get(f"/ui/charts/overview?span={span}")).json()
    (values,) = [line["values"] for line in drawn["charts"][0]["lines"]]
    assert 300 < len(values) < 500
    assert drawn["first_s"] + (len(values) - 1) * drawn["step_s"] <= (now_us + ROW_US) / 1e6 + 1
    known = [value for value in values if value is not None]
    assert 0 < max(known) <= 20


async def test_the_table_says_the_same_in_words(olga: Visitor, now_us: int) -> None:
    assert now_us
    text = (await olga.get("/ui?span=1h")).text
    table = text[text.index("The same as a table") :]
    rows = re.findall(r"<td class=\"number\">([^<]*)</td>", table)
    assert rows[:7] == ["0/s", "4/s", "1.0 KiB/s", "-", "-", "3/s", "4.0 KiB"]
    assert rows[7:14] == ["20/s", "4/s", "1.0 KiB/s", "38 ms", "110 ms", "3/s", "4.0 KiB"]


async def test_a_chart_that_is_not_there_is_refused(olga: Visitor) -> None:
    assert (await olga.get("/ui/charts/overview?span=1y")).status_code == 400
    assert (await olga.get("/ui/charts/nothing")).status_code == 404
    assert (await olga.get("/ui?span=1y")).status_code == 400
    assert (await olga.get("/ui/storage?span=7d")).status_code == 200
