"""The records in the body of a produce request, by what its headers say it is.

The parsers are functions of a body alone, and run in a child process where it is large.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import parse_time
from seb_appliance.api.encoding.formats import BODY_FORMATS, BodyFormat, media_type
from seb_appliance.api.encoding.parameters import duration_ms
from seb_appliance.api.encoding.plain_bodies import BodyReader, read_plain
from seb_appliance.api.encoding.record_json import parse_json, parse_ndjson, too_many_records
from seb_appliance.api.encoding.trace_context import keep_traceparent
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.delays.delaying import delayed_by_header
from seb_appliance.broker.values import (
    Delayed,
    NewBatches,
    NewRecords,
    check_headers,
    check_key,
    pack_headers,
)
from seb_appliance.errors import (
    BadBatchError,
    BadParameterError,
    RecordTooLargeError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Bytes
from seb_appliance.formats.queues.queues import DELIVER_AT_HEADER

# A small body of compressed batches may hold 100,000 records of nothing.
_CHECKED_AT_ONCE_RECORDS: Final = 5_000
_CHECKED_AT_ONCE_BYTES: Final = 4 * limits.MIB
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_HEADER_PREFIX: Final = b"seb-header-"
DELIVER_AT: Final = b"seb-deliver-at"
DELAY: Final = b"seb-delay"
BY_RECORD: Final = b"records"  # each record of a batch says it in its header
_GENERAL: Final = frozenset({b"seb-timeout", DELIVER_AT, DELAY})  # whatever the body is
_headers_decoder: Final = msgspec.msgpack.Decoder(dict[str, bytes])


# --- one record: the body is its value ---


def parse_single(body: bytes, headers: dict[bytes, bytes]) -> NewRecords:
    """One record from a body and `Seb-Key`, `Seb-Timestamp`, `Seb-Header-*`.

    Record key, header names and header values are percent-encoded. Raises BadParameterError,
    RecordTooLargeError.
    """
    records = NewRecords([body])
    record_headers: dict[str, bytes] = {}
    for name, value in headers.items():
        if not name.startswith(b"seb-"):
            continue
        if name == b"seb-key":
            records.keys = [check_key(_unquote(value, "Seb-Key"))]
        elif name == b"seb-timestamp":
            records.timestamps_us = [_time(value, "Seb-Timestamp")]
        elif name.startswith(_HEADER_PREFIX):
            text = _header_name(name.removeprefix(_HEADER_PREFIX))
            record_headers[text] = _unquote(value, f"Seb-Header-{text}")
        elif name not in _GENERAL:
            raise _unknown_header(name)
    if record_headers:
        records.headers = [pack_headers(record_headers)]
    return records


def refuse_record_headers(headers: dict[bytes, bytes]) -> None:
    """Headers of a single record make no sense beside a body of many. Raises BadParameterError."""
    for name in headers:
        if name.startswith(b"seb-") and name not in _GENERAL:
            raise _unknown_header(name)


def delay(records: NewRecords, headers: dict[bytes, bytes]) -> None:
    """What `Seb-Deliver-At` or `Seb-Delay` says of all records. Raises BadParameterError."""
    until, by = headers.get(DELIVER_AT), headers.get(DELAY)
    if until is None and by is None:
        return
    if records.delayed or (until is not None and by is not None):
        raise BadParameterError(
            "Say once how long a record is delayed: by Seb-Deliver-At, by Seb-Delay, or in each "
            "record."
        )
    if until is not None:
        us = _time(until, "Seb-Deliver-At")
    else:
        assert by is not None
        largest = limits.DELAY_US_MAX // 1000
        us = duration_ms(by.decode("latin-1"), "Seb-Delay", largest=largest) * 1000
    records.delayed = [Delayed(0, len(records.values), us, from_now=until is None)]


def _takes_delays_of_records(headers: dict[bytes, bytes]) -> bool:
    """Raises BadParameterError."""
    if DELAY in headers or headers.get(DELIVER_AT, BY_RECORD) != BY_RECORD:
        raise BadParameterError(
            "Record batches are stored as they are: send Seb-Deliver-At: records, and give each "
            f"delayed record the header {DELIVER_AT_HEADER}, µs since 1970 in digits."
        )
    return DELIVER_AT in headers


def _unknown_header(name: bytes) -> BadParameterError:
    return BadParameterError(
        f"The header {name.decode('latin-1')} is not known here. Seb-Key, Seb-Timestamp and "
        "Seb-Header-<name> are for a body that is one record's value; Seb-Timeout, Seb-Deliver-At "
        "and Seb-Delay are for every body."
    )


def _unquote(value: bytes, what: str) -> bytes:
    if _BAD_ESCAPE.search(value):
        raise BadParameterError(f"{what} must be percent-encoded; write % as %25.")
    return unquote_to_bytes(value)


def _header_name(quoted: bytes) -> str:
    try:
        name = _unquote(quoted, "The name of a Seb-Header").decode()
    except UnicodeDecodeError as error:
        raise BadParameterError("The name of a Seb-Header is not UTF-8.") from error
    if not name:
        raise BadParameterError(
            "Seb-Header- needs the name of a record header, as in Seb-Header-source."
        )
    return name


def _time(value: bytes, header: str) -> int:
    try:
        return parse_time(value.decode("latin-1"))
    except ValueError as error:
        raise BadParameterError(f"{header}: {error}.") from error


# --- record batches ---


class CheckedBatches(NamedTuple):
    """Of all batches of a body. `largest_bytes`: of the longest value."""

    headers: list[batch.BatchHeader]
    largest_bytes: int
    delayed: list[Delayed]


def parse_batches(body: Bytes, max_bytes: int) -> NewBatches:
    """As `check_batches`, and the batches."""
    return batches_at(body, check_batches(body, max_bytes))


def batches_at(body: Bytes, checked: CheckedBatches) -> NewBatches:
    """The batches of a body that was checked."""
    batches: list[tuple[batch.BatchHeader, memoryview]] = []
    view = memoryview(body)
    at = 0
    for header in checked.headers:
        batches.append((header, view[at + batch.HEADER_BYTES : at + header.total_bytes]))
        at += header.total_bytes
    return NewBatches(batches, checked.largest_bytes, checked.delayed)


def takes_long(body: Bytes) -> bool:
    """Whether `check_batches` of a small body would hold the event loop. Raises BadBatchError."""
    count = inflated_bytes = at = 0
    while at < len(body):
        header = batch.read_header(body, at)
        count += header.count
        inflated_bytes += header.inflated_bytes
        at += header.total_bytes
    return count > _CHECKED_AT_ONCE_RECORDS or inflated_bytes > _CHECKED_AT_ONCE_BYTES


def check_batches(body: Bytes, max_bytes: int, *, by_record: bool = False) -> CheckedBatches:
    """Batches back to back, each checked to its last column; `max_bytes` bounds what they inflate
    to. `by_record`: headers may say until when a record is delayed. Raises BadBatchError,
    RequestTooLargeError, RecordTooLargeError, BadParameterError."""
    headers: list[batch.BatchHeader] = []
    delayed: list[Delayed] = []
    count = inflated_bytes = largest_value_bytes = at = 0
    view = memoryview(body)
    while at < len(body):
        header = batch.read_header(body, at)
        count += header.count
        inflated_bytes += header.inflated_bytes
        if len(headers) == limits.BATCHES_PER_REQUEST_MAX:
            raise RequestTooLargeError(
                f"A request has at most {limits.BATCHES_PER_REQUEST_MAX} record batches; send "
                "larger batches, or smaller requests."
            )
        if count > limits.RECORDS_IN_BATCHES_MAX:
            raise too_many_records(limits.RECORDS_IN_BATCHES_MAX)
        if inflated_bytes > max_bytes:
            raise RequestTooLargeError(f"The batches inflate to more than {max_bytes} bytes.")
        begin, end = at + batch.HEADER_BYTES, at + header.total_bytes
        if any(view[begin + header.stored_bytes : end]):
            raise BadBatchError("The bytes that pad a batch to a multiple of 8 must be zeros.")
        columns = batch.decode(body, at, header).columns
        largest_value_bytes = max(largest_value_bytes, columns.values.largest())
        if columns.keys is not None or columns.values.valid is not None:
            _check_keys(columns.values, columns.keys)
        if columns.headers is not None:
            _check_header_column(columns.headers)
            if by_record:
                delayed += delayed_by_header(columns.headers.slice(), count - header.count)
        headers.append(header)
        at = end
    if not headers:
        raise BadBatchError("The body holds no record batch.")
    return CheckedBatches(headers, largest_value_bytes, delayed)


def _check_keys(values: BinaryColumn, keys: BinaryColumn | None) -> None:
    if keys is not None and keys.largest() > limits.RECORD_KEY_BYTES_MAX:
        raise RecordTooLargeError(
            f"A record key has {keys.largest()} bytes; at most {limits.RECORD_KEY_BYTES_MAX} are "
            "allowed."
        )
    if values.valid is not None:
        for i in range(len(values)):
            if values.is_null(i) and (keys is None or keys.is_null(i)):
                raise BadBatchError(f"Record {i} is a tombstone (null value) without a record key.")


def _check_header_column(headers: BinaryColumn) -> None:
    for i, packed in enumerate(headers.slice()):
        if not packed:
            continue
        try:
            unpacked = _headers_decoder.decode(packed)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadBatchError(
                f"The headers of record {i} are not a msgpack map of text to bytes: {error}"
            ) from error
        check_headers(len(unpacked), len(packed))


BodyKind = Literal["single", "json", "ndjson", "batch"]

_KINDS: Final[dict[str, BodyKind]] = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/vnd.seb.batch": "batch",
    "application/octet-stream": "single",
    "application/x-www-form-urlencoded": "single",  # what plain `curl -d` sends
    "": "single",
}
_SINGLE_FAMILIES: Final = ("text/", "image/")


def is_batch(content_type: bytes | None) -> bool:
    return _KINDS.get(media_type(content_type or b"")) == "batch"


def body_kind(content_type: bytes | None) -> BodyKind:
    """Raises UnsupportedMediaTypeError that says which would do."""
    named = media_type(content_type or b"")
    if named.startswith(_SINGLE_FAMILIES):
        return "single"
    if named not in _KINDS:
        raise UnsupportedMediaTypeError(
            f"{named[:100]!r} is not accepted here. Send application/octet-stream, text/* or "
            "image/* for one record; or application/json, application/x-ndjson, "
            "application/vnd.seb.batch or CloudEvents for several.",
            supported=[*filter(None, _KINDS), *(t for f in BODY_FORMATS for t in f.media_types)],
        )
    return _KINDS[named]


async def parse_records(
    parser: Parser,
    owner: str,
    kind: BodyKind,
    body: bytes,
    headers: dict[bytes, bytes],
    max_bytes: int,
) -> NewRecords | NewBatches:
    """The records of a body of the API key `owner`. Raises what the parsers raise."""
    if kind == "single":
        return keep_traceparent(parse_single(body, headers), headers)
    refuse_record_headers(headers)
    if kind == "batch":
        by_record = _takes_delays_of_records(headers)
        is_slow = len(body) <= limits.PARSED_AT_ONCE_BYTES and takes_long(body)
        parse = parser.parse_apart if is_slow else parser.parse
        checked = await parse(owner, check_batches, body, max_bytes, by_record=by_record)
        return batches_at(body, checked)
    return await parser.parse(owner, _of_json, body, kind, headers)


async def parse_plain(
    parser: Parser, owner: str, reader: BodyReader, body: bytes, headers: dict[bytes, bytes]
) -> NewRecords:
    """The records of a body that is not in the envelope. Raises what the parsers raise."""
    refuse_record_headers(headers)
    parse = parser.parse_apart if reader.takes_long(body) else parser.parse
    return await parse(owner, read_plain, body, reader, headers)


async def parse_registered(
    parser: Parser,
    owner: str,
    body_format: BodyFormat,
    mode: str,
    body: bytes,
    headers: dict[bytes, bytes],
) -> tuple[NewRecords, Sequence[bytes]]:
    """The records, and what identifies each. Raises what the parsers raise."""
    refuse_record_headers(headers)
    return await parser.parse(owner, body_format.parse, body, mode, headers)


def _of_json(body: bytes, kind: BodyKind, headers: dict[bytes, bytes]) -> NewRecords:
    return keep_traceparent(parse_json(body) if kind == "json" else parse_ndjson(body), headers)
