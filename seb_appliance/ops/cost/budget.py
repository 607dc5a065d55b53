"""How long windows must stay open: to keep to a monthly budget, or without one, to be cheap.

Without a budget a window waits until it holds enough records, and for `longest_ms` at most. It
decides that by itself, from what it holds, so there is no rate to measure, no clock to trust, and
nothing that could oscillate. Enough is 1.2 records for each second of `longest_ms`: where fewer
come, windows are as long as they may be, and where more come, each entry has at least so many.
It is never less than what makes an entry cheaper than the same records at a managed queue.

With a budget, the window decides only how many journal entries there are: a PUT each, in fencing
mode B a LIST as well. All other costs are taken from the forecast; the rest of the budget pays for
journal entries. Windows are assumed to be open for the same part of the time as in the last day.
Commits of tables become rarer by the same factor, which the next forecast sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from seb_appliance.ops.cost.bill import bill
from seb_appliance.ops.cost.competitors import FIFO_RECORD
from seb_appliance.ops.cost.ledger import SECOND_US, Ledger, Totals, forecast
from seb_appliance.ops.cost.prices import Money, Prices
from seb_appliance.quantities import format_duration

# Records; at lower rates a window is as long as it may be. Above 1: at nearly one a second, chance
# would fill every second window early.
LOW_RATE_PER_S: Final = 1.2
# A burst may need one entry for its records and one for their acknowledgements; and a quarter of an
# entry for upkeep.
_ENTRIES_PER_RECORD: Final = 2.5
_HALVINGS: Final = 16
_MANY_ENTRIES: Final = 1e6  # if even these cost nothing, none do


@dataclass(frozen=True, slots=True)
class Stretch:
    """How long windows are to stay open, and why, as a sentence. `enough`: of so many records, a
    window that is as old as one without stretching waits for no more; None: it stays open."""

    linger_ms: int
    why: str
    enough: int | None = None


def stretched(
    ledger: Ledger,
    prices: Prices,
    budget: Money | None,
    now_us: int,
    *,
    shortest_ms: int,
    longest_ms: int,
) -> Stretch:
    """The window that keeps the month to `budget`, or the cheap one. A window is never shorter than
    without stretching."""
    if budget is None:
        return _cheap(entry_price(ledger, prices, now_us), shortest_ms, longest_ms)
    month = _RestOfMonth(ledger, prices, now_us)
    most = month.open_s * 1000 / max(1, shortest_ms)
    if month.total(most) <= budget.amount:
        return Stretch(shortest_ms, f"The forecast is within the budget of {budget}.")
    if month.total(max(most, _MANY_ENTRIES)) == month.total(0):
        return Stretch(
            shortest_ms,
            f"The month will cost more than {budget}, but a longer window would save nothing.",
        )
    affordable = _largest(most, lambda entries: month.total(entries) <= budget.amount)
    if affordable * longest_ms <= month.open_s * 1000:
        return Stretch(
            longest_ms,
            f"The month will cost more than {budget} even with windows of linger_max "
            f"({format_duration(longest_ms)}), which they have now.",
        )
    wanted_ms = month.open_s * 1000 / affordable
    return Stretch(
        min(longest_ms, math.ceil(wanted_ms)),
        f"Windows are stretched from {format_duration(shortest_ms)} to {wanted_ms / 1000:.2f}s, "
        f"so that the month keeps to {budget}.",
    )


def _cheap(price: float, shortest_ms: int, longest_ms: int) -> Stretch:
    """Where an entry costs `price`."""
    if not price:
        return Stretch(shortest_ms, "Windows are not stretched, because PUTs cost nothing here.")
    worth = math.ceil(price / FIFO_RECORD * _ENTRIES_PER_RECORD)
    enough = max(worth, math.ceil(longest_ms / 1000 * LOW_RATE_PER_S))
    return Stretch(
        longest_ms,
        f"A window closes after {format_duration(shortest_ms)} if it holds {enough} records, and "
        f"after linger_max ({format_duration(longest_ms)}) if it holds fewer.",
        enough,
    )


def entry_price(ledger: Ledger, prices: Prices, now_us: int) -> float:
    """The price of the requests of one more journal entry, without included amounts."""
    per_million = entry_requests(ledger, now_us).by_kind
    return sum(prices.class_of(kind).per_million * n / 1e12 for kind, n in per_million.items())


def entry_requests(ledger: Ledger, now_us: int) -> Totals:
    """What one journal entry asks of the bucket, times a million: as in the last day."""
    used, _, _ = ledger.rate(now_us)
    if not used.journal_puts:
        return Totals({"journal PUT": 1_000_000})
    return Totals().plus(used.only("journal"), 1e6 / used.journal_puts)


class _RestOfMonth:
    """What the month will cost, for each number of entries that the rest of it may have.
    `open_s`: for how long windows will be open, if it goes on as in the last day."""

    def __init__(self, ledger: Ledger, prices: Prices, now_us: int) -> None:
        rest_s = max(0.0, (ledger.month.end_us - now_us) / SECOND_US)
        used, seconds, _ = ledger.rate(now_us)
        self.open_s = min(1.0, used.open_seconds / seconds) * rest_s
        self._prices = prices
        self._month = ledger.month
        self._entry = entry_requests(ledger, now_us)
        spent = ledger.this_month.only("journal")
        whole = forecast(ledger, now_us)
        others = whole.without("journal")
        self._beside = msgspec.structs.replace(
            others, requests={**others.requests, **spent.requests}
        )

    def total(self, entries: float) -> float:
        whole = self._beside.plus(self._entry, entries / 1e6)
        return bill(self._prices, whole, self._month).total


def _largest(most: float, holds: Callable[[float], bool]) -> float:
    """The largest number up to `most` for which `holds`, about; 0 if there is none."""
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
