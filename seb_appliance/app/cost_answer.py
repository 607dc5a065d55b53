"""What the bucket costs, as the API tells it."""

from __future__ import annotations

from seb_appliance.api.manage.cost import (
    BudgetOut,
    CostLine,
    CostOut,
    PricesOut,
    PurposeCost,
    TopicCost,
)
from seb_appliance.api.times import format_time
from seb_appliance.cost.report import CostReport
from seb_appliance.keepers.cost_keeper import CostKeeper


def cost(keeper: CostKeeper) -> CostOut:
    """As of now."""
    report = keeper.report()
    return CostOut(
        month=report.month,
        counted_since=format_time(report.counted_since_us),
        until=format_time(report.until_us),
        currency=report.prices.currency,
        prices=PricesOut(report.prices.name, report.prices.as_of),
        this_month=report.so_far.total,
        forecast=report.forecast.total,
        stored_bytes=report.stored_bytes,
        lines=_lines(report),
        purposes=_purposes(report),
        topics=[
            TopicCost(
                found.topic,
                found.entries,
                found.requests_amount,
                found.storage_amount,
                found.amount,
            )
            for found in keeper.topics(report)
        ],
        budget=BudgetOut(
            None if report.budget is None else report.budget.amount,
            report.linger_ms,
            report.linger_why,
        ),
        failure=keeper.failure,
    )


def _lines(report: CostReport) -> list[CostLine]:
    pairs = zip(report.so_far.lines, report.forecast.lines, strict=True)
    return [
        CostLine(now.what, now.quantity, now.unit, now.included, now.amount, then.amount)
        for now, then in pairs
    ]


def _purposes(report: CostReport) -> list[PurposeCost]:
    purposes: dict[str, dict[str, int]] = {}
    for name, count in sorted(report.requests.items()):
        purpose, _, kind = name.partition(" ")
        purposes.setdefault(purpose, {})[kind] = count
    amounts = report.so_far.by_purpose
    return [
        PurposeCost(purpose, requests, amounts.get(purpose, 0.0))
        for purpose, requests in purposes.items()
    ]
