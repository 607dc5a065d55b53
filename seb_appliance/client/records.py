"""Records as a consumer gets them, and how they come out of answers."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final

import msgspec

from seb_appliance.client.failures import ClientError
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn

NO_HEADERS: Final[Mapping[str, bytes]] = {}
headers_of: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class Record(msgspec.Struct, frozen=True, gc=False):
    """`value` None: a tombstone. `timestamp_us`: µs since 1970, UTC."""

    topic: str
    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = NO_HEADERS

    @property
    def time(self) -> datetime.datetime:
        """The timestamp, in UTC."""
        return time_of(self.timestamp_us)

    def text(self) -> str:
        """The value as UTF-8 text, "" for a tombstone. Raises UnicodeDecodeError."""
        return "" if self.value is None else self.value.decode()


class UnreadableAnswerError(ClientError):
    """The appliance sent records that this version cannot read."""


def decode_batches(topic: str, body: bytes, begin: int, end: int) -> list[Record]:
    """The records begin ≤ offset < end of batches back to back, the first and the last of which
    may hold others. Raises UnreadableAnswerError."""
    records: list[Record] = []
    try:
        for at, header in batch.walk(body):
            records += _records(topic, batch.decode(body, at, header), begin, end)
    except BadBatchError as error:
        raise UnreadableAnswerError(
            f"the answer cannot be read ({error}); is the appliance of another version?"
        ) from error
    return records


def _records(topic: str, whole: batch.Batch, begin: int, end: int) -> list[Record]:
    columns = whole.columns
    offsets = whole.offsets()
    made = list(
        map(
            Record,
            repeat(topic),
            offsets,
            columns.timestamps_us,
            repeat(None) if columns.keys is None else columns.keys.slice(),
            columns.values.slice(),
            repeat(NO_HEADERS) if columns.headers is None else _headers(columns.headers),
        )
    )
    if whole.header.base_offset < begin or whole.header.last_offset >= end:
        return [record for record in made if begin <= record.offset < end]
    return made


def _headers(column: BinaryColumn) -> list[Mapping[str, bytes]]:
    items = column.slice()
    known = {packed: headers_of(packed) for packed in set(items) if packed}
    return [known[packed] if packed else NO_HEADERS for packed in items]


class Shown(msgspec.Struct):
    """A record of JSON with `values=base64`."""

    offset: int
    timestamp: datetime.datetime
    key_base64: str | None = None
    value_base64: str | None = None
    headers_base64: dict[str, str] | None = None


_lines_decoder: Final = msgspec.json.Decoder(Shown)


def decode_lines(topic: str, body: bytes) -> list[Record]:
    """The records of NDJSON with `values=base64`. Raises UnreadableAnswerError."""
    try:
        return [of_shown(topic, shown) for shown in _lines_decoder.decode_lines(body)]
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableAnswerError(
            f"the answer cannot be read ({error}); is the appliance of another version?"
        ) from error


def of_shown(topic: str, shown: Shown) -> Record:
    headers = {name: base64.b64decode(text) for name, text in (shown.headers_base64 or {}).items()}
    return Record(
        topic,
        shown.offset,
        timestamp_us(shown.timestamp),
        _bytes(shown.key_base64),
        _bytes(shown.value_base64),
        headers or NO_HEADERS,
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def time_of(timestamp_us: int) -> datetime.datetime:
    seconds, micros = divmod(timestamp_us, 1_000_000)
    whole = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return whole.replace(microsecond=micros)


def timestamp_us(time: datetime.datetime) -> int:
    """µs since 1970 of a time with a time zone. Raises ValueError for one without."""
    if time.utcoffset() is None:
        raise ValueError("a timestamp needs a time zone, such as datetime.UTC")
    since = time - datetime.datetime.fromtimestamp(0, datetime.UTC)
    return since // datetime.timedelta(microseconds=1)


class RecordBatch(msgspec.Struct, frozen=True):
    """Records of one topic, in order, as one answer held them. `next_offset`: what to read and to
    commit after them. `log_end_offset`: where the topic's log ended then. `is_view`: the newest
    records of record keys, before the log is followed; their offsets are no place to commit."""

    topic: str
    records: Sequence[Record]
    next_offset: int
    log_end_offset: int
    is_view: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)
