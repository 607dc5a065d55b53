"""The month in money: what was spent, what is to come, on what and by which topic."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

from seb_appliance import limits
from seb_appliance.ops.cost.bill import Bill, bill
from seb_appliance.ops.cost.ledger import Ledger, TopicShare, forecast
from seb_appliance.ops.cost.prices import Money, Prices


@dataclass(frozen=True, slots=True)
class TopicCost:
    """A topic's fair share of this month: requests by its share of journal entries, storage by its
    share of the bytes of all topics. None: topics that are gone, or beyond the most expensive."""

    topic: str | None
    entries: float
    requests_amount: float
    storage_amount: float

    @property
    def amount(self) -> float:
        return self.requests_amount + self.storage_amount


@dataclass(frozen=True, slots=True)
class CostReport:
    """`forecast`: of the whole month. `linger_why`: a sentence, "" unless linger is auto."""

    prices: Prices
    month: str
    counted_since_us: int
    until_us: int
    stored_bytes: int
    so_far: Bill
    forecast: Bill
    budget: Money | None
    linger_ms: int
    linger_why: str
    requests: dict[str, int]  # this month, by purpose and kind


def report(
    ledger: Ledger,
    prices: Prices,
    budget: Money | None,
    linger_ms: int,
    linger_why: str,
) -> CostReport:
    """As of the ledger's last tick."""
    so_far = bill(prices, ledger.this_month, ledger.month)
    return CostReport(
        prices=prices,
        month=ledger.month.name,
        counted_since_us=ledger.counted_since_us,
        until_us=ledger.until_us,
        stored_bytes=ledger.stored_bytes,
        so_far=so_far,
        forecast=bill(prices, forecast(ledger, ledger.until_us), ledger.month),
        budget=budget,
        linger_ms=linger_ms,
        linger_why=linger_why,
        requests=ledger.this_month.requests,
    )


def topic_costs(ledger: Ledger, so_far: Bill, names: dict[int, str]) -> list[TopicCost]:
    """The most expensive first; the rest, and what is gone, in one at the end. `names` by id."""
    shares = ledger.topics
    entries = sum(share.entries for share in shares.values())
    stored = sum(share.byte_seconds for share in shares.values())
    per_entry = so_far.requests_amount / entries if entries else 0.0
    per_byte = so_far.storage.amount / stored if stored else 0.0

    def expense(topic_id: int) -> tuple[float, float]:
        share = shares[topic_id]
        return share.entries * per_entry + share.byte_seconds * per_byte, share.entries

    def cost(topic: str | None, of: list[TopicShare]) -> TopicCost:
        their_entries = sum(share.entries for share in of)
        their_bytes = sum(share.byte_seconds for share in of)
        return TopicCost(topic, their_entries, their_entries * per_entry, their_bytes * per_byte)

    living = [topic_id for topic_id in shares if topic_id in names]
    shown = nlargest(limits.COST_TOPICS_SHOWN, living, key=expense)
    others = [shares[topic_id] for topic_id in shares.keys() - set(shown)]
    costs = [cost(names[topic_id], [shares[topic_id]]) for topic_id in shown]
    return [*costs, cost(None, others)] if others else costs
