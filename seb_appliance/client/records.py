"""Records: decoded from answers, and checked before they are sent.

A new record is checked before it is added to a batch, so that an invalid record does not affect
others.
"""

from __future__ import annotations

import base64
import datetime
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import NAME_PATTERN
from seb_appliance.client.failures import ClientError
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn
from seb_appliance.formats.queues.queues import DELIVER_AT_HEADER

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
    """The records with begin ≤ offset < end of consecutive batches; the first and the last batch
    may hold others. Raises UnreadableAnswerError."""
    records: list[Record] = []
    try:
        for at, header in batch.walk(body):
            records += _records(topic, batch.decode(body, at, header), begin, end)
    except (BadBatchError, msgspec.DecodeError, UnicodeDecodeError) as error:
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
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
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
    """The records of one answer: of one topic, in order. `next_offset`: the offset to read and to
    commit next. `log_end_offset`: the log end at that time. `is_view`: these are the newest records
    of record keys, which come before the log; their offsets cannot be committed."""

    topic: str
    records: Sequence[Record]
    next_offset: int
    log_end_offset: int
    is_view: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


RECORD_OVERHEAD_BYTES: Final = 40  # of one in the buffer, beside its own bytes; about

Data = bytes | bytearray | memoryview | str
Json = dict[str, Any] | list[Any] | int | float | bool
Value = Data | Json | None
Headers = Mapping[str, Data]

_NAME: Final = re.compile(NAME_PATTERN)
_OF_JSON: Final = (dict, list, int, float)  # a bool is an int
_encode_json: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


class BadRecordError(ClientError, ValueError):
    """No topic can hold this record; nothing was sent."""


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A checked record. `headers`: packed as they are stored. `due_us`: of a delayed one."""

    value: bytes | None
    key: bytes | None
    headers: bytes
    timestamp_us: int
    due_us: int | None = None

    @property
    def size_bytes(self) -> int:
        key_bytes = 0 if self.key is None else len(self.key)
        return len(self.value or b"") + key_bytes + len(self.headers) + RECORD_OVERHEAD_BYTES


def new_record(
    topic: str,
    value: Value,
    key: Data | None,
    headers: Headers | None,
    timestamp: datetime.datetime | None,
    delay: datetime.datetime | datetime.timedelta | None,
    now_us: int,
) -> NewRecord:
    """Checks what every topic would refuse. Raises BadRecordError, which names the argument."""
    if not isinstance(topic, str) or not _is_name(topic):
        raise BadRecordError(f"topic: {_shown(topic)} is not the name of a topic")
    content = _value(value)
    record_key = None if key is None else bytes_of(key, "key")
    if content is None and record_key is None:
        raise BadRecordError("value: None is a tombstone, which needs a record key")
    if content is not None and len(content) > limits.RECORD_BYTES_MAX:
        raise BadRecordError(f"value: {len(content)} bytes are more than 16 MiB")
    if record_key is not None and len(record_key) > limits.RECORD_KEY_BYTES_MAX:
        raise BadRecordError(f"key: {len(record_key)} bytes are more than 64 KiB")
    packed = b"" if headers is None else _packed(headers)
    at_us = now_us if timestamp is None else _timestamp_us(timestamp, now_us)
    if delay is None:
        return NewRecord(content, record_key, packed, at_us)
    due_us = _due_us(delay, now_us)
    told = {DELIVER_AT_HEADER: str(due_us).encode()}
    packed = _packed({**(headers or {}), **told})
    return NewRecord(content, record_key, packed, at_us, due_us)


@functools.lru_cache(maxsize=1024)
def _is_name(topic: str) -> bool:
    return len(topic) <= limits.NAME_LENGTH_MAX and _NAME.fullmatch(topic) is not None


def _shown(given: object) -> str:
    return repr(given)[:100] if isinstance(given, str) else f"a value of type {_type(given)}"


def _type(given: object) -> str:
    return type(given).__name__


def _value(value: Value) -> bytes | None:
    """As it is stored. Raises BadRecordError."""
    if value is None:
        return None
    if not isinstance(value, _OF_JSON):
        return bytes_of(value, "value", "bytes, str, dict, list, number, bool or None")
    try:
        return _encode_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:  # also NaN, and half a surrogate pair
        raise BadRecordError(f"value: it cannot be stored as JSON ({error})") from error


def bytes_of(given: object, argument: str, wanted: str = "bytes or str") -> bytes:
    """`argument`: what it was given as. Raises BadRecordError."""
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as error:
            raise BadRecordError(f"{argument}: the text is not Unicode ({error})") from error
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise BadRecordError(f"{argument}: {_type(given)} is not {wanted}")


def _packed(headers: Headers) -> bytes:
    """Raises BadRecordError."""
    if not isinstance(headers, Mapping):
        raise BadRecordError(f"headers: {_type(headers)} is not a mapping of names to values")
    plain: dict[str, bytes] = {}
    for name, content in headers.items():
        if not isinstance(name, str):
            raise BadRecordError(f"headers: a name is {_type(name)}, not str")
        bytes_of(name, "headers: a name")
        plain[name] = bytes_of(content, f"headers[{name[:100]!r}]")
    packed = msgspec.msgpack.encode(plain) if plain else b""
    if len(plain) > limits.RECORD_HEADERS_MAX or len(packed) > limits.RECORD_HEADERS_BYTES_MAX:
        raise BadRecordError(
            f"headers: {len(plain)} headers of {len(packed)} bytes are more than "
            f"{limits.RECORD_HEADERS_MAX} of {limits.RECORD_HEADERS_BYTES_MAX} bytes"
        )
    return packed


def _due_us(delay: datetime.datetime | datetime.timedelta, now_us: int) -> int:
    """Raises BadRecordError."""
    if isinstance(delay, datetime.timedelta):
        due_us = now_us + delay // datetime.timedelta(microseconds=1)
    elif isinstance(delay, datetime.datetime):
        try:
            due_us = timestamp_us(delay)
        except ValueError as error:
            raise BadRecordError(f"delay: {error}") from error
    else:
        raise BadRecordError(f"delay: {_type(delay)} is neither a timedelta nor a datetime")
    if not 0 <= due_us <= now_us + limits.DELAY_US_MAX:
        raise BadRecordError("delay: it is before 1970 or over 366 days")
    return due_us


def _timestamp_us(timestamp: datetime.datetime, now_us: int) -> int:
    """Raises BadRecordError."""
    if not isinstance(timestamp, datetime.datetime):
        raise BadRecordError(f"timestamp: {_type(timestamp)} is not a datetime")
    try:
        at_us = timestamp_us(timestamp)
    except ValueError as error:
        raise BadRecordError(f"timestamp: {error}") from error
    if not 0 <= at_us <= now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        raise BadRecordError("timestamp: it is before 1970 or over 24 hours ahead of now")
    return at_us
