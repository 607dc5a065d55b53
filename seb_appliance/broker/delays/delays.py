"""Which topics have delayed records, as of the last applied entry. The records are named in SQLite
(state/rows/delays.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from seb_appliance import limits
from seb_appliance.broker.ports import DelayedTopic, Span
from seb_appliance.broker.shares import OPERATOR, AllShares
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.formats.operations import RecordsDelayed


class Delays:
    """`any`: set while there are some. `changes`: grows with each entry that delays records."""

    def __init__(
        self,
        loaded: Iterable[DelayedTopic],
        find: Callable[[int], Topic | None],
        shares: AllShares,
    ) -> None:
        """`find`: a topic by its id, also a held one."""
        self.shares = shares.declare(
            "delayed_records", limits.DELAYED_RECORDS_MAX, "delayed records"
        )
        self.any = asyncio.Event()
        self.changes = 0
        self._find = find
        self._counted: dict[int, tuple[str, int]] = {}  # owner and number, by topic id
        self.count(loaded)

    def apply(self, event: RecordsDelayed) -> None:
        self.changes += 1
        records = sum(one.count for one in event.delays)
        self._add(event.topic_id, records, event.delays[0].offset)

    def count(self, topics: Iterable[DelayedTopic]) -> None:
        """These are all that have delays now."""
        for topic_id, (owner, records) in self._counted.items():
            self.shares.give_back(owner, records)
            if (topic := self._find(topic_id)) is not None:
                topic.delayed_from = limits.OFFSET_MAX
        self._counted = {}
        self.any.clear()
        for one in topics:
            self._add(*one)

    def of(self, topic: Topic) -> int:
        """How many records of the topic are delayed, or were until lately."""
        return self._counted.get(topic.topic_id, (OPERATOR, 0))[1]

    def _add(self, topic_id: int, records: int, first: int) -> None:
        topic = self._find(topic_id)
        owner, known = self._counted.get(topic_id, (OPERATOR if topic is None else topic.owner, 0))
        self._counted[topic_id] = owner, known + records
        self.shares.take_anyway(owner, records)
        self.any.set()
        if topic is not None:
            topic.delayed_from = min(topic.delayed_from, first)

    def spans(self, topic: Topic) -> list[Span]:
        """Where delays of its records are, also of those that it shares with others; empty if there
        are none."""
        if not self._counted:
            return []
        spans, above, end = list[Span](), topic, limits.OFFSET_MAX
        while True:
            if above.topic_id in self._counted:
                spans.append((above.topic_id, end))
            if above.parent is None:
                return spans[::-1]
            end, above = min(end, above.fork_offset), above.parent
