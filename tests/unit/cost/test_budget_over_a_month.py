"""A month of bursty load, in steps of a quarter of an hour: the ledger and the budget keep the bill
where it was asked to be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from seb_appliance.ops.cost.bill import bill
from seb_appliance.ops.cost.budget import stretched
from seb_appliance.ops.cost.ledger import SECOND_US, Ledger, Month, Observed
from seb_appliance.ops.cost.prices import PROVIDERS, Money

NOVEMBER = Month.of(1_793_491_200_000_000)
STEP_S = 900
STEPS_A_DAY = 24 * 3600 // STEP_S
STEPS = 30 * STEPS_A_DAY
Load = Callable[[random.Random], Iterator[float]]


def days_and_nights(rng: random.Random) -> Iterator[float]:
    """For each step the share of it in which records keep coming: bursts of minutes to hours, more
    by day, hardly any at weekends."""
    left, busy = 0, 0.0
    for step in range(STEPS):
        if left == 0:
            left = max(1, int(rng.lognormvariate(0.5, 1)))
            day, hour = step // STEPS_A_DAY % 7, step % STEPS_A_DAY * 24 // STEPS_A_DAY
            chance = 0.05 if day >= 5 else 0.7 if 8 <= hour < 20 else 0.2
            busy = rng.uniform(0.5, 1.0) if rng.random() < chance else 0.0
        left -= 1
        yield busy


def always(rng: random.Random) -> Iterator[float]:
    for _ in range(STEPS):
        yield 1.0


def a_flood_each_tenth_day(rng: random.Random) -> Iterator[float]:
    for step in range(STEPS):
        yield 1.0 if step // STEPS_A_DAY % 10 == 4 else rng.choice([0.0, 0.0, 0.3])


def a_flood_at_the_end(rng: random.Random) -> Iterator[float]:
    for step in range(STEPS):
        yield 1.0 if step // STEPS_A_DAY >= 22 else rng.choice([0.0, 0.5])


def simulated(
    load: Load,
    budget: Money,
    seed: int,
    provider: str = "aws",
    lists: int = 0,
    tables: int = 0,
) -> tuple[float, list[int]]:
    """What the month costs in the end, and the window of each step. `lists`: with each PUT, as in
    fencing mode B; `tables`: so many, each with a commit of 5 PUTs every 5 minutes, or rarer."""
    prices = PROVIDERS[provider]
    now_us = NOVEMBER.begin_us
    ledger, linger_ms, stored, carried = Ledger.begun(now_us), 1_000, 1_000_000_000, 0.0
    lingers = []
    for busy in load(random.Random(seed)):
        now_us = min(now_us + STEP_S * SECOND_US, NOVEMBER.end_us - 1)
        puts, carried = divmod(busy * STEP_S * 1000 / linger_ms + carried, 1)
        stored += int(busy * STEP_S * 2_000)
        seen = Observed(
            {
                "journal PUT": int(puts),
                "journal LIST": lists * int(puts),
                "tidier GET": int(busy * 30),
                "tables PUT": round(busy * tables * STEP_S / 300 / (linger_ms / 1_000)) * 5,
            },
            received_bytes=int(busy * 15e5),
            open_seconds=min(STEP_S, puts * linger_ms / 1000),
            stored_bytes=stored,
            entry_shares={},
            topic_bytes={},
        )
        ledger.note(now_us, seen)
        chosen = stretched(ledger, prices, budget, now_us, shortest_ms=1_000, longest_ms=10_000)
        linger_ms = chosen.linger_ms
        lingers.append(linger_ms)
    assert ledger.month == NOVEMBER
    assert 1_000 <= min(lingers) <= max(lingers) <= 10_000
    return bill(prices, ledger.this_month, NOVEMBER).total, lingers


@pytest.mark.parametrize(
    ("load", "amount", "seed"),
    [(days_and_nights, 2.0, 0), (days_and_nights, 2.0, 1), (always, 5.0, 0)],
)
def test_a_month_of_bursts_costs_what_was_asked_within_five_per_cent(
    load: Load, amount: float, seed: int
) -> None:
    total, _ = simulated(load, Money(amount, "USD"), seed)
    assert total == pytest.approx(amount, rel=0.05)
    unbounded, _ = simulated(load, Money(1_000.0, "USD"), seed)
    assert unbounded > 1.4 * amount


@pytest.mark.parametrize("provider", ["b2", "r2"])
def test_the_lists_of_fencing_mode_b_are_paid_from_the_budget_too(provider: str) -> None:
    """Backblaze takes nothing for a PUT, but for a LIST; Cloudflare gives a million away."""
    total, lingers = simulated(always, Money(5.0, "USD"), 1, provider, lists=1)
    assert total == pytest.approx(5.0, rel=0.05)
    assert 1_000 < lingers[-300] < 10_000


def test_where_requests_cost_nothing_the_window_stays() -> None:
    budget = Money(4.0, "EUR")
    total, lingers = simulated(days_and_nights, budget, 1, "hetzner", lists=1)
    assert total == pytest.approx(4.99)
    assert set(lingers) == {1_000}


@pytest.mark.parametrize("load", [a_flood_each_tenth_day, a_flood_at_the_end])
def test_a_flood_nobody_foresaw_does_not_break_the_budget(load: Load) -> None:
    total, _ = simulated(load, Money(2.0, "USD"), 1)
    assert 1.5 <= total <= 2.1


def test_commits_of_tables_are_stretched_and_paid_from_the_budget_too() -> None:
    total, _ = simulated(always, Money(5.0, "USD"), 0, tables=20)
    assert total == pytest.approx(5.0, rel=0.05)
    unbounded, _ = simulated(always, Money(1_000.0, "USD"), 0, tables=20)
    assert unbounded > 15


def test_a_budget_that_no_window_can_keep_leaves_the_window_at_its_longest() -> None:
    total, lingers = simulated(always, Money(0.5, "USD"), 1)
    assert total > 0.5
    assert set(lingers[4:]) == {10_000}


def test_a_budget_that_is_large_enough_leaves_the_window_alone() -> None:
    _, lingers = simulated(days_and_nights, Money(100.0, "USD"), 1)
    assert set(lingers) == {1_000}
