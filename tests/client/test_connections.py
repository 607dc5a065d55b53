"""The client's connection, on asyncio's own event loop."""

from __future__ import annotations

import asyncio

from seb_appliance.client.failures import ApplianceError
from seb_appliance.client.transport import Caller, Connection, Endpoint
from tests.support.appliances import HurriedClock
from tests.support.unreliable import between


async def test_what_the_client_closes_is_closed_for_the_other_side_too() -> None:
    ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        ended.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint(f"http://127.0.0.1:{port}", "seb_secret")
        connection = Connection(endpoint)
        await connection.open()
        await connection.send(endpoint.request("GET", "/v1/topics"))
        await connection.receive()
        connection.close()
        async with asyncio.timeout(60):
            assert await ended == b""
    finally:
        server.close()


async def test_it_is_told_within_a_second_that_no_request_succeeds_and_when_one_does_again():
    good = b"HTTP/1.1 200 OK\r\nSeb-Version: 1\r\nContent-Length: 0\r\n\r\n"
    answers = [None, good, *[None] * 8, good, good]
    told: list[tuple[str | None, float]] = []
    clock = HurriedClock()

    async def answering(_: bytes) -> bytes | None:
        return answers.pop(0)

    def on_wait(why: ApplianceError | None) -> None:
        told.append((why and why.code, clock.now_s))

    async with between(answering) as way:
        endpoint = Endpoint(way.url, "k")
        caller = Caller(
            endpoint, clock, lambda: 1.0, connections=1, patience_s=60.0, on_wait=on_wait
        )
        await caller.get("/v1/x")
        assert not told
        began_s = clock.now_s
        await caller.get("/v1/x")
        await caller.get("/v1/x")
        caller.close()
    assert [what for what, _ in told] == ["no_answer", None]
    assert told[0][1] - began_s <= 1.0
