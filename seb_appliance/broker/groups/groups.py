"""Consumer groups as of the last applied entry: committed offsets and leases.

Only a new generation of a lease is an event of the journal; renewals stay in memory, and a restart
grants the full time again. The offsets of a deleted topic are invalid at once, and leave memory in
slices: there may be 100,000 groups on it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from seb_appliance import limits
from seb_appliance.broker.ports import GroupOffsetRow, LeaseRow
from seb_appliance.broker.shares import OPERATOR, AllShares
from seb_appliance.broker.values import ReadResult
from seb_appliance.errors import (
    GroupNotFoundError,
    LeaseHeldError,
    StaleGenerationError,
)
from seb_appliance.formats.operations import CommittedOffset, LeaseTaken

_OFFSET_BYTES: Final = 256
_LOOKED_AT_IN_A_SLICE: Final = 1_000  # groups; about a millisecond


def offset_bytes(metadata: str) -> int:
    """About what a committed offset takes in memory."""
    return _OFFSET_BYTES + len(metadata.encode())


@dataclass(frozen=True, slots=True)
class Committed:
    """The next offset the group reads of a topic. `committed_us`: when the commit was stored."""

    offset: int
    metadata: str
    committed_us: int

    @property
    def size_bytes(self) -> int:
        return offset_bytes(self.metadata)


@dataclass(slots=True)
class Lease:
    """`generation`: seq of the entry that granted it. `expires_s`: on the monotonic clock."""

    generation: int
    holder: str
    ttl_ms: int
    expires_s: float

    def is_alive(self, now_s: float) -> bool:
        return now_s < self.expires_s

    def left_ms(self, now_s: float) -> int:
        return max(0, int((self.expires_s - now_s) * 1000))

    def view(self, now_s: float) -> LeaseView:
        return LeaseView(self.generation, self.holder, self.ttl_ms, self.left_ms(now_s))


@dataclass(slots=True)
class Group:
    """`offsets` by topic id. `owner` made it; it takes the shares of `owner`, whoever commits."""

    name: str
    owner: str = OPERATOR
    offsets: dict[int, Committed] = field(default_factory=dict)
    lease: Lease | None = None

    @property
    def is_empty(self) -> bool:
        return not self.offsets and self.lease is None


class Groups:
    """All groups. Only applied entries, and renewals of leases, change them.

    `shares` count groups; `offsets_shares` count the memory of committed offsets. Both include what
    deleted topics leave behind until `forget_some` is done."""

    def __init__(
        self,
        offsets: Iterable[GroupOffsetRow],
        leases: Iterable[LeaseRow],
        owners: Mapping[str, str],
        now_s: float,
        shares: AllShares | None = None,
    ) -> None:
        """`leases` get their full time again: the time used so far is unknown."""
        shares = shares or AllShares()
        remedy = "Delete groups that nobody needs."
        self.shares = shares.declare("groups", limits.GROUPS_MAX, "groups", remedy)
        self.offsets_shares = shares.declare(
            "committed_offsets",
            limits.COMMITTED_OFFSETS_BYTES_MAX,
            "bytes of committed offsets with their metadata",
            remedy,
        )
        self._by_name: dict[str, Group] = {}
        self._names: list[str] = []  # sorted, so that a page of many is found by bisection
        self._gone: set[int] = set()  # ids of deleted topics that groups may still hold
        self._leaving: set[int] = set()  # those of them that the current pass removes
        self._passed = ""  # the last group that this pass has examined
        for name, owner in owners.items():
            self._make(name, owner)
        for row in offsets:
            committed = Committed(row.offset, row.metadata, row.committed_us)
            self._set(self._made(row.group), row.topic_id, committed)
        for lease in leases:
            self.take_lease(lease, lease.generation, now_s)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Group | None:
        group = self._by_name.get(name)
        if group is None or not self._gone or self._holds_more(group):
            return group
        self.delete(name)
        return None

    def offsets(self, name: str) -> Mapping[int, Committed]:
        """By topic id; empty if there is no such group."""
        group = self.get(name)
        return group.offsets if group is not None else {}

    def names(self, after: str, most: int) -> list[str]:
        """At most `most` names behind `after` ("": from the first), in order. `get` may return None
        for some of them."""
        first = bisect_right(self._names, after)
        return self._names[first : first + most]

    def own(self, name: str, owner: str) -> None:
        """Set the owner of a new group, before its first commit or lease is applied."""
        if self.get(name) is None:
            self._make(name, owner)

    def commit(self, name: str, offsets: Iterable[CommittedOffset], committed_us: int) -> None:
        group = self._made(name)
        for item in offsets:
            self._set(group, item.topic_id, Committed(item.offset, item.metadata, committed_us))

    def take_lease(self, event: LeaseTaken | LeaseRow, generation: int, now_s: float) -> None:
        expires_s = now_s + event.ttl_ms / 1000
        lease = Lease(generation, event.holder, event.ttl_ms, expires_s)
        self._made(event.group).lease = lease

    def release_lease(self, name: str) -> None:
        group = self._by_name.get(name)
        if group is not None:
            group.lease = None
            if group.is_empty:
                self.delete(name)

    def delete(self, name: str) -> None:
        group = self._by_name.pop(name, None)
        if group is not None:
            del self._names[bisect_left(self._names, name)]
            size_bytes = sum(item.size_bytes for item in group.offsets.values())
            self.offsets_shares.give_back(group.owner, size_bytes)
            self.shares.give_back(group.owner, 1)

    # --- deleted topics ---

    def forget_topic(self, topic_id: int) -> None:
        """The topic was deleted: its offsets are invalid from now on."""
        self._gone.add(topic_id)

    def forget_some(self) -> bool:
        """Free a slice of what deleted topics left behind; whether there is more. One pass over all
        groups serves the topics that were deleted when it began."""
        if not self._leaving:
            self._leaving, self._passed = set(self._gone), ""
        first = bisect_right(self._names, self._passed)
        names = self._names[first : first + _LOOKED_AT_IN_A_SLICE]
        kept = [name for name in names if self._holds_more(self._by_name[name])]
        if len(kept) < len(names):
            for name in set(names).difference(kept):
                self.shares.give_back(self._by_name.pop(name).owner, 1)
            self._names[first : first + len(names)] = kept
        if len(names) < _LOOKED_AT_IN_A_SLICE:
            self._gone -= self._leaving
            self._leaving = set()
        else:
            self._passed = names[-1]
        return bool(self._gone)

    def forget_all(self) -> None:
        """Free all of it, for exact figures."""
        while self._gone:
            self.forget_some()

    def _holds_more(self, group: Group) -> bool:
        """Remove the offsets of deleted topics; whether anything is left."""
        for topic_id in group.offsets.keys() & self._gone:  # iterates over the smaller set
            size_bytes = group.offsets.pop(topic_id).size_bytes
            self.offsets_shares.give_back(group.owner, size_bytes)
        return not group.is_empty

    def _set(self, group: Group, topic_id: int, committed: Committed) -> None:
        before = group.offsets.get(topic_id)
        if before is not None:
            self.offsets_shares.give_back(group.owner, before.size_bytes)
        self.offsets_shares.take_anyway(group.owner, committed.size_bytes)
        group.offsets[topic_id] = committed

    def _made(self, name: str) -> Group:
        return self._by_name.get(name) or self._make(name, OPERATOR)

    def _make(self, name: str, owner: str) -> Group:
        group = self._by_name[name] = Group(name, owner)
        insort(self._names, name)
        self.shares.take_anyway(owner, 1)
        return group


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind. `records`: log end offset minus committed offset; `bytes`: about
    their size in the bucket; `seconds`: the age of the oldest, 0 when there is none."""

    records: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupTopicView:
    """The position of a group on one topic."""

    topic: str
    topic_id: int
    committed_offset: int
    metadata: str
    committed_us: int
    log_start_offset: int
    log_end_offset: int
    lag: Lag


@dataclass(frozen=True, slots=True)
class LeaseView:
    """`ttl_ms`: the granted time, which restarts after a restart of the appliance."""

    generation: int
    holder: str
    ttl_ms: int
    expires_in_ms: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """`topics` by name; `lease` None when none is live."""

    group: str
    topics: list[GroupTopicView]
    lease: LeaseView | None
    member_count: int = 0

    @property
    def lag(self) -> Lag:
        """Over all topics; `seconds` is the age of the oldest record."""
        lags = [topic.lag for topic in self.topics]
        return Lag(
            sum(lag.records for lag in lags),
            sum(lag.bytes for lag in lags),
            max((lag.seconds for lag in lags), default=0.0),
        )

    @property
    def committed_us(self) -> int | None:
        """When the group last committed."""
        return max((topic.committed_us for topic in self.topics), default=None)


class GroupFigures(NamedTuple):
    """`topics` with an offset; the lag in `records`; `committed_us` None: it never committed;
    `holder` of its lease, "" for none."""

    topics: int
    records: int
    committed_us: int | None
    holder: str
    members: int


@dataclass(frozen=True, slots=True)
class ResetRow:
    """`before` None: the group had no offset on the topic. `wanted`: what was asked for; `after` is
    within the log."""

    topic: str
    topic_id: int
    before: int | None
    after: int
    wanted: int


@dataclass(frozen=True, slots=True)
class GroupRead:
    """`committed_offset` None: there is none, and the lag counts from the start of the read."""

    result: ReadResult
    committed_offset: int | None
    lag: Lag


def no_such_group(group: str) -> GroupNotFoundError:
    """Also for a group that the caller may not see."""
    return GroupNotFoundError(
        f"There is no group {group!r}, or the API key may see none of its topics."
    )


def lease_held(group: str, holder: str, left_ms: int) -> LeaseHeldError:
    return LeaseHeldError(
        f"{holder!r} holds the lease of group {group!r}.", holder=holder, expires_in_ms=left_ms
    )


def stale_generation(group: str, holder: str | None) -> StaleGenerationError:
    """`holder` None: no lease is live."""
    why = "No lease" if holder is None else f"Another lease, held by {holder!r},"
    return StaleGenerationError(
        f"{why} of group {group!r} is in force. Take the lease, then read from the committed "
        "offsets.",
        holder=holder,
    )
