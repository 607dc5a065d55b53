"""Opening the journal of another writer, to follow it: local state is brought up to its end, and
nothing is claimed, tested or written in the bucket.

The end must be one for good (followed.py says when it is), for a standby serves what it has.
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
from seb_appliance.storage.journal.replay import Progress, Replay, ReplayError
from seb_appliance.storage.journal.retry import START_PATIENCE_S, RetryingStore
from seb_appliance.storage.recovery.opening import StartReport
from seb_appliance.storage.recovery.rebuilding import Journal, find_journal
from seb_appliance.storage.recovery.recovery import Recovery, log_of
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.recovery.writer_ids import WriterIds
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
    """The journal with `replica` at its end; None: the newest writer was started from this data
    directory, so there is nobody to follow.

    Raises ConfigurationError (78) if no appliance has used this bucket, StoreUnusableError (74) for
    damage, StartError (1) when it stays open for a minute who is the writer.
    """
    opening = _Opening(store, replica, data_dir, clock, jitter, progress)
    try:
        return await opening.run()
    except ReplayError as error:
        raise StoreUnusableError(f"the journal in the bucket is damaged: {error}") from error
    except StoreError as error:
        raise StoreUnusableError(error.detail) from error


class _Opening:
    def __init__(
        self,
        store: ObjectStore,
        replica: Replica,
        data_dir: Path,
        clock: Clock,
        jitter: Callable[[], float],
        progress: Progress,
    ) -> None:
        self._raw = store
        self._store = RetryingStore(store, clock, jitter, give_up_after_s=START_PATIENCE_S)
        self._replica = replica
        self._data_dir = data_dir
        self._clock = clock
        self._jitter = jitter
        self._progress = progress
        self._replay = Replay(self._store, replica, clock, NO_FAILPOINTS, progress)

    async def run(self) -> tuple[FollowedJournal, StartReport] | None:
        began_s = self._clock.monotonic_s()
        found = await find_journal(self._store)
        known = await asyncio.to_thread(WriterIds(self._data_dir / "writer-ids").known)
        log = log_of(found.mode, self._replay, found.bucket_id)
        if isinstance(log, ClaimedLog):
            await refuse_unfinished_copy(self._store)
        snapshots = SnapshotStore(self._store, NO_FAILPOINTS)
        scratch = self._data_dir / "snapshot.fetched"
        recovery = Recovery(log, snapshots, self._replica, scratch, self._progress)
        if isinstance(log, ClaimedLog):
            position, writer_id = await self._settled_claims(recovery, log.chain, known)
        else:
            position = await self._settled(recovery)
            writer_id = position.writer_id
        if writer_id in known:
            return None
        journal = self._followed(found, position)
        assert recovery.began is not None
        return journal, StartReport(
            mode=found.mode,
            epoch=position.epoch,
            bucket_id=journal.bucket_id,
            began_from=recovery.began.source,
            began_seq=recovery.began.position.seq,
            entries_replayed=self._replay.done,
            replay_seconds=self._replay.seconds,
            seconds=self._clock.monotonic_s() - began_s,
            newest_snapshot_seq=recovery.newest_snapshot_seq,
            warnings=tuple(recovery.notes),
        )

    def _followed(self, found: Journal, position: Position) -> FollowedJournal:
        store = RetryingStore(self._raw, self._clock, self._jitter)  # a standby never gives up
        snapshots = SnapshotStore(store, NO_FAILPOINTS)
        if found.mode == "B":
            chain = BaseChain(store, found.bucket_id)
            return FollowedClaimed(store, snapshots, self._clock, chain, position)
        return FollowedCreateOnly(
            store,
            snapshots,
            self._clock,
            mode="A",
            bucket_id=found.bucket_id,
            position=position,
        )

    async def _settled(self, recovery: Recovery) -> Position:
        """The end of the log, begun from nothing that may hold ghosts."""
        while True:
            position = await recovery.bring_up()
            if not await recovery.was_misled():
                return position

    async def _settled_claims(
        self, recovery: Recovery, chain: BaseChain, known: frozenset[bytes]
    ) -> tuple[Position, bytes]:
        """The same in mode B, once no claim is above the newest base, unless it is one of ours; and
        who claimed last."""
        until_s = self._clock.monotonic_s() + CONTESTED_S
        while True:
            position = await self._settled(recovery)
            claims = await list_claims(self._store, layout.CLAIMS)
            if claims and claims[-1].writer_id in known:
                return position, claims[-1].writer_id
            if chain.top is not None and (not claims or claims[-1] <= chain.top):
                return position, chain.top.writer_id
            if self._clock.monotonic_s() >= until_s:
                # Exit code 1, so that a service manager tries again: the writer settles it with its
                # next entry, if there is one.
                raise StartError(
                    f"{claims[-1].name} claims this bucket and does not come into force: a start "
                    "was broken off. If no appliance writes, start one with --take-over."
                )
            self._progress(0, 0, "waiting for an appliance that is starting")
            await self._clock.sleep(_LOOK_AGAIN_S)
