"""The client's connection, on asyncio's own event loop."""

from __future__ import annotations

import asyncio

from seb_appliance.client.transport import Connection, Endpoint


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
