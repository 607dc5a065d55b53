"""`seb cost`"""

from __future__ import annotations

from seb_appliance.ops.cost.prices import PROVIDERS, Money


def test_the_cost_is_told_to_people_and_programs(seb, monkeypatch):
    monkeypatch.setattr(seb.appliance.appliance.cost, "prices", PROVIDERS["r2"])
    seb.good("produce", "orders", stdin=b"one\ntwo\n")
    shown = seb.good("cost").out
    assert "0.00 USD so far, 0.00 USD forecast for all of it" in shown
    assert "prices: Cloudflare R2 Standard, as of 2025-06: compare them with your bill" in shown
    assert "class A" in shown
    assert "1,000,000" in shown
    assert "journal" in shown
    assert "orders" in shown
    found = seb.good("cost", "--json").json
    assert found["currency"] == "USD"
    assert "0.00 USD this month, 0.00 forecast" in seb.good("status").out


def test_a_budget_and_what_it_does_are_told(seb, monkeypatch):
    cost = seb.appliance.appliance.cost
    monkeypatch.setattr(cost, "prices", PROVIDERS["aws"])
    monkeypatch.setattr(cost, "_budget", Money(5.0, "USD"))
    monkeypatch.setattr(cost, "_longest_ms", 5_000)
    shown = seb.good("cost").out
    assert "budget: 5.00 USD a month" in shown
    assert "linger: 1ms. The forecast is within the budget of 5.00 USD." in shown
    assert "of 5.00; linger 1ms" in seb.good("status").out
