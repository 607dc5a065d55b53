"""What a list of many topics shows, at a cost that depends on the rows shown and not on the log."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from seb_appliance.broker.catalog import Catalog, Totals
from seb_appliance.broker.index import SectionIndex

_GROUPS_AT_ONCE: Final = 500  # looked at without a break; about a millisecond


@dataclass(frozen=True, slots=True)
class Readers:
    """How many groups have an offset on a topic, and the largest lag of one, in records."""

    groups: int = 0
    largest_lag: int = 0


class TopicLists:
    def __init__(self, catalog: Catalog, index: SectionIndex) -> None:
        self._catalog = catalog
        self._index = index

    def totals(self) -> Totals:
        """Of all topics together."""
        return self._catalog.totals()

    def names(self) -> list[str]:
        """Of all topics, in order."""
        return self._catalog.topic_names()

    async def last_write_us(self, name: str) -> int | None:
        """When the newest record that can be read was stored (once it is merged: the newest of
        those that were merged with it); None when there is none. Raises TopicNotFoundError,
        CorruptObjectError."""
        topic = self._catalog.topic(name)
        newest = topic.log_end_offset - 1
        if newest < topic.log_start_offset:
            return None
        _, rows, _ = await self._index.rows_of(topic, newest)
        return rows.created_us[rows.row_of(newest)]

    async def readers(self, names: Collection[str]) -> dict[str, Readers]:
        """By topic, for those that are there. Looks at every group, some at a time."""
        topics = [topic for name in names if (topic := self._catalog.find(name)) is not None]
        ends = {topic.topic_id: topic.log_end_offset for topic in topics}
        groups = dict.fromkeys(ends, 0)
        lags = dict.fromkeys(ends, 0)
        after = ""
        while some := self._catalog.groups.names(after, _GROUPS_AT_ONCE):
            for name in some:
                group = self._catalog.groups.get(name)
                # Looks at the fewer of the two.
                for topic_id in group.offsets.keys() & ends.keys() if group is not None else ():
                    assert group is not None
                    groups[topic_id] += 1
                    lag = ends[topic_id] - group.offsets[topic_id].offset
                    lags[topic_id] = max(lags[topic_id], lag)
            after = some[-1]
            await asyncio.sleep(0)
        return {
            topic.name: Readers(groups[topic.topic_id], lags[topic.topic_id]) for topic in topics
        }
