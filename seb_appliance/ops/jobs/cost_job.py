"""Counts each minute what the bucket costs, and stretches the window to be cheap.

Sends no requests to the bucket. A killed process loses the counts since the last write (at most
five minutes); a lost machine loses all of them.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.append.window import Linger
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.lake.jobs import TableWriter
from seb_appliance.broker.upkeep.rewrite_jobs import Asked, Rewriter
from seb_appliance.clock import Clock
from seb_appliance.errors import SebError
from seb_appliance.ops.cost.bill import CostReport, TopicCost, topic_costs
from seb_appliance.ops.cost.budget import entry_price, stretched
from seb_appliance.ops.cost.ledger import Ledger, Observed
from seb_appliance.ops.cost.prices import Money, Prices
from seb_appliance.state.local import LocalFile
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.counted import CountedStore, RequestCounts
from seb_appliance.tasks import Job

_log = logging.getLogger(__name__)

_DOCUMENT: Final = "cost"
_LOGGED_FROM: Final = 1.2  # a change of the window by this factor is logged


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the numbers come from. All of them count since the start."""

    store: CountedStore
    broker: Broker
    workers: Mapping[str, Rewriter | TableWriter]  # of background jobs, by purpose
    snapshots: SnapshotStore

    @property
    def counts(self) -> RequestCounts:
        return self.store.counts

    @property
    def asked(self) -> Mapping[str, Asked]:
        """By the workers."""
        return {purpose: worker.asked for purpose, worker in self.workers.items()}

    @property
    def open_seconds(self) -> float:
        return self.broker.counters.open_seconds

    @property
    def stored_bytes(self) -> int:
        """What is known to be in the bucket; the small objects of a start are left out."""
        tidying = self.broker.tidying
        in_bucket = tidying.untidied.stored_bytes + tidying.stored.stored_bytes
        return in_bucket + self.broker.tables.stored_bytes + self.snapshots.stored_bytes

    def take_entry_shares(self) -> dict[int, float]:
        return self.broker.counters.take_entry_shares()

    def topic_sizes(self) -> dict[int, int]:
        return self.broker.gauges.topic_sizes()

    def topic_names(self) -> dict[int, str]:
        return self.broker.gauges.topic_names()


class CostKeeper(Job):
    """`failure`: why the counts cannot be written to the file, "" while they can. `linger_why`:
    what linger = auto does now, as a sentence."""

    name = "cost"

    def __init__(
        self,
        path: Path,
        sources: Sources,
        linger: Linger,
        clock: Clock,
        prices: Prices,
        budget: Money | None,
        *,
        longest_ms: int | None,
    ) -> None:
        """Call `load` next. `longest_ms`: the largest window allowed; None if the window is not to
        be changed."""
        self.failure = self.linger_why = ""
        self._ledger = Ledger.begun(clock.wall_us())
        self._file = LocalFile(path)
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
        self._recent: CostReport | None = None

    async def load(self) -> None:
        """Continue from the file; counting restarts if the file cannot be read, or if another
        version wrote it. Raises ConfigurationError if the machine does not let us use the file."""
        if body := await self._file.load_document(_DOCUMENT):
            with contextlib.suppress(msgspec.DecodeError):
                self._ledger = msgspec.json.decode(body, type=Ledger)
                self._ledger.pass_time(self._clock.wall_us(), {})

    async def close(self) -> None:
        """Save the newest counts."""
        await super().close()
        if self._task is not None:
            self.tick()
            await self._write()

    def report(self) -> CostReport:
        """As of now."""
        self.tick()
        return self.recent()

    def recent(self) -> CostReport:
        """As of the last tick, a minute ago or less."""
        if self._recent is None:
            self._recent = CostReport(
                self._ledger,
                self.prices,
                self._budget,
                self._linger.default_ms,
                self.linger_why,
                self.entry_price,
            )
        return self._recent

    def topics(self, found: CostReport) -> list[TopicCost]:
        """The topics' shares of a new report."""
        return topic_costs(self._ledger, found.so_far, self._sources.topic_names())

    @property
    def entries_per_s(self) -> float:
        """Journal entries a second, on the mean of the last day."""
        used, seconds, _ = self._ledger.rate(self._clock.wall_us())
        return used.journal_puts / seconds

    @property
    def entry_price(self) -> float:
        """As in the last day, without included amounts."""
        return entry_price(self._ledger, self.prices, self._clock.wall_us())

    def tick(self) -> None:
        """Count the usage since the last tick, and adjust the window if it may be."""
        now_us = self._clock.wall_us()
        self._recent = None
        self._ledger.note(now_us, self._observed())
        if self._longest_ms is not None:
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
            if high > low * _LOGGED_FROM:
                _log.info("linger is %d ms, it was %d: %s", chosen.linger_ms, before_ms, chosen.why)
            self._linger.default_ms, self._linger.enough = chosen.linger_ms, chosen.enough
            self.linger_why = chosen.why

    def _observed(self) -> Observed:
        sources = self._sources
        received = 0
        requests: Counter[str] = Counter()
        for row in sources.counts.rows:
            requests[f"{row.purpose} {row.kind}"] += row.requests
            received += row.bytes_received
        for purpose, asked in sources.asked.items():
            received += asked.received_bytes
            requests.update({f"{purpose} {kind}": n for kind, n in asked.requests.items()})
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
        """A failure is shown; the next write tries again."""
        self._written_s = self._clock.monotonic_s()
        body = msgspec.json.encode(self._ledger)
        try:
            await self._file.save_document(_DOCUMENT, body)
        except SebError as error:
            self.failure = f"the costs of the bucket cannot be saved: {error}"
        else:
            self.failure = ""
