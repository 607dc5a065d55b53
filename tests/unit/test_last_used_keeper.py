"""When API keys were last used is written once a minute at most, and never while nobody calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from seb_appliance.broker.access.api_keys import LastUsed
from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.jobs.last_used_job import LastUsedKeeper
from seb_appliance.state.local import LocalFile
from tests.support.fakes import FakeClock


class CountingFile(LocalFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes: list[dict[str, int]] = []
        self.full = False

    async def save_last_used(self, used_us: Mapping[str, int]) -> None:
        if self.full:
            raise ConfigurationError("the disk is full")
        self.writes.append(dict(used_us))
        await super().save_last_used(used_us)


async def _passed(keeper: LastUsedKeeper, clock: FakeClock, seconds: float) -> None:
    await clock.advance(seconds)
    if keeper._writing is not None:
        await asyncio.wait([keeper._writing])


async def test_uses_of_a_minute_are_written_together(tmp_path: Path) -> None:
    clock, file = FakeClock(), CountingFile(tmp_path / "local.sqlite")
    keeper = LastUsedKeeper(file, {}, clock)
    for _ in range(10):
        keeper.last_used.note("a")
        keeper.last_used.note("b")
        await _passed(keeper, clock, 5)
    assert file.writes == []
    await _passed(keeper, clock, 10)
    (written,) = file.writes
    assert written.keys() == {"a", "b"}
    assert written["a"] == keeper.last_used.get("a")


async def test_nothing_is_written_and_no_timer_runs_while_nobody_calls(tmp_path: Path) -> None:
    clock, file = FakeClock(), CountingFile(tmp_path / "local.sqlite")
    keeper = LastUsedKeeper(file, {}, clock)
    assert clock.armed == 0
    keeper.last_used.note("a")
    await _passed(keeper, clock, 60)
    assert (len(file.writes), clock.armed) == (1, 0)
    await _passed(keeper, clock, 3600)
    await keeper.close()
    assert len(file.writes) == 1


async def test_only_what_changed_is_written(tmp_path: Path) -> None:
    clock, file = FakeClock(), CountingFile(tmp_path / "local.sqlite")
    keeper = LastUsedKeeper(file, {"old": 1}, clock)
    keeper.last_used.note("a")
    await _passed(keeper, clock, 60)
    keeper.last_used.note("b")
    await _passed(keeper, clock, 60)
    assert [set(written) for written in file.writes] == [{"a"}, {"b"}]


async def test_a_stop_writes_what_was_not_written_and_a_start_knows_it(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "local.sqlite"
    keeper = await LastUsedKeeper.open(path, set(), clock)
    keeper.last_used.note("a")
    used_us = keeper.last_used.get("a")
    await keeper.close()
    assert clock.armed == 0
    again = await LastUsedKeeper.open(path, {"a"}, clock)
    assert again.last_used.get("a") == used_us
    assert again.last_used.get("b") is None


async def test_what_could_not_be_written_is_written_with_the_next(tmp_path: Path) -> None:
    clock, file = FakeClock(), CountingFile(tmp_path / "local.sqlite")
    keeper = LastUsedKeeper(file, {}, clock)
    file.full = True
    keeper.last_used.note("a")
    await _passed(keeper, clock, 60)
    assert "the disk is full" in keeper.failure
    file.full = False
    keeper.last_used.note("b")
    await _passed(keeper, clock, 60)
    assert keeper.failure == ""
    assert [set(written) for written in file.writes] == [{"a", "b"}]


def test_many_uses_of_one_api_key_ask_for_one_writing() -> None:
    asked: list[str] = []
    last_used = LastUsed({}, FakeClock(), lambda: asked.append("write"))
    for _ in range(3):
        last_used.note("a")
    assert asked == ["write"]


def test_uses_that_could_not_be_written_ask_for_a_writing_unless_one_is_asked_for() -> None:
    asked: list[str] = []
    last_used = LastUsed({}, FakeClock(), lambda: asked.append("write"))
    last_used.note("a")
    taken = last_used.take_changed()
    last_used.not_written(taken)
    assert asked == ["write"] * 2
    taken = last_used.take_changed()
    last_used.note("b")
    last_used.not_written(taken)
    assert asked == ["write"] * 3
    assert last_used.take_changed().keys() == {"a", "b"}
    last_used.not_written({})
    assert asked == ["write"] * 3
