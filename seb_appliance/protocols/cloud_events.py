"""CloudEvents 1.0 in HTTP: requests in binary, structured and batched mode, answers in JSON.

A record is stored as other protocols bind it: its value is the event's data, and its headers are
`ce_<attribute>` for each attribute, `content-type` for `datacontenttype`. So nothing of an event
is lost, and a reader that knows no CloudEvents finds the plain data.

A record that was stored as an event is returned as the same event. Any other record becomes an
event: its id is the topic id and the offset, its source the topic's path, its type `seb.record` or
`seb.tombstone`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seb_appliance import limits
from seb_appliance.api.encoding.answers import EVENT, EVENTS, format_time, parse_time
from seb_appliance.api.encoding.formats import AnswerFormat, BodyFormat, media_type
from seb_appliance.api.encoding.record_encoding import PartEncoder, listed, steps, unless_large
from seb_appliance.api.encoding.record_json import (
    bad_json,
    check_utf8,
    count_one,
    decode_counted,
    shown_json,
    text_of,
)
from seb_appliance.broker.values import (
    BatchSlice,
    Delayed,
    NewRecords,
    ReadResult,
    check_key,
    pack_headers,
)
from seb_appliance.errors import (
    BadCloudEventError,
    BadJsonError,
    RecordTooLargeError,
    UnsupportedMediaTypeError,
)

Mode = Literal["binary", "structured", "batched"]
STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
ATTRIBUTE: Final = re.compile(r"[a-z0-9]{1,100}")
HEADER_PREFIX: Final = "ce_"
CONTENT_TYPE_HEADER: Final = "content-type"
DELIVER_AT: Final = "deliverat"  # an extension of ours
REQUIRED: Final = ("specversion", "id", "source", "type")
_HTTP_PREFIX: Final = b"ce-"
_NOT_ATTRIBUTES: Final = frozenset({"data", "datacontenttype"})
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_JSON_TYPE: Final = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE | re.DOTALL)
_INTEGER_MAX: Final = 2**31 - 1
# What surrounds the data in JSON is looked at member by member, so it has a limit of its own: the
# longest headers and record key there may be, with each character escaped.
_AROUND_DATA_BYTES_MAX: Final = 6 * (limits.RECORD_HEADERS_BYTES_MAX + limits.RECORD_KEY_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """`attributes`: all but `datacontenttype`, as text. `data` is empty when there is none."""

    attributes: dict[str, str]
    content_type: str | None
    data: bytes

    @property
    def identity(self) -> tuple[bytes, bytes]:
        """Source and id: two events that agree in both are the same one."""
        return self.attributes["source"].encode(), self.attributes["id"].encode()


def parse_records(
    body: bytes, mode: Mode, headers: dict[bytes, bytes]
) -> tuple[NewRecords, Sequence[bytes]]:
    """The records of events, and source and id of each. Raises as `parse_events`."""
    events = parse_events(mode, body, headers)
    return to_records(events), [part for event in events for part in event.identity]


def is_of_event(header: bytes) -> bool:
    """Whether a request's header (its name in lower case) belongs to a CloudEvent."""
    return header.startswith(_HTTP_PREFIX)


def mode_of(headers: dict[bytes, bytes]) -> Mode | None:
    """How the request carries CloudEvents; None when it does not.

    Raises UnsupportedMediaTypeError, BadCloudEventError.
    """
    content_type = headers.get(b"content-type", b"")
    if content_type.lstrip().lower().startswith(b"application/cloudevents"):
        named = media_type(content_type)
        if named == STRUCTURED:
            return "structured"
        if named == BATCHED:
            return "batched"
        raise UnsupportedMediaTypeError(
            f"CloudEvents come in the JSON format: {STRUCTURED} or {BATCHED}; or in binary mode, "
            "with ce- headers.",
            supported=[STRUCTURED, BATCHED],
        )
    if b"ce-specversion" in headers:
        return "binary"
    if any(map(is_of_event, headers)):
        raise BadCloudEventError(
            "There are ce- headers, but no ce-specversion. Send ce-specversion: 1.0."
        )
    return None


def parse_events(mode: Mode, body: bytes, headers: dict[bytes, bytes]) -> list[CloudEvent]:
    """The events of a request, at least one, all of them valid.

    Raises BadCloudEventError, BadJsonError, RecordTooLargeError, RequestTooLargeError.
    """
    if mode == "binary":
        return [_binary(body, headers)]
    if mode == "structured":
        check_utf8(body)
        return [_of_json(body, "The event")]
    _, count = decode_counted(body, _counted_decoder, hint=f"{BATCHED} is a list of events.")
    if count == 0:
        raise BadJsonError("The list of events is empty.")
    return [_of_json(raw, f"Event {i}") for i, raw in enumerate(_batch_decoder.decode(body))]


def to_records(events: Iterable[CloudEvent]) -> NewRecords:
    """A record for each event: its record key is `partitionkey`, else `subject`; its timestamp is
    `time`, and `deliverat` says when queues hand it out. Raises RecordTooLargeError."""
    records = NewRecords([], [], [], [])
    assert records.keys is not None
    assert records.headers is not None
    assert records.timestamps_us is not None
    records.delayed = delayed = list[Delayed]()
    for i, event in enumerate(events):
        attributes = event.attributes
        headers = {HEADER_PREFIX + name: text.encode() for name, text in attributes.items()}
        if event.content_type is not None:
            headers[CONTENT_TYPE_HEADER] = event.content_type.encode()
        key = attributes.get("partitionkey", attributes.get("subject"))
        time = attributes.get("time")
        records.values.append(event.data)
        records.keys.append(None if key is None else check_key(key.encode()))
        records.headers.append(pack_headers(headers))
        records.timestamps_us.append(None if time is None else parse_time(time))
        if DELIVER_AT in attributes:
            delayed.append(Delayed(i, 1, parse_time(attributes[DELIVER_AT])))
    return records


def is_json(content_type: str) -> bool:
    return _JSON_TYPE.fullmatch(content_type) is not None


# --- binary mode: attributes in headers, data in the body ---


def _binary(body: bytes, headers: dict[bytes, bytes]) -> CloudEvent:
    attributes: dict[str, str] = {}
    for header, quoted in headers.items():
        if not is_of_event(header):
            continue
        name = header.removeprefix(_HTTP_PREFIX).decode("latin-1")
        attributes[name] = _unquoted(name, quoted)
    content_type = headers.get(b"content-type")
    return _checked(
        attributes,
        None if content_type is None else content_type.decode("latin-1"),
        body,
        "The event",
    )


def _unquoted(name: str, quoted: bytes) -> str:
    """Header values are percent-encoded; a value with a space or a quote may stand in quotes."""
    text = quoted.strip()
    if len(text) > 1 and text[:1] == text[-1:] == b'"':
        text = re.sub(rb"\\(.)", rb"\1", text[1:-1])
    try:
        if _BAD_ESCAPE.search(text):
            raise BadCloudEventError(f"ce-{name} must be percent-encoded; write % as %25.")
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise BadCloudEventError(f"ce-{name} is not percent-encoded UTF-8.") from error


# --- the JSON format ---


class _Counted(msgspec.Struct):
    """Stops the decoder at the limit; the members are looked at later, event by event."""

    def __post_init__(self) -> None:
        count_one()


class _Data(msgspec.Struct):
    data: Raw | UnsetType = UNSET
    data_base64: Raw | UnsetType = UNSET


_counted_decoder: Final = msgspec.json.Decoder(list[_Counted])
_batch_decoder: Final = msgspec.json.Decoder(list[Raw])
_data_decoder: Final = msgspec.json.Decoder(_Data)
_members_decoder: Final = msgspec.json.Decoder(dict[str, Raw])
_attribute_decoder: Final = msgspec.json.Decoder(str | bool | int | None)
_text_decoder: Final = msgspec.json.Decoder(str)
_base64_decoder: Final = msgspec.json.Decoder(bytes)


def _of_json(event: bytes | Raw, where: str) -> CloudEvent:
    """One event object. Raises as `parse_events`."""
    try:
        found = _data_decoder.decode(event)
        held = sum(len(bytes(raw)) for raw in (found.data, found.data_base64) if raw is not UNSET)
        if len(bytes(event)) - held > _AROUND_DATA_BYTES_MAX:
            raise RecordTooLargeError(f"{where} has attributes that are too long.")
        members = _members_decoder.decode(event)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error, where=f"{where}: ") from error
    attributes = {
        name: text
        for name, raw in members.items()
        if name not in ("data", "data_base64") and (text := _text(name, raw, where)) is not None
    }
    content_type = attributes.pop("datacontenttype", None)
    data, implied = _data(members, content_type, where)
    return _checked(attributes, content_type or implied, data, where)


def _text(name: str, raw: Raw, where: str) -> str | None:
    """An attribute as text; null is the same as none."""
    try:
        value = _attribute_decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise BadCloudEventError(
            f"{where}: {name[:100]!r} must be text, an integer, true or false."
        ) from error
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > _INTEGER_MAX:
        raise BadCloudEventError(
            f"{where}: {name[:100]!r} does not fit into 32 bits; send it as text."
        )
    return None if value is None else str(value)


def _data(
    members: dict[str, Raw], content_type: str | None, where: str
) -> tuple[bytes, str | None]:
    """The data's bytes, and the content type that it has without saying so."""
    data, in_base64 = members.get("data"), members.get("data_base64")
    if in_base64 is not None and bytes(in_base64) != b"null":
        if data is not None:
            raise BadCloudEventError(f"{where} has both data and data_base64.")
        try:
            return _base64_decoder.decode(in_base64), None
        except msgspec.DecodeError as error:
            raise BadCloudEventError(f"{where}: data_base64 is not base64.") from error
    if data is None or bytes(data) == b"null":
        return b"", None
    if content_type is None or is_json(content_type):
        return bytes(data), "application/json"
    try:
        return _text_decoder.decode(data).encode(), None
    except msgspec.DecodeError as error:
        raise BadCloudEventError(
            f"{where}: data of type {content_type[:100]!r} must be text in the JSON format, or "
            "data_base64."
        ) from error


# --- what holds in every mode ---


def _checked(
    attributes: dict[str, str], content_type: str | None, data: bytes, where: str
) -> CloudEvent:
    """Raises BadCloudEventError."""
    for name in REQUIRED:
        if not attributes.get(name):
            raise BadCloudEventError(f"{where} has no {name}.")
    if attributes["specversion"] != "1.0":
        raise BadCloudEventError(
            f"{where} is of specversion {attributes['specversion'][:20]!r}; only 1.0 is supported."
        )
    if _NOT_ATTRIBUTES & attributes.keys():
        raise BadCloudEventError(
            f"{where}: data, and its Content-Type, cannot be sent as ce- headers in binary mode."
        )
    for name, text in [*attributes.items(), ("datacontenttype", content_type or "")]:
        if not ATTRIBUTE.fullmatch(name):
            raise BadCloudEventError(
                f"{where}: {name[:100]!r} is not the name of an attribute: use at most 100 "
                "lower-case letters and digits."
            )
        if _CONTROL.search(text):
            raise BadCloudEventError(f"{where}: {name} holds a control character.")
    for name in ("time", DELIVER_AT):
        try:
            if name in attributes:
                parse_time(attributes[name])
        except ValueError as error:
            raise BadCloudEventError(f"{where}: {name}: {error}.") from error
    return CloudEvent(attributes, content_type, data)


_RECORDS_AT_ONCE: Final = 256  # about a millisecond
_unpack: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def event_parts(*results: ReadResult) -> Iterator[bytes]:
    """A list of events, in parts that are made when they are asked for."""
    return listed(
        [_event(result, piece, i) for i in range(begin, end)]
        for result in results
        for piece in result.slices
        for begin, end in steps(piece, _RECORDS_AT_ONCE)
    )


def one_event(result: ReadResult) -> Iterator[bytes]:
    """The first record of the result, of which there is one, in parts."""
    encoder, piece = PartEncoder(), result.slices[0]
    return encoder.pieces(encoder.encode(_event(result, piece, piece.begin)) + b"\n")


def _event(result: ReadResult, piece: BatchSlice, i: int) -> dict[str, Any]:
    columns = piece.batch.columns
    packed = None if columns.headers is None else columns.headers.get(i)
    headers = _unpack(packed) if packed else {}
    event = _stored_attributes(headers)
    if event is None:
        event = _made_attributes(result, piece, i)
    value = columns.values.get(i)
    if value:
        said = text_of(headers.get(CONTENT_TYPE_HEADER, b"")) or None
        if said is None and HEADER_PREFIX + "id" in headers:
            member, data = "data_base64", value
        else:
            event["datacontenttype"], member, data = _shown(value, said)
        event[member] = unless_large(data)
    return event


def _stored_attributes(headers: dict[str, bytes]) -> dict[str, Any] | None:
    """None if the record is not a complete event."""
    attributes: dict[str, Any] = {}
    for header, content in headers.items():
        name = header.removeprefix(HEADER_PREFIX)
        text = text_of(content)
        if name != header and text and ATTRIBUTE.fullmatch(name):
            attributes[name] = text
    for name in ("data", "datacontenttype"):  # somebody else's: an event has none
        attributes.pop(name, None)
    whole = all(name in attributes for name in REQUIRED) and attributes["specversion"] == "1.0"
    return attributes if whole else None


def _made_attributes(result: ReadResult, piece: BatchSlice, i: int) -> dict[str, Any]:
    columns = piece.batch.columns
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"{result.topic_id}-{piece.batch.offsets()[i]}",
        "source": f"/v1/topics/{result.topic}",
        "type": "seb.tombstone" if columns.values.is_null(i) else "seb.record",
        "time": format_time(columns.timestamps_us[i]),
    }
    key = None if columns.keys is None else columns.keys.get(i)
    text = text_of(key or b"")
    if text:
        event["partitionkey"] = text
    return event


def guessed_type(value: bytes) -> str:
    """The content type of a value that was stored without one."""
    return _shown(value, None)[0]


def _shown(value: bytes, said: str | None) -> tuple[str, str, Any]:
    """The content type, and the member of the event that has the data. `said`: the type that was
    stored with it."""
    may_be_json = said is None or is_json(said)
    parsed = _as_json(value) if may_be_json else None
    if parsed is not None:
        return said or "application/json", "data", parsed
    text = text_of(value) if said is None or not may_be_json else None
    if text is not None:
        return said or "text/plain; charset=utf-8", "data", text
    return said or "application/octet-stream", "data_base64", value


def _as_json(value: bytes) -> Raw | None:
    """None if the value is not JSON or too large, and for `null`, which would mean that there is
    no data."""
    compact = shown_json(value)
    return None if compact is None or compact == b"null" else Raw(compact)


FORMATS: Final = (
    BodyFormat(
        media_types=(STRUCTURED, BATCHED),
        header_prefix=b"ce-",
        mode_of=mode_of,
        parse=parse_records,
    ),
    AnswerFormat(media_type=EVENTS, page=event_parts),
    AnswerFormat(media_type=EVENT, one=one_event),
)
