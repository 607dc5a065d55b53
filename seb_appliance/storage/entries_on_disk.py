"""Journal entries out of the cache on disk, for a process that does not own it.

The cache's owner writes and removes files as it likes meanwhile. A file appears whole; one that is
removed while it is read is read to its end. Nothing here is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from seb_appliance.storage import layout
from seb_appliance.storage.disk_cache import entry_name
from seb_appliance.storage.object_store import (
    Durability,
    ObjectInfo,
    ObjectRange,
    ObjectStore,
    SignedPut,
)

_HANDED_OUT_MAX = 100_000


class EntriesOnDisk:
    """The `ObjectStore` that it wraps, but whole entries come from the cache in `folder` if they
    are there.

    They are not checked here. Who finds one damaged, or not the one that was meant, asks again, as
    of a damaged answer: that one comes from the bucket.
    """

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._handed_out: set[str] = set()

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
        await self._store.create(key, body)

    async def put(self, key: str, body: bytes) -> None:
        await self._store.put(key, body)

    async def get(self, key: str) -> bytes:
        place = layout.parse_entry(key)
        if place is not None and key not in self._handed_out:
            try:
                body = await asyncio.to_thread((self._folder / entry_name(place[1])).read_bytes)
            except OSError:  # most often: it is not there
                body = b""
            if body:
                if len(self._handed_out) >= _HANDED_OUT_MAX:
                    self._handed_out.clear()
                self._handed_out.add(key)
                return body
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        return await self._store.get_range(key, start, length)

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return await self._store.list_after(prefix, after, limit)

    async def head(self, key: str) -> ObjectInfo:
        return await self._store.head(key)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        return await self._store.signed_urls(keys, valid_s)

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        return await self._store.signed_put(key, length, md5, valid_s)

    async def check_configuration(self) -> list[str]:
        return await self._store.check_configuration()

    async def close(self) -> None:
        await self._store.close()
