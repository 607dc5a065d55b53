"""What keeps the tidier from its work is told: on the admin page, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.ops.jobs import tidier_job as tidier_keeper
from seb_appliance.ops.serve.status import telemetry
from seb_appliance.tasks import Supervisor
from seb_appliance.ui.warnings import warnings
from tests.support.fakes import FakeClock
from tests.support.tidied import Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    await place.start()
    yield place
    await place.appliance.close()


async def test_entries_that_wait_too_long_are_told_while_a_tidier_is_to_merge_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TIDY_OVERDUE_S", 0.0)
    monkeypatch.setattr(place.tidier, "_run", asyncio.Event().wait)
    await place.produce("t", 30)
    assert place.tidier.overdue_s == 0.0, "there is no tidier"
    place.tidier.start(place.appliance.supervisor)
    assert place.tidier.overdue_s > 0.0
    told = [warned.words for warned in warnings(await telemetry(place.appliance), [])]
    (sentence,) = (words for words in told if "tidier is behind" in words)
    assert "should have been merged" in sentence
    await place.tidy()
    assert place.tidier.overdue_s == 0.0


async def test_the_tidier_goes_on_after_a_bug_which_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BACKGROUND_PAUSE_S_MIN", 0.0)
    monkeypatch.setattr(tidier_keeper, "_AFTER_FAILURE_S", 0.0)
    step, merged = place.tidier.step, asyncio.Event()

    async def raises_once() -> bool:
        if not place.tidier.counters.failures:
            raise ZeroDivisionError("a bug of ours")
        merged.set()
        return await step()

    monkeypatch.setattr(place.tidier, "step", raises_once)
    place.tidier.start(place.appliance.supervisor)
    await merged.wait()
    (task,) = (one for one in place.appliance.supervisor.tasks if one.name == "tidier")
    assert (task.failures, task.is_failing) == (1, True)
    told = [warned.words for warned in warnings(await telemetry(place.appliance), [])]
    assert any("tidier: ZeroDivisionError" in words for words in told)


async def test_a_job_that_fails_by_a_bug_is_not_begun_again_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, begun = FakeClock(), []

    async def raises() -> bool:
        begun.append(clock.monotonic_s())
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(place.tidier, "step", raises)
    monkeypatch.setattr(place.tidier, "_clock", clock)
    place.tidier.start(Supervisor(clock))
    await clock.advance(40)
    assert [at_s - begun[0] for at_s in begun] == [0, 31]  # its own pause, and the supervisor's
