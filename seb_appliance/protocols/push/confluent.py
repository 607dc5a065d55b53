"""The produce request of Confluent's REST proxy, versions 1 and 2: `POST /topics/{topic}`.

rsyslog's omhttp (`bulkmode.format="kafkarest"`), Fluent Bit's kafka-rest and old clients send it:
https://docs.confluent.io/platform/current/kafka-rest/api.html#post--topics-(string-topic_name)
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from seb_appliance.api.encoding.answers import Answer, json_line
from seb_appliance.api.encoding.record_json import bad_json, check_numbers, check_utf8
from seb_appliance.broker.values import Appended, check_key
from seb_appliance.errors import BadJsonError, SebError, UnsupportedMediaTypeError
from seb_appliance.protocols.push.pushing import JSON_MEDIA, Bounds, Push, Pushed, Sent

_TYPE: Final = re.compile(r"application/vnd\.kafka(?:\.(json|binary))?\.v([12])\+json")
_ANSWER_TYPE: Final = "application/vnd.kafka.v2+json"
_NULL: Final = b"null"


class _Record(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(_NULL)
    key: msgspec.Raw = msgspec.Raw(_NULL)
    timestamp: int | None = None  # milliseconds; sent by some clients


class _Body(msgspec.Struct):
    records: list[_Record]


_decoder: Final = msgspec.json.Decoder(_Body)
_text_decoder: Final = msgspec.json.Decoder(str)


def read(body: bytes, sent: Sent, bounds: Bounds) -> Pushed:
    """Raises BadJsonError, RecordTooLargeError, RequestTooLargeError, UnsupportedMediaTypeError."""
    named = sent.media_type
    found = _TYPE.fullmatch(named)
    if found is None and named != JSON_MEDIA:
        raise UnsupportedMediaTypeError(
            f"{named[:100]!r} is not taken here; application/vnd.kafka.json.v2+json and "
            "application/vnd.kafka.binary.v2+json are."
        )
    is_binary = found is not None and found[1] == "binary"
    check_utf8(body)
    try:
        records = _decoder.decode(body).records
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error) from error
    check_numbers(body)
    pushed = Pushed(bounds)
    for i, one in enumerate(records):
        key = _key(one.key, i, is_binary=is_binary)
        value = _value(one.value, i, is_binary=is_binary)
        if value is None and key is None:
            raise BadJsonError(f"Record {i} has neither a value nor a key.")
        at_us = None if one.timestamp is None else one.timestamp * 1000
        pushed.add(value, key=key, timestamp_us=at_us)
    return pushed


def _value(given: msgspec.Raw, number: int, *, is_binary: bool) -> bytes | None:
    """A tombstone for null; JSON as it is written, and a text as its UTF-8."""
    written = bytes(given).strip()
    if written == _NULL:
        return None
    if is_binary:
        return _decoded(written, number)
    return _text_decoder.decode(written).encode() if written[:1] == b'"' else written


def _key(given: msgspec.Raw, number: int, *, is_binary: bool) -> bytes | None:
    found = _value(given, number, is_binary=is_binary)
    return None if found is None else check_key(found)


def _decoded(written: bytes, number: int) -> bytes:
    try:
        return base64.b64decode(_text_decoder.decode(written), validate=True)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise BadJsonError(f"Record {number}: its key or value is not base64.") from error


def _topic_of(sent: Sent) -> str:
    return sent.path["topic"]


def _answer(appended: Appended | None, pushed: Pushed, _sent: Sent) -> Answer:
    first = appended.offset if appended is not None and appended.offset is not None else 0
    offsets = [
        {"partition": 0, "offset": first + i, "error_code": None, "error": None}
        for i in range(len(pushed.values))
    ]
    text = {"offsets": offsets, "key_schema_id": None, "value_schema_id": None}
    return Answer(200, [(b"content-type", _ANSWER_TYPE.encode())], json_line(text))


def _refusal(error: SebError, detail: str, _media_type: str) -> tuple[str, bytes]:
    """Its error codes are the status and two digits of their own; 01 is the first of each."""
    return _ANSWER_TYPE, json_line({"error_code": error.status * 100 + 1, "message": detail})


CONFLUENT: Final = Push(
    name="Confluent",
    title="Confluent's REST proxy",
    paths=["/topics/{topic}"],
    media_types=["application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json"],
    error_media=[_ANSWER_TYPE],
    read=read,
    answer=_answer,
    refusal=_refusal,
    topic_of=_topic_of,
)
