"""The object store interface, and what its implementations share.

Backends: `s3.py`, `directory.py`, `memory.py`. Wrappers: `counted.py`, `../journal/retry.py`.
tests/unit/storage/test_object_store_contract.py runs against all backends and real servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, TypeVar

from seb_appliance import limits
from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError, StoreUnusableError

T = TypeVar("T")

Durability = Literal["s3", "disk", "memory"]
Kind = Literal["PUT", "GET", "LIST", "HEAD", "DELETE", "CONFIGURATION"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """`key` is relative to the store's prefix, `size` in bytes. `modified_us`: when the object was
    stored, by the store's clock, if LIST returns it."""

    key: str
    size: int
    modified_us: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """Part of an object, and the size of the whole object in bytes."""

    data: bytes
    total_size: int


@dataclass(frozen=True, slots=True)
class SignedPut:
    """`headers` must be sent unchanged: the signature covers them."""

    url: str
    headers: dict[str, str]


class ObjectStore(Protocol):
    """Keys are relative to the store's prefix, `/`-separated, ASCII.

    Every method makes one request, with a timeout, and never retries: the caller decides. Every
    method may raise `StoreUncertainError` (no definite answer: timeout, reset, 5xx, 429, or a
    damaged answer), `StoreDeniedError` (401, 403, no such bucket) and `StoreClockSkewError`;
    methods document further errors.
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

    def prepare(self, body: bytes) -> None:
        """Compute in this thread what the next PUT of `body` sends beside it. Need not be called:
        the PUT computes it otherwise, in a thread of its own if `body` is large."""

    async def create(self, key: str, body: bytes) -> None:
        """PUT only if `key` is absent, atomically and durably. Raises ObjectExistsError (412),
        StoreConflictError (409), StoreUnsupportedError (501)."""

    async def put(self, key: str, body: bytes) -> None:
        """PUT, replacing an existing object, atomically and durably."""

    async def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectMissingError; CorruptObjectError if it has more than
        OBJECT_BYTES_MAX."""

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        """Bytes start ≤ i < start + length, fewer at the end of the object, none beyond it.
        Raises ObjectMissingError."""

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """At most `limit` (≤ 1000) objects whose key begins with `prefix` and sorts after `after`
        by bytes, in that order. An empty list means that there are no more."""

    async def head(self, key: str) -> ObjectInfo:
        """Raises ObjectMissingError."""

    async def delete(self, key: str) -> None:
        """Delete; an absent key is not an error."""

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        """A URL for each of `keys` by which anyone may GET the object (with ranges) for `valid_s`
        seconds; None if the store has no URLs. Makes no request and does not check the keys."""

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        """A PUT that anyone may make to `key` for `valid_s` seconds, of the `length` bytes with
        this MD5 and no others; None if the store has no URLs. Makes no request."""

    async def check_configuration(self) -> list[str]:
        """Warnings about the bucket's own settings, for people. The first word of each is a stable
        code: `versioning` or `lifecycle`. Settings that cannot be read (403, 501) are skipped."""

    async def close(self) -> None: ...


class LocalStore:
    """The part of an `ObjectStore` that is the same for every store without a server: it has no
    Date, no URLs and no settings, and needs nothing but the body."""

    date_ahead_s: float | None = None

    def prepare(self, body: bytes) -> None:
        pass

    async def signed_urls(
        self,
        keys: Sequence[str],  # noqa: ARG002 - the signature of ObjectStore
        valid_s: int,  # noqa: ARG002
    ) -> list[str] | None:
        return None

    async def signed_put(
        self,
        key: str,  # noqa: ARG002 - the signature of ObjectStore
        length: int,  # noqa: ARG002
        md5: bytes,  # noqa: ARG002
        valid_s: int,  # noqa: ARG002
    ) -> SignedPut | None:
        return None

    async def check_configuration(self) -> list[str]:
        return []


class WrappedStore:
    """An `ObjectStore` that passes each request to another store through `_request`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.durability: Durability = store.durability
        self.description = store.description

    @property
    def date_ahead_s(self) -> float | None:
        return self._store.date_ahead_s

    def prepare(self, body: bytes) -> None:
        self._store.prepare(body)

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
        self,
        kind: Kind,  # noqa: ARG002 - for subclasses
        request: Callable[[], Awaitable[T]],
        body_bytes: int = 0,  # noqa: ARG002
    ) -> T:
        """Make `request`, which may be called more than once. `body_bytes`: the body of a PUT."""
        return await request()


class DelayedStore(WrappedStore):
    """Delays each request by `latency_s`, to measure without a remote bucket: half before it is
    made, half after, so a cancelled request may have taken effect."""

    def __init__(self, store: ObjectStore, latency_s: float, clock: Clock) -> None:
        super().__init__(store)
        self.description += f" ({latency_s * 1_000:g} ms away)"
        self._one_way_s = latency_s / 2
        self._clock = clock

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


def too_large(key: str, size: int) -> CorruptObjectError:
    """`get` raises it instead of reading so much."""
    return CorruptObjectError(
        f"{key} has {size} bytes; none of ours has more than {limits.OBJECT_BYTES_MAX}"
    )


def too_many(store: ObjectStore, prefix: str, most: int) -> StoreUnusableError:
    """A hostile store lists without end."""
    return StoreUnusableError(
        f"{store.description} lists more than {most:,} objects under {prefix or 'its prefix'}: no "
        "appliance makes so many. Remove those that are not its own."
    )


async def list_all(store: ObjectStore, prefix: str, *, most: int | None = None) -> list[ObjectInfo]:
    """Every object under `prefix`, page by page. Raises StoreUnusableError for more than `most`
    (None: LISTED_OBJECTS_MAX)."""
    most = limits.LISTED_OBJECTS_MAX if most is None else most
    found: list[ObjectInfo] = []
    while page := await store.list_after(prefix, found[-1].key if found else ""):
        found += page
        if len(found) > most:
            raise too_many(store, prefix, most)
    return found
