"""How many connections a turn of the event loop accepts."""

from __future__ import annotations

import os
import socket
from typing import Final

ACCEPTED_AT_ONCE: Final = 32
"""libuv accepts one connection for each listening socket in each turn of the loop. A turn takes 7
ms when 1,500 connections are busy: with one socket, some connections waited two seconds."""


def duplicates(fileno: int) -> list[socket.socket]:
    """More of a listening socket. The caller closes them."""
    return [socket.socket(fileno=os.dup(fileno)) for _ in range(ACCEPTED_AT_ONCE - 1)]
