"""Starts with a clock that is wrong: what the pause makes old stays for an hour."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.ops.host.pauses import last_before_pause
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.setting_sources import load
from seb_appliance.state.local import LocalFile

HOUR_US = 3600 * 1_000_000
YEAR_US = 365 * 24 * HOUR_US


async def test_a_second_start_with_a_wrong_clock_makes_nothing_older_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(
        environment={"SEB_BUCKET": f"file:{tmp_path}/bucket", "SEB_DATA": f"{tmp_path}/data"}
    )
    (tmp_path / "data").mkdir()
    stored_us, right_ns = time.time_ns() // 1000, time.time_ns
    for years in (0, 10, 10):
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + years * YEAR_US * 1000)  # noqa: B023
        store = make_store(settings, NO_FAILPOINTS)
        appliance = await Appliance.open(settings, store, NO_FAILPOINTS, lambda *_: None)
        try:
            assert appliance.broker.log_clock.age_us(stored_us) < HOUR_US
        finally:
            await appliance.close()


async def test_a_start_behind_the_time_of_doubt_knows_its_own_pause(tmp_path: Path) -> None:
    path, idle_us = tmp_path / "local.sqlite", limits.IDLE_US_BELIEVED
    assert await last_before_pause(path, None, YEAR_US) is None
    assert await last_before_pause(path, HOUR_US, YEAR_US) == HOUR_US
    assert await last_before_pause(path, YEAR_US, YEAR_US + HOUR_US // 2) == HOUR_US
    late_us = YEAR_US + HOUR_US + 1
    assert await last_before_pause(path, late_us, late_us + idle_us) == late_us
    assert await last_before_pause(path, late_us + 1, late_us + 2) == late_us + 1
    await LocalFile(path).save_document("pause", b'{"before_us": ')
    assert await last_before_pause(path, YEAR_US, YEAR_US + 1) == YEAR_US
