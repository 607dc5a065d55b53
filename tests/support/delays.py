"""What a state answers about delayed records, looked up in the entries themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from seb_appliance.broker.ports import DelayedTopic, DelayRange, Span
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import (
    DELAYS_FORGOTTEN_AT_ONCE,
    DelaysPassed,
    RecordsDelayed,
)


def delays_in(entries: Iterable[Entry]) -> dict[int, list[DelayRange]]:
    """By topic id, in order of time."""
    found = defaultdict[int, list[DelayRange]](list)
    for entry in entries:
        for operation in entry.contents.operations:
            if isinstance(operation, RecordsDelayed):
                found[operation.topic_id] += [
                    DelayRange(d.due_us, d.offset, d.offset + d.count) for d in operation.delays
                ]
                found[operation.topic_id].sort()
            elif isinstance(operation, DelaysPassed):
                before = found[operation.topic_id]
                passed = sum(one.due_us <= operation.until_us for one in before)
                del before[: min(passed, DELAYS_FORGOTTEN_AT_ONCE)]
    return {topic_id: rows for topic_id, rows in found.items() if rows}


def topics_in(entries: Iterable[Entry]) -> list[DelayedTopic]:
    return [
        DelayedTopic(i, sum(d.end - d.first for d in rows), min(d.first for d in rows))
        for i, rows in delays_in(entries).items()
    ]


class DelaysOfEntries:
    """Part of a state with `entries`."""

    entries: list[Entry]

    def _within(self, spans: Sequence[Span]) -> list[DelayRange]:
        found = delays_in(self.entries)
        return [
            one._replace(end=min(one.end, end))
            for topic_id, end in spans
            for one in found.get(topic_id, ())
            if one.first < end
        ]

    async def delays_by_time(
        self, spans: Sequence[Span], after: tuple[int, int], most: int
    ) -> list[DelayRange]:
        return sorted(one for one in self._within(spans) if one[:2] > after)[:most]

    async def delays_by_offset(
        self, spans: Sequence[Span], offset: int, most: int
    ) -> list[DelayRange]:
        found = [d for d in self._within(spans) if d.end > offset]
        return sorted(found, key=lambda one: one.first)[:most]

    async def delayed_topics(self) -> list[DelayedTopic]:
        return topics_in(self.entries)
