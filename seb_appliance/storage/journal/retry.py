"""Repeating requests until the answer is definite (docs/ARCHITECTURE.md, "What an answer to a PUT
means"): after a timeout, a reset or a 5xx it is unknown whether the request was carried out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from seb_appliance.broker.ports import FAILING_FOR_S, StoreHealth
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreAwayError,
    StoreClockSkewError,
    StoreConflictError,
    StoreDeniedError,
    StoreError,
    StoreUncertainError,
    StoreUnsupportedError,
    StoreUnusableError,
)
from seb_appliance.storage.stores.object_store import Kind, ObjectStore, WrappedStore

T = TypeVar("T")

_log = logging.getLogger(__name__)

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 2.0
DENIED_PAUSE_S: Final = 4.0  # an operator must act: faster retries only fill the logs
START_PATIENCE_S: Final = 60.0  # a start gives up then; the journal never does

assert PAUSE_S_MIN < PAUSE_S_MAX < DENIED_PAUSE_S


def given_up(error: StoreError) -> StoreUnusableError:
    """The error that ends a start after `error`: StoreAwayError if waiting may help."""
    if isinstance(error, StoreUncertainError | StoreConflictError | StoreClockSkewError):
        return StoreAwayError(error.detail)
    return StoreUnusableError(error.detail)


class RetryingStore(WrappedStore):
    """An object store that repeats a request until its answer is definite. `health`: the latest
    answers. `raw`: the store itself, for requests that must be made once.

    `jitter` returns numbers in [0, 1). With `give_up_after_s`, a request that was denied, or has no
    definite answer for that long, raises its last error; without it, it is retried forever. The
    log says when the store has been failing for some seconds, and when it answers again.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        jitter: Callable[[], float],
        *,
        give_up_after_s: float | None = None,
    ) -> None:
        super().__init__(store)
        self.raw = store
        self.health = StoreHealth(last_success_s=clock.monotonic_s())
        self.clock = clock
        self.jitter = jitter
        self.give_up_after_s = give_up_after_s
        self._logged = False  # the current failure

    async def _request(
        self,
        kind: Kind,  # noqa: ARG002 - every kind is repeated
        request: Callable[[], Awaitable[T]],
        body_bytes: int = 0,  # noqa: ARG002
    ) -> T:
        return await self.ask(request)

    async def ask(self, request: Callable[[], Awaitable[T]], *, ask_once_if_501: bool = False) -> T:
        """The definite answer of `request`: what it returns, ObjectMissingError or
        ObjectExistsError (and StoreUnsupportedError with `ask_once_if_501`)."""
        began_s = self.clock.monotonic_s()
        attempt = 0
        while True:
            try:
                answer = await request()
            except (ObjectMissingError, ObjectExistsError):
                self._answered()
                raise
            except StoreError as error:
                if ask_once_if_501 and isinstance(error, StoreUnsupportedError):
                    raise
                self._failed(error)
                if self.give_up_after_s is not None and (
                    isinstance(error, StoreDeniedError)
                    or self.clock.monotonic_s() - began_s >= self.give_up_after_s
                ):
                    raise
                await self._pause(error, attempt)
                attempt += 1
            else:
                self._answered()
                return answer

    def _answered(self) -> None:
        self.health.last_success_s = self.clock.monotonic_s()
        if self._logged:
            self._logged = False
            _log.warning("the bucket answers again, after %.0f s", self._failing_s())
        self.health.failing_since_s = None
        self.health.failure = ""
        self.health.denied = False

    def _failed(self, error: StoreError) -> None:
        if self.health.failing_since_s is None:
            self.health.failing_since_s = self.clock.monotonic_s()
        self.health.failure = error.detail
        self.health.denied = isinstance(error, StoreDeniedError)
        waits = not self.health.denied or self.give_up_after_s is None
        if (
            waits
            and not self._logged
            and (self.health.denied or self._failing_s() >= FAILING_FOR_S)
        ):
            self._logged = True
            # With quotes: the text may be the store's, and stays on its line.
            _log.warning(
                "the bucket has been failing for %.0f s: %r", self._failing_s(), error.detail
            )

    def _failing_s(self) -> float:
        assert self.health.failing_since_s is not None
        return self.clock.monotonic_s() - self.health.failing_since_s

    async def _pause(self, error: StoreError, attempt: int) -> None:
        """Full jitter: clients that fail together must not retry together."""
        if isinstance(error, StoreClockSkewError) and attempt == 0:
            return  # the client now signs with the store's clock
        if isinstance(error, StoreDeniedError):
            await self.clock.sleep(DENIED_PAUSE_S * (0.5 + self.jitter()))
            return
        ceiling_s = min(PAUSE_S_MIN * 2.0 ** min(attempt, 16), PAUSE_S_MAX)
        if isinstance(error, StoreConflictError):
            ceiling_s = min(ceiling_s, 0.5)  # a concurrent request, which ends soon
        await self.clock.sleep(ceiling_s * self.jitter())


async def together(work: Iterable[Coroutine[Any, Any, T]], at_once: int) -> list[T]:
    """The results in order. The first error cancels the others and is raised unchanged."""
    gate = asyncio.Semaphore(at_once)

    async def turn(one: Coroutine[Any, Any, T]) -> T:
        async with gate:
            return await one

    coroutines = list(work)
    tasks = [asyncio.create_task(turn(one)) for one in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in coroutines:
            one.close()  # those that never started
