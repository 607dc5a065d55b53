"""A receiver of webhooks on 127.0.0.1, whose answers a test chooses request by request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Said", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class Got:
    """`headers`: names in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """`answers`: the next ones, in order; then `usual`. None: no answer until `release` is set.
    `stays`: connections stay open for further requests."""

    port: int = 0
    scheme: str = "http"
    usual: bytes | None = OK
    stays: bool = False
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    answers: deque[bytes | None] = field(default_factory=deque)
    got: list[Got] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: int = 0
    most_at_once: int = 0
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook?a=b"

    async def arrived(self, count: int) -> list[Got]:
        """The requests, once there are so many."""
        async with asyncio.timeout(20), self._arrived:
            await self._arrived.wait_for(lambda: len(self.got) >= count)
        return self.got

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._answer(reader, writer)
            while self.stays:
                await self._answer(reader, writer)
        self.at_once -= 1
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.strip().split("\r\n")
        headers = {n.lower(): v for n, _, v in (one.partition(": ") for one in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        said = self.answers.popleft() if self.answers else self.usual
        async with self._arrived:
            self.got.append(Got(line, headers, body))
            self._arrived.notify_all()
        if said is None:
            await self.release.wait()
            said = OK
        writer.write(said)
        await writer.drain()


@contextlib.asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver(scheme="http" if tls is None else "https")
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.release.set()
        server.close()
