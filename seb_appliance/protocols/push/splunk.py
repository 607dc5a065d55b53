"""Splunk's HTTP Event Collector: `POST /services/collector/event` and `/raw`.

The token is an API key, and the index is the topic. An event becomes a record: `event` is its
value, `time` its timestamp; host, source, sourcetype and fields are its headers:
https://docs.splunk.com/Documentation/Splunk/latest/Data/FormateventsforHTTPEventCollector
"""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance.api.encoding.answers import Answer, json_line
from seb_appliance.api.encoding.plain_bodies import items
from seb_appliance.api.encoding.record_json import bad_json
from seb_appliance.api.openapi.parameters import query as query_parameter
from seb_appliance.api.routes.route import Reply, RequestContext, route
from seb_appliance.api.server.auth import token_of
from seb_appliance.broker.values import Appended, pack_headers
from seb_appliance.errors import BadJsonError, BadRequestError, SebError
from seb_appliance.protocols.push.pushing import JSON_MEDIA, Bounds, Push, Pushed, Sent

_NAMES: Final = ("host", "source", "sourcetype")
# The codes that Splunk documents, by status.
_CODES: Final = {400: 6, 401: 4, 403: 4, 404: 7, 429: 9, 503: 9}
_INTERNAL: Final = 8
_NO_DATA: Final = 5


class _Event(msgspec.Struct):
    event: msgspec.Raw
    time: float | str | None = None
    host: str | None = None
    source: str | None = None
    sourcetype: str | None = None
    index: str | None = None
    fields: dict[str, msgspec.Raw] = {}


_decoder: Final = msgspec.json.Decoder(_Event)
_text_decoder: Final = msgspec.json.Decoder(str)


def read_events(body: bytes, _sent: Sent, bounds: Bounds) -> Pushed:
    """JSON objects in a row, with white space or nothing between them. Raises BadJsonError,
    BadRequestError, RecordTooLargeError, RequestTooLargeError."""
    pushed = Pushed(bounds)
    for i, document in enumerate(items(body, "")):
        try:
            one = _decoder.decode(document)
        except msgspec.DecodeError as error:
            raise bad_json(error, where=f"Event {i}: ") from error
        if one.index is not None and one.index != pushed.topic:
            if pushed.topic:
                raise BadRequestError("All events of a request have the same index.")
            pushed.topic = one.index
        named = {name: text for name in _NAMES if (text := getattr(one, name)) is not None}
        named |= {name: _text(value).decode() for name, value in one.fields.items()}
        packed = pack_headers({name: text.encode() for name, text in named.items()})
        pushed.add(_text(one.event), timestamp_us=_time_us(one.time, i), headers=packed)
    return pushed


def read_raw(body: bytes, sent: Sent, bounds: Bounds) -> Pushed:
    """Each line is an event."""
    pushed = Pushed(bounds)
    packed = pack_headers(
        {name: sent.query[name].encode() for name in _NAMES if name in sent.query}
    )
    for line in body.split(b"\n"):
        if text := line.removesuffix(b"\r"):
            pushed.add(text, headers=packed)
    return pushed


def _text(value: msgspec.Raw) -> bytes:
    """A text's UTF-8; all else as it is written."""
    written = bytes(value).strip()
    return _text_decoder.decode(written).encode() if written[:1] == b'"' else written


def _time_us(given: float | str | None, number: int) -> int | None:
    """Unix seconds, as a number or a text. Raises BadJsonError."""
    if given is None or given == "":
        return None
    try:
        return int(float(given) * 1_000_000)
    except (ValueError, OverflowError) as error:
        raise BadJsonError(f"Event {number}: the time is not a Unix time in seconds.") from error


def _token_of(authorization: bytes | None) -> str:
    scheme, _, given = (authorization or b"").partition(b" ")
    return (
        given.strip().decode("latin-1") if scheme.lower() == b"splunk" else token_of(authorization)
    )


def _topic_of(sent: Sent) -> str:
    return sent.query.get("index", "")


def _answer(appended: Appended | None, _pushed: Pushed, _sent: Sent) -> Answer:
    text = {"text": "Success", "code": 0}
    status = 200
    if appended is None:
        text, status = {"text": "No data", "code": _NO_DATA}, 400
    return Answer(status, [(b"content-type", JSON_MEDIA.encode())], json_line(text))


def _refusal(error: SebError, detail: str, _media_type: str) -> tuple[str, bytes]:
    return JSON_MEDIA, json_line({"text": detail, "code": _CODES.get(error.status, _INTERNAL)})


async def _healthy(_ctx: RequestContext) -> object:
    text = {"text": "HEC is healthy", "code": 17}
    return Answer(200, [(b"content-type", JSON_MEDIA.encode())], json_line(text))


_CHECKS: Final = [
    route(
        method,  # type: ignore[arg-type]
        path,
        name,
        tag="Log shippers",
        summary="Answer the check of a Splunk sender",
        replies={200: Reply(description="The appliance answers")},
        parameters=[query_parameter("token", "Not looked at.")],
        api_key=False,
    )(_healthy)
    for method, path, name in (
        ("OPTIONS", "/services/collector/event/1.0", "splunkOptions"),
        ("GET", "/services/collector/health", "splunkHealth"),
        ("GET", "/services/collector/health/1.0", "splunkHealth2"),
    )
]
_PARAMETERS: Final = [
    query_parameter("index", "The topic, where the events do not name it.", "logs.app"),
    *(query_parameter(name, f"The header {name} of each record of a raw body.") for name in _NAMES),
    query_parameter("channel", "Not looked at."),
    query_parameter("auto_extract_timestamp", "Not looked at."),
]
EVENTS: Final = Push(
    name="SplunkEvents",
    title="events of Splunk's HTTP Event Collector",
    paths=["/services/collector", "/services/collector/event", "/services/collector/event/1.0"],
    media_types=[JSON_MEDIA],
    error_media=[JSON_MEDIA],
    read=read_events,
    answer=_answer,
    refusal=_refusal,
    topic_of=_topic_of,
    token_of=_token_of,
    parameters=_PARAMETERS,
    others=_CHECKS,
)
RAW: Final = Push(
    name="SplunkRaw",
    title="lines for Splunk's HTTP Event Collector",
    paths=["/services/collector/raw", "/services/collector/raw/1.0"],
    media_types=["text/plain"],
    error_media=[JSON_MEDIA],
    read=read_raw,
    answer=_answer,
    refusal=_refusal,
    topic_of=_topic_of,
    token_of=_token_of,
    parameters=_PARAMETERS,
)
