"""The Go broker's API over a list in memory, with the lies that a load generator must find out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

KEY = "go-key"
_REASONS = {200: "OK", 201: "Created", 206: "Partial Content", 401: "Unauthorized"}


@dataclass
class GoBroker:
    """`lie`: what is wrong with it: `loses`, `doubles`, `damages`, `swaps` (one record each), or
    `refuses` (a 500 for a request that it stores). `stalls_s`: how long the tenth request waits,
    and everybody with it."""

    lie: str = ""
    stalls_s: float = 0.0
    topics: dict[str, list[bytes]] = field(default_factory=dict)
    posts: int = 0
    port: int = 0
    key: str = KEY
    busy_reads: int = 0  # so many reads are answered with 503
    _stall: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        if headers.get("authorization", "").removeprefix("Bearer ") != self.key:
            return _whole(401, b"invalid auth")
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        log = self.topics.setdefault(query["topic-name"], [])
        if method == "POST":
            return await self._produce(log, headers, body)
        if self.busy_reads:
            self.busy_reads -= 1
            return _whole(503, b"too much to do")
        offset = int(query["offset"])
        if parts.path == "/record":
            return _whole(200, log[offset])
        most = int(query.get("max-records", "10"))
        waits_ms = int(query["timeout"].removesuffix("ms"))
        for _ in range(waits_ms // 5):
            if offset < len(log):
                break
            await asyncio.sleep(0.005)
        found = log[offset : offset + most]
        if not found:
            return _multipart(206, [])
        sizes = json.dumps([len(value) for value in found]).encode()
        return _multipart(200, [("sizes", sizes), ("records", b"".join(found))])

    async def _produce(self, log: list[bytes], headers: dict[str, str], body: bytes) -> bytes:
        self.posts += 1
        async with self._stall:
            if self.posts == 10:
                await asyncio.sleep(self.stalls_s)
        boundary = headers["content-type"].partition("boundary=")[2].encode()
        pieces = (b"\r\n" + body).split(b"\r\n--" + boundary)
        sizes = json.loads(pieces[1].partition(b"\r\n\r\n")[2])
        data = pieces[2].partition(b"\r\n\r\n")[2]
        assert sum(sizes) == len(data)
        values, at = [], 0
        for size in sizes:
            values.append(data[at : at + size])
            at += size
        first = len(log)
        lies = self.lie if self.posts == 3 else ""
        if lies == "loses":
            values = values[:-1]
        elif lies == "doubles":
            values.append(values[-1])
        elif lies == "damages":
            values[0] = values[0][:-1] + b"!"
        log += values
        if lies == "swaps":
            log[-1], log[0] = log[0], log[-1]
        if lies == "refuses":
            return _whole(500, b'{"code": "internal", "side_effects": "none"}')
        offsets = list(range(first, first + len(sizes)))
        return _whole(201, json.dumps({"offsets": offsets}).encode())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                start = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                method, target, _ = start[0].split(" ")
                pairs = (line.partition(": ") for line in start[1:])
                headers = {name.lower(): value for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                writer.write(await self.answer(method, target, headers, body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def go_broker(lie: str = "", stalls_s: float = 0.0) -> AsyncIterator[GoBroker]:
    broker = GoBroker(lie=lie, stalls_s=stalls_s)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(broker._serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _whole(status: int, body: bytes) -> bytes:
    reason = _REASONS.get(status, "Other")
    return f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _multipart(status: int, parts: list[tuple[str, bytes]]) -> bytes:
    """In chunks, as Go sends what is longer than it looks ahead."""
    boundary = secrets.token_hex(30).encode()  # drawn anew for each answer
    body = b"".join(
        b"--%b\r\nContent-Disposition: form-data; name=%b\r\n\r\n%b\r\n"
        % (boundary, json.dumps(name).encode(), content)
        for name, content in parts
    )
    body += b"--%b--\r\n" % boundary
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nTransfer-Encoding: chunked\r\n"
        f"Content-Type: multipart/form-data; boundary={boundary.decode()}\r\n\r\n"
    )
    middle = len(body) // 2
    chunks = [b"%x\r\n%b\r\n" % (len(c), c) for c in (body[:middle], body[middle:])]
    return head.encode() + b"".join(chunks) + b"0\r\n\r\n"
