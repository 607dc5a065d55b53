"""What a proxy says of its client, as bytes and as a subject."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.introduced import common_name
from seb_appliance.protocols.sockets.proxy_protocol import Said, read_header
from tests.support.mqtt_packets import proxy_header, tls_value


def test_the_line_of_version_1_tells_the_address() -> None:
    for line, address in (
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 5 1883\r\n", "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 5 1883\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", None),
    ):
        assert read_header(line + b"\x10") == (Said(address, None), len(line))


def test_version_2_tells_address_and_certificate() -> None:
    header = proxy_header("192.0.2.7", tls_value("7ckd4wpx"))
    assert read_header(header + b"\x10") == (Said("192.0.2.7", "7ckd4wpx"), len(header))
    header = proxy_header("2001:db8::7")
    assert read_header(header) == (Said("2001:db8::7", None), len(header))


@pytest.mark.parametrize(
    "value",
    [
        tls_value("7ckd4wpx", flags=0x01),  # TLS, and no certificate
        tls_value("7ckd4wpx", verify=10),  # one that has expired
        tls_value("7ckd4wpx", more=b"\x22\0\1x"),  # two names
    ],
)
def test_a_certificate_that_was_not_verified_or_is_ambiguous_is_none(value: bytes) -> None:
    assert read_header(proxy_header("192.0.2.7", value))[0] == Said("192.0.2.7", None)


def test_what_a_proxy_does_for_itself_has_no_client() -> None:
    assert read_header(proxy_header("192.0.2.7", command=0x20))[0] == Said(None, None)
    unix = struct.pack(">12sBBH", b"\r\n\r\n\0\r\nQUIT\n", 0x21, 0x31, 216) + bytes(216)
    assert read_header(unix) == (Said(None, None), len(unix))


def test_a_header_may_come_byte_by_byte() -> None:
    for header in (
        b"PROXY TCP4 192.0.2.7 192.0.2.1 5 1883\r\n",
        proxy_header("192.0.2.7", tls_value("7ckd4wpx")),
    ):
        for size in range(len(header)):
            assert read_header(header[:size]) is None, size
        assert read_header(header) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0f\0\4MQTT",
        b"PROXY " + b"x" * 110,
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP4 a b 1 2\r\n",
        b"PROXY \xff\r\n",
        b"\r\n\r\n\0\r\nQUIT\r\n",
        struct.pack(">12sBBH", b"\r\n\r\n\0\r\nQUIT\n", 0x11, 0x11, 12) + bytes(12),
        struct.pack(">12sBBH", b"\r\n\r\n\0\r\nQUIT\n", 0x21, 0x11, 4) + bytes(4),
        struct.pack(
            ">12sBBH", b"\r\n\r\n\0\r\nQUIT\n", 0x21, 0x11, socket_limits.PROXY_BYTES_MAX + 1
        ),
        proxy_header("192.0.2.7", b"\x20\0"),
        proxy_header("192.0.2.7", b"\x20\0\1\1"),
        proxy_header("192.0.2.7", b"\x20\0\7\3\0\0\0\0\x22\0"),
        proxy_header("192.0.2.7", tls_value("\udcff")),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - ours, and those of decoding
        read_header(data)


def test_a_changed_header_is_read_or_refused() -> None:
    drawn = random.Random(1)
    whole = proxy_header("192.0.2.7", tls_value("7ckd4wpx"))
    for _ in range(20_000):
        data = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        try:
            found = read_header(bytes(data[: drawn.randint(1, len(data))]))
        except ValueError:
            continue
        if found is not None and found[0].address is not None:
            socket.inet_pton(socket.AF_INET6 if ":" in found[0].address else socket.AF_INET,
                             found[0].address)  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("7ckd4wpx", "7ckd4wpx"),
        ("CN=7ckd4wpx", "7ckd4wpx"),
        ("CN=7ckd4wpx,O=Acme\\, Inc.,C=DE", "7ckd4wpx"),
        ("O=Acme+CN=7ckd4wpx", "7ckd4wpx"),
        ("O=Acme, cn = 7ckd4wpx", "7ckd4wpx"),
        ("O=a\\,CN=admin", None),
        ("O=a\\\\,CN=7ckd4wpx", "7ckd4wpx"),
        ("CN=a,O=b\\\\,CN=7ckd4wpx", None),
        ("CN=a,CN=b", None),
        ('O="a,CN=7ckd4wpx"', None),
        ("/O=Acme/CN=7ckd4wpx", None),
        ("O=Acme", None),
        ("", None),
    ],
)
def test_a_subject_has_one_common_name_or_none(subject: str, name: str | None) -> None:
    assert common_name(subject) == name
