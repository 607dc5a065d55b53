"""The cost meter: ticks, what survives a restart, and the budget's hand on the window."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.window import Linger
from seb_appliance.broker.upkeep.rewrite_jobs import Asked
from seb_appliance.clock import SystemClock
from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.cost.prices import PROVIDERS, Money
from seb_appliance.ops.jobs.cost_job import CostKeeper
from seb_appliance.state.local import LocalFile
from seb_appliance.storage.stores.counted import RequestCount, RequestCounts
from seb_appliance.tasks import Supervisor
from tests.support.fakes import FakeClock
from tests.support.tidied import Place

HOUR_S = 3600.0


@dataclass
class FakeSources:
    """Counts that a test sets; since the start of a process, as the real ones."""

    puts: int = 0
    child: int = 0
    commits: int = 0
    received: int = 0
    open_seconds: float = 0.0
    stored_bytes: int = 0
    shares: dict[int, float] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    @property
    def counts(self) -> RequestCounts:
        put = RequestCount("PUT", "ok", self.puts, purpose="journal")
        failed = RequestCount("PUT", "StoreUncertainError", 2, purpose="journal")
        got = RequestCount("GET", "ok", 1, bytes_received=self.received, purpose="read")
        return RequestCounts((put, failed, got))

    @property
    def asked(self) -> dict[str, Asked]:
        asked = Asked(Counter({"GET": self.child}), received_bytes=self.child * 100)
        return {"tidier": asked, "tables": Asked(Counter({"PUT": self.commits * 5}))}

    def take_entry_shares(self) -> dict[int, float]:
        taken, self.shares = self.shares, {}
        return taken

    def topic_sizes(self) -> dict[int, int]:
        return self.sizes

    def topic_names(self) -> dict[int, str]:
        return {1: "orders"}


async def opened(
    path: Path,
    clock: FakeClock,
    sources: FakeSources,
    *,
    linger: Linger | None = None,
    budget: Money | None = None,
    longest_ms: int | None = None,
) -> CostKeeper:
    keeper = CostKeeper(
        path,
        sources,
        linger or Linger(1_000),
        clock,
        PROVIDERS["aws"],
        budget,
        longest_ms=longest_ms,
    )
    await keeper.load()
    return keeper


async def test_requests_of_this_process_and_of_the_tidiers_are_counted(tmp_path: Path) -> None:
    clock = FakeClock()
    sources = FakeSources(puts=998, child=7, received=50)
    keeper = await opened(tmp_path / "local.sqlite", clock, sources)
    found = keeper.report()
    assert found.ledger.this_month.requests == {
        "journal PUT": 1_000,
        "read GET": 1,
        "tidier GET": 7,
    }
    assert found.so_far.egress.quantity == pytest.approx(750e-9)
    assert found.so_far.total == pytest.approx(1_000 * 5e-6 + 8 * 0.4e-6)
    sources.puts += 10
    assert keeper.report().ledger.this_month.requests["journal PUT"] == 1_010


async def test_a_list_of_topics_asks_for_costs_that_are_not_counted_anew(tmp_path: Path) -> None:
    sources = FakeSources(puts=98, shares={1: 98.0})
    keeper = await opened(tmp_path / "local.sqlite", FakeClock(), sources)
    keeper.tick()
    before = keeper.recent()
    sources.puts += 10
    assert keeper.recent() is before
    assert before.of_topic(1).amount == pytest.approx(before.so_far.requests_amount)
    keeper.tick()
    assert keeper.recent().so_far.requests_amount > before.of_topic(1).amount


async def test_a_restart_goes_on_counting(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "local.sqlite"
    sources = FakeSources(puts=98, stored_bytes=10**9, shares={1: 98.0}, sizes={1: 10**9})
    keeper = await opened(path, clock, sources)
    keeper.start(Supervisor(clock))
    await clock.advance(HOUR_S)
    await keeper.close()
    await clock.advance(HOUR_S)
    again = await opened(path, clock, FakeSources(puts=3, stored_bytes=10**9))
    found = again.report()
    assert found.ledger.this_month.requests["journal PUT"] == 98 + 2 + 3 + 2
    hours = found.so_far.storage.quantity * again._ledger.month.seconds / HOUR_S
    assert hours == pytest.approx(2.0)
    assert again.topics(found)[0].entries == 98.0
    assert found.ledger.counted_since_us == 1_800_000_000_000_000


async def test_what_was_counted_is_written_every_five_minutes(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "local.sqlite"
    keeper = await opened(path, clock, FakeSources(puts=98))
    keeper.start(Supervisor(clock))
    await clock.advance(limits.COST_WRITTEN_EVERY_S - 1)
    assert await LocalFile(path).load_document("cost") is None
    for _ in range(50):  # the writing is a thread's work
        await clock.advance(limits.COST_TICK_S)
        if await LocalFile(path).load_document("cost") is not None:
            break
    killed = await opened(path, clock, FakeSources())
    assert killed.report().ledger.this_month.requests["journal PUT"] == 100 + 2
    await keeper.close()


async def test_a_file_that_cannot_be_written_is_told_and_nothing_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    keeper = await opened(tmp_path / "local.sqlite", clock, FakeSources())

    async def full(*_: object) -> None:
        raise ConfigurationError("the disk is full")

    monkeypatch.setattr(keeper._file, "save_document", full)
    await keeper._write()
    assert "the disk is full" in keeper.failure
    monkeypatch.undo()
    await keeper._write()
    assert keeper.failure == ""


async def test_a_document_that_cannot_be_read_begins_anew(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "local.sqlite"
    await LocalFile(path).save_document("cost", b'{"month": 1}')
    keeper = await opened(path, clock, FakeSources(puts=1))
    assert keeper.report().ledger.this_month.requests["journal PUT"] == 3


async def test_the_budget_stretches_the_window_and_says_why(tmp_path: Path) -> None:
    clock, linger, sources = FakeClock(), Linger(1_000), FakeSources()
    keeper = await opened(
        tmp_path / "local.sqlite",
        clock,
        sources,
        linger=linger,
        budget=Money(5.0, "USD"),
        longest_ms=10_000,
    )
    keeper.tick()
    assert linger.default_ms == 1_000
    assert keeper.linger_why == "The forecast is within the budget of 5.00 USD."
    keeper.start(Supervisor(clock))
    for _ in range(2 * 60):
        sources.puts += 60_000 // linger.default_ms
        sources.open_seconds += 60
        await clock.advance(60)
        while not clock.armed:  # it writes to its file, in a thread
            await asyncio.sleep(0)
    assert linger.default_ms > 1_000
    assert "Windows are stretched from 1s to" in keeper.linger_why
    found = keeper.report()
    assert found.forecast.total == pytest.approx(5.0, rel=0.6)
    assert found.linger_ms == linger.default_ms
    await keeper.close()


async def test_without_linger_auto_the_window_stays(tmp_path: Path) -> None:
    clock, linger, sources = FakeClock(), Linger(10), FakeSources()
    keeper = await opened(
        tmp_path / "local.sqlite", clock, sources, linger=linger, budget=Money(0.01, "USD")
    )
    sources.puts, sources.open_seconds = 1_000_000, 60.0
    found = keeper.report()
    assert (linger.default_ms, found.linger_why) == (10, "")
    assert found.budget == Money(0.01, "USD")


async def test_a_clock_of_the_year_9999_neither_ends_the_month_nor_a_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    await place.start()
    month = place.appliance.cost.report().ledger.month
    far = datetime(9999, 12, 31, tzinfo=UTC)
    monkeypatch.setattr(SystemClock, "wall_us", lambda _: int(far.timestamp()) * 1_000_000)
    assert place.appliance.cost.report().ledger.month == month
    await place.appliance.close()
