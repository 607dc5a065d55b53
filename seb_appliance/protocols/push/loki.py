"""Loki's push API: `POST /loki/api/v1/push`, of Promtail, Grafana Alloy, Fluent Bit and Docker.

A line becomes a record: the line is its value; its labels and its structured metadata are its
headers. The tenant (`X-Scope-OrgID`) is the topic. A body is JSON, or protobuf in a snappy block:
https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from seb_appliance.api.encoding.answers import Answer
from seb_appliance.api.encoding.record_json import bad_json, check_utf8
from seb_appliance.api.openapi.parameters import header
from seb_appliance.broker.values import Appended, pack_headers
from seb_appliance.errors import BadParameterError, BadRequestError, SebError
from seb_appliance.protocols.push.pushing import JSON_MEDIA, Bounds, Push, Pushed, Sent

_PROTOBUF: Final = "application/x-protobuf"
_LABEL: Final = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*+)"\s*(?:,|$)')
_VARINT_BYTES_MAX: Final = 5


class _Entry(msgspec.Struct, array_like=True):
    at_ns: str
    line: str
    metadata: dict[str, str] = {}


class _Labelled(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(name="stream")
    values: list[_Entry]


class _Body(msgspec.Struct):
    labelled: list[_Labelled] = msgspec.field(name="streams")


_decoder: Final = msgspec.json.Decoder(_Body)
_text_decoder: Final = msgspec.json.Decoder(str)
# Name, number, type (9 text, 11 message) and label (1 optional, 3 repeated) of each field.
_MESSAGES: Final[Mapping[str, list[tuple[str, int, str, int]]]] = {
    "Pair": [("name", 1, "", 1), ("value", 2, "", 1)],
    "Entry": [
        ("timestamp", 1, ".google.protobuf.Timestamp", 1),
        ("line", 2, "", 1),
        ("metadata", 3, ".seb.loki.Pair", 3),
    ],
    "Stream": [("labels", 1, "", 1), ("entries", 2, ".seb.loki.Entry", 3)],
    "PushRequest": [("streams", 1, ".seb.loki.Stream", 3)],
}


def read(body: bytes, sent: Sent, bounds: Bounds) -> Pushed:
    """Raises BadJsonError, BadRequestError, RecordTooLargeError, RequestTooLargeError."""
    pushed = Pushed(bounds)
    named = sent.media_type
    streams = _of_json(body) if named == JSON_MEDIA else _of_protobuf(body)
    for labels, entries in streams:
        packed = pack_headers({name: text.encode() for name, text in labels.items()})
        for timestamp_us, line, metadata in entries:
            own = packed
            if metadata:
                named_texts = {**labels, **metadata}.items()
                own = pack_headers({name: text.encode() for name, text in named_texts})
            pushed.add(line.encode(), timestamp_us=timestamp_us, headers=own)
    return pushed


_Streams = Iterable[tuple[Mapping[str, str], Iterable[tuple[int, str, Mapping[str, str]]]]]


def _of_json(body: bytes) -> _Streams:
    check_utf8(body)
    try:
        labelled = _decoder.decode(body).labelled
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error) from error
    for one in labelled:
        yield (
            one.labels,
            ((_time_us(entry.at_ns), entry.line, entry.metadata) for entry in one.values),
        )


def _time_us(nanoseconds: str) -> int:
    if not (nanoseconds.isascii() and nanoseconds.isdigit() and len(nanoseconds) <= 19):
        raise BadRequestError(f"{nanoseconds[:40]!r} is not a Unix time in nanoseconds.")
    return int(nanoseconds) // 1000


def _of_protobuf(body: bytes) -> _Streams:
    import cramjam  # in the process that reads such bodies, alone
    from google.protobuf.message import DecodeError

    _inflated_bytes(body, _PROTOBUF)
    try:
        request = push_request()()
        request.ParseFromString(bytes(cramjam.snappy.decompress_raw(body)))
    except (cramjam.DecompressionError, DecodeError, ValueError) as error:
        raise BadRequestError(
            f"The body is not a PushRequest in a snappy block: {error}."
        ) from error
    for one in request.streams:
        yield (
            labels_of(one.labels),
            (
                (
                    entry.timestamp.seconds * 1_000_000 + entry.timestamp.nanos // 1000,
                    entry.line,
                    {pair.name: pair.value for pair in entry.metadata},
                )
                for entry in one.entries
            ),
        )


def labels_of(text: str) -> dict[str, str]:
    """`{job="nginx", host="a"}`. Raises BadRequestError."""
    inner = text.strip()
    labels: dict[str, str] = {}
    if not (inner.startswith("{") and inner.endswith("}")):
        raise BadRequestError(f'{text[:100]!r} are not labels such as {{job="nginx"}}.')
    inner, at = inner[1:-1].strip(), 0
    while at < len(inner):
        found = _LABEL.match(inner, at)
        if found is None:
            raise BadRequestError(f'{text[:100]!r} are not labels such as {{job="nginx"}}.')
        try:
            labels[found[1]] = _text_decoder.decode(f'"{found[2]}"')
        except msgspec.DecodeError:  # an escape of Go that JSON does not have: kept as written
            labels[found[1]] = found[2]
        at = found.end()
    return labels


@functools.cache
def push_request() -> Any:
    """The class of the message `logproto.PushRequest`, with the fields that are used."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="seb/loki.proto",
        package="seb.loki",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, of, label in fields:
            message.field.add(
                name=field, number=number, label=label, type=11 if of else 9, type_name=of or None
            )
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("seb.loki.PushRequest"))


def _inflated_bytes(body: bytes, media_type: str) -> int:
    """A snappy block begins with the length that it inflates to, as a varint. Raises
    BadRequestError."""
    if media_type == JSON_MEDIA:
        return len(body)
    length = 0
    for i, byte in enumerate(body[:_VARINT_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return length
    raise BadRequestError(
        "The body is not a snappy block. Send protobuf in a snappy block, or "
        "Content-Type: application/json."
    )


def _topic_of(sent: Sent) -> str:
    tenant = sent.headers.get(b"x-scope-orgid")
    if not tenant:
        raise BadParameterError(
            "Name the topic in X-Scope-OrgID (most senders have a setting tenant_id for it)."
        )
    return tenant.decode("latin-1")


def _answer(_appended: Appended | None, _pushed: Pushed, _sent: Sent) -> Answer:
    return Answer(204, [])


def _refusal(_error: SebError, detail: str, _media_type: str) -> tuple[str, bytes]:
    return "text/plain", detail.encode() + b"\n"


LOKI: Final = Push(
    name="Loki",
    title="Loki's push API",
    paths=["/loki/api/v1/push"],
    media_types=[_PROTOBUF, JSON_MEDIA],
    error_media=["text/plain"],
    read=read,
    answer=_answer,
    refusal=_refusal,
    topic_of=_topic_of,
    inflated_bytes=_inflated_bytes,
    parameters=[header("X-Scope-OrgID", "The topic.", "logs.app")],
)
