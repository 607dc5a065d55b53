"""Watches what the bucket costs: a tick a minute, kept on this machine; and stretches the window
where a budget asks for it.

Nothing is asked of the bucket for it. What was counted since it was last written down (five minutes
at most) is lost with a killed process, and all of it with the machine.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.append.window import Linger
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.upkeep.rewrite_jobs import Asked, Rewriter
from seb_appliance.clock import Clock
from seb_appliance.errors import SebError
from seb_appliance.ops.cost.bill import CostReport, TopicCost, report, topic_costs
from seb_appliance.ops.cost.budget import entry_requests, stretched
from seb_appliance.ops.cost.ledger import Ledger, Observed, requests_of
from seb_appliance.ops.cost.prices import Money, Prices
from seb_appliance.state.local import LocalFile
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.counted import CountedStore, RequestCounts
from seb_appliance.tasks import Job

_log = logging.getLogger(__name__)

_DOCUMENT: Final = "cost"
_TOLD_FROM: Final = 1.2  # times longer or shorter: a change of the window that is worth a line


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the numbers come from. All of them count since the start."""

    store: CountedStore
    broker: Broker
    rewriter: Rewriter
    snapshots: SnapshotStore

    @property
    def counts(self) -> RequestCounts:
        return self.store.counts

    @property
    def asked(self) -> Asked:
        return self.rewriter.asked

    @property
    def open_seconds(self) -> float:
        return self.broker.counters.open_seconds

    @property
    def stored_bytes(self) -> int:
        """What is known to be in the bucket; the small objects of a start are left out."""
        return self.broker.tidying.stored_bytes + self.snapshots.stored_bytes

    def take_entry_shares(self) -> dict[int, float]:
        return self.broker.counters.take_entry_shares()

    def topic_sizes(self) -> dict[int, int]:
        return self.broker.gauges.topic_sizes()

    def topic_names(self) -> dict[int, str]:
        return self.broker.gauges.topic_names()


class CostKeeper(Job):
    """Made by `open`. `failure`: why the numbers cannot be written down, in words; "" while they
    can. `linger_why`: what linger = auto does now, as a sentence."""

    name = "cost"

    def __init__(
        self,
        ledger: Ledger,
        file: LocalFile,
        sources: Sources,
        linger: Linger,
        clock: Clock,
        prices: Prices,
        budget: Money | None,
        *,
        longest_ms: int | None,
    ) -> None:
        """For `open` and tests. `longest_ms`: how far the window may be stretched; None when it is
        not ours to change."""
        self.failure = self.linger_why = ""
        self._ledger = ledger
        self._file = file
        self._sources = sources
        self._linger = linger
        self._clock = clock
        self.prices = prices
        self._budget = budget
        self._shortest_ms = linger.default_ms
        self._longest_ms = longest_ms
        self._requests: Counter[str] = Counter()
        self._received_bytes = 0
        self._open_seconds = 0.0
        self._written_s = clock.monotonic_s()

    @classmethod
    async def open(
        cls,
        path: Path,
        sources: Sources,
        linger: Linger,
        clock: Clock,
        prices: Prices,
        budget: Money | None,
        *,
        longest_ms: int | None,
    ) -> CostKeeper:
        """With what `path` knows; begun anew if that cannot be read. Raises ConfigurationError if
        the machine does not let us use the file."""
        file = LocalFile(path)
        body = await file.load_document(_DOCUMENT)
        now_us = clock.wall_us()
        ledger = _known(body) or Ledger.begun(now_us)
        ledger.resume(now_us)
        return cls(ledger, file, sources, linger, clock, prices, budget, longest_ms=longest_ms)

    async def close(self) -> None:
        """Write down what was not written yet."""
        await super().close()
        if self._task is not None:
            self.tick()
            await self._write()

    def report(self) -> CostReport:
        """As of now."""
        self.tick()
        return report(
            self._ledger, self.prices, self._budget, self._linger.default_ms, self.linger_why
        )

    def topics(self, found: CostReport) -> list[TopicCost]:
        """The topics' shares of a report that was made just now."""
        return topic_costs(self._ledger, found.so_far, self._sources.topic_names())

    @property
    def entries_per_s(self) -> float:
        """Journal entries a second, on the mean of the last day."""
        used, seconds, _ = self._ledger.rate(self._clock.wall_us())
        return used.journal_puts / seconds

    @property
    def entry_price(self) -> float:
        """What the requests of one more journal entry cost, whatever is included."""
        per_million = entry_requests(self._ledger, self._clock.wall_us()).by_kind
        return sum(
            self.prices.class_of(kind).per_million * count / 1e12
            for kind, count in per_million.items()
        )

    def tick(self) -> None:
        """Note what happened since the last one, and set the window if it is ours to set."""
        now_us = self._clock.wall_us()
        self._ledger.note(now_us, self._observed())
        if self._budget is not None and self._longest_ms is not None:
            chosen = stretched(
                self._ledger,
                self.prices,
                self._budget,
                now_us,
                shortest_ms=self._shortest_ms,
                longest_ms=self._longest_ms,
            )
            before_ms = self._linger.default_ms
            low, high = sorted((before_ms, chosen.linger_ms))
            if high > low * _TOLD_FROM:
                _log.info("linger is %d ms, it was %d: %s", chosen.linger_ms, before_ms, chosen.why)
            self._linger.default_ms, self.linger_why = chosen.linger_ms, chosen.why

    def _observed(self) -> Observed:
        sources = self._sources
        received = sources.asked.received_bytes
        counts: Counter[tuple[str, str]] = Counter()
        for row in sources.counts.rows:
            counts[row.purpose, row.kind] += row.requests
            received += row.bytes_received
        for kind, count in sources.asked.requests.items():
            counts["tidier", kind] += count
        requests = Counter(requests_of(counts))
        open_seconds = sources.open_seconds
        seen = Observed(
            dict(requests - self._requests),
            received - self._received_bytes,
            open_seconds - self._open_seconds,
            sources.stored_bytes,
            sources.take_entry_shares(),
            sources.topic_sizes(),
        )
        self._requests, self._received_bytes = requests, received
        self._open_seconds = open_seconds
        return seen

    async def _run(self) -> None:
        while True:
            self.tick()
            if self._clock.monotonic_s() - self._written_s >= limits.COST_WRITTEN_EVERY_S:
                await self._write()
            await self._clock.sleep(limits.COST_TICK_S)

    async def _write(self) -> None:
        """A failure is shown, and the same is tried again with the next one: nothing that was
        promised depends on it."""
        self._written_s = self._clock.monotonic_s()
        body = msgspec.json.encode(self._ledger)
        try:
            await self._file.save_document(_DOCUMENT, body)
        except SebError as error:
            self.failure = f"what the bucket costs cannot be written down: {error}"
        else:
            self.failure = ""


def _known(body: bytes | None) -> Ledger | None:
    """None also for a document that another version wrote: counting begins anew then."""
    try:
        return None if body is None else msgspec.json.decode(body, type=Ledger)
    except msgspec.DecodeError:
        return None
