"""The journal of another writer, read continuously by a standby, which writes nothing.

The next key is requested by GET until it exists. A LIST from time to time shows what GET cannot:
whether entries were deleted before they were read here (FLOOR_S) and, in mode B, whether another
writer has stored its base (BASES_S). What `read` returns is permanently on the log:

- mode A: an entry that continues the log at its key is. Only an epoch entry may be a ghost, stored
  by a slow start at a deleted key, so the floor is checked after reading one;
- mode B: entries and bases are, once a later LIST of claims shows none above the newest base: a
  later writer replays later and sees them, too. Each append makes the same check (claims.py).
"""

from __future__ import annotations

import asyncio
from typing import Final

from seb_appliance.clock import Clock
from seb_appliance.errors import StandbyError
from seb_appliance.formats.entry import EncodedEntry, Encoder, Entry, Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import BaseChain, claimed_span
from seb_appliance.storage.journal.create_only import create_only_span
from seb_appliance.storage.journal.replay import AHEAD_MAX, EntryReader, ReplayError, Span
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Claim, Mode
from seb_appliance.storage.recovery.snapshots import SnapshotStore, floor_of
from seb_appliance.storage.stores.object_store import ObjectInfo

FLOOR_S: Final = 60.0
BASES_S: Final = 10.0


class _Looked:
    """When something was last checked, by both clocks: one of them may stop while a virtual machine
    is paused."""

    def __init__(self, clock: Clock, every_s: float) -> None:
        self.at_s: float | None = None  # monotonic
        self._clock = clock
        self._every_s = every_s
        self._wall_us = 0

    @property
    def is_due(self) -> bool:
        if self.at_s is None:
            return True
        by_wall_s = (self._clock.wall_us() - self._wall_us) / 1_000_000
        return max(self._clock.monotonic_s() - self.at_s, by_wall_s) >= self._every_s

    def begin(self) -> None:
        self.at_s, self._wall_us = self._clock.monotonic_s(), self._clock.wall_us()

    def forget(self) -> None:
        self.at_s = None


class FollowedJournal:
    """A `broker.ports.Journal` that refuses `append`. `position`: the last entry that `read`
    returned. `known_seq`: the last one known to exist. `seen_end_s`: when everything had been read
    the last time (monotonic clock; None: never)."""

    encodes_ahead = False

    def __init__(
        self,
        store: RetryingStore,
        snapshots: SnapshotStore,
        clock: Clock,
        *,
        mode: Mode,
        bucket_id: bytes,
        position: Position,
    ) -> None:
        self.position = position
        self.known_seq = position.seq
        self.seen_end_s: float | None = None
        self.mode: Mode = mode
        self.bucket_id = bucket_id
        self.durability = store.durability
        self.health = store.health
        self._object_store = store
        self._snapshots = snapshots
        self._clock = clock
        self._reader = EntryReader(store)
        self._in_a_row = 0  # entries since the end was seen
        self._floor_looked = _Looked(clock, FLOOR_S)

    @property
    def writer_id(self) -> bytes:
        """Of the writer of the last entry."""
        return self.position.writer_id

    @property
    def epoch(self) -> int:
        """Of the last entry."""
        return self.position.epoch

    @property
    def waits_for(self) -> str:
        """Why nothing is read although there may be entries, for people; "" if it is read."""
        return ""

    def encoder(self, created_us: int) -> Encoder:  # noqa: ARG002 - the protocol's
        """Raises StandbyError, always."""
        raise StandbyError("Nothing is written to a journal that is followed.")

    async def append(self, encoded: EncodedEntry) -> None:  # noqa: ARG002 - the protocol's
        """Raises StandbyError, always."""
        self.encoder(0)

    async def confirm_in_force(self) -> None:
        """Does nothing: a standby is never in force."""

    async def read(self) -> list[Entry]:
        """The next entries, in order, at most AHEAD_MAX; none at the end of the journal, or while
        another writer is starting.

        Raises ReplayError if the journal cannot be followed any more: entries were deleted before
        they were read, or something is damaged. Retries while the store fails (`health`).
        """
        if self._floor_looked.is_due:
            await self._require_above_floor()
        entries = await self._read_on()
        if entries:
            if any(entry.header.is_epoch for entry in entries):
                await self._require_above_floor()
            self.position = entries[-1].header.position
            self.known_seq = max(self.known_seq, self.position.seq)
        self._in_a_row = self._in_a_row + len(entries) if entries else 0
        return entries

    async def _read_on(self) -> list[Entry]:
        """The entries after `position`. Sets `seen_end_s` if there are none."""
        raise NotImplementedError

    async def _require_above_floor(self) -> None:
        """Raises ReplayError if entries may have been deleted before they were read here."""
        self._floor_looked.begin()
        names = await self._snapshots.list()
        self.known_seq = max(self.known_seq, names[-1].seq if names else 0)
        if floor_of(names) > self.position.seq:
            self._floor_looked.forget()
            why = f"entries up to {floor_of(names)} may be gone, and were read up to "
            raise ReplayError(layout.JOURNAL, f"{why}{self.position.seq} only")

    async def _read_span(self, span: Span) -> list[Entry]:
        """Reads as many entries at once as were read in a row, up to the first absent one."""
        position, entries = self.position, []
        first = position.seq + 1
        count = min(max(1, self._in_a_row), AHEAD_MAX)
        if span.until_seq is not None:
            count = min(count, span.until_seq - position.seq)
        reads = [self._reader.read(span.key(first + i), self.bucket_id) for i in range(count)]
        for entry in await asyncio.gather(*reads, return_exceptions=True):
            if isinstance(entry, BaseException):
                raise entry
            if entry is None:
                break
            if why := span.refusal(entry.header, position):
                raise ReplayError(span.key(position.seq + 1), why)
            position = entry.header.position
            entries.append(entry)
        return entries


class FollowedCreateOnly(FollowedJournal):
    async def _read_on(self) -> list[Entry]:
        entries = await self._read_span(create_only_span())
        if not entries:
            self.seen_end_s = self._clock.monotonic_s()
        return entries


class FollowedClaimed(FollowedJournal):
    def __init__(
        self,
        store: RetryingStore,
        snapshots: SnapshotStore,
        clock: Clock,
        chain: BaseChain,
        position: Position,
    ) -> None:
        super().__init__(
            store,
            snapshots,
            clock,
            mode="B",
            bucket_id=chain.bucket_id,
            position=position,
        )
        self._chain = chain
        self._bases_looked = _Looked(clock, BASES_S)
        self._contested_by: Claim | None = None  # until the bases are looked at again
        self._claimed_by: Claim | None = None  # the highest claim that contested anything

    @property
    def waits_for(self) -> str:
        by = self._contested_by
        return "" if by is None else f"the appliance that claims the bucket (epoch {by.n})"

    async def _first_above(self, folder: str, key: str) -> list[ObjectInfo]:
        return await self._object_store.list_after(folder, key, 1)

    async def _read_on(self) -> list[Entry]:
        if self._bases_looked.is_due:
            self._bases_looked.begin()
            top = self._chain.top
            if top is None or await self._first_above(layout.BASES, layout.base_key(top)):
                await self._chain.look()
            self._contested_by = None
        if self._contested_by is not None:
            return []  # until that writer, or one that claims anew, has stored its base
        bases = await self._chain.from_position(self.position)
        top = self._chain.top
        if not bases or top is None:
            raise ReplayError(layout.BASES, f"entry {self.position.seq} is not on the log any more")
        while len(bases) > 1 and bases[1].cut.seq <= self.position.seq:
            bases = bases[1:]
        cut = bases[1].cut if len(bases) > 1 else None
        span = claimed_span(bases[0], cut)
        entries = await self._read_span(span)
        if not entries:
            if cut is not None:
                key = span.key(self.position.seq + 1)
                raise ReplayError(key, f"is missing, and the log goes on to {cut.seq}")
            self.seen_end_s = self._bases_looked.at_s
            return []
        end = entries[-1].header.position
        if cut is not None and end.seq == cut.seq and end != cut:
            raise ReplayError(span.key(cut.seq), "is not the entry that the next base names")
        return entries if await self._is_settled(top) else []

    async def _is_settled(self, top: Claim) -> bool:
        """Whether there is no claim above that of the newest base, `top`."""
        above = await self._first_above(layout.CLAIMS, layout.claim_key(top))
        if not above:
            return True
        self._contested_by = layout.parse_claim(above[0].key)
        if self._contested_by != self._claimed_by:
            # It may have stored its base already: look immediately, but only once.
            self._claimed_by = self._contested_by
            self._bases_looked.forget()
        return False
