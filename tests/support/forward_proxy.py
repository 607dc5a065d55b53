"""A forward proxy, as networks have that let nobody out directly: requests for http, tunnels for
https. It knows one store by a name that no other resolver knows."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

STORE = "store.invalid"


class ForwardProxy:
    """`asked`: the first line of each connection. `is_open`: False cuts off what there is, and
    refuses what comes."""

    def __init__(self, store_port: int) -> None:
        self.asked: list[str] = []
        self.is_open = True
        self._store_port = store_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self.is_open = False
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            if self.is_open:
                await self._pass(reader, writer)
        self._writers.discard(writer)
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readuntil(b"\r\n")
        self.asked.append(line.decode().strip())
        assert STORE.encode() in line, line
        there, store = await asyncio.open_connection("127.0.0.1", self._store_port)
        if line.startswith(b"CONNECT "):
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            store.write(line)  # the store takes a whole URL, too
        try:
            await asyncio.gather(_copy(reader, store), _copy(there, writer))
        finally:
            store.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
