"""Connections that come at once are accepted in a few turns of the event loop."""

from __future__ import annotations

import asyncio
import socket
from itertools import count

import uvloop

from seb_appliance.api.server.accepting import ACCEPTED_AT_ONCE, duplicates

CONNECTIONS = 3 * ACCEPTED_AT_ONCE


async def turns_until_all_are_accepted() -> int:
    loop = asyncio.get_running_loop()
    accepted: list[asyncio.BaseTransport] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
    callers = [socket.create_connection(listener.getsockname()) for _ in range(CONNECTIONS)]
    listeners = [listener, *duplicates(listener.fileno())]
    servers = [await loop.create_server(Accepted, sock=one) for one in listeners]
    turns = count()
    while len(accepted) < CONNECTIONS:
        await asyncio.sleep(0)
        assert next(turns) < 100 * CONNECTIONS, len(accepted)
    for closing in (*servers, *accepted, *callers):
        closing.close()
    return next(turns)


def test_connections_that_come_at_once_are_accepted_in_a_few_turns_of_the_loop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(turns_until_all_are_accepted()) < CONNECTIONS / 4
