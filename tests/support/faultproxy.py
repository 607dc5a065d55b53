"""An HTTP proxy before an S3 server, with faults on demand.

In a test:

    async with FaultProxy(server.port) as proxy:
        store = S3Store(replace(options, endpoint_url=proxy.url))
        proxy.add(Rule("drop_reply", method="PUT", match="/journal/", count=1))
        ...
        assert proxy.requests == [("PUT", "/bucket/_seb/journal/…")]

As a process (port 0: any free one; the first line on stdout is JSON with `port` and `control`):

    python -m tests.support.faultproxy LISTEN_PORT UPSTREAM_PORT CONTROL_PORT

takes one command per connection on the control port (`control()` here sends one): `rule {JSON}`
with the fields of `Rule`, `clear`, `stats`. It answers one line of JSON.

Actions:

    drop_reply  forward, swallow the answer, reset the client: it did land
    reset       reset the client, forward nothing: it did not land
    late        reset the client at once, forward after `delay` s: it lands after the client gave up
    hang        never answer; the connection stays open until the client leaves
    status      answer `code` (with the S3 error code `error`, or `body`), forward nothing
    slow        forward after `delay` s
    truncate    send `bytes` of the answer's body, then reset
    flip        flip one bit in the middle of the answer's body
    lie412      forward, then answer 412 although it landed

A rule applies to requests of its `method` (None: any) whose path contains `match`, after `skip` of
them, `count` times (None: for ever), each time with probability `p`. The first that applies wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Self

Action = Literal[
    "drop_reply", "reset", "late", "hang", "status", "slow", "truncate", "flip", "lie412"
]
_ERROR_CODES = {
    301: "PermanentRedirect",
    400: "BadDigest",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown",
    504: "GatewayTimeout",
    507: "InsufficientStorage",
}


@dataclass
class Rule:
    """One fault; see the head of this file. `headers` go with a `status`. `delay` in seconds."""

    action: Action
    method: str | None = None
    match: str = ""
    count: int | None = None
    skip: int = 0
    p: float = 1.0
    code: int = 503
    error: str | None = None
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 1.0
    bytes: int = 10

    def applies(self, method: str, path: str, chance: float) -> bool:
        """Whether it does, now; uses up one of `skip` or `count`."""
        if self.method not in {None, method} or self.match not in path or chance >= self.p:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.count is not None:
            if self.count == 0:
                return False
            self.count -= 1
        return True


@dataclass(frozen=True)
class _Http:
    """One request or answer, whole."""

    head: bytes  # with the empty line
    body: bytes

    @property
    def start(self) -> list[str]:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)

    @property
    def raw(self) -> bytes:
        return self.head + self.body


class FaultProxy:
    """Listens on 127.0.0.1 from `start` to `stop`. `requests`: (method, path) of all that came."""

    def __init__(self, upstream_port: int, seed: int = 0) -> None:
        self._upstream_port = upstream_port
        self._random = random.Random(seed)
        self._rules: list[Rule] = []
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[_Http]] = set()
        self.requests: list[tuple[str, str]] = []
        self.faults: Counter[str] = Counter()  # by action

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=1 << 20)

    async def stop(self) -> None:
        """Requests that wait to be forwarded late are forgotten."""
        assert self._server is not None
        self._server.close()
        tasks = [*self._connections, *self._late]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def clear(self) -> None:
        """No faults from now on; what is counted stays."""
        self._rules.clear()

    async def late_landed(self) -> None:
        """Wait until every request that was reset as `late` has been forwarded."""
        await asyncio.gather(*self._late)

    def command(self, line: str) -> object:
        """What the control port answers to one line."""
        verb, _, rest = line.strip().partition(" ")
        if verb == "rule":
            self.add(Rule(**json.loads(rest)))
            return "ok"
        if verb == "clear":
            self.clear()
            return "ok"
        if verb == "stats":
            methods = Counter(method for method, _ in self.requests)
            return {"requests": dict(methods), "faults": dict(self.faults)}
        return f"what is {verb!r}?"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._serve_one(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # by `stop`; asyncio's server would report it as a failed callback
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection goes on."""
        request = await _read_request(reader, writer)
        method, path = request.start[:2]
        self.requests.append((method, path))
        rule = self._pick(method, path)
        action = rule.action if rule else None
        if action in {"reset", "late"}:
            _reset(writer)
            if rule and action == "late":
                task = asyncio.create_task(self._forward_after(rule.delay, request))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
            return False
        if action == "hang":
            await reader.read()  # until the client leaves
            return False
        if rule and action == "status":
            return await _send(writer, _status_answer(rule))
        answer = await self._forward_after(rule.delay if rule and action == "slow" else 0, request)
        if action == "drop_reply":
            _reset(writer)
            return False
        if action == "lie412":
            return await _send(writer, _status_answer(Rule("status", code=412)))
        if rule and action == "truncate":
            await _send(writer, answer.head + answer.body[: rule.bytes])
            _reset(writer)
            return False
        if action == "flip" and answer.body:
            answer = _Http(answer.head, _flip(answer.body))
        await _send(writer, answer.raw)
        return b"connection: close" not in answer.head.lower()

    def _pick(self, method: str, path: str) -> Rule | None:
        for rule in self._rules:
            if rule.applies(method, path, self._random.random()):
                self.faults[rule.action] += 1
                return rule
        return None

    async def _forward_after(self, delay_s: float, request: _Http) -> _Http:
        if delay_s:
            await asyncio.sleep(delay_s)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._upstream_port, limit=1 << 20
        )
        try:
            writer.write(request.raw)
            await writer.drain()
            while True:
                answer = await _read_answer(reader, request.start[0])
                if not answer.start[1].startswith("1"):  # 100 Continue is not the answer
                    return answer
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Http:
    head = await reader.readuntil(b"\r\n\r\n")
    if b"100-continue" in head.lower():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        lines = head.split(b"\r\n")
        head = b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))
    return _Http(head, await _read_body(reader, head))


async def _read_answer(reader: asyncio.StreamReader, method: str) -> _Http:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    without_body = method == "HEAD" or status in {204, 304} or status < 200
    return _Http(head, b"" if without_body else await _read_body(reader, head, to_end=True))


async def _read_body(reader: asyncio.StreamReader, head: bytes, *, to_end: bool = False) -> bytes:
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        return await _read_chunks(reader)
    if b"content-length" in headers:
        return await reader.readexactly(int(headers[b"content-length"]))
    return await reader.read() if to_end else b""


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """The chunks as they came, with their sizes."""
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line
        if size == 0:
            return body + await reader.readuntil(b"\r\n")
        body += await reader.readexactly(size + 2)


async def _send(writer: asyncio.StreamWriter, raw: bytes) -> bool:
    writer.write(raw)
    await writer.drain()
    return True


def _status_answer(rule: Rule) -> bytes:
    code = rule.error or _ERROR_CODES.get(rule.code, "InternalError")
    body = rule.body
    if body is None:
        body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>"
    fields = {
        "Content-Type": "application/xml",
        "Content-Length": str(len(body)),
        **rule.headers,
    }
    lines = [f"HTTP/1.1 {rule.code} {code}", *(f"{name}: {text}" for name, text in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def _flip(body: bytes) -> bytes:
    at = len(body) // 2
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, as a host does that has forgotten the connection."""
    linger_not = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
    writer.transport.abort()


def control(port: int, line: str) -> object:
    """Send one command to the control port of a proxy that runs as a process; its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(line.encode() + b"\n")
        with connection.makefile() as answer:
            return json.loads(answer.readline())


async def _main(listen_port: int, upstream_port: int, control_port: int) -> None:
    proxy = FaultProxy(upstream_port)
    await proxy.start(listen_port)

    async def obey(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = proxy.command((await reader.readline()).decode())
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    commands = await asyncio.start_server(obey, "127.0.0.1", control_port)
    ports = {"port": proxy.port, "control": commands.sockets[0].getsockname()[1]}
    print(json.dumps(ports), flush=True)
    await commands.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(*(int(argument) for argument in sys.argv[1:4])))
