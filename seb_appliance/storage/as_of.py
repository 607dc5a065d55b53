"""A bucket as it was when some entry was the last of its journal. It is only read.

What came later is not there: entries, snapshots, and in mode B the bases and claims of later
writers. So a start's own recovery, unchanged, ends at that entry.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from seb_appliance.errors import ObjectMissingError
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.storage import layout
from seb_appliance.storage.bases import BaseChain
from seb_appliance.storage.layout import Claim, Mode
from seb_appliance.storage.object_store import ObjectInfo, ObjectRange, ObjectStore
from seb_appliance.storage.patience import Patience

LIST_PAGE: int = 1000


class AsOfStore:
    """Fulfils the reading half of `ObjectStore`; see there. `writers`: in mode B, those whose base
    lies on the chain and begins below `seq`."""

    def __init__(self, store: ObjectStore, seq: int, writers: AbstractSet[Claim]) -> None:
        self.seq = seq
        self._store = store
        self._writers = writers
        self._newest = max(writers, default=None)

    def shows(self, key: str) -> bool:
        """Whether the object was there then, as far as its key tells."""
        if key.startswith(layout.JOURNAL):
            place = layout.parse_entry(key)
            return place is None or place[1] <= self.seq
        if key.startswith(layout.SNAPSHOTS):
            snapshot = layout.parse_snapshot(key)
            return snapshot is None or snapshot.seq <= self.seq
        if key.startswith((layout.BASES, layout.CLAIMS)):
            claim = layout.parse_claim(key)
            if claim is None or key.startswith(layout.BASES):
                return claim is None or claim in self._writers
            return self._newest is not None and claim <= self._newest
        return True

    async def get(self, key: str) -> bytes:
        self._require(key)
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        self._require(key)
        return await self._store.get_range(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        self._require(key)
        return await self._store.head(key)

    async def list_after(
        self, prefix: str, after: str = "", limit: int = LIST_PAGE
    ) -> list[ObjectInfo]:
        while page := await self._store.list_after(prefix, after, LIST_PAGE):
            if shown := [info for info in page if self.shows(info.key)]:
                return shown[:limit]
            after = page[-1].key
        return []

    def _require(self, key: str) -> None:
        if not self.shows(key):
            raise ObjectMissingError(f"{key} came after entry {self.seq}", key=key)


async def as_of(
    store: ObjectStore, patience: Patience, mode: Mode, bucket_id: bytes, seq: int
) -> AsOfStore:
    """The view. Raises ReplayError if, in mode B, the bases lead nowhere."""
    writers: set[Claim] = set()
    if mode == "B":
        chain = BaseChain(store, patience, bucket_id)
        await chain.look()
        writers = {
            Claim(base.n, bytes.fromhex(base.writer))
            for base in await chain.from_position(ORIGIN)
            if base.previous is None or base.cut.seq < seq
        }
    return AsOfStore(store, seq, writers)
