"""Opening the journal of another writer as a standby: local state is brought up to its end, and
nothing in the bucket is claimed, tested or written.

The end must be permanent (see followed.py), because a standby serves what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from seb_appliance.broker.ports import Replica
from seb_appliance.clock import Clock
from seb_appliance.errors import StartError, StoreError, StoreUnusableError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.entry import Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import BaseChain, ClaimedLog, list_claims
from seb_appliance.storage.journal.bucket_info import refuse_unfinished_copy
from seb_appliance.storage.journal.claims import ABANDONED_S
from seb_appliance.storage.journal.followed import (
    FollowedClaimed,
    FollowedCreateOnly,
    FollowedJournal,
)
from seb_appliance.storage.journal.replay import Progress, ReplayError
from seb_appliance.storage.recovery.opening import Opening, StartReport
from seb_appliance.storage.recovery.rebuilding import find_journal
from seb_appliance.storage.recovery.recovery import Recovery, log_of
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.object_store import ObjectStore

CONTESTED_S: Final = ABANDONED_S + 30.0  # longer than a writer waits before it claims anew
_LOOK_AGAIN_S: Final = 3.0


async def open_followed(
    store: ObjectStore,
    replica: Replica,
    data_dir: Path,
    *,
    clock: Clock,
    jitter: Callable[[], float],
    progress: Progress,
) -> tuple[FollowedJournal, StartReport] | None:
    """The journal with `replica` at its end; None if the newest writer was started from this data
    directory, so that there is nobody to follow.

    Raises ConfigurationError (78) if no appliance has used this bucket, StoreUnusableError (74) for
    damage, StartError (1) if the writer is unknown for too long.
    """
    opening = _StandbyOpening(
        raw=store,
        replica=replica,
        data_dir=data_dir,
        clock=clock,
        failpoints=NO_FAILPOINTS,
        jitter=jitter,
        progress=progress,
    )
    try:
        return await opening.run()
    except ReplayError as error:
        raise StoreUnusableError(f"the journal in the bucket is damaged: {error}") from error
    except StoreError as error:
        raise StoreUnusableError(error.detail) from error


class _StandbyOpening(Opening):
    async def run(self) -> tuple[FollowedJournal, StartReport] | None:
        await refuse_unfinished_copy(self.store)
        found = await find_journal(self.store)
        known = await asyncio.to_thread(self.writer_ids.known)
        log = log_of(found.mode, self.replay, found.bucket_id)
        recovery = self.recovery(log)
        if isinstance(log, ClaimedLog):
            position, writer_id = await self._settled_claims(recovery, log.chain, known)
        else:
            position = await self._settled(recovery)
            writer_id = position.writer_id
        if writer_id in known:
            return None
        report = self.report(recovery, found.mode, position.epoch, found.bucket_id)
        store = self.tireless()
        snapshots = SnapshotStore(store, NO_FAILPOINTS)
        if found.mode == "B":
            chain = BaseChain(store, found.bucket_id)
            return FollowedClaimed(store, snapshots, self.clock, chain, position), report
        journal = FollowedCreateOnly(
            store,
            snapshots,
            self.clock,
            mode="A",
            bucket_id=found.bucket_id,
            position=position,
        )
        return journal, report

    async def _settled(self, recovery: Recovery) -> Position:
        """The end of the log, with no ghost entries in the local state."""
        while True:
            position = await recovery.bring_up()
            if not await recovery.was_misled():
                return position

    async def _settled_claims(
        self, recovery: Recovery, chain: BaseChain, known: frozenset[bytes]
    ) -> tuple[Position, bytes]:
        """The same in mode B, once no claim except our own is above the newest base; and the last
        claim's writer id."""
        until_s = self.clock.monotonic_s() + CONTESTED_S
        while True:
            position = await self._settled(recovery)
            claims = await list_claims(self.store, layout.CLAIMS)
            if claims and claims[-1].writer_id in known:
                return position, claims[-1].writer_id
            if chain.top is not None and (not claims or claims[-1] <= chain.top):
                return position, chain.top.writer_id
            if self.clock.monotonic_s() >= until_s:
                # Exit code 1, so that a service manager tries again: a running writer settles this
                # with its next entry.
                raise StartError(
                    f"{claims[-1].name} claimed this bucket but wrote no entry: its start was "
                    "interrupted. If no appliance writes, start one with --take-over."
                )
            self.progress(0, 0, "waiting for an appliance that is starting")
            await self.clock.sleep(_LOOK_AGAIN_S)
