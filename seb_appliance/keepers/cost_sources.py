"""The rooms of an appliance, as the cost meter sees them."""

from __future__ import annotations

from dataclasses import dataclass

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.rewrite_jobs import Asked, Rewriter
from seb_appliance.storage.counted import CountedStore, RequestCounts
from seb_appliance.storage.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True)
class ApplianceSources:
    """Fulfils `cost_keeper.Sources`."""

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
