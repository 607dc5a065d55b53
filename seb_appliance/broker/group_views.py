"""What is told of consumer groups: frozen values, as of the last applied entry."""

from __future__ import annotations

from dataclasses import dataclass

from seb_appliance.broker.values import ReadResult


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
