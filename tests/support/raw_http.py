"""HTTP as bytes, for requests that no client would make."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RawAnswer:
    """`status` 0: the server hung up without a word. `closed`: it hung up afterwards."""

    status: int
    headers: dict[str, str]
    body: bytes
    closed: bool

    @property
    def problem(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.problem["code"])


class RawConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> RawConnection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        """The server may hang up in the middle: that is its right."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            pass

    async def answer(self, *, head: bool = False) -> RawAnswer:
        try:
            start = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return RawAnswer(0, {}, b"", closed=True)
        status_line, *lines = start.decode("latin-1").strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        length = 0 if head else int(headers.get("content-length", "0"))
        body = await self.reader.readexactly(length)
        closed = headers.get("connection") == "close"
        return RawAnswer(int(status_line.split()[1]), headers, body, closed)

    async def ended(self) -> bool:
        """Waits until the server has hung up; whether nothing more came."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def exchange(port: int, data: bytes, *, head: bool = False) -> RawAnswer:
    """One request on a connection of its own."""
    connection = await RawConnection.open(port)
    try:
        async with asyncio.timeout(60):
            sending = asyncio.create_task(connection.send(data))
            answer = await connection.answer(head=head)
            await sending
            return answer
    finally:
        await connection.close()
