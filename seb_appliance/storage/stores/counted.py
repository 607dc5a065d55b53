"""Counting every request to the bucket: what the cost meter and the metrics read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from seb_appliance.broker.counters import Histogram, RequestCount
from seb_appliance.storage.stores.object_store import Kind, ObjectRange, ObjectStore, WrappedStore

T = TypeVar("T")

# What requests are for. Until an appliance is open, all of them are for its start.
Purpose = Literal["start", "journal", "read", "snapshot", "tidier"]
OK: Final = "ok"


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


class CountedStore(WrappedStore):
    """Counts the requests to a store. `purpose`: of requests from now on. `latencies`: by kind,
    whatever the outcome."""

    def __init__(
        self, store: ObjectStore, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.purpose: Purpose = "start"
        self.latencies: dict[Kind, Histogram] = {}
        super().__init__(store)
        self._monotonic_s = monotonic_s
        self._rows: dict[tuple[Purpose, Kind, str], RequestCount] = {}

    def used_for(self, purpose: Purpose) -> CountedStore:
        """The same store for requests with another purpose, counted in the same table. Closing
        either closes both."""
        other = CountedStore(self._store, self._monotonic_s)
        other.purpose, other.latencies, other._rows = purpose, self.latencies, self._rows
        return other

    @property
    def counts(self) -> RequestCounts:
        return RequestCounts(tuple(self._rows.values()))

    async def _request(
        self, kind: Kind, request: Callable[[], Awaitable[T]], body_bytes: int = 0
    ) -> T:
        start_s, purpose = self._monotonic_s(), self.purpose
        outcome, received = OK, 0
        try:
            answer = await request()
            body = answer.data if isinstance(answer, ObjectRange) else answer
            received = len(body) if isinstance(body, bytes) else 0
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
                bytes_sent=row.bytes_sent + body_bytes,
                bytes_received=row.bytes_received + received,
                seconds=row.seconds + seconds,
            )
