"""OTLP/HTTP logs: `/v1/logs` under an inlet, as protobuf or JSON.

Each log record becomes a record whose value is an OTLP/JSON document of that one alone, with its
resource and its scope, so that it can be sent on to any OTLP receiver as it is:
https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Answer
from seb_appliance.api.encoding.record_json import (
    bad_json,
    check_numbers,
    check_utf8,
    too_many_records,
)
from seb_appliance.broker.values import Appended
from seb_appliance.errors import BadJsonError, BadRequestError, SebError, UnsupportedMediaTypeError
from seb_appliance.protocols.push.pushing import JSON_MEDIA, Bounds, Push, Pushed, Sent

_PROTOBUF: Final = "application/x-protobuf"
_EMPTY: Final = msgspec.Raw(b"{}")
_STATUS_BYTES_MAX: Final = 16_000
# The codes of gRPC that the specification names beside these statuses.
_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 429: 8, 503: 14, 504: 4}
_UNKNOWN: Final = 2


# In JSON of protobuf a null stands for what is left out.


class _Times(msgspec.Struct, rename="camel"):
    time_unix_nano: str | int | None = None
    observed_time_unix_nano: str | int | None = None


class _Scope(msgspec.Struct, rename="camel"):
    scope: msgspec.Raw = _EMPTY
    log_records: list[msgspec.Raw] | None = None
    schema_url: str | None = None


class _Resource(msgspec.Struct, rename="camel"):
    resource: msgspec.Raw = _EMPTY
    scope_logs: list[_Scope] | None = None
    schema_url: str | None = None


class _Request(msgspec.Struct, rename="camel"):
    resource_logs: list[_Resource] | None = None


_decoder: Final = msgspec.json.Decoder(_Request)
_times_decoder: Final = msgspec.json.Decoder(_Times)
_encode: Final = msgspec.json.Encoder().encode


def read(body: bytes, sent: Sent, bounds: Bounds) -> Pushed:
    """Records larger than the topic takes are left out, and the answer says so. Raises
    BadJsonError, BadRequestError, RequestTooLargeError, UnsupportedMediaTypeError."""
    named = sent.media_type
    if named == JSON_MEDIA:
        request = _of_json(body)
    elif named == _PROTOBUF:
        request = _of_protobuf(body)
    else:
        raise UnsupportedMediaTypeError(
            f"{named[:100]!r} is not taken here; {_PROTOBUF} and {JSON_MEDIA} are."
        )
    pushed, rejected = Pushed(bounds), 0
    for resource in request.resource_logs or ():
        for scope in resource.scope_logs or ():
            before, after = _around(resource, scope)
            for log_record in scope.log_records or ():
                value = before + bytes(log_record) + after
                if len(value) > bounds.record_bytes:
                    rejected += 1
                else:
                    pushed.add(value, timestamp_us=_time_us(log_record))
    pushed.answer = _success(named, rejected, bounds)
    return pushed


def _of_json(body: bytes) -> _Request:
    check_utf8(body)
    try:
        request = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error) from error
    check_numbers(body)
    return request


def _of_protobuf(body: bytes) -> _Request:
    """In the names of JSON. Imported here: only the process that reads such bodies needs it."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise BadRequestError(f"The body is not an ExportLogsServiceRequest: {error}.") from error
    _check_counts(request)
    return _Request(
        [
            _Resource(
                _raw(resource.resource),
                [
                    _Scope(_raw(scope.scope), list(map(_raw, scope.log_records)), scope.schema_url)
                    for scope in resource.scope_logs
                ],
                resource.schema_url,
            )
            for resource in request.resource_logs
        ]
    )


def _check_counts(request: Any) -> None:
    """Before a message of two bytes becomes a document. Raises RequestTooLargeError."""
    most = limits.RECORDS_PER_REQUEST_MAX
    left = most - len(request.resource_logs)
    for resource in request.resource_logs if left >= 0 else ():
        left -= len(resource.scope_logs)
        if left < 0:
            break
        left -= sum(len(scope.log_records) for scope in resource.scope_logs)
    if left < 0:
        raise too_many_records(most)


def _raw(message: Any) -> msgspec.Raw:
    """OTLP/JSON is JSON of protobuf, but ids are hexadecimal and enumerations are numbers."""
    from google.protobuf.json_format import MessageToDict

    document = MessageToDict(message, use_integers_for_enums=True)
    for name, field in (("traceId", "trace_id"), ("spanId", "span_id")):
        if name in document:
            document[name] = getattr(message, field).hex()
    return msgspec.Raw(_encode(document))


def _around(resource: _Resource, scope: _Scope) -> tuple[bytes, bytes]:
    """What goes before and after a log record, to make it a document."""
    parts = [b'{"resourceLogs":[{"resource":', resource.resource, b',"scopeLogs":[{"scope":']
    before = b"".join(map(bytes, [*parts, scope.scope, b',"logRecords":[']))
    inner, outer = (
        b',"schemaUrl":' + _encode(one.schema_url) if one.schema_url else b""
        for one in (scope, resource)
    )
    return before, b"]" + inner + b"}]" + outer + b"}]}"


def _time_us(log_record: msgspec.Raw) -> int | None:
    try:
        times = _times_decoder.decode(log_record)
        nanoseconds = int(times.time_unix_nano or 0) or int(times.observed_time_unix_nano or 0)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadJsonError(f"A log record is not one of OTLP: {error}.") from error
    return nanoseconds // 1000 if nanoseconds > 0 else None


def _success(named: str, rejected: int, bounds: Bounds) -> bytes:
    """An ExportLogsServiceResponse."""
    why = f"Log records of more than {bounds.record_bytes} bytes are not stored."
    if named == JSON_MEDIA:
        partial = {"rejectedLogRecords": str(rejected), "errorMessage": why}
        return _encode({"partialSuccess": partial} if rejected else {})
    if not rejected:
        return b""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
        ExportLogsPartialSuccess,
        ExportLogsServiceResponse,
    )

    partial_success = ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=why)
    return bytes(ExportLogsServiceResponse(partial_success=partial_success).SerializeToString())


def _answer(_appended: Appended | None, pushed: Pushed, sent: Sent) -> Answer:
    return Answer(200, [(b"content-type", sent.media_type.encode())], pushed.answer)


def _refusal(error: SebError, detail: str, media_type: str) -> tuple[str, bytes]:
    """A google.rpc.Status: the code is its field 1, the message its field 2."""
    code = _CODES.get(error.status, _UNKNOWN)
    if media_type != _PROTOBUF:
        return JSON_MEDIA, _encode({"code": code, "message": detail})
    text = detail.encode()[:_STATUS_BYTES_MAX].decode(errors="ignore").encode()
    length = bytes([len(text) & 0x7F | 0x80, len(text) >> 7])  # a varint of two bytes
    return _PROTOBUF, bytes([0x08, code, 0x12]) + length + text


OTLP: Final = Push(
    name="Otlp",
    title="OTLP logs",
    paths=["/v1/logs"],
    media_types=[_PROTOBUF, JSON_MEDIA],
    error_media=[_PROTOBUF, JSON_MEDIA],
    read=read,
    answer=_answer,
    refusal=_refusal,
)
