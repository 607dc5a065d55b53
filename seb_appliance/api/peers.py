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
    """Whether a process on this machine asks for itself, and not for somebody else as a proxy."""
    client = scope.get("client")
    if client is None:  # a Unix socket
        return True
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    return address.is_loopback and not any(name in _FORWARDED for name, _ in scope["headers"])
