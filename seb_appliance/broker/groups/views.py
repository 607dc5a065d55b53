"""What is told of consumer groups: frozen values, as of the last applied entry."""

from __future__ import annotations

from dataclasses import dataclass

from seb_appliance.broker.values import ReadResult
from seb_appliance.errors import (
    CommitBackwardError,
    CommitBeyondEndError,
    GroupNotFoundError,
    LeaseHeldError,
    OffsetConflictError,
    StaleGenerationError,
)


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


# What a consumer group is told when it is refused.


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
