"""Bringing local state up to the end of the journal: where to begin, and what to do on failure.

Recovery begins from the local state or the newest good snapshot, whichever is newer, never below
the floor. If the log cannot be followed from there, it begins again: newer snapshots may exist, and
entries below them may be deleted. If no source is left, the bucket is damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seb_appliance.broker.ports import Replica
from seb_appliance.errors import (
    ConfigurationError,
    CorruptObjectError,
    NewerReleaseError,
    ObjectMissingError,
    StartError,
    StoreUnusableError,
)
from seb_appliance.formats.entry import ORIGIN, Position
from seb_appliance.storage.journal.bases import BaseChain, ClaimedLog
from seb_appliance.storage.journal.create_only import CreateOnlyLog
from seb_appliance.storage.journal.replay import Progress, Replay, ReplayError
from seb_appliance.storage.layout import Mode, SnapshotName
from seb_appliance.storage.recovery.snapshots import SnapshotStore, floor_of

_LOCAL: Final = "local"
_EMPTY: Final = "empty"
_LOOK: Final = "look"  # the log itself cannot be followed, from any source


Log = CreateOnlyLog | ClaimedLog


def log_of(mode: Mode, replay: Replay, bucket_id: bytes) -> Log:
    if mode == "A":
        return CreateOnlyLog(replay, bucket_id)
    return ClaimedLog(replay, BaseChain(replay.store, bucket_id))


def _require_past(names: Sequence[SnapshotName], end: Position) -> None:
    """A snapshot is made of stored entries only, so no log ends below one. Raises ReplayError."""
    if names and end.seq < names[-1].seq:
        why = f"is a snapshot, but the journal ends at entry {end.seq} already"
        raise ReplayError(names[-1].key, why)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What local state was begun from: `local`, `empty` or the key of a snapshot."""

    source: str
    position: Position


class Recovery:
    """One start's local state. `began`: the source of its present content. `notes`: for people, why
    other sources were not used."""

    def __init__(
        self,
        log: Log,
        snapshots: SnapshotStore,
        replica: Replica,
        scratch: Path,
        progress: Progress,
    ) -> None:
        self.began: Beginning | None = None
        self.notes: list[str] = []
        self.newest_snapshot_seq = 0
        self._log = log
        self._snapshots = snapshots
        self._replica = replica
        self._scratch = scratch
        self._progress = progress
        self._tried: set[str] = set()  # sources that failed: not begun from again
        self._problem = "no snapshot in the bucket is good"
        self._vanished: set[str] = set()
        self._newer = ""  # why the newest snapshot of a newer release is not used

    async def bring_up(self) -> Position:
        """Local state at the end of the log. May be called again to follow later entries.

        Raises StoreUnusableError for damage (naming the key) and if local state is ahead of the
        bucket, ConfigurationError for the local state of another bucket.
        """
        while True:
            names = await self._snapshots.list()
            self.newest_snapshot_seq = names[-1].seq if names else 0
            try:
                await self._log.look()
                position = await self._begin(names)
                if position is None:
                    continue
                position = await self._log.replay(position)
                _require_past(names, position)
            except ReplayError as problem:
                await self._begin_anew(problem)
            except CorruptObjectError as error:  # of local state: the file turned out to be damaged
                await self._begin_anew(ReplayError("the local state", error.detail))
            else:
                return position

    async def was_misled(self) -> bool:
        """LIST snapshots: whether the floor is now above the seq that local state began from, or a
        snapshot is above the apparent end of the log. Then entries may have been deleted before
        they were read, local state may hold ghosts (a deleted key is free), and it is discarded.
        The floor alone is not enough: it goes back when one of the three newest snapshots is
        damaged and removed (`tests/model/upkeep_model.py`)."""
        names = await self._snapshots.list()
        end = await self._replica.position()
        assert self.began is not None
        if floor_of(names) <= self.began.position.seq and (not names or names[-1].seq <= end.seq):
            return False
        await self._discard("entries were deleted while this start was reading them")
        return True

    async def _discard(self, why: str) -> None:
        self.notes.append(f"local state was put aside: {why}")
        await self._replica.clear()
        self.began = None

    async def _begin_anew(self, problem: ReplayError) -> None:
        """Discard the source that led to `problem`, and remember why."""
        self._problem = f"{problem.key} {problem.why}"
        source = self.began.source if self.began else _LOOK
        if source in self._tried:
            raise self._damage()
        self._tried.add(source)
        if self.began is not None:
            await self._discard(self._problem)

    def _damage(self) -> StartError:
        if self._newer:  # not damage: an older release cannot read it
            return NewerReleaseError(
                "this release cannot start from the bucket, because a newer release wrote the "
                f"snapshots there. Install that release again. Nothing was changed. {self._newer}"
            )
        return StoreUnusableError(
            f"the journal in the bucket is damaged: {self._problem}. Nothing was changed in the "
            "bucket. Restore this object from a copy of the bucket; docs/OPERATIONS.md (Recovery) "
            "says what to do if no appliance made it."
        )

    async def _begin(self, names: Sequence[SnapshotName]) -> Position | None:
        """Where to replay from; None: the bucket has just changed, look again."""
        floor = floor_of(names)
        position = await self._local(floor)
        for name in reversed(names):
            if name.seq < floor or 0 < name.seq <= position.seq:
                break
            if name.key in self._tried:
                continue
            try:
                restored = await self._restore(name)
            except ObjectMissingError:
                if name.key in self._vanished:
                    self._tried.add(name.key)
                self._vanished.add(name.key)
                return None
            if restored is not None:
                return restored
        if position.seq > 0:
            self.began = self.began or Beginning(_LOCAL, position)
            return position
        if floor > 0 or _EMPTY in self._tried:
            raise self._damage()
        self.began = Beginning(_EMPTY, ORIGIN)
        return ORIGIN

    async def _local(self, floor: int) -> Position:
        """The position of usable local state; ORIGIN if there is none."""
        position = await self._replica.position()
        if position.seq == 0:
            return ORIGIN
        if self.began is None:
            local = await self._replica.bucket_id()
            if local and local != self._log.bucket_id:
                raise ConfigurationError(
                    f"the local state is of bucket {local.hex()}, but this is bucket "
                    f"{self._log.bucket_id.hex()}. Choose another data directory, or that bucket."
                )
        begun_seq = self.began.position.seq if self.began else position.seq
        if begun_seq < floor:
            why = f"it ends at entry {position.seq}, below the oldest kept snapshot ({floor})"
        elif not await self._log.holds(position):
            why = f"its last entry ({position.seq}) is not on the log of the bucket"
        elif self.began is None and not await self._is_stored(position, floor):
            why = f"the bucket has another entry {position.seq} than the one it holds"
        else:
            return position
        await self._discard(why)
        return ORIGIN

    async def _is_stored(self, position: Position, floor: int) -> bool:
        """Whether the bucket's entry at `position` is the one that local state ends with.

        Raises StoreUnusableError if an entry above the floor is absent: those are never deleted, so
        the bucket has lost stored entries, which must not be repaired silently.
        """
        header = await self._log.entry_at(position)
        if header is not None:
            return header.position == position
        if position.seq <= max(floor, await self._snapshots.floor()):
            return True  # it may be deleted; the first entry replayed must chain to it
        raise StoreUnusableError(
            f"the local state is ahead of the bucket: it ends at entry {position.seq}, which the "
            "bucket does not have. The bucket has lost objects or was restored to an earlier "
            "state. Restore its objects, or move the data directory away to continue from the "
            "bucket's state."
        )

    async def _restore(self, name: SnapshotName) -> Position | None:
        """Local state from a snapshot; None if it is not a good one. Raises ObjectMissingError."""
        self._progress(0, 0, f"reading the snapshot as of entry {name.seq}")
        try:
            await self._snapshots.fetch(name, self._scratch)
            position = await self._replica.restore(self._scratch)
        except (CorruptObjectError, NewerReleaseError) as error:
            # After a downgrade an older snapshot works: this release can read the entries after it,
            # or it would not be one to go back to.
            if isinstance(error, NewerReleaseError):
                self._newer = self._newer or error.detail
            self._tried.add(name.key)
            self.notes.append(f"a snapshot is not used: {error.detail}")
            return None
        finally:
            await asyncio.to_thread(self._scratch.unlink, missing_ok=True)
        self.began = Beginning(name.key, position)
        if position.seq != name.seq or await self._replica.bucket_id() != self._log.bucket_id:
            raise ReplayError(
                name.key, "is a snapshot of another entry or bucket than its name says"
            )
        if not await self._log.holds(position):
            raise ReplayError(name.key, "is a snapshot of entries that are not on the log")
        return position
