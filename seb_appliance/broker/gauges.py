"""The state of the broker at this moment, for status, metrics and cost; read from memory."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import Annotated

from seb_appliance import limits
from seb_appliance.broker.append.retry_results import owner_hash
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.counters import Label, Metric
from seb_appliance.broker.shares import AllShares, ForgettingShares, Shares
from seb_appliance.broker.topics.catalog import Catalog


@dataclass(frozen=True, slots=True)
class ShareView:
    """What all API keys use together: `used` of `limit`, in its own unit. `largest` holds most of
    it: the id of an API key, `topic` and the id of a topic, `user:NAME`, or "" for operators, the
    appliance, or nobody. `refusals` since the start. One that `forgets` refuses nothing: when it
    is full, whoever holds most loses the oldest."""

    name: Annotated[str, Label("share")]
    limit: Annotated[int, Metric("seb_share_limit", "What may be held of a common resource.")]
    used: Annotated[
        int,
        Metric(
            "seb_share_used", "What API keys and operators hold of a common resource, in its unit."
        ),
    ]
    largest: str
    largest_held: int
    refusals: Annotated[
        int,
        Metric(
            "seb_share_refusals_total",
            "Requests refused because a common resource, or the API key's share, was used up.",
        ),
    ]
    forgets: bool


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How many offsets lie between a group's committed offset on a topic and the log end."""

    group: Annotated[str, Label("group")]
    topic: Annotated[str, Label("topic")]
    lag: Annotated[
        int,
        Metric(
            "seb_group_lag_records",
            "Records that a group has not committed; the groups that are furthest behind.",
        ),
    ]


class Gauges:
    def __init__(self, catalog: Catalog, sequencer: Sequencer, shares: AllShares) -> None:
        self._catalog = catalog
        self._sequencer = sequencer
        self._shares = shares

    def shares(self) -> list[ShareView]:
        return [self._view(shares) for shares in self._shares]

    def _view(self, shares: Shares) -> ShareView:
        largest, held = shares.largest()
        if shares is self._catalog.requests.shares:
            keys = (key.api_key_id for key in self._catalog.api_keys.all())
            largest = next((key for key in keys if owner_hash(key).hex() == largest), "")
        elif shares is self._catalog.producers.shares and largest:
            largest = f"topic {largest}"
        forgets = isinstance(shares, ForgettingShares)
        return ShareView(
            shares.name, shares.limit, shares.used, largest, held, shares.refusals, forgets
        )

    @property
    def window_bytes(self) -> int:
        """About how many bytes the open window holds."""
        return self._sequencer.open_bytes

    def topic_sizes(self) -> dict[int, int]:
        """Live bytes of each topic, by topic id."""
        return {topic.topic_id: topic.size_bytes for topic in self._catalog.with_rows()}

    def topic_names(self) -> dict[int, str]:
        """The names of all topics, by topic id."""
        return {topic.topic_id: topic.name for topic in self._catalog.unsorted()}

    def groups_behind(self) -> list[GroupLag]:
        """The largest lags, at most `limits.METRICS_GROUPS_SHOWN`, among the first
        `METRICS_OFFSETS_LOOKED_AT` committed offsets by the groups' names."""
        found: list[GroupLag] = []
        looked_at = 0
        for name in self._catalog.groups.names("", limits.METRICS_OFFSETS_LOOKED_AT):
            group = self._catalog.groups.get(name)
            for topic_id, committed in group.offsets.items() if group is not None else ():
                looked_at += 1
                topic = self._catalog.find_id(topic_id)
                if topic is not None:
                    lag = max(0, topic.log_end_offset - committed.offset)
                    found.append(GroupLag(name, topic.name, lag))
            if looked_at >= limits.METRICS_OFFSETS_LOOKED_AT:
                break
        return nlargest(limits.METRICS_GROUPS_SHOWN, found, key=lambda item: item.lag)
