"""What MQTT clients and their proxies send, as bytes."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

from seb_appliance.protocols.mqtt import codec


def connect(
    password: str | None,
    version: int = 5,
    client_id: str = "c",
    *,
    keep_alive_s: int = 60,
    clean_start: bool = True,
    will: codec.Publish | None = None,
    **properties: Any,
) -> bytes:
    flags = 2 * clean_start | (0 if password is None else 0xC0)
    rest = codec.text(client_id)
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        rest += codec.properties(will.properties) if version == 5 else b""
        rest += codec.text(will.topic) + codec.binary(will.payload)
    if password is not None:
        rest += codec.text("anybody") + codec.text(password)
    head = codec.text("MQTT") + bytes((version, flags)) + struct.pack(">H", keep_alive_s)
    given = codec.properties(properties) if version == 5 else b""
    return codec.packet(codec.CONNECT, head + given + rest)


def subscribe(topic_filter: str, options: int = 1, version: int = 5, packet_id: int = 9) -> bytes:
    given = b"\0" if version == 5 else b""
    body = struct.pack(">H", packet_id) + given + codec.text(topic_filter) + bytes((options,))
    return codec.packet(codec.SUBSCRIBE, body, 2)


def proxy_header(address: str, values: bytes = b"", command: int = 0x21) -> bytes:
    """Of the PROXY protocol, version 2."""
    source = ipaddress.ip_address(address)
    addresses = source.packed * 2 + struct.pack(">HH", 50_000, 1883)
    family = 0x11 if source.version == 4 else 0x21
    size = len(addresses) + len(values)
    head = struct.pack(">12sBBH", b"\r\n\r\n\0\r\nQUIT\n", command, family, size)
    return head + addresses + values


def tls_value(name: str, flags: int = 0x03, verify: int = 0, more: bytes = b"") -> bytes:
    """A value of such a header, which tells of a client certificate with this common name."""
    version, known = b"TLSv1.3", name.encode(errors="surrogateescape")
    inner = struct.pack(">BI", flags, verify) + struct.pack(">BH", 0x21, len(version)) + version
    inner += struct.pack(">BH", 0x22, len(known)) + known + more
    return struct.pack(">BH", 0x20, len(inner)) + inner
