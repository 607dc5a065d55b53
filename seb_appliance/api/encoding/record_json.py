"""Records from JSON and NDJSON: a string value is its UTF-8, any other value the bytes sent."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seb_appliance import limits
from seb_appliance.api.encoding.answers import AwareTime, to_us
from seb_appliance.broker.values import Delayed, NewRecords, check_key, pack_headers
from seb_appliance.errors import BadJsonError, RequestTooLargeError

T = TypeVar("T")

RIGHT_FORMS: Final = (
    "To store this body as one record, add ?body=value to the URL (POST …/records?body=value); "
    "?body=items stores each member of an array or each line of NDJSON. Without body, send "
    '{"records":[{"value":{"temp":21}}]}.'
)

NUMBER_TOO_LARGE: Final = "a number is too large for a double"
# A double ends at 1.8e308. Each byte is looked at a few times at most, whatever the value is.
_PERHAPS_HUGE: Final = re.compile(rb"[eE]\+?[0-9]{3}|(?<![0-9])[0-9]{309}")
_TEXT_OR_HUGE: Final = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"'
    rb"|(?<![0-9.eE+-])-?[0-9](?:[0-9.]*+[eE]\+?[0-9]{3}[0-9]*+|[0-9]{308}[0-9.]*+(?:[eE][+-]?[0-9]++)?)"
)


def too_many_records(most: int = limits.RECORDS_PER_REQUEST_MAX) -> RequestTooLargeError:
    return RequestTooLargeError(
        f"A request has at most {most} records; send smaller requests.", max_records=most
    )


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """One record as a producer writes it. Exactly one of `value` and `value_base64` is there.
    `deliver_at` or `delay_ms`: when queues hand it out."""

    value: Raw | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    key: str | None = None
    key_base64: bytes | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, bytes] | None = None
    timestamp: AwareTime | None = None
    deliver_at: AwareTime | None = None
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=limits.DELAY_US_MAX // 1000)] | None = None


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a produce request as `application/json`."""

    records: list[Record]


class _Left(threading.local):
    """How many records the decoder that runs in this thread may still make."""

    count = 0


_left = _Left()


def count_one() -> None:
    """Stops the decoder at the limit: a body of `{},{},…` would take 50 times its size."""
    _left.count -= 1
    if _left.count < 0:
        raise too_many_records()


class CountedRecord(Record):
    """One of those that are counted."""

    def __post_init__(self) -> None:
        count_one()


class _CountedEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    records: list[CountedRecord]


_envelope_decoder: Final = msgspec.json.Decoder(Envelope)
_counted_decoder: Final = msgspec.json.Decoder(_CountedEnvelope)
_record_decoder: Final = msgspec.json.Decoder(Record)
_text_decoder: Final = msgspec.json.Decoder(str)


def parse_json(body: bytes) -> NewRecords:
    """`{"records":[…]}`. Raises BadJsonError, RequestTooLargeError, RecordTooLargeError."""
    few = body.count(b"{") <= limits.RECORDS_PER_REQUEST_MAX  # then no counting is needed
    records: Sequence[Record] = (
        decode_counted(body, _envelope_decoder, hint=RIGHT_FORMS)[0].records
        if few
        else decode_counted(body, _counted_decoder, hint=RIGHT_FORMS)[0].records
    )
    if not records:
        raise BadJsonError(f"The list of records is empty. {RIGHT_FORMS}")
    return to_columns(records, lambda i: f"$.records[{i}]")


def decode_counted(
    body: bytes, decoder: msgspec.json.Decoder[T], *, hint: str = ""
) -> tuple[T, int]:
    """The body, and how many counted records were in it (`CountedRecord`), also those that another
    member of the same name has replaced. Raises as `parse_json`."""
    check_utf8(body)
    _left.count = limits.RECORDS_PER_REQUEST_MAX
    try:
        return decoder.decode(body), limits.RECORDS_PER_REQUEST_MAX - _left.count
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error, hint=hint) from error


def parse_ndjson(body: bytes) -> NewRecords:
    """One record object per line; empty lines are skipped. Raises as `parse_json`."""
    check_utf8(body)
    if body.count(b"\n") > limits.RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    records: list[Record] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line or line.isspace():
            continue
        try:
            records.append(_record_decoder.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_json(error, where=f"Line {number}: ") from error
    if len(records) > limits.RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    if not records:
        raise BadJsonError('There is no line with a record such as {"value":"hello"}.')
    return to_columns(records, lambda i: f"record {i}")


def check_utf8(body: bytes) -> None:
    """The decoder copies text without looking into it. Raises BadJsonError."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadJsonError(f"The body is not UTF-8 at byte {error.start}.") from error


def compact_json(value: bytes) -> bytes | None:
    """The JSON value on one line; None for what is no JSON in UTF-8."""
    try:
        value.decode()  # the formatter copies text without looking into it
        return msgspec.json.format(value, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def shown_json(value: bytes) -> bytes | None:
    """`compact_json`; None also for what is too large to be parsed while others wait."""
    return None if len(value) > limits.JSON_SHOWN_BYTES_MAX else compact_json(value)


def text_of(content: bytes) -> str | None:
    """None for what is no UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def bad_json(error: Exception, *, where: str = "", hint: str = "") -> BadJsonError:
    """What msgspec says, with the place as a member. `hint` follows unless a record is wrong."""
    if isinstance(error, RecursionError):
        return BadJsonError(f"{where}The JSON is nested too deeply.")
    message, _, path = str(error).partition(" - at `")
    path = path.rstrip("`") or "$"
    if hint and not path.startswith("$.records["):
        message = f"{message}. {hint}"
    else:
        message = f"{message} (at {path})." if path != "$" else f"{message}."
    errors = [{"path": path, "message": str(error).partition(" - at `")[0]}]
    return BadJsonError(where + message, errors=errors)


def to_columns(records: Sequence[Record], place: Callable[[int], str]) -> NewRecords:
    """At least one record; `place` names one for people, by its number from 0.

    Raises BadJsonError, RecordTooLargeError.
    """
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    delayed: list[Delayed] = []
    for i, record in enumerate(records):
        try:
            key, value = _key(record), _value(record)
            _check_tombstone(key, value)
            if record.deliver_at is not None or record.delay_ms is not None:
                delayed.append(_delayed(record, i))
        except BadJsonError as error:
            at = place(i)
            raise BadJsonError(
                f"{at}: {error.detail}.", errors=[{"path": at, "message": error.detail}]
            ) from None
        keys.append(key)
        values.append(value)
    made = NewRecords(values, delayed=delayed)
    if any(key is not None for key in keys):
        made.keys = keys
    if any(record.headers or record.headers_base64 for record in records):
        made.headers = [_headers(record) for record in records]
    if any(record.timestamp is not None for record in records):
        made.timestamps_us = [
            None if record.timestamp is None else to_us(record.timestamp) for record in records
        ]
    return made


def _value(record: Record) -> bytes | None:
    if (record.value is UNSET) == (record.value_base64 is UNSET):
        raise BadJsonError("exactly one of value and value_base64 is required")
    if not isinstance(record.value, Raw):
        assert isinstance(record.value_base64, bytes)
        return record.value_base64
    sent = bytes(record.value)
    if sent == b"null":
        return None
    if sent[0] == 0x22:  # a string
        return sent[1:-1] if b"\\" not in sent else _text_decoder.decode(sent).encode()
    check_numbers(sent)
    return sent


def _check_tombstone(key: bytes | None, value: bytes | None) -> None:
    if value is None and key is None:
        raise BadJsonError("a null value is a tombstone and needs a record key")


def may_be_huge(sent: bytes) -> bool:
    """Whether `check_numbers` might find something; quick."""
    return _PERHAPS_HUGE.search(sent) is not None


def check_numbers(sent: bytes) -> None:
    """The bytes are stored as they are, so a number that no reader can hold is refused here. Raises
    BadJsonError."""
    if not may_be_huge(sent):
        return
    for found in _TEXT_OR_HUGE.finditer(sent):
        number = found[0]
        if number[0] != 0x22 and math.isinf(float(number)):
            raise BadJsonError(NUMBER_TOO_LARGE)


def _key(record: Record) -> bytes | None:
    if record.key is not None and record.key_base64 is not None:
        raise BadJsonError("both key and key_base64 are given")
    if record.key is not None:
        return check_key(record.key.encode())
    return None if record.key_base64 is None else check_key(record.key_base64)


def _delayed(record: Record, i: int) -> Delayed:
    if record.deliver_at is None:
        return Delayed(i, 1, (record.delay_ms or 0) * 1000, from_now=True)
    if record.delay_ms is not None:
        raise BadJsonError("both deliver_at and delay_ms are given")
    return Delayed(i, 1, to_us(record.deliver_at))


def _headers(record: Record) -> bytes:
    headers = {name: text.encode() for name, text in (record.headers or {}).items()}
    return pack_headers(headers | (record.headers_base64 or {}))
