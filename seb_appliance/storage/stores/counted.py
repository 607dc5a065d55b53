"""Counting every request to the bucket: what the cost meter and the metrics read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from seb_appliance.broker.counters import Histogram
from seb_appliance.storage.stores.object_store import (
    Durability,
    ObjectInfo,
    ObjectRange,
    ObjectStore,
    SignedPut,
)

T = TypeVar("T")

Kind = Literal["PUT", "GET", "LIST", "HEAD", "DELETE", "CONFIGURATION"]
# What requests are for. Until an appliance is open, all of them are for its start.
Purpose = Literal["start", "journal", "read", "snapshot", "tidier"]
OK: Final = "ok"


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Requests of one kind and purpose with one outcome: `ok`, or the name of the error's class.

    `seconds` is the time they took together. Sent are the bytes of PUT bodies, whatever became of
    them; received are those of GET bodies that came whole.
    """

    kind: Kind
    outcome: str
    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: float = 0.0
    purpose: Purpose = "start"


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
    """The `ObjectStore` that it wraps, counting. `purpose`: what requests are for from now on.
    `latencies`: by kind, whatever the outcome. `monotonic_s`: seconds from some fixed point."""

    def __init__(
        self, store: ObjectStore, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.purpose: Purpose = "start"
        self.latencies: dict[Kind, Histogram] = {}
        self._store = store
        self._monotonic_s = monotonic_s
        self._rows: dict[tuple[Purpose, Kind, str], RequestCount] = {}

    def used_for(self, purpose: Purpose) -> CountedStore:
        """The same store, for those whose requests have a purpose of their own; what they ask is
        counted here. Closing either closes both."""
        other = CountedStore(self._store, self._monotonic_s)
        other.purpose, other.latencies, other._rows = purpose, self.latencies, self._rows
        return other

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
    def date_ahead_s(self) -> float | None:
        return self._store.date_ahead_s

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

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        return await self._store.signed_put(key, length, md5, valid_s)

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
        start_s, purpose = self._monotonic_s(), self.purpose
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
            seconds = self._monotonic_s() - start_s
            self.latencies.setdefault(kind, Histogram()).note(seconds)
            key = (purpose, kind, outcome)
            row = self._rows.get(key) or RequestCount(kind, outcome, purpose=purpose)
            self._rows[key] = replace(
                row,
                requests=row.requests + 1,
                bytes_sent=row.bytes_sent + sent,
                bytes_received=row.bytes_received + came,
                seconds=row.seconds + seconds,
            )
