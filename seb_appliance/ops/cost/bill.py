"""What usage costs: the bill of a month, its forecast, and the share of each topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest
from typing import Final

from seb_appliance import limits
from seb_appliance.ops.cost.competitors import Crossover
from seb_appliance.ops.cost.ledger import Ledger, Month, TopicShare, Totals, forecast
from seb_appliance.ops.cost.prices import Money, Prices

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


@dataclass(frozen=True, slots=True)
class TopicCost:
    """A topic's share of this month's costs: requests by its share of journal entries, storage by
    its share of all stored bytes. None: deleted topics, and those below the most expensive."""

    topic: str | None
    entries: float
    requests_amount: float
    storage_amount: float

    @property
    def amount(self) -> float:
        return self.requests_amount + self.storage_amount


@dataclass(frozen=True)
class CostReport:
    """As of the ledger's last tick. `linger_why`: a sentence, "" unless linger is auto.
    `entry_price`: of a journal entry."""

    ledger: Ledger
    prices: Prices
    budget: Money | None
    linger_ms: int
    linger_why: str
    entry_price: float

    @property
    def crossover(self) -> Crossover:
        return Crossover.of(self.prices, self.entry_price, self.linger_ms)

    @cached_property
    def so_far(self) -> Bill:
        return bill(self.prices, self.ledger.this_month, self.ledger.month)

    @cached_property
    def forecast(self) -> Bill:
        """Of the whole month."""
        whole = forecast(self.ledger, self.ledger.until_us)
        return bill(self.prices, whole, self.ledger.month)

    @property
    def lines(self) -> Iterator[tuple[Line, Line]]:
        """Each line so far, and its forecast."""
        return zip(self.so_far.lines, self.forecast.lines, strict=True)

    @cached_property
    def _topic_prices(self) -> _Prices:
        return _Prices.of(self.ledger, self.so_far)

    def of_topic(self, topic_id: int) -> TopicCost:
        """Of one topic. The first call takes a time in the number of topics, others none."""
        share = self.ledger.topics.get(topic_id)
        return self._topic_prices.cost(None, [share] if share is not None else [])


@dataclass(frozen=True, slots=True)
class _Prices:
    """What a topic pays for one of its journal entries, and for a byte that is stored a second."""

    per_entry: float
    per_byte: float

    @classmethod
    def of(cls, ledger: Ledger, so_far: Bill) -> _Prices:
        entries = sum(share.entries for share in ledger.topics.values())
        stored = sum(share.byte_seconds for share in ledger.topics.values())
        return cls(
            so_far.requests_amount / entries if entries else 0.0,
            so_far.storage.amount / stored if stored else 0.0,
        )

    def cost(self, topic: str | None, of: Sequence[TopicShare]) -> TopicCost:
        entries = sum(share.entries for share in of)
        stored = sum(share.byte_seconds for share in of)
        return TopicCost(topic, entries, entries * self.per_entry, stored * self.per_byte)


def topic_costs(ledger: Ledger, so_far: Bill, names: dict[int, str]) -> list[TopicCost]:
    """The most expensive topics first; one item at the end for all others. `names` by id."""
    shares, prices = ledger.topics, _Prices.of(ledger, so_far)

    def expense(topic_id: int) -> tuple[float, float]:
        found = prices.cost(None, [shares[topic_id]])
        return found.amount, found.entries

    living = [topic_id for topic_id in shares if topic_id in names]
    shown = nlargest(limits.COST_TOPICS_SHOWN, living, key=expense)
    others = [shares[topic_id] for topic_id in shares.keys() - set(shown)]
    costs = [prices.cost(names[topic_id], [shares[topic_id]]) for topic_id in shown]
    return [*costs, prices.cost(None, others)] if others else costs
