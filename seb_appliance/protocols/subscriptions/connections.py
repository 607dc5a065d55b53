"""Connections to receivers that wait for the next request of their subscription."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, NamedTuple

from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.addresses import Target


class Connection(NamedTuple):
    """`opened_s`: time of the event loop."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    opened_s: float


class _Key(NamedTuple):
    """`user`: one subscription. Nobody else gets its connections: what a receiver sends ahead of a
    request could pass for the answer to somebody else's."""

    user: str
    secure: bool
    host: str
    port: int


class _Idle(NamedTuple):
    key: _Key
    connection: Connection
    watch: asyncio.Task[None]


class IdleConnections:
    """At most PUSH_IDLE_CONNECTIONS_MAX, each for PUSH_IDLE_S. The oldest makes room."""

    def __init__(self) -> None:
        self._idle: Final[list[_Idle]] = []

    async def take(self, user: str, target: Target) -> Connection | None:
        """The one that was used last. The receiver may close it at any time."""
        key = _Key(user, target.secure, target.host, target.port)
        for one in [one for one in reversed(self._idle) if one.key == key]:
            if one not in self._idle:
                continue  # it was closed, or somebody else took it
            self._idle.remove(one)
            one.watch.cancel()
            # Until the watch has ended, nobody else can read.
            await asyncio.wait([one.watch])
            if not one.connection.writer.transport.is_closing():
                return one.connection
        return None

    def keep(self, user: str, target: Target, connection: Connection) -> None:
        """Or close it, if it is too old: the addresses of a name are looked up now and then."""
        age_s = asyncio.get_running_loop().time() - connection.opened_s
        if age_s > push_limits.CONNECTION_AGE_S_MAX:
            connection.writer.transport.abort()
            return
        if len(self._idle) == push_limits.IDLE_CONNECTIONS_MAX:
            self._close(self._idle.pop(0))
        key = _Key(user, target.secure, target.host, target.port)
        watch = asyncio.create_task(self._watch(connection))
        self._idle.append(_Idle(key, connection, watch))

    async def _watch(self, connection: Connection) -> None:
        """Until it is taken, or is closed: after a while, and if the receiver closes it or sends
        what nobody asked for."""
        with contextlib.suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(push_limits.IDLE_S):
                await connection.reader.read(1)
        connection.writer.transport.abort()
        self._idle[:] = [one for one in self._idle if one.connection is not connection]

    @staticmethod
    def _close(one: _Idle) -> None:
        one.watch.cancel()
        one.connection.writer.transport.abort()

    def close(self) -> None:
        while self._idle:
            self._close(self._idle.pop())
