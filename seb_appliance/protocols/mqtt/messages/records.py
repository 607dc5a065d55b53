"""MQTT messages as records, and records as messages; topics and filters.

What a message has besides its topic and payload is in the record headers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance.broker.values import NewRecords, pack_headers
from seb_appliance.errors import RecordTooLargeError
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Publish

SHARED: Final = "$share/"  # begins the filter of a shared subscription
CONTENT_TYPE: Final = "content-type"
_OURS: Final = "mqtt-"  # what begins so is no user property
_QOS, _EXPIRES, _CLIENT = "mqtt-qos", "mqtt-expires", "mqtt-client"
_RESPONSE, _CORRELATION = "mqtt-response-topic", "mqtt-correlation-data"
_OWNER: Final = "mqtt-key"  # the API key of a retained message
_FORMAT, _RETAIN = "mqtt-payload-format", "mqtt-retain"
_EXPIRES_DIGITS_MAX: Final = 16  # of a time in ms; Python refuses to read thousands of them
_WITHOUT_HEADER: Final = 1  # this QoS: of records that others have stored, too
_decode_headers = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def check_topic(topic: str) -> str:
    """Returns it. Raises MqttError."""
    if not topic or "+" in topic or "#" in topic:
        raise MqttError(Code.BAD_TOPIC, "the topic is empty or has a wildcard")
    _check_length(topic)
    return topic


def topic_of(key: bytes | None) -> str | None:
    """The MQTT topic that a record key is; None if it is none."""
    try:
        topic = check_topic((key or b"").decode())
    except (UnicodeDecodeError, MqttError):
        return None
    return None if "\0" in topic else topic


def check_filter(topic_filter: str) -> str:
    """Returns it. Raises MqttError."""
    _check_length(topic_filter)
    levels = topic_filter.split("/")
    for i, level in enumerate(levels):
        is_last = i == len(levels) - 1
        if ("#" in level and not (level == "#" and is_last)) or ("+" in level and level != "+"):
            raise MqttError(Code.BAD_FILTER, "a wildcard is not a level of its own")
    if not topic_filter:
        raise MqttError(Code.BAD_FILTER, "the topic filter is empty")
    return topic_filter


def is_shared(topic_filter: str) -> bool:
    return topic_filter.startswith(SHARED)


def unshared(topic_filter: str) -> str:
    """The filter of `$share/GROUP/FILTER`; others as they are."""
    if not is_shared(topic_filter):
        return topic_filter
    return topic_filter.removeprefix(SHARED).partition("/")[2]


def share_of(topic_filter: str) -> tuple[str, str]:
    """Group and filter of `$share/GROUP/FILTER`. Raises MqttError."""
    group = topic_filter.removeprefix(SHARED).partition("/")[0]
    if not is_shared(topic_filter) or not group or "+" in group or "#" in group:
        raise MqttError(Code.BAD_FILTER, "it must be $share/NAME/FILTER")
    return group, check_filter(unshared(topic_filter))


def _check_length(topic: str) -> None:
    levels_max = mqtt_limits.LEVELS_MAX
    if len(topic.encode()) > mqtt_limits.TOPIC_BYTES_MAX or topic.count("/") >= levels_max:
        raise MqttError(Code.BAD_TOPIC, "the topic is too long or has too many levels")


def to_records(message: Publish, now_us: int, client_id: str = "") -> NewRecords:
    """`client_id`: kept if it is given. Raises MqttError for what cannot be stored."""
    headers = dict[str, bytes]()
    if message.qos != _WITHOUT_HEADER:
        headers[_QOS] = b"%d" % message.qos
    if client_id:
        headers[_CLIENT] = client_id.encode()
    if message.retain:
        headers[_RETAIN] = b"1"
    if message.properties:
        _add_properties(headers, message, now_us)
    packed = [_packed(headers)] if headers else None
    return NewRecords([message.payload], [message.topic.encode()], packed)


def _add_properties(headers: dict[str, bytes], message: Publish, now_us: int) -> None:
    given = message.properties
    if (seconds := given.get("message_expiry")) is not None:
        headers[_EXPIRES] = b"%d" % (now_us // 1_000 + seconds * 1_000)
    if "payload_format" in given:
        headers[_FORMAT] = b"%d" % given["payload_format"]
    if "content_type" in given:
        headers[CONTENT_TYPE] = given["content_type"].encode()
    if "response_topic" in given:
        headers[_RESPONSE] = check_topic(given["response_topic"]).encode()
    if "correlation_data" in given:
        headers[_CORRELATION] = given["correlation_data"]
    for name, value in given.get("user_properties", ()):
        if name in headers or name.startswith(_OURS):
            text = f"the user property {name[:100]!r} is repeated, or its name is not free"
            raise MqttError(Code.REFUSED, text)
        headers[name] = value.encode()


def owned(packed: bytes, api_key_id: str) -> bytes:
    """Packed headers that name the API key, too. Raises MqttError."""
    return _packed((_decode_headers(packed) if packed else {}) | {_OWNER: api_key_id.encode()})


def owner_of(packed: bytes | None) -> str:
    found = _decode_headers(packed).get(_OWNER, b"") if packed else b""
    return found.decode("utf-8", "replace")


def _packed(headers: dict[str, bytes]) -> bytes:
    try:
        return pack_headers(headers)
    except RecordTooLargeError as error:
        raise MqttError(Code.REFUSED, error.detail) from error


def to_publish(
    topic: str | None, value: bytes | None, packed: bytes | None, now_us: int
) -> tuple[Publish, str] | None:
    """The message and the client that sent it, if that was kept. None: it has expired, or has no
    MQTT topic."""
    if topic is None:
        return None
    if not packed:
        return Publish(topic, value or b"", _WITHOUT_HEADER), ""
    headers = _decode_headers(packed)
    properties = dict[str, object]()
    expires = headers.pop(_EXPIRES, b"")
    # Anybody who may produce to the topic writes these headers.
    if expires.isdigit() and len(expires) <= _EXPIRES_DIGITS_MAX:
        left_ms = int(expires) - now_us // 1_000
        if left_ms <= 0:
            return None
        properties["message_expiry"] = min(-(-left_ms // 1_000), 2**32 - 1)
    qos = {b"0": 0, b"2": 2}.get(headers.pop(_QOS, b""), _WITHOUT_HEADER)
    client_id = headers.pop(_CLIENT, b"").decode("utf-8", "replace")
    headers.pop(_OWNER, None)
    is_retained = headers.pop(_RETAIN, b"") == b"1"
    if headers.pop(_FORMAT, b"") == b"1":
        properties["payload_format"] = 1
    if (correlation := headers.pop(_CORRELATION, None)) is not None:
        properties["correlation_data"] = correlation
    for header, name in ((CONTENT_TYPE, "content_type"), (_RESPONSE, "response_topic")):
        if (found := _text(headers.pop(header, None))) is not None:
            properties[name] = found
    users = [(name, _text(value)) for name, value in headers.items()]
    properties["user_properties"] = [
        pair for pair in users if pair[1] is not None and _fits(pair[0])
    ]
    if not properties["user_properties"]:
        del properties["user_properties"]
    return Publish(topic, value or b"", qos, is_retained, properties=properties), client_id


def _text(value: bytes | None) -> str | None:
    """A header's value, if MQTT can send it as a text."""
    try:
        found = None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
    return found if found is not None and _fits(found) else None


def _fits(text: str) -> bool:
    return "\0" not in text and len(text) <= mqtt_limits.TEXT_CHARACTERS_MAX
