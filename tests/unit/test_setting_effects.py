"""What a change of a topic's settings would do, told before it is saved."""

from __future__ import annotations

from dataclasses import replace

from seb_appliance.ops.cost.prices import PROVIDERS, Money
from seb_appliance.ops.serve.ui_facts import cost_shown, effects_of
from seb_appliance.ui.warnings import over_budget
from tests.support.appliance import running_appliance


async def test_each_change_that_costs_or_saves_has_its_words(tmp_path):
    async with running_appliance(tmp_path) as seb:
        cost, broker = seb.appliance.cost, seb.appliance.broker
        cost.prices = PROVIDERS["aws"]
        await seb.client.post("/v1/topics/t/records", content=b"x" * 10_000)
        now_us = seb.appliance.clock.wall_us() + 86_400_000_000
        changes = {
            "linger_ms": 100,
            "retention_ms": 1_000,
            "compression": "none",
            "early_flush": True,
        }
        found = effects_of(broker, cost, "t", changes, now_us)
        assert found.keys() == {"linger_ms", "retention_ms", "compression"}
        assert found["linger_ms"].startswith("up to 100 times fewer PUTs, ")
        assert "of its records are deleted" in found["retention_ms"]
        assert "times the bytes" in found["compression"]
        assert effects_of(broker, cost, "t", {"key_index": "latest"}, now_us) == {}
        as_it_is = {"linger_ms": None, "compression": "zstd"}
        assert effects_of(broker, cost, "t", as_it_is, now_us) == {}


async def test_a_forecast_over_the_budget_is_a_warning(tmp_path):
    async with running_appliance(tmp_path) as seb:
        report = replace(seb.appliance.cost.report(), prices=PROVIDERS["hetzner"])
        assert over_budget(cost_shown(report)) == []
        assert over_budget(cost_shown(replace(report, budget=Money(100.0, "EUR")))) == []
        (found,) = over_budget(cost_shown(replace(report, budget=Money(1.0, "EUR"))))
        assert "more than the budget of 1.00 EUR" in found.words
