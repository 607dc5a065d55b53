"""Which groups are furthest behind, for metrics: from memory, and for a bounded look."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

from seb_appliance import limits
from seb_appliance.broker.catalog import Catalog


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How many offsets lie between where a group stands on a topic and the log end."""

    group: str
    topic: str
    lag: int


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
