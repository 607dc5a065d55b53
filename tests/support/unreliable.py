"""What stands between a client and an appliance, and is not to be trusted: requests and answers get
lost, or come late; or nobody is behind it, and the answers are a test's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

Fate = Literal["pass", "lose_request", "lose_answer", "late"]
Answering = Callable[[bytes], Awaitable[bytes | None]]


@dataclass
class Between:
    """`requests`: the heads of those that came, in order."""

    port: int = 0
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def between(answering: Answering) -> AsyncIterator[Between]:
    """`answering` gets a whole request; None: the connection ends without an answer."""
    running = Between()
    open_now: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                running.requests.append(head)
                answer = await answering(head + await reader.readexactly(body_length(head)))
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            open_now.discard(writer)
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        for writer in open_now:
            writer.close()
        await server.wait_closed()


def body_length(head: bytes) -> int:
    found = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return int(found[1]) if found else 0


@asynccontextmanager
async def unreliable(
    port: int, fate: Callable[[], Fate], method: bytes = b""
) -> AsyncIterator[Between]:
    """A way to the appliance at `port` on which each request (of that `method`) has its `fate`."""

    async def forward(request: bytes) -> bytes | None:
        doom = fate() if request.startswith(method) else "pass"
        if doom == "lose_request":
            return None
        if doom == "late":
            for _ in range(50):
                await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        answer = head + await reader.readexactly(body_length(head))
        writer.close()
        return None if doom == "lose_answer" else answer

    async with between(forward) as running:
        yield running


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    """An HTTP answer, an appliance's if it says `Seb-Version: …`."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
