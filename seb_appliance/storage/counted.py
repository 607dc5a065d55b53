"""Counting every request to the bucket: what the cost meter and the metrics read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from seb_appliance.storage.object_store import Durability, ObjectInfo, ObjectRange, ObjectStore

T = TypeVar("T")

Kind = Literal["PUT", "GET", "LIST", "HEAD", "DELETE", "CONFIGURATION"]
OK = "ok"


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Requests of one kind with one outcome: `ok`, or the name of the error's class.

    `seconds` is the time they took together. Sent are the bytes of PUT bodies, whatever became of
    them; received are those of GET bodies that came whole.
    """

    kind: Kind
    outcome: str
    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """All requests since the start."""

    rows: tuple[RequestCount, ...] = ()

    def requests(self, kind: Kind | None = None) -> int:
        """How many of one kind, or of all kinds, whatever their outcome."""
        return sum(row.requests for row in self.rows if kind in {None, row.kind})

    @property
    def bytes_sent(self) -> int:
        return sum(row.bytes_sent for row in self.rows)

    @property
    def bytes_received(self) -> int:
        return sum(row.bytes_received for row in self.rows)


class CountedStore:
    """The `ObjectStore` that it wraps, counting. `monotonic_s`: seconds from some fixed point."""

    def __init__(
        self, store: ObjectStore, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._monotonic_s = monotonic_s
        self._rows: dict[tuple[Kind, str], RequestCount] = {}

    @property
    def counts(self) -> RequestCounts:
        return RequestCounts(tuple(self._rows.values()))

    @property
    def durability(self) -> Durability:
        return self._store.durability

    @property
    def description(self) -> str:
        return self._store.description

    @property
    def clock_offset_s(self) -> float:
        return self._store.clock_offset_s

    async def create(self, key: str, body: bytes) -> None:
        await self._count("PUT", self._store.create(key, body), sent=len(body))

    async def put(self, key: str, body: bytes) -> None:
        await self._count("PUT", self._store.put(key, body), sent=len(body))

    async def get(self, key: str) -> bytes:
        return await self._count("GET", self._store.get(key), received=len)

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        request = self._store.get_range(key, start, length)
        return await self._count("GET", request, received=lambda part: len(part.data))

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return await self._count("LIST", self._store.list_after(prefix, after, limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._count("HEAD", self._store.head(key))

    async def delete(self, key: str) -> None:
        await self._count("DELETE", self._store.delete(key))

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        return await self._store.signed_urls(keys, valid_s)

    async def check_configuration(self) -> list[str]:
        return await self._count("CONFIGURATION", self._store.check_configuration())

    async def close(self) -> None:
        await self._store.close()

    async def _count(
        self,
        kind: Kind,
        request: Awaitable[T],
        *,
        sent: int = 0,
        received: Callable[[T], int] = lambda _: 0,
    ) -> T:
        start_s = self._monotonic_s()
        outcome, came = OK, 0
        try:
            answer = await request
            came = received(answer)
        except (Exception, asyncio.CancelledError) as error:
            outcome = type(error).__name__
            raise
        else:
            return answer
        finally:
            row = self._rows.get((kind, outcome)) or RequestCount(kind, outcome)
            self._rows[kind, outcome] = replace(
                row,
                requests=row.requests + 1,
                bytes_sent=row.bytes_sent + sent,
                bytes_received=row.bytes_received + came,
                seconds=row.seconds + self._monotonic_s() - start_s,
            )
