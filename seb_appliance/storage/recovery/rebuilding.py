"""Local state from a bucket alone, without becoming its writer: nothing is claimed or written.

An appliance may write to the bucket meanwhile; its latest entries may then be missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from seb_appliance.broker.ports import Replica
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    ConfigurationError,
    ObjectMissingError,
    StoreError,
    StoreUnusableError,
)
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.entry import ORIGIN, Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import BaseChain, list_claims
from seb_appliance.storage.journal.bucket_info import read_bucket_info, read_copy_marker
from seb_appliance.storage.journal.replay import EntryReader, Progress, Replay, ReplayError
from seb_appliance.storage.journal.retry import RetryingStore, given_up
from seb_appliance.storage.layout import Claim, Mode
from seb_appliance.storage.recovery.recovery import Recovery, log_of
from seb_appliance.storage.recovery.snapshots import SnapshotStore, floor_of
from seb_appliance.storage.stores.object_store import ObjectInfo, ObjectRange, list_all

LIST_PAGE: int = 1000


class AsOfStore(RetryingStore):
    """A read-only view of `store` as of entry `seq`: later entries, snapshots and, in mode B, later
    writers' bases and claims are hidden, so that an unchanged recovery ends there. `writers`: in
    mode B, those whose base lies on the chain and begins below `seq`."""

    def __init__(self, store: RetryingStore, seq: int, writers: AbstractSet[Claim]) -> None:
        super().__init__(
            store.raw, store.clock, store.jitter, give_up_after_s=store.give_up_after_s
        )
        self.seq = seq
        self._writers = writers
        self._newest = max(writers, default=None)

    def shows(self, key: str) -> bool:
        """Whether the object existed then, judged by its key."""
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
        return await super().get(key)

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        self._require(key)
        return await super().get_range(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        self._require(key)
        return await super().head(key)

    async def list_after(
        self, prefix: str, after: str = "", limit: int = LIST_PAGE
    ) -> list[ObjectInfo]:
        while page := await super().list_after(prefix, after, LIST_PAGE):
            if shown := [info for info in page if self.shows(info.key)]:
                return shown[:limit]
            after = page[-1].key
        return []

    def _require(self, key: str) -> None:
        if not self.shows(key):
            raise ObjectMissingError(f"{key} is later than entry {self.seq}", key=key)


async def as_of(store: RetryingStore, mode: Mode, bucket_id: bytes, seq: int) -> AsOfStore:
    """The view. Raises ReplayError if, in mode B, the bases lead nowhere."""
    writers: set[Claim] = set()
    if mode == "B":
        chain = BaseChain(store, bucket_id)
        await chain.look()
        writers = {
            Claim(base.n, bytes.fromhex(base.writer))
            for base in await chain.from_position(ORIGIN)
            if base.previous is None or base.cut.seq < seq
        }
    return AsOfStore(store, seq, writers)


@dataclass(frozen=True, slots=True)
class Journal:
    """Which journal a bucket holds."""

    mode: Mode
    bucket_id: bytes


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """`position`: the last entry in the state. `began_from`: `empty` or the key of a snapshot.
    `floor`: entries at or below it may be deleted. `notes`: sentences for people."""

    journal: Journal
    view: AsOfStore
    position: Position
    began_from: str
    floor: int
    entries_replayed: int
    seconds: float
    notes: tuple[str, ...]


async def find_journal(store: RetryingStore) -> Journal:
    """Also that of a finished copy that is brought up to date. Raises ConfigurationError if no
    appliance has used this bucket."""
    bases = await list_claims(store, layout.BASES)
    if bases:  # in mode B they are the record
        chain = BaseChain(store, b"")
        await chain.look()
        return Journal("B", chain.bucket_id)
    info = await read_bucket_info(store)
    if info is None:
        marker = await read_copy_marker(store)
        if marker is not None and marker.complete_seq:
            return Journal("A", bytes.fromhex(marker.bucket_id))
        raise ConfigurationError(
            f"{store.description} is not the bucket of an appliance: there is no "
            f"{layout.BUCKET}. Check the bucket and the prefix."
        )
    return Journal(info.mode, info.id_bytes)


async def last_entry_before(store: RetryingStore, journal: Journal, when_us: int) -> int | None:
    """The last of the entries in the bucket that was made before `when_us`; None if there is none.
    `created` never goes back, so a few headers tell. Raises ReplayError."""
    key_of: Callable[[int], str] = layout.create_only_key
    if journal.mode == "B":
        chain = BaseChain(store, journal.bucket_id)
        await chain.look()
        bases = await chain.from_position(ORIGIN)
        starts = [0, *(base.cut.seq for base in bases[1:])]

        def claimed_key_of(seq: int) -> str:
            base = bases[bisect_left(starts, seq) - 1]
            return layout.claimed_key(Claim(base.n, bytes.fromhex(base.writer)), seq)

        key_of = claimed_key_of
    reader = EntryReader(store)
    listed = [info.key for info in await list_all(store, layout.JOURNAL)]
    places = ((key, layout.parse_entry(key)) for key in listed)
    seqs = sorted(place[1] for key, place in places if place and key == key_of(place[1]))
    low, high = 0, len(seqs)
    while low < high:
        middle = (low + high) // 2
        header = await reader.read_header(key_of(seqs[middle]))
        # One that was removed meanwhile is older than those that are there.
        if header is None or header.created_us < when_us:
            low = middle + 1
        else:
            high = middle
    return seqs[low - 1] if low else None


class Rebuilder:
    def __init__(
        self,
        store: RetryingStore,
        *,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self._store = store
        self._clock = clock
        self._progress = progress

    async def rebuild(
        self,
        replica: Replica,
        scratch: Path,
        *,
        until_seq: int | None = None,
        journal: Journal | None = None,
    ) -> Rebuilt:
        """Fills the empty `replica` up to entry `until_seq` (None: to the newest). `scratch`: a
        temporary file for a snapshot. `journal`: if it is known but not recorded yet.

        Raises ConfigurationError if the entry does not exist (any more), StoreUnusableError for
        damage, CorruptObjectError, StoreError.
        """
        try:
            return await self._rebuild(replica, scratch, until_seq, journal)
        except ReplayError as error:
            raise StoreUnusableError(f"the journal in the bucket is damaged: {error}") from error
        except StoreError as error:
            raise given_up(error) from error

    async def _rebuild(
        self, replica: Replica, scratch: Path, until_seq: int | None, known: Journal | None
    ) -> Rebuilt:
        began_s = self._clock.monotonic_s()
        journal = known or await find_journal(self._store)
        end_seq = until_seq if until_seq is not None else 1 << 62
        view = await as_of(self._store, journal.mode, journal.bucket_id, end_seq)
        replay = Replay(view, replica, self._clock, NO_FAILPOINTS, self._progress)
        snapshots = SnapshotStore(view, NO_FAILPOINTS)
        if until_seq is not None:
            await self._require_reachable(view, replay, journal, until_seq)
        log = log_of(journal.mode, replay, journal.bucket_id)
        recovery = Recovery(log, snapshots, replica, scratch, self._progress)
        position = await recovery.bring_up()
        if until_seq is not None and position.seq < until_seq:
            raise ConfigurationError(
                f"there is no entry {until_seq}: the journal ends at entry {position.seq}"
            )
        assert recovery.began is not None
        return Rebuilt(
            journal,
            await as_of(self._store, journal.mode, journal.bucket_id, position.seq),
            position,
            recovery.began.source,
            floor_of(await snapshots.list()),
            replay.done,
            self._clock.monotonic_s() - began_s,
            tuple(recovery.notes),
        )

    async def _require_reachable(
        self, view: AsOfStore, replay: Replay, journal: Journal, until_seq: int
    ) -> None:
        """Without a snapshot at or below that entry, all entries from the first must exist."""
        if journal.mode == "B" or await view.list_after(layout.SNAPSHOTS, "", 1):
            return
        if until_seq and await replay.reader.read_header(layout.create_only_key(until_seq)) is None:
            everything = SnapshotStore(self._store, NO_FAILPOINTS)
            oldest = [name.seq for name in await everything.list()][:1]
            beginning = f"; the oldest entry to go back to is {oldest[0]}" if oldest else ""
            raise ConfigurationError(f"there is no entry {until_seq}, or it was removed{beginning}")
