"""What a change of a setting would cost or save, as a sentence, before it is saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from seb_appliance.ops.cost.bill import GB, bill
from seb_appliance.ops.cost.competitors import MONTH_S
from seb_appliance.ops.cost.ledger import SECOND_US, Month, Totals
from seb_appliance.ops.cost.prices import Prices
from seb_appliance.quantities import format_duration, format_size

_UNITS: Final = (2**40, 2**30, 2**20, 2**10)


@dataclass(frozen=True, slots=True)
class Situation:
    """What an effect is computed from. `entries_per_s`: journal entries a second, the mean of the
    last day, each of `entry_price`. Of the topic: its size, the bytes a second it receives, and
    their compressed size as a fraction of the plain size (1.0 if unknown). `bill`: the forecast of
    the month; nothing can save more."""

    prices: Prices
    entries_per_s: float = 0.0
    entry_price: float = 0.0
    size_bytes: int = 0
    bytes_per_s: float = 0.0
    compressed_part: float = 1.0
    bill: float = math.inf

    def cost(self, monthly: float) -> float:
        """An additional cost (negative: savings), within the bill."""
        return max(monthly, -self.bill)


@dataclass(frozen=True, slots=True)
class Effect:
    """`monthly`: the largest additional cost a month (negative: savings)."""

    setting: str
    words: str
    monthly: float


def linger(now: Situation, before_ms: int, after_ms: int) -> Effect:
    """A longer or shorter window. "Up to", because records further apart than the window have a
    PUT each, whatever the window is."""
    before_ms, after_ms = max(1, before_ms), max(1, after_ms)
    times = max(before_ms, after_ms) / min(before_ms, after_ms)
    apart = format_duration(abs(after_ms - before_ms))
    entries = now.entries_per_s * MONTH_S
    if after_ms >= before_ms:
        monthly = now.cost(-entries * (1 - 1 / times) * now.entry_price)
        words = f"up to {times:.3g} times fewer PUTs, {_money(now, monthly)}, "
        return Effect("linger_ms", f"{words}acknowledgement up to {apart} later", monthly)
    # A window cannot close more often than it can be opened: once in each of its new length.
    more = min(entries * times, MONTH_S * 1000 / after_ms) - entries
    monthly = max(0.0, more) * now.entry_price
    words = f"up to {times:.3g} times as many PUTs, {_money(now, monthly)}, "
    return Effect("linger_ms", f"{words}acknowledgement up to {apart} sooner", monthly)


def retention(
    now: Situation, *, retention_ms: int | None = None, retention_bytes: int | None = None
) -> Effect:
    """Keeping a topic's records for a time, or up to a size; both None: without limit."""
    if retention_ms is None and retention_bytes is None:
        a_month = now.bytes_per_s * MONTH_S
        monthly = _storage(now, a_month)
        words = f"nothing is deleted; each month adds {_size(a_month)}, {_money(now, monthly)}"
        return Effect("retention_ms", words, monthly)
    bounds = []
    if retention_ms is not None:
        bounds.append(now.bytes_per_s * retention_ms / 1000)
    if retention_bytes is not None:
        bounds.append(float(retention_bytes))
    kept = min(bounds)
    name = "retention_ms" if retention_ms is not None else "retention_bytes"
    monthly = _storage(now, kept - now.size_bytes)
    if kept >= now.size_bytes:
        words = f"it grows to about {_size(kept)}, {_money(now, monthly)}"
    else:
        words = (
            f"about {_size(now.size_bytes - kept)} of its records are deleted, "
            f"{_money(now, monthly)}"
        )
    return Effect(name, words, monthly)


def compression(now: Situation, *, on: bool) -> Effect:
    """How new records are stored; stored records stay as they are."""
    part = now.compressed_part if on else 1 / max(0.01, now.compressed_part)
    monthly = _storage(now, now.bytes_per_s * MONTH_S * (part - 1))
    how = f"about {part:.2g} times the bytes" if part != 1 else "about as many bytes"
    words = f"new records take {how}, {_money(now, monthly)} for each month that is kept"
    return Effect("compression", words, monthly)


def table(now: Situation, *, formats: tuple[str, ...], lag_ms: int) -> Effect:
    """A table of the topic, which makes a commit each `lag_ms` while records come."""
    if not formats:
        return Effect("table", "the table stays as it is, and gets nothing new", 0.0)
    puts = 1 + 4 * ("iceberg" in formats) + ("delta" in formats)
    commits = MONTH_S * 1000 / max(1, lag_ms)
    requests = commits * puts / 1e6 * now.prices.class_of("PUT").per_million
    monthly = requests + _storage(now, now.bytes_per_s * MONTH_S * now.compressed_part)
    words = (
        f"up to {commits:,.0f} commits of {puts} PUTs a month, and about as many bytes as the log, "
        f"{_money(now, monthly)}; nothing while the topic is idle"
    )
    return Effect("table", words, monthly)


def always_busy(prices: Prices, linger_ms: int, *, lists: bool) -> str:
    """What journal entries cost a month if windows are never idle; `lists`: in fencing mode B."""
    entries = MONTH_S * 1000 / max(1, linger_ms)
    requests = {"journal PUT": int(entries), "journal LIST": int(entries) if lists else 0}
    found = bill(prices, Totals(requests), Month("", 0, MONTH_S * SECOND_US))
    fee = f" and a fee of {prices.fee:,.2f}" if prices.fee else ""
    count = sum(requests.values()) / 1e6
    return (
        f"at {format_duration(linger_ms)} windows, always busy: {count:.1f} M requests a month, "
        f"{prices.money(found.requests_amount)}{fee} ({prices.name})"
    )


def _storage(now: Situation, more_bytes: float) -> float:
    return now.cost(more_bytes / GB * now.prices.storage_gb)


def _size(count: float) -> str:
    """An approximate size: a whole number of the largest unit that leaves two digits."""
    unit = next((size for size in _UNITS if count >= 10 * size), 1)
    return format_size(int(count / unit) * unit)


def _money(now: Situation, monthly: float) -> str:
    if abs(monthly) < 0.005:
        return "negligible cost"
    way = "more" if monthly > 0 else "less"
    return f"up to {now.prices.money(abs(monthly))} a month {way}"
