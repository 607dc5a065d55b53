"""A store that answers as late as a bucket far away would: for measuring without one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from seb_appliance.clock import Clock
from seb_appliance.storage.stores.object_store import (
    Durability,
    ObjectInfo,
    ObjectRange,
    ObjectStore,
    SignedPut,
)

T = TypeVar("T")


class DelayedStore:
    """The `ObjectStore` that it wraps, each request `latency_s` later: half of it on the way there,
    half on the way back, so that a request that is given up may have taken effect."""

    def __init__(self, store: ObjectStore, latency_s: float, clock: Clock) -> None:
        self._store = store
        self._one_way_s = latency_s / 2
        self._clock = clock

    @property
    def durability(self) -> Durability:
        return self._store.durability

    @property
    def description(self) -> str:
        return f"{self._store.description} ({self._one_way_s * 2_000:g} ms away)"

    @property
    def date_ahead_s(self) -> float | None:
        return self._store.date_ahead_s

    async def create(self, key: str, body: bytes) -> None:
        await self._late(lambda: self._store.create(key, body))

    async def put(self, key: str, body: bytes) -> None:
        await self._late(lambda: self._store.put(key, body))

    async def get(self, key: str) -> bytes:
        return await self._late(lambda: self._store.get(key))

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        return await self._late(lambda: self._store.get_range(key, start, length))

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return await self._late(lambda: self._store.list_after(prefix, after, limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._late(lambda: self._store.head(key))

    async def delete(self, key: str) -> None:
        await self._late(lambda: self._store.delete(key))

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        return await self._store.signed_urls(keys, valid_s)

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        return await self._store.signed_put(key, length, md5, valid_s)

    async def check_configuration(self) -> list[str]:
        return await self._late(lambda: self._store.check_configuration())

    async def close(self) -> None:
        await self._store.close()

    async def _late(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of a request, or its error, as late as it would come."""
        await self._clock.sleep(self._one_way_s)
        try:
            answer = await ask()
        except Exception:  # a cancellation is not an answer: it comes at once
            await self._clock.sleep(self._one_way_s)
            raise
        await self._clock.sleep(self._one_way_s)
        return answer
