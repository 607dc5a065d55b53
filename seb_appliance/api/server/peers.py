"""Where a request comes from."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

from litestar.types import Scope

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


def forwarded_for(scope: Scope, trusted: Sequence[Network]) -> str | None:
    """Who asks, as proxies that are `trusted` say: the last address in X-Forwarded-For that is none
    of theirs, for what stands before it that one may have made up. None: nobody trusted says so."""
    peer = _ip(peer_address(scope))
    if not trusted or peer is None or not _is_in(peer, trusted):
        return None
    lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    found = None
    for text in reversed(b",".join(lines).decode("latin-1").split(",")):
        address = _ip(text.strip())
        if address is None:
            break
        found = str(address)
        if not _is_in(address, trusted):
            break
    return found


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_in(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, networks: Sequence[Network]
) -> bool:
    return any(address in network for network in networks)


def peer_address(scope: Scope) -> str:
    """The address of whoever opened the connection, or for whom a trusted proxy did. What others
    say in headers counts for nothing. A Unix socket has none: ""."""
    client = scope.get("client")
    return client[0] if client is not None else ""


def is_local(scope: Scope) -> bool:
    """Whether a process on this machine asks this machine for itself: neither for somebody else as
    a proxy, nor for a page whose host name was made to point here."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    return _is_local_peer(scope) and all(map(is_loopback_host, hosts))


def is_loopback_host(host: str) -> bool:
    """Whether `host` (with a port, perhaps) names this machine. A name that somebody else may
    point at us does not."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_local_peer(scope: Scope) -> bool:
    client = scope.get("client")
    if client is None:  # a Unix socket
        return True
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    return address.is_loopback and not any(name in _FORWARDED for name, _ in scope["headers"])
