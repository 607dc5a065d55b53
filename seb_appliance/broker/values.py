"""What goes into the broker and what comes out of it: frozen values, no behaviour.

Times are µs since the epoch, UTC. Offsets are inclusive unless the name says `until` or `end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from seb_appliance.broker.shares import OPERATOR
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.batch import Batch, BatchHeader
from seb_appliance.formats.topic_settings import TopicSettings

NO_QUOTAS: Final = Quotas()


@dataclass(slots=True)
class NewRecords:
    """Records of one request, in order; lists of equal length. None in `values` is a tombstone.

    `keys`, `headers` and `timestamps_us` are None when no record has one; None inside
    `timestamps_us` means the appliance's clock. A header item is a msgpack map of text to bytes,
    b"" for none.
    """

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[bytes] | None = None
    timestamps_us: list[int | None] | None = None


@dataclass(slots=True)
class NewBatches:
    """Client-made record batches, checked (`formats.batch.decode`), offsets not yet given.

    Each item is the header and the stored bytes after it, padding included.
    `largest_value_bytes`: length of the longest value in all of them.
    """

    batches: list[tuple[BatchHeader, memoryview]]
    largest_value_bytes: int

    @property
    def count(self) -> int:
        return sum(header.count for header, _ in self.batches)


@dataclass(frozen=True, slots=True)
class Appended:
    """An acknowledged append. Durations in seconds: waiting for the seal, and the bucket's PUT.
    `replayed`: the request was done before, and this is its answer; `offset` is None (`count` and
    `timestamp_us` are 0) when it was a producer's seq too long ago to be remembered."""

    topic: str
    topic_id: int
    offset: int | None
    count: int
    timestamp_us: int
    durability: str
    window_s: float
    put_s: float
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class ForkOf:
    """Of a fork: the name of its parent, which may be deleted, and the fork offset."""

    topic: str
    offset: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as of the last applied entry. `bytes`: its own; what a fork shares counts with its
    parent. `forks`: how many there are of it. `closed`: a stream that takes no records."""

    name: str
    topic_id: int
    created_us: int
    settings: TopicSettings  # as set; None: the appliance's default
    effective: TopicSettings  # with the defaults filled in
    log_start_offset: int
    log_end_offset: int
    bytes: int
    fork_of: ForkOf | None = None
    forks: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class From:
    """Where a read begins: exactly one of them is given.

    `offset` absolute; `latest` the log end; `last` N the N-th from the end; `timestamp_us` the
    first record, in offset order, with that timestamp or later.
    """

    offset: int | None = None
    earliest: bool = False
    latest: bool = False
    last: int | None = None
    timestamp_us: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """`until`: exclusive end, an offset or a time; `wait_ms`: how long a reader at the log end may
    wait for a record, in the share of `owner`; `max_bytes` is soft: at least one record comes.
    `topic_id`: of the topic that is meant, if another one may have its name by now."""

    start: From
    until: From | None = None
    max_records: int = 1_000
    max_bytes: int = 1 << 20
    wait_ms: int = 0
    owner: str = OPERATOR
    topic_id: int | None = None


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Records begin ≤ i < end of one stored batch. `stored`: the batch's bytes in the bucket."""

    batch: Batch
    begin: int
    end: int
    stored: memoryview


@dataclass(frozen=True, slots=True)
class ReadResult:
    """`next_offset`: where the next read goes on. `slices` are in offset order, perhaps none."""

    topic: str
    topic_id: int
    slices: Sequence[BatchSlice]
    next_offset: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class ApiKeyView:
    """An API key without its secret. `overlap_until_us`: until when the secret before the newest
    one works; None when there is no such secret."""

    api_key_id: str
    name: str
    grants: tuple[Grant, ...]
    created_us: int
    expires_us: int | None = None
    description: str = ""
    disabled: bool = False
    quotas: Quotas = NO_QUOTAS
    overlap_until_us: int | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """What makes retries safe, as of the last applied entry. `places` of
    `limits.REMEMBERED_REQUESTS_MAX` are taken. `oldest_request_us`: when the oldest remembered
    request with an Idempotency-Key was stored; None when there is none."""

    requests: int
    places: int
    oldest_request_us: int | None
    producers: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """`problems`: sentences for the operator. `standby`: a sentence, too, if this appliance is one,
    else "". Ready is one that takes reads and writes: no standby, and without problems."""

    problems: list[str] = field(default_factory=list)
    standby: str = ""

    @property
    def ready(self) -> bool:
        return not self.sentences

    @property
    def sentences(self) -> list[str]:
        """Why it is not ready."""
        return [self.standby, *self.problems] if self.standby else self.problems
