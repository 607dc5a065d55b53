"""How the broker is at this moment, for metrics and the cost meter: from memory, at once."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import Annotated

from seb_appliance import limits
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.counters import Label, Metric
from seb_appliance.broker.share_views import ShareView, share_views
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.catalog import Catalog

# Which groups are furthest behind, for metrics: from memory, and for a bounded look.


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How many offsets lie between where a group stands on a topic and the log end."""

    group: Annotated[str, Label("group")]
    topic: Annotated[str, Label("topic")]
    lag: Annotated[
        int,
        Metric(
            "seb_group_lag_records",
            "Records that a group has not committed; the groups that are furthest behind.",
        ),
    ]


def furthest_behind(catalog: Catalog) -> list[GroupLag]:
    """The largest lags, at most `limits.METRICS_GROUPS_SHOWN`, among the first
    `METRICS_OFFSETS_LOOKED_AT` committed offsets by the groups' names."""
    found: list[GroupLag] = []
    looked_at = 0
    for name in catalog.groups.names("", limits.METRICS_OFFSETS_LOOKED_AT):
        group = catalog.groups.get(name)
        for topic_id, committed in group.offsets.items() if group is not None else ():
            looked_at += 1
            topic = catalog.find_id(topic_id)
            if topic is not None:
                lag = max(0, topic.log_end_offset - committed.offset)
                found.append(GroupLag(name, topic.name, lag))
        if looked_at >= limits.METRICS_OFFSETS_LOOKED_AT:
            break
    return nlargest(limits.METRICS_GROUPS_SHOWN, found, key=lambda item: item.lag)


class Gauges:
    def __init__(self, catalog: Catalog, sequencer: Sequencer, shares: AllShares) -> None:
        self._catalog = catalog
        self._sequencer = sequencer
        self._shares = shares

    def shares(self) -> list[ShareView]:
        """Of what all API keys use together, how much is used, and by whom most."""
        return share_views(self._shares, self._catalog)

    @property
    def window_bytes(self) -> int:
        """What the open window holds, about."""
        return self._sequencer.open_bytes

    def topic_sizes(self) -> dict[int, int]:
        """Bytes in force of each topic, by topic id."""
        return self._catalog.topic_sizes()

    def topic_names(self) -> dict[int, str]:
        """The names of all topics, by topic id."""
        return {topic.topic_id: topic.name for topic in self._catalog.topics()}

    def groups_behind(self) -> list[GroupLag]:
        """See `group_lag.furthest_behind`."""
        return furthest_behind(self._catalog)
