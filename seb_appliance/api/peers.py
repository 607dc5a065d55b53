"""Where a request comes from."""

from __future__ import annotations

import ipaddress
from typing import Final

from litestar.types import Scope

_FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


def peer_address(scope: Scope) -> str:
    """The address of whoever opened the connection: behind a proxy, the proxy's. What a client says
    of itself in headers counts for nothing. A Unix socket has none: ""."""
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
