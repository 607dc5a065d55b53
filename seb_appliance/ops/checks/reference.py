"""The state that the log amounts to, built from the bucket alone, to compare others with.

The replay begins at the first entry if all are there, else at the oldest snapshot that is needed,
and takes a digest at each seq to compare: a snapshot's, or that of a local state.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError, ObjectMissingError
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.formats.entry import ORIGIN, Entry, Position
from seb_appliance.ops.checks.findings import Findings
from seb_appliance.ops.checks.objects import Listing
from seb_appliance.state import checks, files
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.tables import state_digest
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import ClaimedLog
from seb_appliance.storage.journal.replay import Progress, Replay, ReplayError
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Claim, Mode, SnapshotName
from seb_appliance.storage.recovery.recovery import log_of
from seb_appliance.storage.recovery.snapshots import SnapshotStore, floor_of
from seb_appliance.storage.stores.object_store import list_all


@dataclass(frozen=True, slots=True)
class StateFile:
    """`digest`: None for a file of an older release, which a replay of today may differ from."""

    position: Position
    bucket_id: bytes | None
    digest: str | None


async def read_state(path: Path) -> StateFile:
    """Check the file at `path`, a copy that may be migrated. Raises CorruptObjectError."""

    def is_older() -> bool:
        try:
            with closing(sqlite3.connect(path)) as connection:
                query = "SELECT version_num FROM alembic_version"
                return checks.needs_upgrade(connection.execute(query).fetchone()[0])
        except (sqlite3.Error, TypeError):  # not a state file: the check below says so
            return False

    older = await asyncio.to_thread(is_older)
    await StateDatabase.check(path)
    database = await StateDatabase.open(path)
    try:
        position, bucket_id = await database.position(), await database.bucket_id()
    finally:
        await database.close()
    digest = None if older else await asyncio.to_thread(state_digest, path)
    return StateFile(position, bucket_id, digest)


class DigestDatabase(StateDatabase):
    """Takes the digest of the state at the seqs that are keys of `digests`."""

    def __init__(self, path: Path, *, set_aside: str = "") -> None:
        super().__init__(path, set_aside=set_aside)
        self.digests: dict[int, str | None] = {}

    async def apply(
        self, entries: Sequence[Entry], *, failpoints: Failpoints = NO_FAILPOINTS
    ) -> None:
        begin = 0
        for i, entry in enumerate(entries, 1):
            if entry.header.seq in self.digests:
                await super().apply(entries[begin:i], failpoints=failpoints)
                begin = i
                self.digests[entry.header.seq] = await asyncio.to_thread(state_digest, self.path)
        await super().apply(entries[begin:], failpoints=failpoints)


class Reference:
    """`folder` is empty but for the `database`. `is_whole`: the log was followed to its end."""

    def __init__(
        self,
        database: DigestDatabase,
        folder: Path,
        store: RetryingStore,
        clock: Clock,
        findings: Findings,
        progress: Progress,
        *,
        mode: Mode,
        bucket_id: bytes,
    ) -> None:
        self.is_whole = False
        self.snapshots_compared = 0
        self.database = database
        self._folder = folder
        self._findings = findings
        self._store = store
        self._bucket = SnapshotStore(store, NO_FAILPOINTS)
        self._replay = Replay(store, database, clock, NO_FAILPOINTS, progress)
        self.log = log_of(mode, self._replay, bucket_id)
        self.chain = self.log.chain if isinstance(self.log, ClaimedLog) else None

    @property
    def entries_replayed(self) -> int:
        return self._replay.done

    @property
    def bucket_id(self) -> bytes:
        return self.log.bucket_id

    def stop_at(self, seq: int) -> None:
        """Take the digest at `seq`. Call it before `follow`."""
        self.database.digests.setdefault(seq, None)

    def digest_at(self, seq: int) -> str | None:
        """None if the log was not followed through `seq`."""
        return self.database.digests.get(seq)

    async def follow(self, listing: Listing) -> None:
        """From the beginning to the end. A break is a finding; the replay then continues from the
        next newer snapshot."""
        names = listing.snapshots
        for name in names:
            self.stop_at(name.seq)
        floor = floor_of(names)
        if floor and not await self._is_complete(listing, floor):
            await self._begin_from(names, floor)
        await self._to_the_end(names)
        position = await self.database.position()
        if self.is_whole and names and position.seq < names[-1].seq:
            self._findings.add(
                "log_cut_short",
                names[-1].key,
                f"there is a snapshot of entry {names[-1].seq}, but the log ends at {position.seq}",
            )

    async def catch_up(self) -> None:
        """Follow what was added since. Entries deleted meanwhile lie below a newer snapshot."""
        if self.is_whole:
            await self._to_the_end(await self._snapshots())

    async def _is_complete(self, listing: Listing, until_seq: int) -> bool:
        """Whether all entries from the first to `until_seq` were listed."""
        if self.chain is None:
            return listing.has_entries(None, 1, until_seq)
        try:
            await self.chain.look()
            bases = await self.chain.from_position(ORIGIN)
        except ReplayError:
            return False
        for i, base in enumerate(bases):
            last = min(bases[i + 1].cut.seq if i + 1 < len(bases) else until_seq, until_seq)
            claim = Claim(base.n, bytes.fromhex(base.writer))
            if not listing.has_entries(claim, base.cut.seq + 1, last):
                return False
        return bool(bases)

    async def _to_the_end(self, names: Sequence[SnapshotName]) -> None:
        broken = False
        while True:
            at = await self.database.position()
            try:
                await self._replay_from(at)
            except ReplayError as problem:
                key, why = problem.key, problem.why
            except CorruptObjectError as error:
                key, why = "the log", f"contradicts itself: {error.detail}"
            else:
                break
            at = await self.database.position()
            fresh = await self._snapshots()
            floor = floor_of(fresh)
            # Entries below the floor may be deleted at any time; reading finds damaged ones.
            if at.seq >= floor:
                self._findings.add("log_broken", key, why)
                broken = True
            if not await self._begin_from([*names, *fresh], max(floor, at.seq + 1)):
                broken = True
                break
        self.is_whole = not broken

    async def _replay_from(self, position: Position) -> None:
        await self.log.look()
        if not await self.log.holds(position):
            raise ReplayError("the log", f"no longer holds entry {position.seq}")
        await self.log.replay(position)

    async def _begin_from(self, names: Sequence[SnapshotName], least_seq: int) -> bool:
        """Restore the oldest good snapshot of entry `least_seq` or later."""
        for name in sorted(set(names)):
            if name.seq < least_seq:
                continue
            fetched = self._folder / "begin.sqlite"
            try:
                await self._bucket.fetch(name, fetched)
                position = await self.database.restore(fetched)
            except (CorruptObjectError, ObjectMissingError):
                continue  # `check_snapshots` reports it
            finally:
                fetched.unlink(missing_ok=True)
            if position.seq == name.seq:
                return True
        return False

    async def _snapshots(self) -> list[SnapshotName]:
        listed = await list_all(self._store, layout.SNAPSHOTS)
        names = (layout.parse_snapshot(info.key) for info in listed)
        return sorted(name for name in names if name is not None)

    async def check_snapshots(self, names: Sequence[SnapshotName]) -> None:
        """Each must load, and equal a replay of the journal up to its seq."""
        for name in names:
            path = self._folder / "snapshot.sqlite"
            try:
                await self._bucket.fetch(name, path)
                found = await read_state(path)
                await self._compare(name, found)
            except ObjectMissingError:
                continue  # replaced by a newer one meanwhile
            except CorruptObjectError as error:
                self._findings.add("snapshot_damaged", name.key, error.detail)
            finally:
                await asyncio.to_thread(files.remove, path)

    async def _compare(self, name: SnapshotName, found: StateFile) -> None:
        fault = ""
        if found.position.seq != name.seq:
            fault = f"it is as of entry {found.position.seq}, not {name.seq} as its key says"
        elif found.bucket_id != self.bucket_id:
            fault = "it is of another bucket"
        elif self.is_whole and not await self.log.holds(found.position):
            fault = "its last entry is not on the log"
        elif found.digest and (digest := self.digest_at(name.seq)):
            self.snapshots_compared += 1
            if digest != found.digest:
                fault = "it differs from a replay of the journal up to its entry"
        if fault:
            self._findings.add("snapshot_differs", name.key, fault)
