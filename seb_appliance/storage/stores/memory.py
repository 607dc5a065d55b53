"""The object store in memory, for tests and `--bucket memory:`."""

from __future__ import annotations

import asyncio
import mmap
from bisect import bisect_left, bisect_right, insort

from seb_appliance.errors import ObjectExistsError, ObjectMissingError
from seb_appliance.storage.stores.object_store import (
    Durability,
    LocalStore,
    ObjectInfo,
    ObjectRange,
)


class MemoryStore(LocalStore):
    """An `ObjectStore`. Each request takes one turn of the event loop, so that concurrent callers
    interleave as they do on a real store.

    `ready_bytes` of memory are allocated in advance and hold the first objects, so that a
    measurement does not include the page faults of a virtual machine.
    """

    durability: Durability = "memory"
    description = "memory:"

    def __init__(self, ready_bytes: int = 0) -> None:
        self._ready = _Ready(ready_bytes) if ready_bytes else None
        self._objects: dict[str, bytes | memoryview] = {}
        self._keys: list[str] = []  # sorted; code point order is the order of UTF-8 bytes

    async def create(self, key: str, body: bytes) -> None:
        await asyncio.sleep(0)
        if key in self._objects:
            raise ObjectExistsError(f"{key} exists already", key=key)
        self._store(key, body)

    async def put(self, key: str, body: bytes) -> None:
        await asyncio.sleep(0)
        self._store(key, body)

    async def get(self, key: str) -> bytes:
        await asyncio.sleep(0)
        return bytes(self._object(key))

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        await asyncio.sleep(0)
        body = self._object(key)
        return ObjectRange(data=bytes(body[start : start + length]), total_size=len(body))

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        await asyncio.sleep(0)
        begin = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        page: list[ObjectInfo] = []
        for key in self._keys[begin : begin + limit]:
            if not key.startswith(prefix):
                break
            page.append(ObjectInfo(key=key, size=len(self._objects[key])))
        return page

    async def head(self, key: str) -> ObjectInfo:
        await asyncio.sleep(0)
        return ObjectInfo(key=key, size=len(self._object(key)))

    async def delete(self, key: str) -> None:
        await asyncio.sleep(0)
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        """Keeps the objects, so that a test can open them again."""

    def _object(self, key: str) -> bytes | memoryview:
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectMissingError(f"there is no object {key}", key=key) from None

    def _store(self, key: str, body: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        room = self._ready.take(len(body)) if self._ready is not None else None
        if room is None:
            self._objects[key] = bytes(body)
        else:
            room[:] = body
            self._objects[key] = room


class _Ready:
    """Memory whose pages are already mapped. Each part is handed out once."""

    def __init__(self, size_bytes: int) -> None:
        mapped = mmap.mmap(-1, size_bytes)
        for page in range(0, size_bytes, mmap.PAGESIZE):
            mapped[page] = 1
        self._view = memoryview(mapped)
        self._taken = 0

    def take(self, size_bytes: int) -> memoryview | None:
        """Room for that many bytes, or None."""
        begin = self._taken
        if begin + size_bytes > len(self._view):
            return None
        self._taken = begin + size_bytes
        return self._view[begin : begin + size_bytes]
