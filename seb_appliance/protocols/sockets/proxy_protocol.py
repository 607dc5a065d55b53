"""The PROXY protocol, versions 1 and 2: what a trusted proxy says of its client in front of the
client's bytes."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from seb_appliance.api.server.auth import Network, is_in
from seb_appliance.clock import Clock, Timer
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.introduced import Introduced

_log = logging.getLogger(__name__)
_LINE: Final = b"PROXY "
_LINE_BYTES_MAX: Final = 107  # of version 1, as the protocol says
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD: Final = struct.Struct(">12sBBH")  # signature, version and command, family, length
_ADDRESSES: Final = {1: (4, 12), 2: (16, 36)}  # by family: bytes of one, and of both with ports
_TLS, _COMMON_NAME = 0x20, 0x22
_HAS_CERTIFICATE: Final = 0x02 | 0x04  # shown on this connection, or when its session began


class Trusted(NamedTuple):
    """Whose headers are believed, and whether they may name a client certificate."""

    proxies: Sequence[Network]
    with_certificate: bool


class Said(NamedTuple):
    """As of `Introduced`."""

    address: str | None
    certificate: str | None


def read_header(data: bytes) -> tuple[Said, int] | None:
    """What the header at the beginning of `data` says, and its length; None if its end is not
    there yet. Raises ValueError."""
    start = data[: len(_SIGNATURE)]
    if start.startswith(_LINE):
        line, end, _ = data[:_LINE_BYTES_MAX].partition(b"\r\n")
        if end:
            return _read_line(line), len(line) + len(end)
        if len(data) >= _LINE_BYTES_MAX:
            raise ValueError("its line does not end")
        return None
    if not (_SIGNATURE.startswith(start) or _LINE.startswith(start)):
        raise ValueError("there is none")
    if len(data) < _HEAD.size:
        return None
    _, version, family, length = _HEAD.unpack_from(data)
    if version not in (0x20, 0x21):
        raise ValueError("its version or command is not known")
    if length > socket_limits.PROXY_BYTES_MAX:
        raise ValueError("it is too long")
    end_at = _HEAD.size + length
    if len(data) < end_at:
        return None
    is_local = version == 0x20  # the proxy's own, such as a health check
    said = Said(None, None) if is_local else _read_body(family >> 4, data[_HEAD.size : end_at])
    return said, end_at


def _read_line(line: bytes) -> Said:
    words = line.decode("ascii").split(" ")
    if words[1] == "UNKNOWN":
        return Said(None, None)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ValueError("its line is none")
    return Said(str(ipaddress.ip_address(words[2])), None)


def _read_body(family: int, body: bytes) -> Said:
    if family not in _ADDRESSES:
        return Said(None, None)
    one, both = _ADDRESSES[family]
    if len(body) < both:
        raise ValueError("its addresses are cut off")
    certificate = None
    for kind, value in _values(body[both:]):
        if kind == _TLS:
            certificate = _read_tls(value)
    return Said(str(ipaddress.ip_address(body[:one])), certificate)


def _read_tls(value: bytes) -> str | None:
    """The common name of a client certificate that was shown and verified."""
    if len(value) < 5:
        raise ValueError("a value is cut off")
    if not value[0] & _HAS_CERTIFICATE or any(value[1:5]):
        return None
    names = [inner.decode() for kind, inner in _values(value[5:]) if kind == _COMMON_NAME]
    return names[0] if len(names) == 1 else None


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Types and values. Raises ValueError."""
    at = 0
    while at < len(data):
        if at + 3 > len(data):
            raise ValueError("a value is cut off")
        kind, length = struct.unpack_from(">BH", data, at)
        at += 3 + length
        if at > len(data):
            raise ValueError("a value is cut off")
        yield kind, data[at - length : at]


class ByProxy(asyncio.Protocol):
    """In front of `make`'s protocol: a connection from a trusted proxy begins with a header; any
    other is served as it is."""

    def __init__(
        self, make: Callable[[], asyncio.Protocol], trusted: Trusted, clock: Clock
    ) -> None:
        self._make = make
        self._trusted = trusted
        self._clock = clock
        self._data = b""
        self._timer: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer and is_in(str(peer[0]), self._trusted.proxies):
            self._timer = self._clock.call_later(socket_limits.PROXY_S_MAX, self._transport.abort)
        else:
            self._hand_over(self._transport, b"")

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            found = read_header(self._data)
        except ValueError as error:
            peer = self._transport.get_extra_info("peername")
            _log.info("a connection of the proxy %s has no valid PROXY header: %s", peer, error)
            self._transport.abort()
            return
        if found is not None:
            (address, certificate), length = found
            certificate = certificate if self._trusted.with_certificate else None
            introduced = Introduced(self._transport, address, certificate)
            self._hand_over(introduced, self._data[length:])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop_timer()

    def _hand_over(self, transport: asyncio.Transport, rest: bytes) -> None:
        self._stop_timer()
        protocol = self._make()
        self._transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest:
            protocol.data_received(rest)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
