"""A small S3 server in the test's own event loop: quick enough for hundreds of starts, atomic, and
its objects lie open in a dictionary, to be counted and damaged.

It speaks the part of S3 that the appliance uses, for one bucket, and checks no signature; the real
servers (tests/support/servers/) are for what a store may do that this one would not.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import re
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from seb_appliance.storage.stores.s3_options import S3Options

BUCKET = "crash"
PREFIX = "tests/seb"
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found"}
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: tuple[str, ...] = ()

    def encode(self, method: str) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Refused')}",
            f"Content-Length: {len(self.body)}",
            f"Date: {formatdate(usegmt=True)}",
            *self.headers,
        ]
        head = "\r\n".join([*lines, "", ""]).encode()
        return head if method == "HEAD" else head + self.body


class BucketServer:
    """`objects`: by key below the prefix; `stored_s`: the monotonic second at which each was put
    first. `create_only`: False answers 501 to the condition, as Swift and Backblaze B2 do.
    `latency_s`: how far away it is. `tls`: what it speaks HTTPS with."""

    def __init__(
        self,
        *,
        create_only: bool = True,
        latency_s: float = 0.0,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host = host
        self._tls = tls
        self._latency_s = latency_s
        self.objects: dict[str, bytes] = {}
        self.stored_s: dict[str, float] = {}
        self.create_only = create_only
        self._names: list[str] = []  # sorted
        self._stored_at: dict[str, str] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def options(self) -> S3Options:
        return S3Options(
            bucket=BUCKET,
            prefix=PREFIX,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id="test",
            secret_access_key="testtest",
        )

    def remove(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self._names.remove(key)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, self._host, 0, limit=1 << 20, ssl=self._tls
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._serve_one(reader, writer)
        except asyncio.CancelledError:
            pass  # by the end of the test
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        fields = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): text.strip() for name, _, text in fields}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        await asyncio.sleep(self._latency_s)
        writer.write(self.answer(method, target, headers, body).encode(method))
        await writer.drain()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        url = urlsplit(target)
        query = parse_qs(url.query, keep_blank_values=True)
        bucket, _, name = unquote(url.path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return _error(404, "NoSuchBucket")
        if not name:
            return self._of_bucket(query)
        key = name.removeprefix(PREFIX + "/")
        if method == "PUT":
            return self._put(key, body, create_only=headers.get("if-none-match") == "*")
        if method == "DELETE":
            self.remove(key)
            return Answer(204)
        if key not in self.objects:
            return _error(404, "NoSuchKey")
        return self._get(key, headers.get("range"))

    def _put(self, key: str, body: bytes, *, create_only: bool) -> Answer:
        if create_only and not self.create_only:
            return _error(501, "NotImplemented")
        if create_only and key in self.objects:
            return _error(412, "PreconditionFailed")
        if key not in self.objects:
            bisect.insort(self._names, key)
        self.objects[key] = body
        self.stored_s.setdefault(key, time.monotonic())
        self._stored_at[key] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.000Z}"
        return Answer(200, headers=('ETag: "0"',))

    def _get(self, key: str, asked: str | None) -> Answer:
        body = self.objects[key]
        given = _RANGE.fullmatch(asked) if asked else None
        if given is None:
            return Answer(200, body, ('ETag: "0"',))
        first, last = int(given[1]), min(int(given[2]), len(body) - 1)
        if first > last:
            return _error(416, "InvalidRange")
        span = f"Content-Range: bytes {first}-{last}/{len(body)}"
        return Answer(206, body[first : last + 1], (span, 'ETag: "0"'))

    def _of_bucket(self, query: dict[str, list[str]]) -> Answer:
        if "versioning" in query:
            return Answer(200, f'<VersioningConfiguration xmlns="{_NAMESPACE}"/>'.encode())
        if "lifecycle" in query:
            return _error(404, "NoSuchLifecycleConfiguration")
        prefix = query["prefix"][0].removeprefix(PREFIX + "/")
        after = query.get("start-after", [""])[0].removeprefix(PREFIX + "/")
        limit = int(query.get("max-keys", ["1000"])[0])
        begin = max(
            bisect.bisect_left(self._names, prefix), bisect.bisect_right(self._names, after)
        )
        found = []
        for name in self._names[begin : begin + limit + 1]:
            if not name.startswith(prefix):
                break
            found.append(name)
        return Answer(200, self._listing(found[:limit], more=len(found) > limit))

    def _listing(self, names: list[str], *, more: bool) -> bytes:
        rows = "".join(
            f"<Contents><Key>{escape(f'{PREFIX}/{name}')}</Key>"
            f"<LastModified>{self._stored_at[name]}</LastModified>"
            f"<Size>{len(self.objects[name])}</Size></Contents>"
            for name in names
        )
        return (
            f'<ListBucketResult xmlns="{_NAMESPACE}"><Name>{BUCKET}</Name>'
            f"<KeyCount>{len(names)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{rows}</ListBucketResult>"
        ).encode()


def _error(status: int, code: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return Answer(status, body, ("Content-Type: application/xml",))
