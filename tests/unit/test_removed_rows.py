"""A person's data: when rows that were removed are gone from the bucket, old snapshots included."""

from __future__ import annotations

from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.log_clock import LogClock
from tests.unit.test_tables import TOPIC, Ground, ground, keys, tidy


async def test_a_deleted_key_leaves_the_bucket_with_the_snapshots_that_had_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """7 days and `garbage_grace` later, which is 0 here."""
    async with ground(tmp_path) as here:
        await here.make(cleanup="compact", min_compaction_lag_ms=0, tombstone_retention_ms=0)
        await here.commit("person", "other")
        deleted = await here.seb.client.delete(f"{TOPIC}/keys?key=p")
        assert deleted.status_code == 200, deleted.text
        for _ in range(limits.ENTRIES_PER_JOB_MIN):
            await here.send("c")
        await here.settle()
        appliance = here.seb.appliance
        tidy(appliance)
        while not appliance.tidier.counters.compactions:
            assert await appliance.tidier.step()
        await here.settle()
        assert "person" not in [value for _, value in await here.rows()]
        assert await holders_of(here, b"person")  # of older snapshots
        await expire(here, monkeypatch)
        assert await holders_of(here, b"person") == []
        assert await holders_of(here, b"other")


async def test_rows_that_retention_removed_leave_the_bucket_with_their_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("person")
        changed = await here.seb.client.patch(TOPIC, json={"table_retention_ms": 1_000})
        assert changed.status_code == 200, changed.text
        make_all_older(monkeypatch, by_s=10)
        await here.settle()
        assert await here.rows() == []
        assert await holders_of(here, b"person")
        await expire(here, monkeypatch)
        assert await holders_of(here, b"person") == []


async def holders_of(here: Ground, text: bytes) -> list[str]:
    """Objects of tables with the text."""
    return [key for key in await keys(here) if text in await here.store.get(key)]


def make_all_older(monkeypatch: pytest.MonkeyPatch, by_s: int) -> None:
    age_us = LogClock.age_us
    monkeypatch.setattr(LogClock, "age_us", lambda clock, us: age_us(clock, us) + by_s * 1_000_000)


async def expire(here: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due a week later."""
    make_all_older(monkeypatch, by_s=7 * 24 * 3_600 + 1)
    for table in here.seb.appliance.broker.tables.all():
        here.seb.appliance.broker.table_commits.notes(table.head.table_id).keep_up_s = 0.0
    await here.settle()
    here.seb.appliance.broker.table_commits.has_strays = True  # as once a day
    await here.settle()
    tidier = here.seb.appliance.tidier
    while not tidier.counters.objects_removed:
        assert await tidier.step()
