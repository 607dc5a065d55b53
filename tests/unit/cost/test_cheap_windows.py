"""`linger = auto` without a budget: what a window waits for, and what a month of it costs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.ops.cost.budget import Stretch, stretched
from seb_appliance.ops.cost.competitors import FIFO_RECORD, MONTH_S, Crossover
from seb_appliance.ops.cost.ledger import SECOND_US, Ledger, Observed
from seb_appliance.ops.cost.prices import PROVIDERS, Prices

PRICED = ("aws", "r2", "gcs", "tigris")
NOW_US = 1_793_491_200_000_000
LONGEST_MS = limits.LINGER_AUTO_MS_DEFAULT


def ledger_of(puts: int, lists: int) -> Ledger:
    ledger = Ledger.begun(NOW_US)
    seen = {"journal PUT": puts, "journal LIST": lists}
    for at_s in (60, 120):
        ledger.note(NOW_US + at_s * SECOND_US, Observed(seen, 0, 1.0, 0, {}, {}))
    return ledger


def cheap(prices: Prices, *, lists: bool = False, longest_ms: int = LONGEST_MS) -> Stretch:
    ledger = ledger_of(100, 100 if lists else 0)
    return stretched(
        ledger, prices, None, ledger.until_us, shortest_ms=1_000, longest_ms=longest_ms
    )


def entries_of(arrivals: list[float], chosen: Stretch, *, acks: bool) -> int:
    """How many journal entries records become that arrive then, each acknowledged by its reader
    0.2 s after it was stored; by the rules of the product's windows."""
    linger = Linger(1_000)
    linger.default_ms, linger.enough = chosen.linger_ms, chosen.enough
    todo, entries, offset = sorted((at_s, True) for at_s in arrivals)[::-1], 0, 0
    while todo:
        window, now_s, held = Window(), todo[-1][0], 0
        while True:
            due_s = linger.due_s(window, now_s) if window.callers else now_s + 1.0
            if todo and (not window.callers or todo[-1][0] <= due_s):
                now_s, is_record = todo.pop()
                if is_record:
                    window.add_value(1, offset, None, b"v", 0, 1)
                    offset, held = offset + 1, held + 1
                window.join(now_s, now_s + linger.default_ms / 1_000)
            elif due_s <= now_s:
                break
            else:
                now_s = due_s
        entries += 1
        if acks and held:
            todo = sorted([*todo, *[(now_s + 0.2, False)] * held], reverse=True)
    return entries


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    rng, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + rng.expovariate(rate)) < seconds:
        found.append(at_s)
    return found


@pytest.mark.parametrize("provider", PRICED)
@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("rate", [1.05, 1.5, 3.0, 10.0, 40.0])
def test_above_one_record_a_second_a_million_costs_less_than_at_sqs_fifo(
    provider: str, rate: float, *, lists: bool
) -> None:
    prices = PROVIDERS[provider]
    price = prices.class_of("PUT").per_million / 1e6 * (2 if lists else 1)
    arrivals = poisson(rate, 2_000 / rate, 1)
    entries = entries_of(arrivals, cheap(prices, lists=lists), acks=True)
    assert entries * price < 0.9 * FIFO_RECORD * len(arrivals), "a tenth is left for upkeep"


@pytest.mark.parametrize("rate", [1 / 60, 0.1, 0.3, 0.95])
def test_below_it_entries_of_a_month_cost_half_a_dollar_on_aws(rate: float) -> None:
    """Which leaves something for upkeep: `tests/simulation/test_months.py` counts all of it. Near
    one record a second, chance must not fill many windows early."""
    seconds = max(3_000.0, 100 / rate)
    arrivals = poisson(rate, seconds, 2)
    entries = entries_of(arrivals, cheap(PROVIDERS["aws"]), acks=True)
    assert entries * 5e-6 * MONTH_S / seconds <= 0.48


@given(
    st.lists(st.integers(2, 60), max_size=20),
    st.sampled_from(PRICED),
    st.booleans(),
    st.integers(1_000, 30_000),
)
def test_bursts_with_pauses_between_them_are_cheaper_than_at_sqs_fifo_too(
    bursts: list[int], provider: str, lists: bool, longest_ms: int
) -> None:
    """Bursts of at least `enough`, so that each second has more than one record on the mean."""
    prices = PROVIDERS[provider]
    chosen = cheap(prices, lists=lists, longest_ms=longest_ms)
    price = prices.class_of("PUT").per_million / 1e6 * (2 if lists else 1)
    assert chosen.enough is not None
    arrivals = [40.0 * at for at, more in enumerate(bursts) for _ in range(chosen.enough + more)]
    assert entries_of(arrivals, chosen, acks=True) * price <= FIFO_RECORD * len(arrivals)


def test_where_requests_cost_nothing_windows_are_not_stretched() -> None:
    chosen = cheap(PROVIDERS["hetzner"], lists=True)
    assert (chosen.linger_ms, chosen.enough) == (1_000, None)
    assert "PUTs cost nothing" in chosen.why


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(-(10**17), 10**17))
def test_no_count_and_no_clock_makes_a_window_longer_than_it_may_be(
    puts: int, lists: int, jump_us: int
) -> None:
    ledger = ledger_of(puts, lists)
    chosen = stretched(
        ledger,
        PROVIDERS["aws"],
        None,
        max(0, NOW_US + jump_us),
        shortest_ms=1_000,
        longest_ms=10_000,
    )
    assert chosen.linger_ms == 10_000
    assert chosen.enough is not None
    assert chosen.enough >= 12
    linger, window = Linger(1_000), Window()
    linger.default_ms, linger.enough = chosen.linger_ms, chosen.enough
    window.join(5.0, 15.0)
    assert 5.0 < linger.due_s(window, 5.0) <= 6.0
    assert linger.due_s(window, 15.0) == 15.0


def test_the_crossover_is_where_both_cost_the_same() -> None:
    found = Crossover.of(PROVIDERS["aws"], 5e-6, LONGEST_MS)
    assert found.per_s == pytest.approx(1 / 3 * 10_000 / LONGEST_MS)
    assert found.monthly == pytest.approx(found.per_s * MONTH_S * FIFO_RECORD)
    assert "From 0.12 records/s on" in str(found)
    assert "at most 0.46 USD a month" in str(found)
    assert "cost nothing here" in str(Crossover.of(PROVIDERS["hetzner"], 0.0, 1_000))
