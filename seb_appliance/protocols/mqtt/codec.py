"""The bytes of MQTT 3.1.1 and 5: where a packet ends, its fields and properties. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.sockets import framing

V4, V5 = 4, 5  # the protocol levels of 3.1.1 and 5
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(8, 16)

Properties = dict[str, Any]


class Code:
    """Reason codes of MQTT 5."""

    SUCCESS = 0x00
    DISCONNECT_WITH_WILL = 0x04
    NO_SUBSCRIPTION = 0x11
    UNSPECIFIED = 0x80
    MALFORMED = 0x81
    PROTOCOL_ERROR = 0x82
    REFUSED = 0x83
    UNSUPPORTED_VERSION = 0x84
    BAD_CLIENT_ID = 0x85
    BAD_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    UNAVAILABLE = 0x88
    STOPPING = 0x8B
    BAD_AUTHENTICATION = 0x8C
    KEEP_ALIVE = 0x8D
    TAKEN_OVER = 0x8E
    ADMINISTRATIVE = 0x98
    BAD_FILTER = 0x8F
    BAD_TOPIC = 0x90
    NO_PACKET_ID = 0x92
    TOO_MANY_IN_FLIGHT = 0x93
    BAD_ALIAS = 0x94
    TOO_LARGE = 0x95
    QUOTA = 0x97


class MqttError(framing.BadPacketError):
    """Ends the connection. `code`: the reason that a client of MQTT 5 is told."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text, code)


def malformed(text: str) -> MqttError:
    return MqttError(Code.MALFORMED, text)


class Reader:
    """Reads fields of one packet; raises MqttError instead of reading beyond its end."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def take(self, count: int) -> bytes:
        begin = self.at
        self.at = begin + count
        if self.at > self.end:
            raise malformed("a field does not fit in its packet")
        return self.data[begin : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def long(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def binary(self) -> bytes:
        return self.take(self.short())

    def text(self) -> str:
        try:
            found = self.binary().decode()
        except UnicodeDecodeError:
            raise malformed("a text is not UTF-8") from None
        if "\0" in found:
            raise malformed("a text has a NUL")
        return found

    def pair(self) -> tuple[str, str]:
        return self.text(), self.text()

    def number(self) -> int:
        """A variable byte integer."""
        found = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise malformed("a variable byte integer has more than four bytes")

    @property
    def is_done(self) -> bool:
        return self.at >= self.end

    def finish(self) -> None:
        if not self.is_done:
            raise malformed("bytes follow the last field")


def number(value: int) -> bytes:
    """A variable byte integer."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def binary(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def text(value: str) -> bytes:
    return binary(value.encode())


def _pair(value: tuple[str, str]) -> bytes:
    return text(value[0]) + text(value[1])


_Kind = tuple[Callable[[Reader], Any], Callable[[Any], bytes]]
_BYTE: Final[_Kind] = (Reader.byte, lambda value: bytes((value,)))
_SHORT: Final[_Kind] = (Reader.short, lambda value: struct.pack(">H", value))
_LONG: Final[_Kind] = (Reader.long, lambda value: struct.pack(">I", value))
_NUMBER: Final[_Kind] = (Reader.number, number)
_TEXT: Final[_Kind] = (Reader.text, text)
_BINARY: Final[_Kind] = (Reader.binary, binary)
_PAIR: Final[_Kind] = (Reader.pair, _pair)
_WILL: Final = 0  # the packet type under which properties of a will are listed
_MESSAGE: Final = (PUBLISH, _WILL)

# identifier: name, kind, the packets in which a client may send it
PROPERTIES: Final[dict[int, tuple[str, _Kind, tuple[int, ...]]]] = {
    1: ("payload_format", _BYTE, _MESSAGE),
    2: ("message_expiry", _LONG, _MESSAGE),
    3: ("content_type", _TEXT, _MESSAGE),
    8: ("response_topic", _TEXT, _MESSAGE),
    9: ("correlation_data", _BINARY, _MESSAGE),
    11: ("subscription_id", _NUMBER, (SUBSCRIBE,)),
    17: ("session_expiry", _LONG, (CONNECT, DISCONNECT)),
    18: ("assigned_client_id", _TEXT, ()),
    19: ("server_keep_alive", _SHORT, ()),
    21: ("auth_method", _TEXT, (CONNECT, AUTH)),
    22: ("auth_data", _BINARY, (CONNECT, AUTH)),
    23: ("request_problem", _BYTE, (CONNECT,)),
    24: ("will_delay", _LONG, (_WILL,)),
    25: ("request_response", _BYTE, (CONNECT,)),
    31: ("reason", _TEXT, (PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT, AUTH)),
    33: ("receive_maximum", _SHORT, (CONNECT,)),
    34: ("topic_alias_maximum", _SHORT, (CONNECT,)),
    35: ("topic_alias", _SHORT, (PUBLISH,)),
    36: ("maximum_qos", _BYTE, ()),
    37: ("retain_available", _BYTE, ()),
    38: ("user_properties", _PAIR, tuple(range(16))),
    39: ("maximum_packet", _LONG, (CONNECT,)),
    40: ("wildcard_available", _BYTE, ()),
    41: ("subscription_id_available", _BYTE, ()),
    42: ("shared_available", _BYTE, ()),
}
_BY_NAME: Final = {name: (bytes((i,)), kind[1]) for i, (name, kind, _) in PROPERTIES.items()}
_FLAGS: Final = {"payload_format", "request_problem", "request_response"}
_NOT_ZERO: Final = {"subscription_id", "receive_maximum", "maximum_packet"}
_REPEATED: Final = {"user_properties", "subscription_id"}  # lists; a client repeats the first only


def read_properties(reader: Reader, packet: int) -> Properties:
    """Those of a packet type, or of a will. Raises MqttError."""
    length = reader.number()
    if not length:
        return {}
    inside, found, count = Reader(reader.take(length)), Properties(), 0
    while not inside.is_done:
        name, kind, packets = PROPERTIES.get(inside.byte(), ("", _BYTE, ()))
        if packet not in packets:
            raise malformed("a property is unknown, or does not belong in this packet")
        value = kind[0](inside)
        count += 1
        if count > mqtt_limits.PROPERTIES_MAX:
            raise MqttError(Code.QUOTA, "a packet has too many properties")
        if name == "user_properties":
            found.setdefault(name, []).append(value)
            continue
        not_allowed = (name in _FLAGS and value > 1) or (name in _NOT_ZERO and value == 0)
        if name in found or not_allowed:
            raise MqttError(Code.PROTOCOL_ERROR, f"{name} is repeated or has no allowed value")
        found[name] = value
    return found


def properties(given: Mapping[str, Any]) -> bytes:
    """With the length before them."""
    if not given:
        return b"\0"
    parts = []
    for name, value in given.items():
        identifier, write = _BY_NAME[name]
        values = value if name in _REPEATED else (value,)
        parts += [identifier + write(one) for one in values]
    body = b"".join(parts)
    return number(len(body)) + body


def packet(kind: int, body: bytes, flags: int = 0) -> bytes:
    return bytes((kind << 4 | flags,)) + number(len(body)) + body


@dataclass(slots=True)
class Publish:
    """A message: a PUBLISH, or a will."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    packet_id: int = 0
    properties: Properties = field(default_factory=Properties)


def read_publish(flags: int, body: bytes, version: int) -> Publish:
    """Raises MqttError. The topic may be empty: `topic_alias` stands for it then."""
    qos = flags >> 1 & 3
    if qos == 3 or (flags & 8 and not qos):
        raise malformed("the flags of a PUBLISH are none")
    reader = Reader(body)
    topic = reader.text()
    packet_id = _packet_id(reader) if qos else 0
    given = read_properties(reader, PUBLISH) if version == V5 else {}
    return Publish(topic, body[reader.at :], qos, bool(flags & 1), packet_id, given)


def write_publish(
    message: Publish, version: int, packet_id: int = 0, *, duplicate: bool = False
) -> bytes:
    """`packet_id`: 0 is that of the message."""
    qos, topic = message.qos, text(message.topic)
    head = topic + (packet_id or message.packet_id).to_bytes(2, "big") if qos else topic
    if version == V5:
        head += properties(message.properties)
    flags = 8 * duplicate | qos << 1 | message.retain
    return packet(PUBLISH, head + message.payload, flags)


def _packet_id(reader: Reader) -> int:
    found = reader.short()
    if not found:
        raise MqttError(Code.PROTOCOL_ERROR, "a packet identifier is 0")
    return found


def read_ack(kind: int, body: bytes, version: int) -> tuple[int, int]:
    """Packet id and reason code of PUBACK, PUBREC, PUBREL and PUBCOMP. Raises MqttError."""
    reader = Reader(body)
    packet_id, code = _packet_id(reader), Code.SUCCESS
    if version == V5 and not reader.is_done:
        code = reader.byte()
        if not reader.is_done:
            read_properties(reader, kind)
    reader.finish()
    return packet_id, code


def write_ack(kind: int, packet_id: int, version: int, code: int = 0, reason: str = "") -> bytes:
    body = struct.pack(">H", packet_id)
    if version == V5 and code:
        body += bytes((code,)) + properties({"reason": reason[:200]} if reason else {})
    return packet(kind, body, 2 if kind == PUBREL else 0)


@dataclass(slots=True)
class Connect:
    """`will_bytes`: about what the will takes in memory."""

    version: int
    client_id: str
    clean_start: bool
    keep_alive_s: int
    password: bytes | None = None
    will: Publish | None = None
    properties: Properties = field(default_factory=Properties)
    will_bytes: int = 0


def read_connect(body: bytes) -> Connect:
    """Raises MqttError."""
    reader = Reader(body)
    name, version = reader.text(), reader.byte()
    if name != "MQTT" or version not in (V4, V5):
        raise MqttError(Code.UNSUPPORTED_VERSION, "only MQTT 3.1.1 and 5 are spoken here")
    flags, keep_alive_s = reader.byte(), reader.short()
    has_will, will_qos = bool(flags & 4), flags >> 3 & 3
    of_version = not (version == V4 and flags & 0xC0 == 0x40)  # a password without user name
    if flags & 1 or will_qos == 3 or (flags & 0x38 and not has_will) or not of_version:
        raise malformed("the flags of a CONNECT are none")
    given = read_properties(reader, CONNECT) if version == V5 else {}
    found = Connect(version, reader.text(), bool(flags & 2), keep_alive_s, properties=given)
    if has_will:
        of_will = read_properties(reader, _WILL) if version == V5 else {}
        topic, payload = reader.text(), reader.binary()
        found.will = Publish(topic, payload, will_qos, bool(flags & 32), 0, of_will)
        parts = 1 + len(of_will) + len(of_will.get("user_properties", ()))
        found.will_bytes = len(body) + parts * limits.PENDING_RECORD_BYTES
    if flags & 128:
        reader.text()  # the user name says nothing
    if flags & 64:
        found.password = reader.binary()
    reader.finish()
    return found


def write_connack(
    version: int, code: int, given: Mapping[str, Any], *, session_present: bool = False
) -> bytes:
    """`code`: of MQTT 5."""
    if version == V5:
        return packet(CONNACK, bytes((session_present, code)) + properties(given))
    old = {Code.SUCCESS: 0, Code.UNSUPPORTED_VERSION: 1, Code.BAD_CLIENT_ID: 2}
    old |= {Code.BAD_PASSWORD: 4, Code.NOT_AUTHORIZED: 5, Code.BAD_AUTHENTICATION: 5}
    return packet(CONNACK, bytes((session_present, old.get(code, 3))))


@dataclass(slots=True)
class Subscription:
    """`retain_handling`: whether retained messages are sent: 0 yes, 1 only if it is new, 2 no."""

    topic_filter: str
    qos: int
    no_local: bool = False
    identifier: int | None = None
    retain_as_published: bool = False
    retain_handling: int = 0


def read_subscribe(body: bytes, version: int) -> tuple[int, list[Subscription]]:
    """Raises MqttError."""
    reader = Reader(body)
    packet_id = _packet_id(reader)
    given = read_properties(reader, SUBSCRIBE) if version == V5 else {}
    found = list[Subscription]()
    while not reader.is_done:
        topic_filter, options = reader.text(), reader.byte()
        reserved = 0xC0 if version == V5 else 0xFC
        if options & reserved or options & 3 == 3 or options & 0x30 == 0x30:
            raise malformed("the options of a subscription are none")
        no_local = bool(options & 4)
        if no_local and topic_filter.startswith("$share/"):
            raise MqttError(Code.PROTOCOL_ERROR, "no local does not go with a shared subscription")
        _check_count(found)
        identifier = given.get("subscription_id")
        handling, as_published = options >> 4 & 3, bool(options & 8)
        found.append(
            Subscription(topic_filter, options & 3, no_local, identifier, as_published, handling)
        )
    return packet_id, _not_empty(found)


def read_unsubscribe(body: bytes, version: int) -> tuple[int, list[str]]:
    """Raises MqttError."""
    reader = Reader(body)
    packet_id = _packet_id(reader)
    if version == V5:
        read_properties(reader, UNSUBSCRIBE)
    found = list[str]()
    while not reader.is_done:
        _check_count(found)
        found.append(reader.text())
    return packet_id, _not_empty(found)


def _check_count(filters: list[Any]) -> None:
    """Before another one."""
    if len(filters) == mqtt_limits.FILTERS_MAX:
        raise MqttError(Code.QUOTA, "a packet has too many topic filters")


def _not_empty(filters: list[Any]) -> list[Any]:
    if not filters:
        raise MqttError(Code.PROTOCOL_ERROR, "a packet names no topic filter")
    return filters


def write_suback(kind: int, packet_id: int, codes: list[int], version: int) -> bytes:
    """SUBACK or UNSUBACK."""
    body = struct.pack(">H", packet_id)
    if version == V5:
        return packet(kind, body + b"\0" + bytes(codes))
    old = bytes(min(code, 0x80) for code in codes) if kind == SUBACK else b""
    return packet(kind, body + old)


def read_disconnect(body: bytes, version: int) -> tuple[int, Properties]:
    """With the reason code. Raises MqttError."""
    reader, code, given = Reader(body), Code.SUCCESS, Properties()
    if version == V5 and body:
        code = reader.byte()
        if not reader.is_done:
            given = read_properties(reader, DISCONNECT)
    reader.finish()
    return code, given


def write_disconnect(code: int, reason: str) -> bytes:
    return packet(DISCONNECT, bytes((code,)) + properties({"reason": reason[:200]}))


class Framer(framing.Framer[tuple[int, bytes]]):
    """Packets of at most `largest` bytes: the first byte of each, and its body."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = mqtt_limits.CONNECT_BYTES_MAX  # until it has connected

    def next(self) -> tuple[int, bytes] | None:
        data, at = self._buffer, self._at
        length, shift, begin = 0, 0, at + 1
        while True:
            if begin >= len(data):
                return None
            byte = data[begin]
            begin += 1
            length |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 21:
                raise malformed("the length of a packet has more than four bytes")
        if length > self.largest:
            raise MqttError(Code.TOO_LARGE, f"a packet of {length} bytes is too long")
        if begin + length > len(data):
            return None
        return data[at], self._take(begin, begin + length, bytes)


_FLAGS_OF: Final = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}


def check_flags(first: int) -> int:
    """The packet type. Raises MqttError for reserved flags that are not as they must be."""
    kind = first >> 4
    if kind != PUBLISH and first & 15 != _FLAGS_OF.get(kind, 0):
        raise malformed("reserved flags are not as they must be")
    return kind
