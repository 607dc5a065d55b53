"""Raw keep-alive HTTP connections, and what a crowd of them measures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class NotSentError(Exception):
    """There was no connection: nothing was sent."""


class LostError(Exception):
    """The request went out, and no whole answer came back."""


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The stable code of a problem document, else the status."""
        if "problem+json" in self.headers.get("content-type", ""):
            return str(self.json()["code"])
        return str(self.status)


class Connection:
    """One keep-alive connection, opened at the first request and again after each failure. One
    request at a time."""

    def __init__(self, port: int, key: str = "", host: str = "127.0.0.1") -> None:
        self.port = port
        self._host = host
        self._key = key
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Response:
        """Raises NotSentError or LostError (also when `timeout_s` have passed)."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.open()
        except (OSError, TimeoutError) as error:
            self.close()
            raise NotSentError(str(error)) from error
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(method, path, body, headers or {})
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.close()
            raise LostError(repr(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def open(self) -> None:
        """Connect, if it is not connected. Raises OSError."""
        if self._reader is None or self._reader.at_eof():
            self.close()
            self._reader, self._writer = await asyncio.open_connection(self._host, self.port)

    async def _exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Response:
        assert self._reader is not None
        assert self._writer is not None
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        lines += [f"{name}: {text}" for name, text in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in head[1:] if line)
        got = {name.lower(): text.strip() for name, _, text in fields}
        content = await self._reader.readexactly(int(got.get("content-length", 0)))
        if got.get("connection") == "close":
            self.close()
        return Response(int(head[0].split(" ")[1]), got, content)


async def pass_time(seconds: float) -> None:
    """Choose a moment, or measure over a while. Never to wait for something: poll for that."""
    await asyncio.sleep(seconds)


async def read_topic(port: int, key: str, topic: str, offset: int = 0) -> list[tuple[int, bytes]]:
    """All records from `offset` on, as (offset, value), to the log end that the last page tells."""
    connection = Connection(port, key)
    records: list[tuple[int, bytes]] = []
    try:
        while True:
            query = f"offset={offset}&max_records=10000&max_bytes=8MiB"
            page = await connection.request("GET", f"/v1/topics/{topic}/records?{query}")
            assert page.status == 200, (page.status, page.body)
            found = page.json()
            records += [(r["offset"], r["value"].encode()) for r in found["records"]]
            offset = found["next_offset"]
            if offset >= found["log_end_offset"]:
                return records
    finally:
        connection.close()


@dataclass
class Latencies:
    """Seconds of requests that were asked again and again while something else happened."""

    seconds: list[float] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    def percentile_s(self, percent: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def ask_until(
    stop: asyncio.Event, port: int, path: str, key: str = "", pause_s: float = 0.01
) -> Latencies:
    """Ask `path` on one connection until `stop`; a request that fails counts as status 0."""
    measured = Latencies()
    connection = Connection(port, key)
    try:
        while not stop.is_set():
            asked_s = time.monotonic()
            try:
                status = (await connection.request("GET", path)).status
            except (NotSentError, LostError):
                status = 0
            measured.seconds.append(time.monotonic() - asked_s)
            measured.answers.append(status)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
    finally:
        connection.close()
    return measured


def metric(text: bytes, name: str, **labels: str) -> float:
    """The sum of a metric's samples that carry `labels`, from what /metrics answered."""
    total = 0.0
    for line in text.decode().splitlines():
        if line.split("{")[0].split(" ")[0] != name:
            continue
        if all(f'{label}="{value}"' in line for label, value in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


def counts(answers: Sequence[str]) -> dict[str, int]:
    return {answer: answers.count(answer) for answer in sorted(set(answers))}
