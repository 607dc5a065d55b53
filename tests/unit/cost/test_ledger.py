"""What was used this month, and the forecast that follows from it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from seb_appliance.ops.cost.bill import CostReport, bill, topic_costs
from seb_appliance.ops.cost.ledger import SECOND_US, Ledger, Month, Observed, forecast
from seb_appliance.ops.cost.prices import PROVIDERS

NOVEMBER = Month.of(1_793_491_200_000_000)
HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US


def seen(
    puts: int = 0,
    *,
    stored: int = 0,
    entries: dict[int, float] | None = None,
    sizes: dict[int, int] | None = None,
    purpose: str = "journal",
) -> Observed:
    return Observed({f"{purpose} PUT": puts}, 0, float(puts), stored, entries or {}, sizes or {})


def test_a_month_begins_with_nothing_and_totals_go_on() -> None:
    ledger = Ledger.begun(NOVEMBER.end_us - DAY_US)
    ledger.note(NOVEMBER.end_us - HOUR_US, seen(100, stored=1_000, entries={1: 100.0}))
    ledger.note(NOVEMBER.end_us + HOUR_US, seen(7, stored=1_000))
    assert ledger.month.name == "2026-12"
    assert ledger.counted_since_us == NOVEMBER.end_us
    assert ledger.this_month.requests == {"journal PUT": 7}
    assert ledger.this_month.byte_seconds == pytest.approx(1_000 * 3600)
    assert ledger.topics == {}
    assert ledger.totals.requests == {"journal PUT": 107}
    assert ledger.totals.byte_seconds == pytest.approx(1_000 * 7200)


def test_what_is_stored_is_stored_also_while_nothing_runs() -> None:
    ledger = Ledger.begun(NOVEMBER.begin_us)
    ledger.note(NOVEMBER.begin_us, seen(stored=500))
    again = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    again.pass_time(NOVEMBER.begin_us + DAY_US, {})
    assert again.this_month.byte_seconds == pytest.approx(500 * 86_400)


def test_a_clock_that_goes_back_adds_nothing() -> None:
    ledger = Ledger.begun(NOVEMBER.begin_us + DAY_US)
    ledger.note(NOVEMBER.begin_us + DAY_US, seen(stored=500))
    ledger.note(NOVEMBER.begin_us + HOUR_US, seen(3, stored=500))
    ledger.note(NOVEMBER.begin_us - HOUR_US, seen(3, stored=500))
    assert ledger.month == NOVEMBER
    assert ledger.this_month.byte_seconds == 0
    assert ledger.this_month.journal_puts == 6


def test_the_forecast_goes_on_as_the_last_day_did() -> None:
    ledger, now_us = Ledger.begun(NOVEMBER.begin_us), NOVEMBER.begin_us
    for hour in range(10 * 24):
        now_us += HOUR_US
        ledger.note(now_us, seen(100 if hour < 9 * 24 else 10, stored=1_000_000))
    whole = forecast(ledger, now_us)
    so_far = 9 * 24 * 100 + 24 * 10
    assert ledger.this_month.journal_puts == so_far
    assert whole.journal_puts == pytest.approx(so_far + 20 * 24 * 10, rel=0.02)
    assert whole.byte_seconds == pytest.approx(1_000_000 * NOVEMBER.seconds, rel=0.01)


def test_what_grows_is_expected_to_grow_on() -> None:
    ledger, now_us, stored = Ledger.begun(NOVEMBER.begin_us), NOVEMBER.begin_us, 0
    for _ in range(15 * 24):
        now_us += HOUR_US
        stored += 1_000_000
        ledger.note(now_us, seen(stored=stored))
    whole = forecast(ledger, now_us)
    assert whole.byte_seconds == pytest.approx(1_000_000 / 3600 * NOVEMBER.seconds**2 / 2, rel=0.02)


def test_a_burst_of_a_minute_and_a_start_are_no_forecast() -> None:
    ledger = Ledger.begun(NOVEMBER.begin_us)
    ledger.note(NOVEMBER.begin_us, seen(400, purpose="start"))
    now_us = NOVEMBER.begin_us + 60 * SECOND_US
    ledger.note(now_us, seen(60))
    whole = forecast(ledger, now_us)
    assert whole.requests["start PUT"] == 400
    assert whole.journal_puts == pytest.approx(60 * 24 * 30, rel=0.01)


def test_topics_have_a_fair_share_of_the_bill() -> None:
    ledger = Ledger.begun(NOVEMBER.begin_us)
    ledger.note(NOVEMBER.begin_us, seen(stored=8_000))
    first = seen(10, stored=8_000, entries={1: 7.5, 2: 2.5}, sizes={1: 3_000, 2: 1_000})
    ledger.note(NOVEMBER.begin_us + HOUR_US, first)
    prices = PROVIDERS["aws"]
    whole = bill(prices, ledger.this_month, NOVEMBER)
    found = topic_costs(ledger, whole, {1: "a", 2: "b"})
    shares = {cost.topic: cost for cost in found}
    assert shares["a"].requests_amount == pytest.approx(0.75 * whole.requests_amount)
    assert shares["a"].storage_amount == pytest.approx(0.75 * whole.storage.amount)
    assert sum(cost.amount for cost in found) == pytest.approx(whole.total)
    report = CostReport(ledger, prices, None, 100, "", 5e-6)
    for topic_id, name in ((1, "a"), (2, "b")):
        assert report.of_topic(topic_id) == replace(shares[name], topic=None)
    assert report.of_topic(3).amount == 0


def test_topics_that_are_gone_or_cheap_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seb_appliance.limits.COST_TOPICS_SHOWN", 2)
    ledger = Ledger.begun(NOVEMBER.begin_us)
    entries = {1: 1.0, 2: 5.0, 3: 3.0, 4: 9.0}
    ledger.note(NOVEMBER.begin_us, seen(18, entries=entries))
    names = {1: "cheap", 2: "b", 3: "c"}
    found = topic_costs(ledger, bill(PROVIDERS["aws"], ledger.this_month, NOVEMBER), names)
    assert [(cost.topic, cost.entries) for cost in found] == [
        ("b", 5.0),
        ("c", 3.0),
        (None, 10.0),
    ]
