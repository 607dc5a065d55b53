"""The socket of the HTTP server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from seb_appliance.errors import StartError
from seb_appliance.settings import Settings

_BACKLOG: Final = 2048


@contextlib.contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The listening socket. It is bound before the bucket is claimed, so that a start on a used
    port fences nobody."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    shown = f"[{settings.host}]" if family == socket.AF_INET6 else settings.host
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:  # :: takes IPv4 clients, too, whatever a sysctl says
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listener.bind((settings.host, settings.port))
    except PermissionError:
        listener.close()
        raise StartError(
            f"cannot listen on {shown}:{settings.port} (permission denied). Choose a port "
            "above 1023 and put a reverse proxy in front."
        ) from None
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {shown}:{settings.port} ({error.strerror}). Choose another "
            "--port or --host."
        ) from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    with listener:
        yield listener
