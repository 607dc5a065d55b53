"""The object store in memory: for tests and `--bucket memory:`. Nothing outlives the process."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort

from seb_appliance.errors import ObjectExistsError, ObjectMissingError
from seb_appliance.storage.object_store import Durability, ObjectInfo, ObjectRange


class MemoryStore:
    """An `ObjectStore` whose requests each take one turn of the event loop.

    A request takes effect at once when its turn comes, so that concurrent callers interleave
    request by request, as they do on a real store.
    """

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._keys: list[str] = []  # sorted; code point order is the order of UTF-8 bytes

    @property
    def durability(self) -> Durability:
        return "memory"

    @property
    def description(self) -> str:
        return "memory:"

    @property
    def clock_offset_s(self) -> float:
        return 0.0

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
        return self._object(key)

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        await asyncio.sleep(0)
        body = self._object(key)
        return ObjectRange(data=body[start : start + length], total_size=len(body))

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

    async def check_configuration(self) -> list[str]:
        return []

    async def close(self) -> None:
        """Nothing is held: the objects stay, so that a test can open them again."""

    def _object(self, key: str) -> bytes:
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectMissingError(f"there is no object {key}", key=key) from None

    def _store(self, key: str, body: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = bytes(body)
