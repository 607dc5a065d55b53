"""The history of a run: every call with its outcome and its times, and what is left in the end.

Times are monotonic seconds of the one process that makes all calls. An outcome is `ok`, `refused`
(the answer said that nothing happened, or nothing was sent) or `unknown`. What came into being on
its way is `unknown`: its time of the answer is infinity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["ok", "refused", "unknown"]
NEVER = float("inf")


@dataclass(slots=True)
class Record:
    """What was sent, or served. `value` None is a tombstone."""

    value: bytes | None
    key: str | None = None


@dataclass(slots=True)
class Part:
    """Records for one topic; `offset` of the first, once they are acknowledged."""

    topic: str
    records: tuple[Record, ...]
    offset: int = -1


@dataclass(slots=True)
class Call:
    """What all calls have. `worker` made it; `port` is the appliance that was asked; `answer`: the
    status, a problem's code, or how the connection broke."""

    worker: str
    port: int
    sent_s: float
    answered_s: float = NEVER
    outcome: Outcome = "unknown"
    answer: str = ""


@dataclass(slots=True)
class Write(Call):
    """A produce request (one part), or a transaction. `sequence` (producer id, epoch, seq) of an
    idempotent producer: each time it is sent is a call of its own."""

    parts: tuple[Part, ...] = ()
    sequence: tuple[str, int, int] | None = None


@dataclass(slots=True)
class Read(Call):
    """`records` by offset, as they were served. `journey`: how often this reader had gone back."""

    topic: str = ""
    offset: int = 0
    journey: int = 0
    records: tuple[tuple[int, Record], ...] = ()
    next_offset: int = 0
    log_end_offset: int = 0


@dataclass(slots=True)
class Commit(Call):
    """`reset`: an authorised way back. For a `look`, `offset` is what was found. `expected`: only
    from there."""

    group: str = ""
    topic: str = ""
    offset: int = 0
    kind: Literal["commit", "reset", "look"] = "commit"
    expected: int | None = None


@dataclass(slots=True)
class KeyCall(Call):
    """An API key was revoked, or used: `ok` for a use means that it was let in."""

    api_key_id: str = ""
    kind: Literal["revoke", "use"] = "use"


@dataclass(slots=True)
class QueueCall(Call):
    """Records were taken from the queue, or deliveries were ended. `records`: topic, offset and
    record key of each; `results`: what became of each that was named."""

    kind: Literal["take", "ack", "retry", "reject", "forget"] = "take"
    records: tuple[tuple[str, int, str | None], ...] = ()
    results: tuple[str, ...] = ()


@dataclass(slots=True)
class RegisterCall(Call):
    """Of a topic or a lease for which several workers contend. `number`: the id of the topic, the
    generation of the lease; 0, if none was told."""

    register: str = ""
    kind: str = ""
    number: int = 0


@dataclass(slots=True)
class TakeOver:
    """The next appliance was started at `claimed_s`, and had acknowledged something at
    `served_s`."""

    old_port: int
    claimed_s: float
    served_s: float


@dataclass(slots=True)
class Rebuilt:
    """A digest of the running state, and the one of what the bucket alone amounts to."""

    what: str
    live: str
    rebuilt: str


@dataclass(slots=True)
class TableSeen:
    """What `reader` found in a lake table of the topic, which said that it has all records below
    `next_offset`. `failure`: why it could not read it. `is_last`: no fault and no write came
    after."""

    topic: str
    reader: str
    next_offset: int = 0
    rows: list[tuple[int, Record]] = field(default_factory=list)
    failure: str = ""
    is_last: bool = False


@dataclass
class History:
    """`logs`: what the last appliance serves of each topic in the end. `dead_letters`:
    where each came from. `transforms`: the topics that each worker by Kafka writes to in
    transactions, by its name, which is that of its group, too. `durable_s`: when the
    bucket held the record, by (topic, offset). `calm_s`: when the last fault was over; who
    is in `gone_home` had no more to do by then."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    key_calls: list[KeyCall] = field(default_factory=list)
    queue_calls: list[QueueCall] = field(default_factory=list)
    register_calls: list[RegisterCall] = field(default_factory=list)
    dead_letters: list[tuple[str, int]] = field(default_factory=list)
    take_overs: list[TakeOver] = field(default_factory=list)
    rebuilt: list[Rebuilt] = field(default_factory=list)
    tables: list[TableSeen] = field(default_factory=list)
    logs: dict[str, list[tuple[int, Record]]] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    transforms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    durable_s: dict[tuple[str, int], float] = field(default_factory=dict)
    calm_s: float | None = None
    gone_home: set[str] = field(default_factory=set)

    @property
    def calls(self) -> Iterator[Call]:
        for some in self._kinds:
            yield from some

    @property
    def calls_made(self) -> int:
        return sum(map(len, self._kinds))

    @property
    def _kinds(self) -> tuple[Sequence[Call], ...]:
        return (
            *(self.writes, self.reads, self.commits, self.key_calls, self.queue_calls),
            self.register_calls,
        )


def offsets(first: int, count: int) -> Sequence[int]:
    """Consecutive ones."""
    return range(first, first + count)
