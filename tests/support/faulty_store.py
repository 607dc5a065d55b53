"""An object store that misbehaves by script: lost and late answers, lies, refusals, blind listings.

    store = FaultyStore(MemoryStore())
    store.on("create", "journal/", lost_answer)              # the next create under journal/
    store.on("put", "claims/", unavailable, times=2, skip=1) # the second and third such put
    store.on("list_after", "claims/", before(hook))          # `hook` runs before the request

Actions get the store, the key and the request itself, and decide what happens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from seb_appliance.errors import (
    ObjectExistsError,
    StoreClockSkewError,
    StoreConflictError,
    StoreDeniedError,
    StoreUncertainError,
    StoreUnsupportedError,
)
from seb_appliance.storage.stores.object_store import (
    Durability,
    ObjectInfo,
    ObjectRange,
    ObjectStore,
    SignedPut,
)

Request = Callable[[], Awaitable[Any]]
Action = Callable[["FaultyStore", str, Request], Awaitable[Any]]


class CrashError(Exception):
    """The process that asked is dead: nobody catches this but the test."""


async def crash(store: FaultyStore, key: str, request: Request) -> Any:
    raise CrashError


async def lost_answer(store: FaultyStore, key: str, request: Request) -> Any:
    """Carried out; the caller is not told."""
    await request()
    raise StoreUncertainError("the connection was reset", key=key)


async def never_arrived(store: FaultyStore, key: str, request: Request) -> Any:
    raise StoreUncertainError("the connection was reset", key=key)


async def late(store: FaultyStore, key: str, request: Request) -> Any:
    """Carried out when the test says `await store.land()`; the caller gives up before."""
    store.under_way.append(request)
    raise StoreUncertainError("no answer in time", key=key)


async def unavailable(store: FaultyStore, key: str, request: Request) -> Any:
    raise StoreUncertainError("503 SlowDown", key=key)


async def false_412(store: FaultyStore, key: str, request: Request) -> Any:
    raise ObjectExistsError("412, and not true", key=key)


async def conflict(store: FaultyStore, key: str, request: Request) -> Any:
    raise StoreConflictError("409 ConditionalRequestConflict", key=key)


async def denied(store: FaultyStore, key: str, request: Request) -> Any:
    raise StoreDeniedError("403 InvalidAccessKeyId", key=key)


async def skewed(store: FaultyStore, key: str, request: Request) -> Any:
    raise StoreClockSkewError("403 RequestTimeTooSkewed", clock_offset_s=1200.0, key=key)


async def flipped_bit(store: FaultyStore, key: str, request: Request) -> Any:
    """The answer of a range GET with one bit other than stored."""
    part = await request()
    damaged = bytearray(part.data)
    damaged[50] ^= 1
    return ObjectRange(bytes(damaged), part.total_size)


async def shows_nothing(store: FaultyStore, key: str, request: Request) -> Any:
    """A LIST that lags behind."""
    return []


def before(hook: Callable[[], Awaitable[Any]]) -> Action:
    """Run `hook`, then carry the request out."""

    async def action(store: FaultyStore, key: str, request: Request) -> Any:
        await hook()
        return await request()

    return action


def after(hook: Callable[[], Awaitable[Any]]) -> Action:
    """Carry the request out, run `hook`, then answer as it was (404 as well)."""

    async def action(store: FaultyStore, key: str, request: Request) -> Any:
        try:
            return await request()
        finally:
            await hook()

    return action


@dataclass
class _Rule:
    method: str
    match: str
    action: Action
    times: int
    skip: int


@dataclass
class FaultyStore:
    """`creates`: what create-only PUT is worth here. `requests`: (method, key), all of them."""

    inner: ObjectStore
    creates: Literal["only if absent", "501", "overwrites"] = "only if absent"
    configuration: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    under_way: list[Request] = field(default_factory=list)
    date_ahead_s: float | None = None
    _rules: list[_Rule] = field(default_factory=list)

    def on(self, method: str, match: str, action: Action, *, times: int = 1, skip: int = 0) -> None:
        """Apply `action` to `times` requests of `method` with `match` in the key, after `skip`."""
        self._rules.append(_Rule(method, match, action, times, skip))

    async def land(self) -> None:
        """Every late request lands now, in the order in which they were sent."""
        while self.under_way:
            with suppress(ObjectExistsError):  # nobody listens any more
                await self.under_way.pop(0)()

    def count(self, method: str, match: str = "") -> int:
        return sum(m == method and match in key for m, key in self.requests)

    async def _do(self, method: str, key: str, request: Request) -> Any:
        self.requests.append((method, key))
        for rule in self._rules:
            if rule.method != method or rule.match not in key or rule.times == 0:
                continue
            if rule.skip > 0:
                rule.skip -= 1
                continue
            rule.times -= 1
            return await rule.action(self, key, request)
        return await request()

    @property
    def durability(self) -> Durability:
        return self.inner.durability

    @property
    def description(self) -> str:
        return "faulty:"

    def prepare(self, body: bytes) -> None:
        self.inner.prepare(body)

    async def create(self, key: str, body: bytes) -> None:
        if self.creates == "501":
            self.requests.append(("create", key))
            raise StoreUnsupportedError("501 NotImplemented", key=key)
        if self.creates == "overwrites":
            await self._do("create", key, partial(self.inner.put, key, body))
        else:
            await self._do("create", key, partial(self.inner.create, key, body))

    async def put(self, key: str, body: bytes) -> None:
        await self._do("put", key, partial(self.inner.put, key, body))

    async def get(self, key: str) -> bytes:
        return await self._do("get", key, partial(self.inner.get, key))

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        return await self._do("get_range", key, partial(self.inner.get_range, key, start, length))

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        request = partial(self.inner.list_after, prefix, after, limit)
        return await self._do("list_after", prefix, request)

    async def head(self, key: str) -> ObjectInfo:
        return await self._do("head", key, partial(self.inner.head, key))

    async def delete(self, key: str) -> None:
        await self._do("delete", key, partial(self.inner.delete, key))

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        return await self.inner.signed_urls(keys, valid_s)

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        return await self.inner.signed_put(key, length, md5, valid_s)

    async def check_configuration(self) -> list[str]:
        return self.configuration

    async def close(self) -> None:
        await self.inner.close()
