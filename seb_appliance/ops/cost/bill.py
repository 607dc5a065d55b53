"""What usage costs: pure arithmetic on prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seb_appliance.ops.cost.prices import Prices
from seb_appliance.ops.cost.usage import Month, Totals

GB: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill. `included` of `quantity` cost nothing."""

    what: str
    quantity: float
    unit: str
    included: float
    amount: float


@dataclass(frozen=True, slots=True)
class Bill:
    """A month's. `by_purpose`: the money for requests, by what they were for."""

    requests: tuple[Line, ...]
    storage: Line
    egress: Line
    fee: float
    by_purpose: dict[str, float]

    @property
    def lines(self) -> tuple[Line, ...]:
        fee = Line("fee", 1, "month", 0, self.fee)
        return (*self.requests, self.storage, self.egress, *([fee] if self.fee else []))

    @property
    def requests_amount(self) -> float:
        return sum(line.amount for line in self.requests)

    @property
    def total(self) -> float:
        return self.requests_amount + self.storage.amount + self.egress.amount + self.fee


def bill(prices: Prices, used: Totals, month: Month) -> Bill:
    """What `used` of a month costs."""
    counts = used.by_kind
    lines: list[Line] = []
    by_purpose: dict[str, float] = {}
    for found in prices.classes:
        quantity = sum(counts[kind] for kind in found.kinds)
        amount = max(0, quantity - found.included) * found.per_million / 1e6
        lines.append(Line(found.name, quantity, "requests", found.included, amount))
        for name, count in used.requests.items():
            purpose, _, kind = name.partition(" ")
            if kind in found.kinds and quantity:
                by_purpose[purpose] = by_purpose.get(purpose, 0.0) + amount * count / quantity
    stored_gb = used.byte_seconds / GB / month.seconds
    received_gb = used.received_bytes / GB
    free_gb = prices.egress_gb_included + prices.egress_included_times_stored * stored_gb
    return Bill(
        tuple(lines),
        _by_gb("storage", stored_gb, prices.storage_gb_included, prices.storage_gb),
        _by_gb("egress", received_gb, free_gb, prices.egress_gb),
        prices.fee,
        by_purpose,
    )


def _by_gb(what: str, gb: float, included_gb: float, price: float) -> Line:
    unit = "GB-months" if what == "storage" else "GB"
    return Line(what, gb, unit, included_gb, max(0.0, gb - included_gb) * price)
