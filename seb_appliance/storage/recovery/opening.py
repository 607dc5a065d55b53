"""Opening the journal: the store test, bucket.json, the mode, the take-over rule, and the start.

The steps of both modes are those of docs/FORMAT.md. Until `open_journal` returns, nothing is
served, acknowledged, snapshotted or deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from seb_appliance import __version__
from seb_appliance.broker import log_clock
from seb_appliance.broker.ports import Replica
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    BucketInUseError,
    ConfigurationError,
    CorruptObjectError,
    StoreError,
    StoreUnusableError,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import EncodedEntry, Entry, Position, encode
from seb_appliance.formats.operations import EpochStarted
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import BaseChain, ClaimedLog, list_claims
from seb_appliance.storage.journal.bucket_info import (
    NO_BUCKET_INFO,
    BucketInfo,
    create_bucket_info,
    encode_bucket_info,
    read_bucket_info,
    refuse_foreign_data,
    refuse_unfinished_copy,
)
from seb_appliance.storage.journal.claims import (
    UNKNOWN_LIST_WAIT_S,
    Claimant,
    ClaimedJournal,
    Contested,
    fenced_start,
)
from seb_appliance.storage.journal.create_only import CreateOnlyJournal, CreateOnlyLog
from seb_appliance.storage.journal.journal import StoredJournal, create_entry
from seb_appliance.storage.journal.replay import (
    APPLY_ENTRIES,
    Progress,
    Replay,
    ReplayError,
)
from seb_appliance.storage.journal.retry import START_PATIENCE_S, RetryingStore, given_up
from seb_appliance.storage.layout import Claim, Mode
from seb_appliance.storage.recovery.recovery import Log, Recovery
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.recovery.writer_ids import WriterIds
from seb_appliance.storage.stores.object_store import ObjectStore
from seb_appliance.storage.stores.store_probe import LIST_ROUNDS, StoreTest, StoreTestReport


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """`mode`: for a new bucket, instead of the better one that the store allows. `list_is_known`:
    LIST on this kind of store is known to show every earlier PUT (docs/OPERATIONS.md); on others, a
    start in mode B that finds another appliance's claim waits 60 s. `take_over_when_new`: take over
    if no start used this data directory before."""

    take_over: bool = False
    take_over_when_new: bool = False
    mode: Mode | None = None
    list_is_known: bool = True
    list_rounds: int = LIST_ROUNDS


@dataclass(frozen=True, slots=True)
class StartReport:
    """`began_from`: `local`, `empty` or the key of a snapshot, as of entry `began_seq`. `seconds`:
    of the whole start; `warnings`: sentences for the operator. `store_test`: None for a standby.
    `before_us`: `created` of the last entry that this start found, if any."""

    mode: Mode
    epoch: int
    bucket_id: bytes
    began_from: str
    began_seq: int
    entries_replayed: int
    replay_seconds: float
    seconds: float
    newest_snapshot_seq: int
    warnings: tuple[str, ...]
    store_test: StoreTestReport | None = None
    before_us: int | None = None


@dataclass(slots=True, kw_only=True)
class Opening:
    """What a start as writer and a start as standby share. It gives up after a while; the journal
    that it opens never does."""

    raw: ObjectStore
    replica: Replica
    data_dir: Path
    clock: Clock
    failpoints: Failpoints
    jitter: Callable[[], float]
    progress: Progress
    store: RetryingStore = field(init=False)
    replay: Replay = field(init=False)
    writer_ids: WriterIds = field(init=False)
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock.monotonic_s()
        self.store = RetryingStore(
            self.raw, self.clock, self.jitter, give_up_after_s=START_PATIENCE_S
        )
        self.replay = Replay(self.store, self.replica, self.clock, self.failpoints, self.progress)
        self.writer_ids = WriterIds(self.data_dir / "writer-ids")

    def tireless(self) -> RetryingStore:
        """The store of the journal: it never gives up."""
        return RetryingStore(self.raw, self.clock, self.jitter)

    def recovery(self, log: Log) -> Recovery:
        snapshots = SnapshotStore(self.store, self.failpoints)
        scratch = self.data_dir / "snapshot.fetched"
        return Recovery(log, snapshots, self.replica, scratch, self.progress)

    def report(self, recovery: Recovery, mode: Mode, epoch: int, bucket_id: bytes) -> StartReport:
        assert recovery.began is not None
        return StartReport(
            mode=mode,
            epoch=epoch,
            bucket_id=bucket_id,
            began_from=recovery.began.source,
            began_seq=recovery.began.position.seq,
            entries_replayed=self.replay.done,
            replay_seconds=self.replay.seconds,
            seconds=self.clock.monotonic_s() - self.began_s,
            newest_snapshot_seq=recovery.newest_snapshot_seq,
            warnings=tuple(recovery.notes),
        )


async def open_journal(
    store: ObjectStore,
    replica: Replica,
    data_dir: Path,
    options: StartOptions,
    *,
    clock: Clock,
    failpoints: Failpoints,
    random_bytes: Callable[[int], bytes],
    jitter: Callable[[], float],
    progress: Progress,
) -> tuple[StoredJournal, StartReport]:
    """Become the writer of this bucket, with `replica` at the end of its journal.

    `random_bytes` must not repeat on a cloned machine (os.urandom); `jitter` gives [0, 1).
    Raises StoreUnusableError (74), BucketInUseError (73), FencedStartError (75),
    ConfigurationError (78).
    """
    opening = _WriterOpening(
        raw=store,
        replica=replica,
        data_dir=data_dir,
        options=options,
        clock=clock,
        failpoints=failpoints,
        random_bytes=random_bytes,
        jitter=jitter,
        progress=progress,
    )
    try:
        return await opening.run()
    except StoreError as error:
        raise given_up(error) from error


@dataclass(slots=True, kw_only=True)
class _WriterOpening(Opening):
    options: StartOptions
    random_bytes: Callable[[int], bytes]
    writer_id: bytes = field(init=False)
    before_us: int | None = field(default=None, init=False)
    may_take_over: bool = field(default=False, init=False)
    is_remembered: bool = field(default=False, init=False)  # our writer id, in the data directory

    def __post_init__(self) -> None:
        Opening.__post_init__(self)
        self.writer_id = self.random_bytes(16)

    async def run(self) -> tuple[StoredJournal, StartReport]:
        info, recorded = await self._recorded()
        self.progress(0, 0, "testing the store")
        probe_id, rounds = self.random_bytes(8).hex(), self.options.list_rounds
        test = StoreTest(self.store, self.clock, probe_id, list_rounds=rounds)
        report = await test.run(recorded or self.options.mode)
        mode = self._decide_mode(recorded, report)
        known = await asyncio.to_thread(self.writer_ids.known)
        is_new = self.options.take_over_when_new and not known
        self.may_take_over = self.options.take_over or is_new
        journal: StoredJournal
        if mode == "A":
            recovery, journal = await self._start_create_only(info, known)
        else:
            recovery, journal = await self._start_claimed(info, known)
        now_us = self.clock.wall_us()
        is_checked = self.store.date_ahead_s is not None  # the machine's clock, by the store's
        found = self.report(recovery, mode, journal.epoch, journal.bucket_id)
        return journal, replace(
            found,
            warnings=(
                *report.warnings,
                *found.warnings,
                *log_clock.warnings(journal.position.created_us, now_us),
                *([] if is_checked else log_clock.idle_warnings(self.before_us, now_us)),
            ),
            store_test=report,
            before_us=self.before_us,
        )

    # --- what bucket this is ---

    async def _recorded(self) -> tuple[BucketInfo | None, Mode | None]:
        """bucket.json and the recorded mode. Refuses to initialise a bucket that holds data."""
        info = await read_bucket_info(self.store)
        if info is not None and info.mode == "A":
            return info, "A"
        bases = await list_claims(self.store, layout.BASES)
        await refuse_unfinished_copy(self.store)
        if bases:
            return info, "B"
        if info is not None:
            raise StoreUnusableError(
                f"{layout.BUCKET} says that this bucket uses fencing mode B, but there is no "
                f"object under {layout.BASES}: part of the bucket is missing. Restore it."
            )
        local = await self.replica.position()
        if local.seq > 0:
            raise ConfigurationError(
                f"there is local state up to entry {local.seq}, but no {layout.BUCKET} in "
                f"{self.store.description}. {NO_BUCKET_INFO}"
            )
        await refuse_foreign_data(self.store)
        return None, None

    def _decide_mode(self, recorded: Mode | None, report: StoreTestReport) -> Mode:
        """A start never changes the recorded mode: two appliances in different modes would not see
        each other."""
        if report.failure:
            raise StoreUnusableError(f"the store fails its test: {report.failure}")
        mode = recorded or self.options.mode or report.mode
        if mode == "A" and report.mode == "B":
            reasons = "; ".join(check.detail for check in report.checks if not check.passed)
            raise StoreUnusableError(
                "the bucket is used in mode A (create-only PUT), which the store does not allow "
                f"now: {reasons}. Undo the change of the store: the fencing mode of a bucket "
                "never changes automatically."
            )
        return mode

    def _refuse_in_use(self, epoch: int, writer_id: bytes, position: Position) -> None:
        """Raises BucketInUseError without --take-over: a laptop must not fence production."""
        if self.may_take_over:
            return
        last = ""
        if position.seq > 0:
            age_us = max(0, self.clock.wall_us() - position.created_us)
            last = f", last entry {_ago(age_us // 1_000_000)} ago"
        raise BucketInUseError(
            f"the bucket is in use by another appliance (epoch {epoch}, writer "
            f"{writer_id.hex()[:4]}…{last}). Stop it, or start with --take-over to fence it."
        )

    def _found(self, position: Position) -> Position:
        self.before_us = position.created_us if position.seq else None
        return position

    # --- mode A ---

    async def _start_create_only(
        self, info: BucketInfo | None, known: frozenset[bytes]
    ) -> tuple[Recovery, CreateOnlyJournal]:
        if info is None:
            new = BucketInfo(bucket_id=self.random_bytes(16).hex(), mode="A")
            info = await create_bucket_info(self.store, new)
            if info.mode != "A":
                raise StoreUnusableError(
                    "another appliance has just started to use this bucket, in mode B. Start again."
                )
        bucket_id = info.id_bytes
        log = CreateOnlyLog(self.replay, bucket_id)
        recovery = self.recovery(log)
        while True:
            position = self._found(await recovery.bring_up())  # steps 1 and 2
            await refuse_unfinished_copy(self.store)  # it may have begun since bucket.json was read
            epoch_entry = await self._put_epoch_entry(log, position, known)  # step 3
            if epoch_entry is None or await recovery.was_misled():  # step 4
                continue
            await self.replica.apply([epoch_entry.entry])
            journal = CreateOnlyJournal(
                self.tireless(),
                self.failpoints,
                self.random_bytes,
                mode="A",
                bucket_id=bucket_id,
                writer_id=self.writer_id,
                epoch=epoch_entry.entry.header.epoch,
                position=epoch_entry.entry.header.position,
            )
            return recovery, journal

    async def _put_epoch_entry(
        self, log: CreateOnlyLog, position: Position, known: frozenset[bytes]
    ) -> EncodedEntry | None:
        """The epoch entry, stored at the end of the log, which was at `position`; None if the log
        cannot be followed any more. Raises BucketInUseError.

        A running writer takes one key after the other meanwhile, perhaps faster than this start can
        list and replay. So entries in between are only read, the next key is tried immediately, and
        they are applied later.
        """
        came: list[Entry] = []
        while True:
            if position.seq > 0 and position.writer_id not in known | {self.writer_id}:
                self._refuse_in_use(position.epoch, position.writer_id, position)
            if not self.is_remembered:
                await asyncio.to_thread(self.writer_ids.remember, self.writer_id)
                self.is_remembered = True
            epoch_entry = encode(
                Contents([EpochStarted(software=__version__)], []),
                [],
                after=position,
                epoch=position.epoch + 1,
                writer_id=self.writer_id,
                entry_id=self.random_bytes(16),
                bucket_id=log.bucket_id,
                created_us=max(self.clock.wall_us(), position.created_us),
                is_epoch=True,
            )
            key = layout.create_only_key(epoch_entry.entry.header.seq)
            stored = await create_entry(self.store, key, epoch_entry)
            self.failpoints.reach("K19")
            try:
                if came and (stored or len(came) >= APPLY_ENTRIES):
                    await self.replay.apply(came)
                    came = []
                if stored:
                    return epoch_entry
                more = await log.read_on(position)
            except (ReplayError, CorruptObjectError):
                return None  # recovery finds out what is wrong
            if not more:
                return None  # the key is taken, and GET does not show by what
            came += more
            position = more[-1].header.position

    # --- mode B ---

    async def _start_claimed(
        self, info: BucketInfo | None, known: frozenset[bytes]
    ) -> tuple[Recovery, ClaimedJournal]:
        bucket_id = info.id_bytes if info else self.random_bytes(16)
        chain = BaseChain(self.store, bucket_id)
        log = ClaimedLog(self.replay, chain)
        recovery = self.recovery(log)
        claimant = Claimant(self.store, self.clock, self.failpoints)
        # Replay before claiming: a release that cannot read this bucket must not fence anybody.
        position = await recovery.bring_up()
        claims = await claimant.claims()
        if claims and claims[-1].writer_id not in known:
            self._refuse_in_use(claims[-1].n, claims[-1].writer_id, position)
        await asyncio.to_thread(self.writer_ids.remember, self.writer_id)
        foreign = any(c.writer_id not in known for c in claims)
        try:
            mine, position = await self._come_into_force(claimant, chain, recovery, foreign)
        except Contested as contest:
            if not await claimant.is_abandoned(contest.by):
                raise fenced_start(contest.by) from contest
            try:  # once
                mine, position = await self._come_into_force(claimant, chain, recovery, True)
            except Contested as again:
                raise fenced_start(again.by) from again
        right = BucketInfo(bucket_id=chain.bucket_id.hex(), mode="B")
        if info != right:  # a copy of what the bases say, written only as the highest claim
            await self.store.put(layout.BUCKET, encode_bucket_info(right))
        journal = ClaimedJournal(
            self.tireless(),
            self.failpoints,
            self.random_bytes,
            self.clock,
            bucket_id=chain.bucket_id,
            claim=mine,
            position=position,
        )
        return recovery, journal

    async def _come_into_force(
        self, claimant: Claimant, chain: BaseChain, recovery: Recovery, foreign: bool
    ) -> tuple[Claim, Position]:
        """Steps 1 to 7: our claim and the end of the log. `foreign`: some claims were made from
        other data directories. Raises Contested."""
        mine = await claimant.claim_above(await claimant.claims(), self.writer_id)
        if foreign and not self.options.list_is_known:
            # A running writer must have seen this claim, even if LIST lags behind PUT.
            self.progress(0, 0, f"waiting {UNKNOWN_LIST_WAIT_S:.0f} s for the store's listings")
            await self.clock.sleep(UNKNOWN_LIST_WAIT_S)
        while True:
            position = self._found(await recovery.bring_up())
            if chain.top is not None and chain.top > mine:
                raise Contested(chain.top)
            if not await recovery.was_misled():
                break
        # The copy looks for claims after its mark was stored: one of both sees the other.
        await refuse_unfinished_copy(self.store)
        await claimant.put_base(mine, chain.top, position, chain.bucket_id)
        return mine, position


def _ago(seconds: int) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
