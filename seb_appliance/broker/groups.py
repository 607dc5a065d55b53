"""Consumer groups: committed offsets and leases. No consumer instances, so nothing to time out.

A lease lives while its time to live has not passed since it was taken or renewed. Only a new
generation is an event of the journal; renewals stay in memory, and a restart grants the full time
again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from seb_appliance.broker.ports import GroupOffsetRow, LeaseRow
from seb_appliance.formats.operations import CommittedOffset, LeaseTaken


@dataclass(frozen=True, slots=True)
class Committed:
    """The next offset the group reads of a topic. `committed_us`: when the commit was stored."""

    offset: int
    metadata: str
    committed_us: int


@dataclass(slots=True)
class Lease:
    """`generation`: seq of the entry that granted it, for `ttl_ms`. `expires_s`: on the monotonic
    clock."""

    generation: int
    holder: str
    ttl_ms: int
    expires_s: float

    def is_alive(self, now_s: float) -> bool:
        return now_s < self.expires_s

    def left_ms(self, now_s: float) -> int:
        return max(0, int((self.expires_s - now_s) * 1000))

    def renew(self, ttl_ms: int, now_s: float) -> None:
        self.expires_s = now_s + ttl_ms / 1000


@dataclass(slots=True)
class Group:
    """A group as of the last applied entry; `offsets` by topic id."""

    name: str
    offsets: dict[int, Committed] = field(default_factory=dict)
    lease: Lease | None = None

    @property
    def is_empty(self) -> bool:
        return not self.offsets and self.lease is None


class Groups:
    """All groups. Changed only by applying journal entries (and renewals of leases)."""

    def __init__(
        self, offsets: Iterable[GroupOffsetRow], leases: Iterable[LeaseRow], now_s: float
    ) -> None:
        """`leases` get their full time again: how much of it had passed is not known."""
        self._by_name: dict[str, Group] = {}
        self._names: list[str] = []  # sorted, so that a page of many is found by bisection
        for row in offsets:
            committed = Committed(row.offset, row.metadata, row.committed_us)
            self._made(row.group).offsets[row.topic_id] = committed
        for lease in leases:
            self._grant(lease.group, lease.generation, lease.holder, lease.ttl_ms, now_s)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Group | None:
        return self._by_name.get(name)

    def names(self, after: str, most: int) -> list[str]:
        """In order, those behind `after` ("": from the first on), `most` at the most."""
        first = bisect_right(self._names, after)
        return self._names[first : first + most]

    def commit(self, name: str, offsets: Iterable[CommittedOffset], committed_us: int) -> None:
        group = self._made(name)
        for item in offsets:
            group.offsets[item.topic_id] = Committed(item.offset, item.metadata, committed_us)

    def take_lease(self, event: LeaseTaken, generation: int, now_s: float) -> None:
        self._grant(event.group, generation, event.holder, event.ttl_ms, now_s)

    def release_lease(self, name: str) -> None:
        group = self._by_name.get(name)
        if group is not None:
            group.lease = None
            if group.is_empty:
                self.delete(name)

    def delete(self, name: str) -> None:
        if self._by_name.pop(name, None) is not None:
            del self._names[bisect_left(self._names, name)]

    def forget_topic(self, topic_id: int) -> None:
        """The topic was deleted: its offsets go with it, in the same event."""
        for group in [g for g in self._by_name.values() if topic_id in g.offsets]:
            del group.offsets[topic_id]
            if group.is_empty:
                del self._by_name[group.name]
        self._names = [name for name in self._names if name in self._by_name]

    def _grant(self, name: str, generation: int, holder: str, ttl_ms: int, now_s: float) -> None:
        self._made(name).lease = Lease(generation, holder, ttl_ms, now_s + ttl_ms / 1000)

    def _made(self, name: str) -> Group:
        group = self._by_name.get(name)
        if group is None:
            group = self._by_name[name] = Group(name)
            insort(self._names, name)
        return group
