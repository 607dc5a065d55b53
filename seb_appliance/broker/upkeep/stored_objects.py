"""Active segments and packed objects, and garbage. Only applied entries change them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from seb_appliance.broker.ports import GarbageRow, ObjectRef, ObjectRow
from seb_appliance.broker.topics.topic import Gone


@dataclass(slots=True)
class LivingObject:
    """`sections`: how many of its sections are active, with `living_bytes` of its `length`."""

    ref: ObjectRef
    length: int
    sections: int = 0
    living_bytes: int = 0


class Untidied:
    """Journal entries that are not tidied, oldest first: (seq, bytes of the object, created_us).
    `stored_bytes` also counts those that were tidied since the start and not removed yet."""

    def __init__(self, entries: Iterable[tuple[int, int, int]]) -> None:
        self.entries = deque(entries)
        self.total_bytes = sum(length for _, length, _ in self.entries)
        self.stored_bytes = self.total_bytes
        self._leaving: deque[tuple[int, int]] = deque()

    def add(self, seq: int, length: int, created_us: int) -> None:
        self.entries.append((seq, length, created_us))
        self.total_bytes += length
        self.stored_bytes += length

    def drop(self, until_seq: int) -> None:
        """Entries up to `until_seq` are tidied."""
        while self.entries and self.entries[0][0] <= until_seq:
            seq, length, _ = self.entries.popleft()
            self.total_bytes -= length
            self._leaving.append((seq, length))

    def gone(self, until_seq: int) -> None:
        """Tidied entries up to `until_seq` were removed."""
        while self._leaving and self._leaving[0][0] <= until_seq:
            self.stored_bytes -= self._leaving.popleft()[1]


class StoredObjects:
    """`garbage`: condemned keys, and since when (µs)."""

    def __init__(self, objects: Iterable[ObjectRow], garbage: Iterable[GarbageRow]) -> None:
        self._by_id: dict[int, LivingObject] = {}
        self.garbage = {row.key: row.since_us for row in garbage}
        self._garbage_bytes: dict[str, int] = {}  # of those condemned since the start
        for row in objects:
            self.add(row.object_id, row.key, row.length)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def stored_bytes(self) -> int:
        """Of all objects, and of garbage that was condemned since the start."""
        living = sum(found.length for found in self._by_id.values())
        return living + sum(self._garbage_bytes.values())

    def get(self, object_id: int) -> LivingObject:
        return self._by_id[object_id]

    def all(self) -> list[LivingObject]:
        """In the order of their activation."""
        return list(self._by_id.values())

    def add(self, object_id: int, key: str, length: int) -> None:
        assert object_id not in self._by_id, object_id
        self._by_id[object_id] = LivingObject(ObjectRef(object_id, key), length)

    def use(self, object_id: int, length: int) -> None:
        """One more of its sections is active."""
        self._by_id[object_id].sections += 1
        self._by_id[object_id].living_bytes += length

    def release(self, rows: Iterable[Gone]) -> None:
        """Index rows were removed."""
        for object_id, length in rows:
            self._by_id[object_id].sections -= 1
            self._by_id[object_id].living_bytes -= length

    def unused(self) -> list[str]:
        """Keys of objects without an active section."""
        return [found.ref.key for found in self._by_id.values() if not found.sections]

    def keys(self) -> set[str]:
        return {found.ref.key for found in self._by_id.values()}

    def condemn(self, keys: Iterable[str], since_us: int) -> None:
        condemned = dict.fromkeys(keys, since_us)  # in the order of the entry, on each replay
        for found in self.all():
            if found.ref.key in condemned:
                self._garbage_bytes[found.ref.key] = found.length
                del self._by_id[found.ref.object_id]
        self.garbage.update(condemned)

    def remove(self, keys: Iterable[str]) -> None:
        """Condemned objects were deleted."""
        for key in keys:
            self.garbage.pop(key, None)
            self._garbage_bytes.pop(key, None)
