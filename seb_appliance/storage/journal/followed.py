"""The journal of another writer, read on and on without writing anything: what a standby has.

The next key is asked for by GET; while it is absent, nothing else is asked. Now and then LIST tells
what a GET cannot: whether entries were deleted before they were read here (FLOOR_S), and in mode B
whether another writer has stated its base (BASES_S). What `read` returns is on the log for good:

- mode A: an entry that continues the log at its key is. Only an epoch entry may be a ghost, put by
  a slow start at a key that was deleted: so the floor is looked at after one was read;
- mode B: entries and bases are, once a LIST of claims that was made after they were read shows none
  above the newest base. Whoever claims later replays later, and sees them as well. It is the check
  of each append (claims.py), made by a reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from seb_appliance.broker.ports import StoreHealth
from seb_appliance.clock import Clock
from seb_appliance.errors import StandbyError
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import EncodedEntry, Entry, Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import BaseChain, claimed_span
from seb_appliance.storage.journal.create_only import create_only_span
from seb_appliance.storage.journal.replay import AHEAD_MAX, EntryReader, ReplayError, Span
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Claim, Mode
from seb_appliance.storage.recovery.snapshots import SnapshotStore, floor_of
from seb_appliance.storage.stores.object_store import Durability, ObjectInfo

FLOOR_S: Final = 60.0
BASES_S: Final = 10.0


class _Looked:
    """When something was looked at, by both clocks: one of them may stand still while a virtual
    machine does."""

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
        """What is found is as of now, or later."""
        self.at_s, self._wall_us = self._clock.monotonic_s(), self._clock.wall_us()

    def forget(self) -> None:
        self.at_s = None


class FollowedJournal:
    """`broker.ports.Journal`, of which nothing but `append` is refused. `position`: the last entry
    that `read` returned. `known_seq`: the last that is known to be there; `seen_end_s`: when all
    that there was had been read the last time (monotonic clock; None: never)."""

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
        self._object_store = store
        self._snapshots = snapshots
        self._clock = clock
        self._mode: Mode = mode
        self._bucket_id = bucket_id
        self._reader = EntryReader(store)
        self._in_a_row = 0  # entries since the end was seen
        self._floor_looked = _Looked(clock, FLOOR_S)

    @property
    def bucket_id(self) -> bytes:
        return self._bucket_id

    @property
    def writer_id(self) -> bytes:
        """Of the writer of the last entry."""
        return self.position.writer_id

    @property
    def epoch(self) -> int:
        """Of the last entry."""
        return self.position.epoch

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def durability(self) -> Durability:
        return self._object_store.durability

    @property
    def health(self) -> StoreHealth:
        return self._object_store.health

    @property
    def waits_for(self) -> str:
        """Why nothing is read although there may be entries, in words; "" while it is."""
        return ""

    async def append(
        self,
        contents: Contents,  # noqa: ARG002 - the protocol's
        section_parts: Sequence[Bytes],  # noqa: ARG002
        created_us: int,  # noqa: ARG002
    ) -> EncodedEntry:
        """Raises StandbyError, always."""
        raise StandbyError("Nothing is written to a journal that is followed.")

    async def confirm_in_force(self) -> None:
        """A standby never is, and does not pretend to be."""

    async def read(self) -> list[Entry]:
        """The next entries, in order, at most AHEAD_MAX; none at the end of the journal, or while
        it is open which they are.

        Raises ReplayError when the journal cannot be followed from here any more: entries were
        deleted before they were read, or something is damaged. Recovery finds out which. Does not
        end while the store fails (`health`).
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
        """What there is after `position`. Sets `seen_end_s` if that is nothing."""
        raise NotImplementedError

    async def _require_above_floor(self) -> None:
        """Raises ReplayError if entries may be gone that were not read here."""
        self._floor_looked.begin()
        names = await self._snapshots.list()
        self.known_seq = max(self.known_seq, names[-1].seq if names else 0)
        if floor_of(names) > self.position.seq:
            self._floor_looked.forget()
            why = f"entries up to {floor_of(names)} may be gone, and were read up to "
            raise ReplayError(layout.JOURNAL, f"{why}{self.position.seq} only")

    async def _read_span(self, span: Span) -> list[Entry]:
        """As many at once as there were in a row. The first that is absent ends it: what comes
        after that one is read again."""
        position, entries = self.position, []
        first = position.seq + 1
        count = min(max(1, self._in_a_row), AHEAD_MAX)
        if span.until_seq is not None:
            count = min(count, span.until_seq - position.seq)
        reads = [self._reader.read(span.key(first + i), self._bucket_id) for i in range(count)]
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
    """In mode A."""

    async def _read_on(self) -> list[Entry]:
        entries = await self._read_span(create_only_span())
        if not entries:
            self.seen_end_s = self._clock.monotonic_s()
        return entries


class FollowedClaimed(FollowedJournal):
    """In mode B. `chain`: as far as it was looked at, which the first `read` does."""

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

    async def _look_at_bases(self) -> None:
        self._bases_looked.begin()
        top, newer = self._chain.top, True
        if top is not None:
            newer = bool(await self._first_above(layout.BASES, layout.base_key(top)))
        if newer:
            await self._chain.look()
        self._contested_by = None

    async def _first_above(self, folder: str, key: str) -> list[ObjectInfo]:
        return await self._object_store.list_after(folder, key, 1)

    async def _read_on(self) -> list[Entry]:
        if self._bases_looked.is_due:
            await self._look_at_bases()
        if self._contested_by is not None:
            return []  # its base, or that of the writer which claims anew, is looked for
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
        """LIST claims after the newest base's, one key, as its writer does."""
        above = await self._first_above(layout.CLAIMS, layout.claim_key(top))
        if not above:
            return True
        self._contested_by = layout.parse_claim(above[0].key)
        if self._contested_by != self._claimed_by:
            # It may have stated its base already: look at once, but only once.
            self._claimed_by = self._contested_by
            self._bases_looked.forget()
        return False
