"""What other services cost a month for the same records, to compare with.

From their public lists for us-east-1 as they were known at `AS_OF`, without tax, free amounts and
discounts. They are not fetched, and change: compare them before you decide anything by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from seb_appliance.ops.cost.prices import Prices

AS_OF: Final = "2025-06"
FIFO_RECORD: Final = 3 * 0.50e-6  # SQS FIFO: a record is sent, received and deleted
_FIFO_MILLION: Final = f"{FIFO_RECORD * 1e6:.2f} USD per million"
MONTH_S: Final = 30 * 24 * 3600
_GB: Final = 1e9
_HOURS: Final = 730
_KINESIS_UNIT_BYTES: Final = 1_000
_SQS_REQUEST_BYTES: Final = 64 * 1024
# Kafka: brokers by the partitions (three copies each) and bytes a second that one should have.
_SMALL_REPLICAS, _SMALL_BYTES_PER_S = 300, 1e6
_LARGE_REPLICAS, _LARGE_BYTES_PER_S = 1_000, 15e6


@dataclass(frozen=True, slots=True)
class Load:
    """A month of records that are stored, read once, acknowledged one by one, and kept for a day
    (the shortest time that all of these services have)."""

    records: float
    record_bytes: int
    topics: int

    @property
    def gb(self) -> float:
        return self.records * self.record_bytes / _GB

    @property
    def stored_gb(self) -> float:
        """On the mean."""
        return self.gb / 30


def _sqs(load: Load) -> float:
    return load.records * FIFO_RECORD * math.ceil(load.record_bytes / _SQS_REQUEST_BYTES)


def _sqs_in_tens(load: Load) -> float:
    whole = max(1.0, 10 * load.record_bytes / _SQS_REQUEST_BYTES)
    return load.records * FIFO_RECORD * whole / 10


def _kinesis(load: Load) -> float:
    """A stream for each topic. A record counts as a whole number of units."""
    billed_gb = load.records * math.ceil(load.record_bytes / _KINESIS_UNIT_BYTES) / 1e6
    return load.topics * 0.04 * _HOURS + billed_gb * (0.08 + 0.04)


def _msk(load: Load) -> float:
    """A partition for each topic; at least three brokers, small ones where these are enough."""
    replicas, bytes_per_s = 3 * load.topics, load.records * load.record_bytes / MONTH_S
    storage = 3 * load.stored_gb * 0.10
    if replicas <= 3 * _SMALL_REPLICAS and bytes_per_s <= 3 * _SMALL_BYTES_PER_S:
        return 3 * 0.0456 * _HOURS + storage
    need = max(replicas / _LARGE_REPLICAS, 3 * bytes_per_s / _LARGE_BYTES_PER_S)
    return max(3, math.ceil(need)) * 0.204 * _HOURS + storage


def _warpstream(load: Load) -> float:
    """The cluster, without the machines and the bucket, which its user pays as well."""
    return 100 + load.gb * 0.01 + load.stored_gb * 0.01


def _upstash(load: Load) -> float:
    """Streams of Redis: XADD, XREADGROUP, XACK. Its Kafka has been discontinued."""
    return load.records * 3 * 2e-6 + load.stored_gb * 0.25


COMPETITORS: Final[dict[str, Callable[[Load], float]]] = {
    "SQS FIFO": _sqs,
    "SQS FIFO in tens": _sqs_in_tens,
    "Kinesis on demand": _kinesis,
    "MSK": _msk,
    "WarpStream": _warpstream,
    "Upstash": _upstash,
}


@dataclass(frozen=True, slots=True)
class Crossover:
    """Journal entries beside the requests of SQS FIFO, if each record is sent and acknowledged on
    its own. `per_s`: entries cost less from so many records a second on. `monthly`: what entries
    cost at most in a month with fewer records, in the currency of `prices`, which is taken as if it
    were that of SQS."""

    prices: Prices
    per_s: float
    monthly: float

    @classmethod
    def of(cls, prices: Prices, entry_price: float, linger_ms: int) -> Crossover:
        """With windows of `linger_ms`, and entries of this price each."""
        price_per_s = entry_price * 1000 / max(1, linger_ms)
        return cls(prices, price_per_s / FIFO_RECORD, price_per_s * MONTH_S)

    def __str__(self) -> str:
        if not self.per_s:
            return f"Journal entries cost nothing here; SQS FIFO takes {_FIFO_MILLION} records."
        return (
            f"From {self.per_s:.2g} records/s on, journal entries cost less than SQS FIFO "
            f"({_FIFO_MILLION} records, each sent and acknowledged on its own). At lower rates "
            f"they cost at most {self.prices.money(self.monthly)} a month, more than SQS."
        )
