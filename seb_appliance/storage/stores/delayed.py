"""A store that answers as late as a bucket far away would: for measuring without one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from seb_appliance.clock import Clock
from seb_appliance.storage.stores.object_store import Kind, ObjectStore, WrappedStore

T = TypeVar("T")


class DelayedStore(WrappedStore):
    """The `ObjectStore` that it wraps, each request `latency_s` later: half of it on the way there,
    half on the way back, so that a request that is given up may have taken effect."""

    def __init__(self, store: ObjectStore, latency_s: float, clock: Clock) -> None:
        super().__init__(store)
        self._one_way_s = latency_s / 2
        self._clock = clock

    @property
    def description(self) -> str:
        return f"{super().description} ({self._one_way_s * 2_000:g} ms away)"

    async def _request(
        self,
        kind: Kind,  # noqa: ARG002 - every kind is delayed
        request: Callable[[], Awaitable[T]],
        body_bytes: int = 0,  # noqa: ARG002
    ) -> T:
        await self._clock.sleep(self._one_way_s)
        try:
            answer = await request()
        except Exception:  # a cancellation is not an answer: it is raised at once
            await self._clock.sleep(self._one_way_s)
            raise
        await self._clock.sleep(self._one_way_s)
        return answer
