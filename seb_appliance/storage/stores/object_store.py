"""What the appliance asks of an object store, and no more.

Backends: `s3.py`, `directory.py`, `memory.py`. `counted.py`, `delayed.py` and `../journal/retry.py`
wrap any of them. One contract suite (tests/unit/storage/test_object_store_contract.py) runs over
all backends and over real servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")

Durability = Literal["s3", "disk", "memory"]
Kind = Literal["PUT", "GET", "LIST", "HEAD", "DELETE", "CONFIGURATION"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A key (relative to the store's prefix) and the object's size in bytes. `modified_us`: when it
    was stored, by the store's clock, if the store's LIST tells."""

    key: str
    size: int
    modified_us: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """Part of an object, and the size in bytes of the whole."""

    data: bytes
    total_size: int


@dataclass(frozen=True, slots=True)
class SignedPut:
    """`headers` have to be sent as they are: the signature covers them."""

    url: str
    headers: dict[str, str]


class ObjectStore(Protocol):
    """Keys are relative to the store's prefix, `/`-separated, ASCII.

    Every method makes exactly one request and never retries (the caller decides); each has a
    time-out of its own. Every method may raise `StoreUncertainError` (no definite answer: time-out,
    reset, 5xx, 429, or a damaged answer), `StoreDeniedError` (401, 403, no such bucket),
    `StoreClockSkewError`; further errors are named below.
    """

    @property
    def durability(self) -> Durability:
        """What an acknowledgement from this store is worth."""

    @property
    def description(self) -> str:
        """For people: `s3://bucket/prefix`, `file:…/bucket`, `memory:`. No secret in it."""

    @property
    def date_ahead_s(self) -> float | None:
        """The Date of the last answer, in seconds since 1970, minus the time on our monotonic
        clock (`clock.monotonic_s`) when it came; None while there is none."""

    async def create(self, key: str, body: bytes) -> None:
        """PUT only if `key` is absent, atomically and durably.

        Raises ObjectExistsError (412), StoreConflictError (409), StoreUnsupportedError (501).
        """

    async def put(self, key: str, body: bytes) -> None:
        """PUT whatever is there, atomically and durably."""

    async def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectMissingError."""

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        """Bytes start ≤ i < start + length, fewer at the end of the object (none beyond it).

        Raises ObjectMissingError.
        """

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """At most `limit` (≤ 1000) objects whose key begins with `prefix` and sorts after `after`
        by bytes, in that order. An empty list means that there are no more."""

    async def head(self, key: str) -> ObjectInfo:
        """Raises ObjectMissingError."""

    async def delete(self, key: str) -> None:
        """Delete; an absent key is no error."""

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        """A URL for each of `keys` by which anyone may GET the object (with ranges) for `valid_s`
        seconds; None where a store has no URLs. Makes no request: a key need not be there."""

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        """A PUT that anyone may make to `key` for `valid_s` seconds, of the `length` bytes with
        this MD5 and no others; None where a store has no URLs. Makes no request."""

    async def check_configuration(self) -> list[str]:
        """Warnings about the bucket's own settings (versioning, lifecycle expiry), in words. The
        first word of each is a stable code: `versioning` or `lifecycle`. Settings that may not be
        asked for (403, 501) give no warning."""

    async def close(self) -> None: ...


class WrappedStore:
    """An `ObjectStore` that passes each request to another store through `_request`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

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
        await self._request("PUT", partial(self._store.create, key, body), len(body))

    async def put(self, key: str, body: bytes) -> None:
        await self._request("PUT", partial(self._store.put, key, body), len(body))

    async def get(self, key: str) -> bytes:
        return await self._request("GET", partial(self._store.get, key))

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        return await self._request("GET", partial(self._store.get_range, key, start, length))

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return await self._request("LIST", partial(self._store.list_after, prefix, after, limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._request("HEAD", partial(self._store.head, key))

    async def delete(self, key: str) -> None:
        await self._request("DELETE", partial(self._store.delete, key))

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        return await self._store.signed_urls(keys, valid_s)

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        return await self._store.signed_put(key, length, md5, valid_s)

    async def check_configuration(self) -> list[str]:
        return await self._request("CONFIGURATION", self._store.check_configuration)

    async def close(self) -> None:
        await self._store.close()

    async def _request(
        self, kind: Kind, request: Callable[[], Awaitable[T]], body_bytes: int = 0
    ) -> T:
        """Make `request`, which may be called more than once. `body_bytes`: the body of a PUT."""
        raise NotImplementedError


async def list_all(store: ObjectStore, prefix: str, after: str = "") -> list[ObjectInfo]:
    """Every object under `prefix` that sorts after `after`, page by page."""
    found: list[ObjectInfo] = []
    while page := await store.list_after(prefix, after):
        found += page
        after = page[-1].key
    return found
