"""Targets: what comes through the ports of protocols, byte by byte.

The bytes of a connection mean the same however they are cut: each target compares them as a whole
with the same in pieces.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import V4, V5, MqttError
from seb_appliance.protocols.mqtt.messages.records import (
    check_filter,
    check_topic,
    to_publish,
    to_records,
)
from seb_appliance.protocols.sockets.introduced import CERTIFICATE, common_name
from seb_appliance.protocols.sockets.proxy_protocol import ByProxy, Said, Trusted, read_header
from seb_appliance.protocols.sockets.websocket import WebSocket
from seb_appliance.protocols.syslog import limits as syslog_limits
from seb_appliance.protocols.syslog.messages import BadFrameError, Framer
from seb_appliance.protocols.syslog.messages import read_header as read_syslog
from tests.fuzz.formats import NUMBERS
from tests.fuzz.target import Target
from tests.support.fakes import FakeClock
from tests.support.mqtt_packets import connect, proxy_header, subscribe, tls_value

_NOW_US: Final = 1_800_000_000_000_000


def pieces(data: bytes) -> Iterator[bytes]:
    """Of one size, which depends on the data."""
    size = (1, 2, 3, 7, 64, 1_000)[len(data) % 6] if len(data) < 4_000 else 1_000
    for at in range(0, len(data), size):
        yield data[at : at + size]


# --- MQTT ---


def _packets(parts: Iterator[bytes] | list[bytes]) -> tuple[list[tuple[int, bytes]], int | None]:
    """What a framer finds, and the code of its refusal."""
    framer, found = codec.Framer(), list[tuple[int, bytes]]()
    try:
        for part in parts:
            framer.feed(part)
            while (one := framer.next()) is not None:
                found.append(one)
    except MqttError as error:
        return found, error.code
    return found, None


def _properties_again(given: dict[str, Any], kind: int) -> None:
    repeated = {"subscription_id": [given["subscription_id"]]} if "subscription_id" in given else {}
    written = codec.properties(given | repeated)
    assert codec.read_properties(codec.Reader(written), kind) == given


def _publish(flags: int, body: bytes, version: int) -> None:
    message = codec.read_publish(flags, body, version)
    again = codec.Framer()
    again.largest = mqtt_limits.PACKET_BYTES_MAX
    again.feed(codec.write_publish(message, version, duplicate=bool(flags & 8)))
    first, written = again.next() or (0, b"")
    assert first == codec.PUBLISH << 4 | flags
    assert codec.read_publish(flags, written, version) == message
    if message.properties.pop("topic_alias", None) is None or message.topic:
        _stored(message)


def _stored(message: codec.Publish) -> None:
    """And sent to a subscriber."""
    records = to_records(message, _NOW_US, "client")
    packed = records.headers[0] if records.headers else None
    sent = to_publish(check_topic(message.topic), records.values[0], packed, _NOW_US)
    if message.properties.get("message_expiry") == 0:
        assert sent is None
        return
    assert sent is not None
    assert (sent[0].topic, sent[0].payload) == (message.topic, message.payload)
    assert (sent[0].qos, sent[0].retain, sent[1]) == (message.qos, message.retain, "client")
    codec.write_publish(sent[0], V5)


def _packet(first: int, body: bytes, version: int) -> None:
    """Raises MqttError."""
    kind = codec.check_flags(first)
    if kind == codec.CONNECT:
        found = codec.read_connect(body)
        _properties_again(found.properties, codec.CONNECT)
        if found.will is not None:
            _properties_again(found.will.properties, 0)
            _stored(found.will)
    elif kind == codec.PUBLISH:
        _publish(first & 15, body, version)
    elif kind in (codec.PUBACK, codec.PUBREC, codec.PUBREL, codec.PUBCOMP):
        packet_id, code = codec.read_ack(kind, body, version)
        again = codec.Framer()
        again.feed(codec.write_ack(kind, packet_id, version, code))
        assert codec.read_ack(kind, (again.next() or (0, b""))[1], version) == (packet_id, code)
    elif kind == codec.SUBSCRIBE:
        for one in codec.read_subscribe(body, version)[1]:
            check_filter(one.topic_filter)
    elif kind == codec.UNSUBSCRIBE:
        codec.read_unsubscribe(body, version)
    elif kind in (codec.DISCONNECT, codec.AUTH):
        _properties_again(codec.read_disconnect(body, version)[1], codec.DISCONNECT)


def check_mqtt(data: bytes) -> None:
    """The first bit chooses the version."""
    version, stream = (V5 if data[:1] < b"\x80" else V4), data[1:]
    found, refusal = _packets([stream])
    assert _packets(pieces(stream)) == (found, refusal)
    for first, body in found:
        with contextlib.suppress(MqttError):
            _packet(first, body, version)
    if refusal is not None:
        raise MqttError(refusal, "")
    for first, body in found:
        _packet(first, body, version)


def _mqtt_seeds() -> Iterator[bytes]:
    will = codec.Publish("gone", b"w", 1, retain=True, properties={"will_delay": 3})
    for chosen, version in ((b"\x80", V4), (b"\0", V5)):
        given: dict[str, Any] = {"content_type": "text/plain", "message_expiry": 60,
                 "user_properties": [("a", "b"), ("c", "é")], "response_topic": "r/1",
                 "correlation_data": b"\0\xff", "payload_format": 1, "topic_alias": 2}  # fmt: skip
        message = codec.Publish("a/b", b"payload", 1, packet_id=7, properties=given)
        yield chosen + connect("secret", version, "device-7", will=will)
        yield chosen + codec.write_publish(message, version)
        yield chosen + codec.write_publish(codec.Publish("t", b"", 0, retain=True), version)
        yield chosen + subscribe("a/+/#", 1, version) + codec.packet(codec.PINGREQ, b"")
        yield chosen + b"".join(
            codec.write_ack(kind, 9, version, 0x80, "no")
            for kind in (codec.PUBACK, codec.PUBREC, codec.PUBREL, codec.PUBCOMP)
        )
        names = b"\0" if version == V5 else b""
        yield chosen + codec.packet(codec.UNSUBSCRIBE, b"\0\5" + names + codec.text("a/#"), 2)
        yield chosen + codec.packet(codec.DISCONNECT, b"")
    session = {"session_expiry": 9, "receive_maximum": 5, "user_properties": [("a", "b")]}
    yield b"\0" + connect("secret", V5, "c", clean_start=False, **session)
    yield b"\0" + codec.write_disconnect(4, "going")
    given = {"subscription_id": [1000]}
    body = b"\0\1" + codec.properties(given) + codec.text("$share/g/a/b") + b"\x2d"
    yield b"\0" + codec.packet(codec.SUBSCRIBE, body, 2)


# --- WebSocket ---

_ASKED: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: seb\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class _Wire:
    """A transport that keeps what is written."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.written = b""
        self.is_closed = False
        self.protocol: asyncio.Protocol | None = None
        self._address = address

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 5) if name == "peername" else default


class _Taker(asyncio.Protocol):
    """A protocol that keeps what it is given, and answers nothing."""

    def __init__(self) -> None:
        self.taken = b""
        self.told: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        names = ("peername", CERTIFICATE)
        self.told = [transport.get_extra_info(name) for name in names]

    def data_received(self, data: bytes) -> None:
        self.taken += data


def _carried(parts: Iterator[bytes] | list[bytes]) -> tuple[bytes, object, bytes | None]:
    """What the carried protocol is given and told, and what the client is answered; None if the
    connection is closed: of two faults in one frame, the code names the one that is seen first."""
    wire, taker = _Wire(), _Taker()
    later = deque[Callable[[], None]]()
    carried = WebSocket(taker, wire, "mqtt", None, None, later.append)
    for part in parts:
        if not wire.is_closed:
            carried.data_received(part)
        while later:
            later.popleft()()
    return taker.taken, taker.told, None if wire.is_closed else wire.written


def check_websocket(data: bytes) -> None:
    """Frames, perhaps with another head before them. The HTTP port gives the head as a whole, and
    no head that does not ask for WebSocket."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not data.startswith(b"GET "):
        head, end, rest = _ASKED, b"", data
    found, in_pieces = _carried([head + end, rest]), _carried([head + end, *pieces(rest)])
    is_open = found[1] is not None
    assert in_pieces == found or not is_open


def _frame(opcode: int, payload: bytes, *, final: bool = True, mask: bytes = b"abcd") -> bytes:
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else struct.pack(">BH", 0x80 | 126, size)
    hidden = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return bytes((final << 7 | opcode,)) + length + mask + hidden


_FRAMES: Final = (
    _frame(2, b"hello") + _frame(9, b"ping") + _frame(2, b"more", final=False) + _frame(0, b"!"),
    _frame(1, "hé".encode()) + _frame(8, struct.pack(">H", 1000) + b"bye"),
    _frame(2, b"x" * 300) + _frame(10, b"") + _frame(8, b""),
)


# --- the PROXY protocol ---


def _introduced(parts: Iterator[bytes] | list[bytes]) -> tuple[object, bytes, bool] | None:
    """What the protocol behind is told and given; None while the header is not whole."""
    wire, taker = _Wire("10.0.0.1"), _Taker()
    trusted = Trusted([ipaddress.ip_network("10.0.0.0/8")], with_certificate=True)
    front = ByProxy(lambda: taker, trusted, FakeClock())
    front.connection_made(cast("asyncio.Transport", wire))
    for part in parts:
        if not wire.is_closed:
            (wire.protocol or front).data_received(part)
    if wire.protocol is None and not wire.is_closed:
        return None
    return taker.told, taker.taken, wire.is_closed


def check_proxy_protocol(data: bytes) -> None:
    assert _introduced(pieces(data)) == _introduced([data])
    found = read_header(data)
    if found is None:
        return
    said, length = found
    assert read_header(data[:length] + b"x") == found
    for shorter in (0, 1, length // 2, length - 1):
        assert read_header(data[:shorter]) is None
    if said.address is not None:
        assert str(ipaddress.ip_address(said.address)) == said.address
        _said_again(said)


def _said_again(said: Said) -> None:
    """As a proxy would say it."""
    if "%" in cast("str", said.address):  # an interface: a header of version 2 names none
        return
    name = said.certificate
    values = b"" if name is None or len(name.encode()) > 1_000 else tls_value(name)
    again = read_header(proxy_header(cast("str", said.address), values))
    assert again is not None
    assert again[0] == Said(said.address, name if values else None)


def check_certificate_subject(data: bytes) -> None:
    """Of the name, nothing is left out that could be another attribute's."""
    subject = data.decode("latin-1")
    name = common_name(subject)
    if name is not None and not set(name) & set('\\,+="'):
        assert common_name(f"CN={name},O=b") == name.strip()


# --- syslog ---


def _messages(parts: Iterator[bytes] | list[bytes]) -> tuple[list[bytes], bool]:
    """Those that are found, and whether the rest was refused."""
    framer, found = Framer(), list[bytes]()
    try:
        for part in parts:
            messages = framer.feed(part)
            while messages:
                found += messages
                messages = framer.feed()
        return found + framer.end(), False
    except BadFrameError:
        return found, True


def check_syslog(data: bytes) -> None:
    found, is_refused = _messages([data])
    assert _messages(pieces(data)) == (found, is_refused)
    assert all(found)
    framed = b"".join(b"%d %b\n" % (len(one) + 1, one) for one in found)
    if all(len(one) < syslog_limits.BYTES_MAX for one in found):
        assert _messages([framed]) == (found, False)
    for one in found:
        check_syslog_header(one)
    if is_refused:
        raise BadFrameError


def check_syslog_header(message: bytes) -> None:
    at_us, packed = read_syslog(message, _NOW_US)
    assert at_us is None or 0 <= at_us <= _NOW_US
    assert at_us is None or packed
    assert len(packed) < 1_000


_SYSLOG: Final = (
    b"<34>1 2026-10-11T22:14:15.003Z mymachine.example.com su - ID47 - BOM'su root' failed",
    b'<165>1 2026-10-11T22:14:15.000003-07:00 192.0.2.1 app 8710 - [ex@1 a="b\\]"] text',
    b"<13>Oct 11 22:14:15 mymachine su: 'su root' failed",
    b"<0>1 - - - - - -",
)

TARGETS: Final = (
    Target(
        "mqtt",
        check_mqtt,
        tuple(_mqtt_seeds()),
        (*NUMBERS, b"\0\4MQTT\5", b"\0\4MQTT\4", b"$share/g/", b"\xff\xff\xff\x7f", b"+", b"#"),
        (MqttError,),
    ),
    Target(
        "websocket",
        check_websocket,
        (*_FRAMES, _ASKED, _ASKED + _FRAMES[0], _frame(8, base64.b64decode("A/MAAA=="))),
        (
            b"\x82\xfe",
            b"\x82\xff",
            b"\x88\x80",
            b"\x89\xfd",
            b"\r\n\r\n",
            b"permessage-deflate",
            b"Sec-WebSocket-Extensions: ",
            b"Sec-WebSocket-Protocol: ",
            b"Content-Length: 5",
        ),
        is_slow=True,
    ),
    Target(
        "proxy_protocol",
        check_proxy_protocol,
        (
            b"PROXY TCP4 192.0.2.7 192.0.2.1 5 1883\r\n\x10",
            b"PROXY TCP6 2001:db8::7 2001:db8::1 5 1883\r\n",
            b"PROXY UNKNOWN\r\nx",
            proxy_header("192.0.2.7", tls_value("device-7")) + b"\x10\x0f",
            proxy_header("2001:db8::7"),
            proxy_header("192.0.2.7", command=0x20),
        ),
        (b"PROXY ", b"TCP4", b"TCP6", b"%eth0", b"::", b"\x22\0\4", b"\x20\0\x10", b"\x0f\xff"),
        (ValueError,),
    ),
    Target(
        "certificate_subject",
        check_certificate_subject,
        (b"CN=device-7,O=b", b"O=b+CN=a\\,b", b"device-7", b'CN="a,b"', b" cn = a , OU=x"),
        (b"CN=", b",", b"+", b"\\", b'"', b"\xa0", b"\n"),
    ),
    Target(
        "syslog",
        check_syslog,
        (
            *(b"%d %b" % (len(one), one) for one in _SYSLOG),
            b"".join(one + b"\r\n" for one in _SYSLOG),
            b"\n\n".join(b"%d %b\n" % (len(one) + 1, one) for one in _SYSLOG),
        ),
        (b"<191>", b"65536 ", b"1 ", b"\r\n", b"\0\n", b"2026-10-11T22:14:15Z", b" - - - -"),
        (BadFrameError,),
        is_slow=True,
    ),
    Target(
        "syslog_header",
        check_syslog_header,
        _SYSLOG,
        (b"<191>", b"<192>", b"1 ", b" - ", b"9999-12-31T23:59:59Z", b"+23:59"),
    ),
)
