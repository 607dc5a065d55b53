"""Deleting tidied journal entries and condemned objects.

Others decide which, by what the journal holds. This file guarantees that only entries at or below
the floor are deleted, and never an epoch entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from seb_appliance.broker.ports import EntryRef
from seb_appliance.failpoints import Failpoints
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.layout import Claim, Mode
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.object_store import list_all

DELETES_AT_ONCE: Final = 8


class BucketCleaner:
    """`removed_until`: all entries up to this seq, epoch entries apart, are known to be gone."""

    def __init__(
        self,
        store: RetryingStore,
        snapshots: SnapshotStore,
        mode: Mode,
        failpoints: Failpoints,
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._mode = mode
        self._failpoints = failpoints
        self.removed_until = 0

    async def list_objects(self) -> list[tuple[str, int | None]]:
        """Every key of a segment or packed object, with the epoch in its name (None: the key is
        not one of ours)."""
        found = []
        for folder in (layout.SEGMENTS, layout.PACKED):
            found += await list_all(self._store, folder)
        return [(info.key, layout.epoch_of(info.key)) for info in found]

    async def list_tables(self) -> dict[str, int]:
        """Every key below the location of a lake table, with its size in bytes."""
        found = await list_all(self._store, layout.TABLES)
        return {info.key: info.size for info in found if layout.is_of_table(info.key)}

    async def delete_objects(self, keys: Sequence[str]) -> None:
        """Delete objects that our log condemned longer ago than the grace time."""
        assert all(layout.may_be_deleted(key) for key in keys), keys
        await self._delete(keys)

    async def delete_metadata(self, keys: Sequence[str]) -> None:
        """Delete metadata of a lake table that someone else wrote: no grace time is for that."""
        assert all(map(layout.is_of_table, keys)), keys
        await self._delete(keys)

    async def delete_entries(self, tidied_seq: int, writers: Sequence[EntryRef], most: int) -> int:
        """Delete at most `most` entries of our own chain up to `tidied_seq`, above which something
        may be in force; how many there were. `writers`: each writer's first entry, oldest first."""
        until_seq = min(tidied_seq, await self._snapshots.floor())
        if until_seq == 0:
            return 0
        keys: list[str] = []
        after = ""
        chain = _Chain(self._mode, writers)
        while len(keys) < most:
            page = await self._store.list_after(layout.JOURNAL, after)
            for info in page:
                place = layout.parse_entry(info.key)
                if place is not None and chain.is_above(place, until_seq):
                    page = []
                    break
                if place is not None and chain.may_go(place, until_seq):
                    keys.append(info.key)
            if not page:
                break
            after = page[-1].key
        await self._delete(keys[:most])
        if len(keys) <= most:
            self.removed_until = until_seq
        return len(keys[:most])

    async def _delete(self, keys: Sequence[str]) -> None:
        async def delete(key: str) -> None:
            await self._store.delete(key)
            self._failpoints.reach("K18")

        await together((delete(key) for key in keys), DELETES_AT_ONCE)


class _Chain:
    """Which entries are on the log, by its writers."""

    def __init__(self, mode: Mode, writers: Sequence[EntryRef]) -> None:
        self._mode = mode
        self._first_seqs = {writer.seq for writer in writers}
        ends = [following.seq for _, following in pairwise(writers)]
        self._spans = {
            Claim(writer.epoch, writer.writer_id): (writer.seq, end)
            for writer, end in zip(writers, [*ends, None], strict=True)
        }

    def is_above(self, place: tuple[Claim | None, int], until_seq: int) -> bool:
        """Whether this entry, and with it every one that LIST shows later, lies above."""
        claim, seq = place
        return seq > until_seq and (self._mode == "A" or claim in self._spans)

    def may_go(self, place: tuple[Claim | None, int], until_seq: int) -> bool:
        claim, seq = place
        if self._mode == "A":
            # A writer's first entry is its epoch entry: its key must stay taken forever.
            return claim is None and seq <= until_seq and seq not in self._first_seqs
        if claim not in self._spans:
            return False
        first_seq, end = self._spans[claim]
        return first_seq <= seq <= until_seq and (end is None or seq < end)
