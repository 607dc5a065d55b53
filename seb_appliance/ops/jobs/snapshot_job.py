"""Snapshots of the state in the bucket: made when one is due, and on a clean stop.

Asked after each applied entry and never by a timer, so that an idle appliance writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from seb_appliance.errors import SebError, StoreError, StoreUnavailableError
from seb_appliance.state.checks import prepare
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.follower import StateFollower
from seb_appliance.storage.recovery.snapshots import SnapshotSchedule, SnapshotStore

_log = logging.getLogger(__name__)


class SnapshotKeeper:
    """`failure`: why the last attempt failed, or ""."""

    def __init__(
        self,
        database: StateDatabase,
        follower: StateFollower,
        snapshots: SnapshotStore,
        schedule: SnapshotSchedule,
        scratch: Path,
    ) -> None:
        self._database = database
        self._follower = follower
        self._snapshots = snapshots
        self._schedule = schedule
        self._scratch = scratch
        self._making: asyncio.Task[None] | None = None
        self.published = self.failures = 0
        self.failure = ""

    @property
    def newest_seq(self) -> int:
        """Up to which entry the newest snapshot in the bucket reaches; 0 when there is none."""
        return self._schedule.snapshot_seq

    def applied(self, seq: int) -> None:
        """Entry `seq` is applied; a snapshot is begun if one is due."""
        self._schedule.applied(seq)
        if self._schedule.due() and (self._making is None or self._making.done()):
            self._begin()

    async def publish_now(self) -> int:
        """Write a requested snapshot, unless nothing was stored since the last one. Returns the
        last entry in the newest snapshot. Raises StoreUnavailableError if the bucket refuses it."""
        if self._making is not None:  # it may have begun before the newest entry
            await asyncio.gather(self._making, return_exceptions=True)
        if self._schedule.has_new_entries:
            if self._making is None or self._making.done():
                self._begin()
            assert self._making is not None
            await asyncio.shield(self._making)
            if self.failure:
                raise StoreUnavailableError(self.failure)
        return self.newest_seq

    async def publish_last(self) -> None:
        """The snapshot of a clean stop: none if nothing is new since the last one."""
        if self._making is not None:
            await asyncio.gather(self._making, return_exceptions=True)
        if self._schedule.has_new_entries:
            await self._publish()

    def _begin(self) -> None:
        self._schedule.started()
        self._making = asyncio.create_task(self._publish(), name="snapshot")

    async def close(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _publish(self) -> None:
        await self._follower.drain()
        try:
            position = await self._database.save(self._scratch)
            await self._snapshots.publish(self._scratch, position, _check)
        except Exception as error:
            # Nothing is lost by it: the next start replays more. Counted, logged, tried again.
            self.failures += 1
            self.failure = f"no snapshot could be made: {error}"
            is_bug = not isinstance(error, (StoreError, SebError, OSError))
            _log.warning(self.failure, exc_info=error if is_bug else None)
            return
        finally:
            await asyncio.to_thread(self._scratch.unlink, missing_ok=True)
        self._schedule.published(position.seq)
        self.published += 1
        self.failure = ""


async def _check(path: Path) -> None:
    await asyncio.to_thread(prepare, path)
