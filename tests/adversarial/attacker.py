"""One API key that takes what it can get, until its process is ended.

python -m tests.adversarial.attacker ATTACK PORT API-KEY
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits, zstd
from tests.adversarial.attacks import PATTERNS
from tests.support.load import Connection, LostError, NotSentError

JSON: Final = {"Content-Type": "application/json"}
_DIGITS: Final = zstd.compress(b'{"records":[{"value":[%b]}]}' % b",".join([b"1" * 308] * 50_000))
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Attacker:
    port: int
    key: str

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> int:
        """The status; 0 when the connection broke."""
        connection = Connection(self.port, self.key)
        try:
            answer = await connection.request(method, path, body, headers, timeout_s=60)
        except (LostError, NotSentError):
            return 0
        finally:
            connection.close()
        return answer.status

    async def open(self, head: str, receive_window_bytes: int = 0) -> asyncio.StreamWriter | None:
        """A connection with this request on it, whose answer is not read."""
        sock = socket.socket()
        if receive_window_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_window_bytes)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
            _, writer = await asyncio.open_connection(sock=sock, limit=1024)
        except OSError:
            sock.close()
            return None
        writer.write(f"{head}\r\nHost: seb\r\nAuthorization: Bearer {self.key}\r\n".encode())
        return writer


async def long_digits(attacker: Attacker) -> None:
    headers = {**JSON, "Content-Encoding": "zstd"}
    while True:
        await attacker.ask("POST", "/v1/topics/attacked/records", _DIGITS, headers)


async def hostile_patterns(attacker: Attacker) -> None:
    path = f"/v1/records?topics={','.join(PATTERNS)}"
    while True:
        await attacker.ask("GET", path)


async def announced_bodies(attacker: Attacker) -> None:
    """Bodies of 16 MiB that never come."""
    announced = f"Content-Length: {16 * _MIB}\r\nContent-Type: application/json\r\n\r\n"
    await _hold(
        attacker,
        [f"POST /v1/transactions HTTP/1.1\r\n{announced}"] * 4
        + [f"POST /v1/topics/attacked/records HTTP/1.1\r\n{announced}"] * 4,
    )


async def slow_bodies(attacker: Attacker) -> None:
    """Bodies that come a little at a time, held to the last byte."""

    async def send() -> None:
        while True:
            writer = await attacker.open("POST /v1/topics/attacked/records HTTP/1.1")
            if writer is None:
                continue
            writer.write(f"Content-Length: {16 * _MIB}\r\n\r\n".encode() + bytes(12 * _MIB))
            with contextlib.suppress(OSError):
                for _ in range(60):
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(1)
            writer.close()

    await asyncio.gather(*(send() for _ in range(6)))


async def readers_that_take_nothing(attacker: Attacker) -> None:
    query = f"offset=0&max_bytes={limits.FETCH_BYTES_MAX}&max_records={limits.FETCH_RECORDS_MAX}"
    head = f"GET /v1/topics/attacked/records?{query} HTTP/1.1"
    await _hold(attacker, [head] * 12, receive_window_bytes=2_048)


async def many_followers(attacker: Attacker) -> None:
    head = "GET /v1/topics/attacked/records?format=sse&offset=latest HTTP/1.1"
    await _hold(attacker, [head] * 1_000)


async def many_long_polls(attacker: Attacker) -> None:
    """Thousands that wait at the log end, and are woken again and again."""
    head = "GET /v1/topics/attacked/records?offset=latest&wait=30s HTTP/1.1"

    async def wake() -> None:
        while True:
            await attacker.ask("POST", "/v1/topics/attacked/records", b"x")
            await asyncio.sleep(0.5)

    await asyncio.gather(_hold(attacker, [head] * 5_000), wake())


async def fast_live_stream(attacker: Attacker) -> None:
    head = "GET /v1/topics/attacked/records?format=sse&offset=0 HTTP/1.1"
    await _hold(attacker, [head] * 8, reads=True)


async def many_tickets(attacker: Attacker) -> None:
    body = json.dumps({"topics": ",".join(PATTERNS)}).encode()
    await _in_parallel(lambda _: attacker.ask("POST", "/v1/tickets", body, JSON))


async def many_offsets(attacker: Attacker) -> None:
    """Groups with as much metadata as there may be."""
    metadata = "m" * limits.COMMIT_METADATA_CHARACTERS_MAX
    body = json.dumps({"offsets": {"attacked": 0}, "metadata": {"attacked": metadata}}).encode()
    await _in_parallel(lambda i: attacker.ask("PUT", f"/v1/groups/g{i}/offsets", body, JSON))


async def many_leases(attacker: Attacker) -> None:
    body = json.dumps({"holder": "me", "ttl_ms": 3_600_000}).encode()
    await _in_parallel(lambda i: attacker.ask("POST", f"/v1/groups/l{i}/lease", body, JSON))


async def many_topics(attacker: Attacker) -> None:
    await _in_parallel(lambda i: attacker.ask("PUT", f"/v1/topics/attacked.{i}"))


async def many_remembered(attacker: Attacker) -> None:
    """Transactions that are remembered with as many topics as there may be."""
    for i in range(100):
        await attacker.ask("PUT", f"/v1/topics/attacked.{i}")
    body = json.dumps({"produce": {f"attacked.{i}": [{"value": 0}] for i in range(100)}}).encode()
    await _in_parallel(
        lambda i: attacker.ask(
            "POST", "/v1/transactions", body, {**JSON, "Idempotency-Key": f"{i}"}
        )
    )


async def many_producers(attacker: Attacker) -> None:
    def headers(i: int) -> dict[str, str]:
        return {"Producer-Id": f"p{i}", "Producer-Epoch": "0", "Producer-Seq": "0"}

    path = "/v1/topics/attacked/records"
    await _in_parallel(lambda i: attacker.ask("POST", path, b"x", headers(i)))


async def many_views(attacker: Attacker) -> None:
    path = "/v1/topics/attacked/records?view=latest&max_records=1"
    await _in_parallel(lambda _: attacker.ask("GET", path))


async def many_large_bodies(attacker: Attacker) -> None:
    lines = b'{"value":[%b]}\n' % b",".join([b"0"] * 500)
    headers = {"Content-Type": "application/x-ndjson"}
    path = "/v1/topics/attacked/records"
    await _in_parallel(lambda _: attacker.ask("POST", path, lines * 9_000, headers), at_once=2)


ATTACKS: Final[dict[str, Callable[[Attacker], Awaitable[None]]]] = {
    attack.__name__: attack
    for attack in (
        long_digits,
        hostile_patterns,
        announced_bodies,
        slow_bodies,
        readers_that_take_nothing,
        many_followers,
        many_long_polls,
        fast_live_stream,
        many_tickets,
        many_offsets,
        many_leases,
        many_topics,
        many_remembered,
        many_producers,
        many_views,
        many_large_bodies,
    )
}


async def _hold(
    attacker: Attacker, heads: list[str], *, receive_window_bytes: int = 0, reads: bool = False
) -> None:
    """All of them open, and anew whenever one ends."""

    async def one(head: str) -> None:
        while True:
            writer = await attacker.open(head, receive_window_bytes)
            if writer is not None:
                writer.write(b"\r\n")
                with contextlib.suppress(OSError):
                    await (_drain(writer) if reads else writer.wait_closed())
            await asyncio.sleep(0.2)

    await asyncio.gather(*map(one, heads))


async def _drain(writer: asyncio.StreamWriter) -> None:
    reader = writer.transport.get_protocol()._stream_reader  # type: ignore[attr-defined]
    while await reader.read(1 << 16):
        pass


async def _in_parallel(act: Callable[[int], Awaitable[int]], at_once: int = 8) -> None:
    numbers = itertools.count()

    async def again() -> None:
        while True:
            await act(next(numbers))

    await asyncio.gather(*(again() for _ in range(at_once)))


if __name__ == "__main__":
    asyncio.run(ATTACKS[sys.argv[1]](Attacker(int(sys.argv[2]), sys.argv[3])))
