"""The metrics of what the bucket costs; beside samples.py, for its length."""

from __future__ import annotations

from collections.abc import Iterator

from seb_appliance.api.metrics import Sample
from seb_appliance.app.assembly import Appliance


def cost_samples(appliance: Appliance) -> Iterator[Sample]:
    """Money in the currency that the label names."""
    found = appliance.cost.report()
    labels = {"currency": found.prices.currency}
    budget = 0.0 if found.budget is None else found.budget.amount
    for name, text, value in (
        ("seb_cost_month", "What the bucket has cost this month.", found.so_far.total),
        ("seb_cost_forecast", "What the whole month will cost.", found.forecast.total),
        ("seb_cost_budget", "What it may cost; 0 when there is no budget.", budget),
    ):
        yield Sample(name, text, "gauge", value, labels)
    for line in found.so_far.lines:
        text = "What the bucket has cost this month, by operation."
        by_operation = {**labels, "what": line.what}
        yield Sample("seb_cost_month_by_operation", text, "gauge", line.amount, by_operation)
    for name, text, amount in (
        ("seb_stored_bytes", "Bytes in the bucket, as far as is known.", found.stored_bytes),
        ("seb_linger_seconds", "The window of topics that set none.", found.linger_ms / 1000),
        (
            "seb_cost_failing",
            "1 while it cannot be written down what the bucket costs.",
            int(bool(appliance.cost.failure)),
        ),
    ):
        yield Sample(name, text, "gauge", amount)
