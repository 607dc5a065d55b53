"""Consumer groups: committed offsets and leases. No consumer instances, so nothing to time out.

A lease lives while its time to live has not passed since it was taken or renewed. Only a new
generation is an event of the journal; renewals stay in memory, and a restart grants the full time
again.

Deleting a topic takes its offsets out of force at once, and out of memory in slices: there may be
100,000 groups on it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.ports import GroupOffsetRow, LeaseRow
from seb_appliance.broker.shares import OPERATOR, AllShares
from seb_appliance.broker.values import ReadResult
from seb_appliance.errors import (
    CommitBackwardError,
    CommitBeyondEndError,
    GroupNotFoundError,
    LeaseHeldError,
    OffsetConflictError,
    StaleGenerationError,
)
from seb_appliance.formats.operations import CommittedOffset, LeaseTaken

_OFFSET_BYTES: Final = 256
_LOOKED_AT_IN_A_SLICE: Final = 1_000  # groups; about a millisecond


def offset_bytes(metadata: str) -> int:
    """About what a committed offset takes in memory; it counts against
    `limits.COMMITTED_OFFSETS_BYTES_MAX`."""
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
    """A group as of the last applied entry; `offsets` by topic id. `owner`: who made it, whose
    shares it takes from then on, whoever commits."""

    name: str
    owner: str = OPERATOR
    offsets: dict[int, Committed] = field(default_factory=dict)
    lease: Lease | None = None

    @property
    def is_empty(self) -> bool:
        return not self.offsets and self.lease is None


class Groups:
    """All groups. Changed only by applying journal entries (and renewals of leases).

    `shares`: of how many there are; `offsets_shares`: of about what the committed offsets take.
    Until `forget_some` is done, both count what a deleted topic leaves behind, too; nothing else
    shows that.
    """

    def __init__(
        self,
        offsets: Iterable[GroupOffsetRow],
        leases: Iterable[LeaseRow],
        owners: Mapping[str, str],
        now_s: float,
        shares: AllShares | None = None,
    ) -> None:
        """`leases` get their full time again: how much of it had passed is not known."""
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
        self._gone: set[int] = set()  # ids of deleted topics on which offsets may lie yet
        self._leaving: set[int] = set()  # those of them that the pass under way takes out
        self._passed = ""  # the last group that it has looked at
        for name, owner in owners.items():
            self._make(name, owner)
        for row in offsets:
            committed = Committed(row.offset, row.metadata, row.committed_us)
            self._set(self._made(row.group), row.topic_id, committed)
        for lease in leases:
            self._grant(lease.group, lease.generation, lease.holder, lease.ttl_ms, now_s)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Group | None:
        group = self._by_name.get(name)
        if group is None or not self._gone or self._holds_more(group):
            return group
        self.delete(name)
        return None

    def names(self, after: str, most: int) -> list[str]:
        """In order, those behind `after` ("": from the first on), `most` at the most. Of some of
        them `get` may find that they are gone."""
        first = bisect_right(self._names, after)
        return self._names[first : first + most]

    def own(self, name: str, owner: str) -> None:
        """Its maker, told before the first that he commits, or the lease that he takes."""
        if self.get(name) is None:
            self._make(name, owner)

    def commit(self, name: str, offsets: Iterable[CommittedOffset], committed_us: int) -> None:
        group = self._made(name)
        for item in offsets:
            self._set(group, item.topic_id, Committed(item.offset, item.metadata, committed_us))

    def take_lease(self, event: LeaseTaken, generation: int, now_s: float) -> None:
        self._grant(event.group, generation, event.holder, event.ttl_ms, now_s)

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
        """The topic was deleted: its offsets go with it, in the same event."""
        self._gone.add(topic_id)

    def forget_some(self) -> bool:
        """Take a slice of what deleted topics left behind out of memory; whether there is more.
        One pass over all groups serves the topics that were gone when it began."""
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
        """Take all of it out of memory, for exact figures."""
        while self._gone:
            self.forget_some()

    def _holds_more(self, group: Group) -> bool:
        """Whether anything is left of it without the topics that are gone; these are taken out."""
        for topic_id in group.offsets.keys() & self._gone:  # looks at the fewer of the two
            size_bytes = group.offsets.pop(topic_id).size_bytes
            self.offsets_shares.give_back(group.owner, size_bytes)
        return not group.is_empty

    # --- inside ---

    def _set(self, group: Group, topic_id: int, committed: Committed) -> None:
        before = group.offsets.get(topic_id)
        if before is not None:
            self.offsets_shares.give_back(group.owner, before.size_bytes)
        self.offsets_shares.take_anyway(group.owner, committed.size_bytes)
        group.offsets[topic_id] = committed

    def _grant(self, name: str, generation: int, holder: str, ttl_ms: int, now_s: float) -> None:
        self._made(name).lease = Lease(generation, holder, ttl_ms, now_s + ttl_ms / 1000)

    def _made(self, name: str) -> Group:
        return self._by_name.get(name) or self._make(name, OPERATOR)

    def _make(self, name: str, owner: str) -> Group:
        group = self._by_name[name] = Group(name, owner)
        insort(self._names, name)
        self.shares.take_anyway(owner, 1)
        return group


# --- what callers get: frozen values, as of the last applied entry ---


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind. `records`: log end offset minus committed offset. `bytes`: about
    what they take in the bucket. `seconds`: age of the oldest of them; 0 when there is none."""

    records: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupTopicView:
    """Where a group stands on one topic."""

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
    """`ttl_ms`: what it was granted for, and is again after a restart."""

    generation: int
    holder: str
    ttl_ms: int
    expires_in_ms: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """`topics` by name; `lease` None when none is alive."""

    group: str
    topics: list[GroupTopicView]
    lease: LeaseView | None

    @property
    def lag(self) -> Lag:
        """Over all topics; `seconds` of the oldest record."""
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


@dataclass(frozen=True, slots=True)
class ResetRow:
    """`before` None: the group had no offset on the topic."""

    topic: str
    topic_id: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class GroupRead:
    """`committed_offset` None: there is none, and the lag counts from where the read began."""

    result: ReadResult
    committed_offset: int | None
    lag: Lag


# --- errors ---


def no_such_group(group: str) -> GroupNotFoundError:
    """Also for a group that the caller must not know to be there."""
    return GroupNotFoundError(
        f"There is no group {group!r}, or you may see no topic on which it stands."
    )


def conflict(
    group: str, topic: str, expected: int | None, committed: int | None
) -> OffsetConflictError:
    """`expected` and `committed` None: no offset."""
    return OffsetConflictError(
        f"Group {group!r} stands at {_place(committed)} on {topic!r}, not at {_place(expected)}.",
        topic=topic,
        expected=expected,
        committed=committed,
    )


def made_anew(topic: str, topic_id: int, wanted_id: int | None) -> OffsetConflictError:
    return OffsetConflictError(
        f"Topic {topic!r} was made anew: it has the id {topic_id}, not {wanted_id}.",
        topic=topic,
        topic_id=topic_id,
    )


def beyond_end(topic: str, offset: int, end: int) -> CommitBeyondEndError:
    return CommitBeyondEndError(
        f"Offset {offset} is beyond the log end {end} of {topic!r}.",
        topic=topic,
        log_end_offset=end,
    )


def backward(
    group: str, topic: str, offset: int, committed: int, *, strictly: bool
) -> CommitBackwardError:
    """`strictly`: every offset had to grow, as in a transaction."""
    advice = (
        "In a transaction every offset must: if this step was done already, read on from there."
        if strictly
        else "Reset the group, or say allow_backward."
    )
    return CommitBackwardError(
        f"Group {group!r} stands at {committed} on {topic!r}; {offset} does not go forward. "
        f"{advice}",
        topic=topic,
        committed=committed,
    )


def lease_held(group: str, holder: str, left_ms: int) -> LeaseHeldError:
    return LeaseHeldError(
        f"{holder!r} holds the lease of group {group!r}.", holder=holder, expires_in_ms=left_ms
    )


def stale_generation(group: str, holder: str | None) -> StaleGenerationError:
    """`holder` None: no lease is alive."""
    why = "No lease" if holder is None else f"Another lease, held by {holder!r},"
    return StaleGenerationError(
        f"{why} of group {group!r} is in force. Take the lease, then read from where it stands.",
        holder=holder,
    )


def _place(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)
