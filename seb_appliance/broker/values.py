"""What goes into the broker and what comes out of it, and the checks of new records.

Times are µs since the epoch, UTC. Offsets are inclusive unless the name says `until` or `end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from seb_appliance import limits
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.errors import BadBatchError, BadParameterError, RecordTooLargeError
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.batch import EXPLICIT_OFFSETS, HEADER_BYTES, AnyBatch, BatchHeader
from seb_appliance.formats.queues.queues import Delay
from seb_appliance.formats.topic_settings import TopicSettings

NO_QUOTAS: Final = Quotas()


class Delayed(NamedTuple):
    """`number` records of a request from the `first`-th on, counted from 0, are due at `us` since
    1970, or `us` from when they are admitted."""

    first: int
    number: int
    us: int
    from_now: bool = False


@dataclass(slots=True)
class NewRecords:
    """Records of one request, in order; lists of equal length. None in `values` is a tombstone.

    `keys`, `headers` and `timestamps_us` are None when no record has one; None inside
    `timestamps_us` means the appliance's clock. A header item is a msgpack map of text to bytes,
    b"" for none. `delayed`: in the order of the records.
    """

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[bytes] | None = None
    timestamps_us: list[int | None] | None = None
    delayed: Sequence[Delayed] = ()

    @property
    def count(self) -> int:
        return len(self.values)


@dataclass(slots=True)
class NewBatches:
    """Client-made record batches, checked (`formats.batch.decode`), offsets not yet given.

    Each item is the header and the stored bytes after it, padding included.
    `largest_value_bytes`: length of the longest value in all of them. `delayed`: as of
    NewRecords, and told by the header DELIVER_AT_HEADER of each.
    """

    batches: list[tuple[BatchHeader, memoryview]]
    largest_value_bytes: int
    delayed: Sequence[Delayed] = ()

    @property
    def count(self) -> int:
        return sum(header.count for header, _ in self.batches)


# A record in a batch, besides its own bytes: timestamp, three starts, bits of two bitmaps.
RECORD_OVERHEAD_BYTES: Final = 24


class Prepared(msgspec.Struct, frozen=True):
    """Checked records with timestamps, without offsets. `size_bytes`: an estimate of their encoded
    size. `timestamps_us` is empty for batches, which have their own; `timestamp_us` is the last
    record's. `delays` are to be kept, their offsets counted from 0."""

    records: NewRecords | NewBatches
    count: int
    size_bytes: int
    timestamps_us: list[int]
    timestamp_us: int
    delays: Sequence[Delay] = ()


def prepare(
    records: NewRecords | NewBatches, max_record_bytes: int, timestamp_us: int, now_us: int
) -> Prepared:
    """Records without a timestamp get `timestamp_us`. Raises RecordTooLargeError, BadBatchError,
    BadParameterError."""
    if isinstance(records, NewBatches):
        _check_size(records.largest_value_bytes, max_record_bytes)
        for header, _ in records.batches:
            if header.flags & EXPLICIT_OFFSETS or header.base_offset != 0:
                raise BadBatchError(
                    "The base offset of new batches must be 0: the appliance assigns the offsets."
                )
            _check_timestamps(header.smallest_timestamp_us, header.largest_timestamp_us, now_us)
        size_bytes = sum(len(stored) + HEADER_BYTES for _, stored in records.batches)
        last_us = records.batches[-1][0].largest_timestamp_us
        return Prepared(records, records.count, size_bytes, [], last_us)
    size_bytes = _size(records, max_record_bytes)
    timestamps_us = _timestamps(records, timestamp_us, now_us)
    return Prepared(records, records.count, size_bytes, timestamps_us, timestamps_us[-1])


def _timestamps(records: NewRecords, timestamp_us: int, now_us: int) -> list[int]:
    if records.timestamps_us is None:
        return [timestamp_us] * len(records.values)
    given = [t for t in records.timestamps_us if t is not None]
    if given:
        _check_timestamps(min(given), max(given), now_us)
    return [timestamp_us if t is None else t for t in records.timestamps_us]


def _size(records: NewRecords, max_record_bytes: int) -> int:
    sizes = [len(value) for value in records.values if value is not None]
    _check_size(max(sizes, default=0), max_record_bytes)
    size_bytes = sum(sizes) + RECORD_OVERHEAD_BYTES * len(records.values)
    if records.keys is not None:
        size_bytes += sum(len(key) for key in records.keys if key is not None)
    if records.headers is not None:
        size_bytes += sum(map(len, records.headers))
    return size_bytes


def _check_size(largest_bytes: int, max_record_bytes: int) -> None:
    if largest_bytes > max_record_bytes:
        raise RecordTooLargeError(
            f"A record has {largest_bytes} bytes; this topic accepts at most {max_record_bytes}.",
            max_record_bytes=max_record_bytes,
        )


def _check_timestamps(smallest_us: int, largest_us: int, now_us: int) -> None:
    if smallest_us < 0 or largest_us > now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        raise BadParameterError(
            "A record's timestamp must not be before 1970 or more than 24 hours in the future."
        )


def check_key(key: bytes) -> bytes:
    """Returns `key`. Raises RecordTooLargeError."""
    if len(key) > limits.RECORD_KEY_BYTES_MAX:
        raise RecordTooLargeError(
            f"A record key has {len(key)} bytes; at most {limits.RECORD_KEY_BYTES_MAX} are allowed."
        )
    return key


def pack_headers(headers: dict[str, bytes]) -> bytes:
    """Record headers as they are stored: a msgpack map, or no bytes for none. Raises
    RecordTooLargeError."""
    if not headers:
        return b""
    packed = msgspec.msgpack.encode(headers)
    check_headers(len(headers), len(packed))
    return packed


def check_headers(count: int, size_bytes: int) -> None:
    """`size_bytes`: as stored. Raises RecordTooLargeError."""
    if count > limits.RECORD_HEADERS_MAX or size_bytes > limits.RECORD_HEADERS_BYTES_MAX:
        raise RecordTooLargeError(
            f"A record has {count} headers of {size_bytes} bytes; at most "
            f"{limits.RECORD_HEADERS_MAX} of {limits.RECORD_HEADERS_BYTES_MAX} are allowed."
        )


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
    parent. `last_entry`: all records are in this entry of the journal and earlier ones. `forks`:
    how many there are of it. `closed`: a stream that takes no records."""

    name: str
    topic_id: int
    created_us: int
    settings: TopicSettings  # as set; None: the appliance's default
    effective: TopicSettings  # with the defaults filled in
    log_start_offset: int
    log_end_offset: int
    bytes: int
    last_entry: str
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
    `topic_id`: of the topic that is meant, if another one may have its name by now. `as_stored`:
    the bytes of the batches are all that is needed, so they are not decoded."""

    start: From
    until: From | None = None
    max_records: int = 1_000
    max_bytes: int = 1 << 20
    wait_ms: int = 0
    owner: str = OPERATOR
    topic_id: int | None = None
    as_stored: bool = False


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Records begin ≤ i < end of one stored batch. `stored`: the batch's bytes in the bucket."""

    batch: AnyBatch
    begin: int
    end: int
    stored: memoryview


@dataclass(frozen=True, slots=True)
class ReadResult:
    """`next_offset`: where the next read continues. `slices` are in offset order and may be
    empty."""

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
