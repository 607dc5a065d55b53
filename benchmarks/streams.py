"""Appends and live readers of one of the Durable Streams, against a running appliance.

    .venv/bin/python benchmarks/streams.py http://127.0.0.1:51313 API-KEY [SECONDS]

256 connections append 1 KiB each, one after the other; then 1,000 readers follow by `live=sse`
and are timed from the append to the event.
"""

from __future__ import annotations

import asyncio
import sys
import time
from urllib.parse import urlsplit

CONNECTIONS = 256
READERS = 1_000
BYTES = 1_024
ROUNDS = 20
PATH = "/v1/stream/benchmark"


class Target:
    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self._head = f"HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"

    def request(self, method: str, query: str = "", body: bytes = b"") -> bytes:
        lines = f"{method} {PATH}{query} {self._head}Content-Type: text/plain\r\n"
        return f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def once(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return head


async def appending(target: Target, until_s: float) -> list[float]:
    """Seconds that each append took."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    request = target.request("POST", body=b"x" * BYTES)
    took: list[float] = []
    while (began_s := time.monotonic()) < until_s:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 204 "), head
        took.append(time.monotonic() - began_s)
    writer.close()
    return took


async def following(
    target: Target, ready: asyncio.Semaphore, told: asyncio.Semaphore, came: list[float]
) -> None:
    reader, writer = await asyncio.open_connection(target.host, target.port)
    writer.write(target.request("GET", "?offset=now&live=sse"))
    await reader.readuntil(b"upToDate")
    ready.release()
    for _ in range(ROUNDS):
        await reader.readuntil(b"event: data")
        came.append(time.monotonic())
        told.release()
        await reader.readuntil(b"upToDate")
    writer.close()


async def main(url: str, key: str, seconds: float = 10) -> None:
    target = Target(url, key)
    await target.once(target.request("PUT"))
    until_s = time.monotonic() + seconds
    done = await asyncio.gather(*(appending(target, until_s) for _ in range(CONNECTIONS)))
    took = sorted(second for each in done for second in each)
    middle, slow = took[len(took) // 2], took[-len(took) // 100]
    print(f"{CONNECTIONS} connections: {len(took) / seconds:,.0f} appends/s of {BYTES} bytes,")
    print(f"  median {middle * 1000:.1f} ms, p99 {slow * 1000:.1f} ms")
    ready, told, came = asyncio.Semaphore(0), asyncio.Semaphore(0), list[float]()
    readers = [asyncio.create_task(following(target, ready, told, came)) for _ in range(READERS)]
    for _ in readers:
        await ready.acquire()
    waits: list[float] = []
    for _ in range(ROUNDS):
        await target.once(target.request("POST", body=b"x" * BYTES))
        acknowledged_s = time.monotonic()
        for _ in readers:
            await told.acquire()
        waits.append(came[-1] - acknowledged_s)
    await asyncio.gather(*readers)
    last = max(0.0, sorted(waits)[ROUNDS // 2]) * 1000
    print(f"{READERS} readers: the last has a record {last:.0f} ms after it was acknowledged")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:4])))
