"""What the overview warns of, and how it shows the budget."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.broker.status import Telemetry
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.ops.serve.status import telemetry
from seb_appliance.ui import warnings
from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user, visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONSUME = (Grant(operation="consume"),)
DAY_US = 24 * 3600 * 1_000_000


def told(now: Telemetry) -> list[str]:
    return [warned.words for warned in warnings.warnings(now, [])]


async def test_a_group_that_falls_behind_is_told_with_a_link(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await seb.client.post("/v1/topics/slow/records", content=b"x")
    topic_id = seb.appliance.broker.topics.get("slow").topic_id
    for number in range(limits.LAG_SAMPLES_KEPT):
        lags = {("a group", topic_id): warnings.LAG_MIN + number}
        seb.appliance.history.lags.add(number, lags)
    text = (await olga.get("/ui")).text
    assert "The group a group falls behind on slow: its lag has grown steadily, to 1,239" in text
    assert '<a href="/ui/groups/a%20group" hx-headers="unset">Look at it</a>' in text
    seb.appliance.history.lags.add(0, {})


async def test_api_keys_that_expire_soon_are_told(seb: RunningAppliance, olga: Visitor) -> None:
    access, now_us = seb.appliance.broker.access, seb.appliance.clock.wall_us()
    for name, days in (("soon", 5), ("sooner", 3), ("later", 60)):
        await access.create(name, CONSUME, now_us + days * DAY_US)
    await access.create("off", CONSUME, now_us + DAY_US, disabled=True)
    text = (await olga.get("/ui")).text
    assert re.findall(r"The API key (\w+) expires in (\d d)\.", text) == [
        ("sooner", "3 d"),
        ("soon", "5 d"),
    ]
    for name in ("third", "fourth", "fifth"):
        await access.create(name, CONSUME, now_us + 4 * DAY_US)
    assert "2 more expire soon." in (await olga.get("/ui")).text


async def test_a_clock_that_was_wrong_and_a_missing_snapshot_are_told(
    seb: RunningAppliance,
) -> None:
    now = await telemetry(seb.appliance)
    status = now.status
    assert not any("clock" in words or "snapshot" in words for words in told(now))
    ahead = msgspec.structs.replace(status.journal, clock_ahead_s=3 * 86_400.0)
    missed = msgspec.structs.replace(status.snapshots, entries_since=200_000, failure="")
    wrong = msgspec.structs.replace(status, journal=ahead, snapshots=missed)
    found = told(dataclasses.replace(now, status=wrong))
    assert any("a start replays 200,000 entries" in words for words in found)
    assert any("clock is 3 d ahead of the clock of this machine" in words for words in found)


async def test_the_budget_is_a_bar_and_a_forecast_above_it_a_warning(tmp_path: Path) -> None:
    async with running_appliance(tmp_path, monthly_budget="1 EUR", prices="hetzner") as seb:
        await add_user(seb, "olga", "viewer")
        olga = visitor(seb)
        async with olga.client:
            await olga.log_in("olga")
            text = (await olga.get("/ui")).text
    assert "more than the budget of 1.00 EUR" in text
    bars = dict(re.findall(r'<rect class="([a-z-]+)" (?:width|x)="([\d.]+)%"', text))
    assert bars.keys() == {"forecast", "so-far", "limit"}
    assert float(bars["forecast"]) == 100
    assert 0 < float(bars["limit"]) < 100
