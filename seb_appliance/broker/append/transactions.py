"""What a transaction asks for, and what it stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from seb_appliance import limits
from seb_appliance.broker.append.deduplication import ProducerStamp, RequestStamp
from seb_appliance.broker.append.window import Gathered, Window
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import NewBatches, NewRecords, Prepared
from seb_appliance.errors import BadRequestError, RequestTooLargeError
from seb_appliance.formats.contents import Produced


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records to topics, offsets of one group and acknowledgements of one queue, in one entry or
    not at all. Every offset of `commit` must go forward, whatever it allows, so that a blind retry
    is refused. `held`: what was gathered before; its commits are taken as they are."""

    produce: Mapping[str, NewRecords | NewBatches]
    commit: Commit | None = None
    request: RequestStamp | None = None
    ack: Acknowledging | None = None
    held: Held | None = None

    @property
    def commits(self) -> list[Commit]:
        commits = list(self.held.commits.values()) if self.held is not None else []
        if self.commit is not None:
            commits.append(replace(self.commit, allow_backward=False, strictly_forward=True))
        return commits


class HeldRequest(NamedTuple):
    """A producer's request: `number` records from the `first`-th of its topic's on, counted from
    0."""

    stamp: ProducerStamp
    first: int
    number: int
    timestamp_us: int


class HeldTopic:
    """What an open transaction holds of one topic. `requests`: the newest ones, all that will be
    remembered."""

    def __init__(self) -> None:
        self.records = Gathered()
        self.requests: deque[HeldRequest] = deque(maxlen=limits.PRODUCER_SEQS_REMEMBERED)


@dataclass(slots=True)
class Held:
    """A transaction of one producer that is open: what it has gathered in memory, in
    `reservation`. It is stored with `Appends.transact`, once, or abandoned with
    `reservation.release`; nothing of an abandoned one reaches the log. `commits` by group."""

    reservation: Reservation
    topics: dict[str, HeldTopic] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    size_bytes: int = 0

    def add(self, topic: str, prepared: Prepared, stamp: ProducerStamp | None) -> None:
        """Raises RequestTooLargeError, BadRequestError (too many topics), ShareExceededError,
        OverloadedError."""
        size_bytes = self.size_bytes + prepared.size_bytes
        if size_bytes > limits.HELD_BYTES_MAX:
            raise RequestTooLargeError(
                f"A transaction has {limits.HELD_BYTES_MAX} bytes of records at most; with these "
                f"it would have {size_bytes}."
            )
        found = self.topics.get(topic)
        if found is None and len(self.topics) == limits.TRANSACTION_TOPICS_MAX:
            raise too_many_topics(len(self.topics) + 1)
        is_listed = isinstance(prepared.records, NewRecords)
        each = limits.PENDING_RECORD_BYTES if is_listed else 0
        self.reservation.grow(
            limits.PENDING_REQUEST_BYTES + prepared.size_bytes + prepared.count * each
        )
        if found is None:
            found = self.topics[topic] = HeldTopic()
        if stamp is not None:
            first, count = found.records.count, prepared.count
            found.requests.append(HeldRequest(stamp, first, count, prepared.timestamp_us))
        found.records.add(prepared)
        self.size_bytes = size_bytes

    def commit(self, commit: Commit) -> None:
        """Its offsets replace those of the same group and topics. Raises BadRequestError,
        RequestTooLargeError, ShareExceededError, OverloadedError."""
        known = self.commits.get(commit.group)
        if known is not None:
            commit = replace(
                commit,
                offsets={**known.offsets, **commit.offsets},
                metadata={**known.metadata, **commit.metadata},
            )
        commits = {**self.commits, commit.group: commit}
        if len(commits) > limits.HELD_GROUPS_MAX:
            raise BadRequestError(
                f"A transaction commits offsets of {limits.HELD_GROUPS_MAX} groups at most."
            )
        if sum(len(one.offsets) for one in commits.values()) > limits.OFFSETS_PER_COMMIT_MAX:
            raise BadRequestError(
                f"A transaction commits {limits.OFFSETS_PER_COMMIT_MAX} offsets at most."
            )
        size_bytes = sum(map(_size, commits.values()))
        if size_bytes > limits.COMMIT_BYTES_MAX:
            raise RequestTooLargeError(
                f"The commits of a transaction have {limits.COMMIT_BYTES_MAX} bytes at most; with "
                f"this one they would have {size_bytes}."
            )
        self.reservation.grow(size_bytes - sum(map(_size, self.commits.values())))
        self.commits = commits


def _size(commit: Commit) -> int:
    """About the bytes of its offsets and metadata, in memory and in an entry."""
    texts = sum(len(text.encode()) for text in commit.metadata.values())
    return limits.PENDING_REQUEST_BYTES * len(commit.offsets) + texts


def too_many_topics(count: int) -> BadRequestError:
    return BadRequestError(
        f"A transaction writes to {limits.TRANSACTION_TOPICS_MAX} topics at most, not {count}."
    )


class Acknowledging(Protocol):
    """Deliveries of a queue that are acknowledged with other things, all or none."""

    def check(self) -> None:
        """Raises Refusal if one of them cannot be."""

    def admit(self, window: Window) -> None:
        """After `check`, without a break in between."""


@dataclass(frozen=True, slots=True)
class Transacted:
    """`produced` in the order of the request; `committed` by topic name."""

    produced: dict[str, Produced]
    committed: dict[str, int]
    durability: str
    replayed: bool = False
