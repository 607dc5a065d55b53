"""Where the rooms are joined: store, state, journal and broker become one appliance.

Built in the order in which a start needs them; `close` takes them down the other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from seb_appliance import limits
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import LoadedState
from seb_appliance.broker.settings import BrokerSettings, TidySettings
from seb_appliance.broker.upkeep.rewrite_jobs import Rewriter
from seb_appliance.clock import Clock, SystemClock
from seb_appliance.failpoints import Failpoints
from seb_appliance.ops.host.data_directory import ensure_admin_key
from seb_appliance.ops.host.otel import OtelTraces
from seb_appliance.ops.host.passwords import Passwords
from seb_appliance.ops.host.runtime import LoopProbe
from seb_appliance.ops.jobs.check_job import CheckKeeper
from seb_appliance.ops.jobs.cost_job import CostKeeper, Sources
from seb_appliance.ops.jobs.history_job import HistoryKeeper, Reading
from seb_appliance.ops.jobs.last_used_job import LastUsedKeeper
from seb_appliance.ops.jobs.snapshot_job import SnapshotKeeper
from seb_appliance.ops.jobs.standby_job import StandbyKeeper
from seb_appliance.ops.jobs.tidier_job import TidierKeeper
from seb_appliance.ops.jobs.tidier_process import ChildRewriter
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.follower import StateFollower
from seb_appliance.state.key_index import SqliteKeyIndex
from seb_appliance.storage import layout
from seb_appliance.storage.journal.followed import FollowedJournal
from seb_appliance.storage.journal.journal import StoredJournal
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.cleanup import BucketCleaner
from seb_appliance.storage.objects.disk_cache import DiskCache
from seb_appliance.storage.objects.rewriting import ObjectRewriter
from seb_appliance.storage.objects.section_source import BucketSections
from seb_appliance.storage.recovery.opening import StartOptions, StartReport, open_journal
from seb_appliance.storage.recovery.opening_followed import open_followed
from seb_appliance.storage.recovery.snapshots import SnapshotSchedule, SnapshotStore
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.store_clock import StoreClock
from seb_appliance.tasks import Supervisor
from seb_appliance.traces import Traces

# How long one entry takes to replay, in seconds, until a start has measured it (16 at a time).
_REPLAY_S = {"memory": 0.0005, "disk": 0.0005, "s3": 0.01}
_MEASURED_FROM = 100
_SNAPSHOT_PATIENCE_S = 60.0
_TIDIER_PATIENCE_S = 60.0


def broker_settings(settings: Settings) -> BrokerSettings:
    return BrokerSettings(
        linger_ms=settings.window_linger_ms,
        early_flush=settings.early_flush,
        max_record_bytes=settings.max_record_bytes,
        compression=settings.compression,
        auto_create_topics=settings.auto_create_topics,
        max_pending_bytes=settings.max_pending_bytes,
        max_reading_bytes=settings.max_reading_bytes,
        ack_timeout_ms=settings.ack_timeout_ms,
        tidy=TidySettings(
            segment_bytes=settings.segment_bytes,
            trigger_bytes=settings.tidy_bytes,
            after_ms=settings.tidy_after_ms,
            young_ms=settings.tidy_young_ms,
            grace_ms=settings.garbage_grace_ms,
        ),
    )


@dataclass(slots=True)
class Appliance:
    """A broker that is in force, or follows the one that is, and what it stands on."""

    settings: Settings
    store: CountedStore
    database: StateDatabase
    follower: StateFollower
    journal: StoredJournal | FollowedJournal
    report: StartReport
    sections: BucketSections
    snapshots: SnapshotKeeper
    last_used: LastUsedKeeper
    tidier: TidierKeeper
    cost: CostKeeper
    loop_probe: LoopProbe
    key_index: SqliteKeyIndex
    broker: Broker
    executor: ThreadPoolExecutor
    failpoints: Failpoints
    clock: StoreClock
    opened_s: float  # on the monotonic clock
    traces: OtelTraces | None
    supervisor: Supervisor
    standby: StandbyKeeper | None = None  # there: it follows another appliance, and writes nothing
    passwords: Passwords = field(default_factory=Passwords)
    parser: Parser = field(default_factory=lambda: Parser(environment_without_settings()))
    history: HistoryKeeper = field(init=False)
    checks: CheckKeeper = field(init=False)

    def __post_init__(self) -> None:
        self.history = HistoryKeeper(lambda: _reading(self), self.clock)
        self.checks = CheckKeeper(self.settings, self.clock)

    @classmethod
    async def open(
        cls, settings: Settings, store: CountedStore, failpoints: Failpoints, progress: Progress
    ) -> Appliance:
        """Bring local state up to the end of the journal, become the writer, start the broker.
        Raises StartError: the sentence and the exit code are for the terminal."""
        clock = StoreClock(SystemClock(), store)
        async with _database(settings) as database:
            journal, report = await open_journal(
                store,
                database,
                settings.data,
                _start_options(settings),
                clock=clock,
                failpoints=failpoints,
                random_bytes=os.urandom,
                jitter=random.random,
                progress=progress,
            )
            store.purpose = "journal"  # the start is over: others have purposes of their own
            return await cls._around(settings, store, failpoints, clock, database, journal, report)

    @classmethod
    async def open_standby(
        cls, settings: Settings, store: CountedStore, failpoints: Failpoints, progress: Progress
    ) -> Appliance | None:
        """Bring local state up to the end of the journal that another appliance writes, to follow
        it; None: the one that wrote last was started from this data directory. Nothing is written
        to the bucket. Raises StartError."""
        clock = StoreClock(SystemClock(), store)
        async with _database(settings) as database:
            opened = await open_followed(
                store,
                database,
                settings.data,
                clock=clock,
                jitter=random.random,
                progress=progress,
            )
            if opened is None:
                await database.close()
                return None
            store.purpose = "journal"
            journal, report = opened
            standby = await cls._around(
                settings, store, failpoints, clock, database, journal, report
            )
            standby.standby = StandbyKeeper(
                standby.broker, journal, standby.follower, clock, settings.follow_poll_ms
            )
            return standby

    @classmethod
    async def _around(
        cls,
        settings: Settings,
        store: CountedStore,
        failpoints: Failpoints,
        clock: StoreClock,
        database: StateDatabase,
        journal: StoredJournal | FollowedJournal,
        report: StartReport,
    ) -> Appliance:
        """Everything that stands on an open journal."""
        traces = _traces(settings, clock)
        sections = _sections(settings, store, journal, clock, failpoints)
        supervisor, follower = _supervised(database, clock, failpoints)
        bucket = _snapshot_store(store, clock, failpoints)
        snapshots = _snapshots(settings, bucket, database, follower, report, journal, clock)
        loaded = await follower.load()
        last_used = await _last_used(settings, loaded, clock)
        keys = await _key_index(settings, journal, report)
        broker = Broker(
            loaded,
            journal,
            sections,
            follower,
            broker_settings(settings),
            keys,
            clock=clock,
            executor=(executor := ThreadPoolExecutor(2, thread_name_prefix="broker")),
            random_bytes=os.urandom,
            failpoints=failpoints,
            on_applied=_on_applied(snapshots, journal),
            last_used=last_used.last_used,
            supervisor=supervisor,
            before_us=report.before_us,
        )
        rewriter = _rewriter(settings, store, journal, clock)
        return cls(
            settings=settings,
            store=store,
            database=database,
            follower=follower,
            journal=journal,
            report=report,
            sections=sections,
            snapshots=snapshots,
            last_used=last_used,
            tidier=_tidier(
                rewriter, store, bucket, journal, broker, snapshots, clock, failpoints, traces
            ),
            cost=await _cost(settings, Sources(store, broker, rewriter, bucket)),
            loop_probe=LoopProbe(clock),
            key_index=keys,
            broker=broker,
            executor=executor,
            failpoints=failpoints,
            clock=clock,
            opened_s=clock.monotonic_s(),
            traces=traces,
            supervisor=supervisor,
        )

    async def start(self) -> asyncio.Task[None]:
        """Begin to write, with an admin key in place, or to follow; the task that does it."""
        if self.standby is not None:
            running = self.standby.start()
        else:
            running = self.broker.start()
            await ensure_admin_key(self.broker, self.settings.data)
        self.history.start(self.supervisor)
        self.cost.start(self.supervisor)
        self.loop_probe.start(self.supervisor)
        if self.settings.tidier and self.standby is None:
            self.tidier.start(self.supervisor)
        return running

    async def publish_snapshot(self) -> int:
        """See `SnapshotKeeper.publish_now`. Raises StandbyError, too."""
        if self.broker.standby is not None:
            raise self.broker.standby.again()
        return await self.snapshots.publish_now()

    async def drain(self) -> bool:
        """Take nothing more, acknowledge what was admitted, leave a snapshot. Whether the bucket
        let us, within the grace time."""
        grace_s = self.settings.shutdown_grace_ms / 1000
        give_up_s = self.clock.monotonic_s() + grace_s
        self.broker.stop_accepting()
        if self.standby is not None:
            return True  # there is nothing of its own
        await self.tidier.close()
        if not await self.broker.drain(grace_s):
            await self.broker.stop()  # while the doors are open: the callers are told
            return False
        left_s = max(1.0, give_up_s - self.clock.monotonic_s())
        try:
            async with asyncio.timeout(left_s):
                await self.snapshots.publish_last()
        except TimeoutError:  # the next start replays a little more
            self.snapshots.failure = f"no snapshot could be made within {left_s:.0f} s"
        return True

    async def close(self) -> None:
        """End everything, whatever state it is in. What was not drained fails as "unknown"."""
        if self.standby is not None:
            await self.standby.close()
        await self.history.close()
        await self.checks.close()
        await self.tidier.close()
        await self.broker.stop()
        await self.parser.close()
        await self.cost.close()
        await self.loop_probe.close()
        await self.key_index.close()
        await self.last_used.close()
        await self.follower.close()
        await self.snapshots.close()
        await self.sections.close()
        await self.database.close()
        await self.store.close()
        if self.traces is not None:
            await self.traces.close()
        await asyncio.to_thread(self.executor.shutdown)
        await asyncio.to_thread(self.passwords.close)


@contextlib.asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[StateDatabase]:
    """The local state, closed again if what is done with it fails."""
    database = await StateDatabase.open(settings.data / "state.sqlite")
    try:
        yield database
    except BaseException:
        await database.close()
        raise


def _supervised(
    database: StateDatabase, clock: Clock, failpoints: Failpoints
) -> tuple[Supervisor, StateFollower]:
    supervisor = Supervisor(clock)
    asyncio.get_running_loop().set_exception_handler(supervisor.handle)
    return supervisor, StateFollower(
        database, clock=clock, failpoints=failpoints, supervisor=supervisor
    )


def _on_applied(
    snapshots: SnapshotKeeper, journal: StoredJournal | FollowedJournal
) -> Callable[[], None]:
    if isinstance(journal, FollowedJournal):
        return lambda: None  # the writer makes the snapshots
    return lambda: snapshots.applied(journal.position.seq)


def _traces(settings: Settings, clock: Clock) -> OtelTraces | None:
    if settings.otlp_endpoint is None:
        return None
    return OtelTraces.to_collector(settings.otlp_endpoint, clock)


def _snapshot_store(store: CountedStore, clock: Clock, failpoints: Failpoints) -> SnapshotStore:
    # One that cannot be stored for a minute is given up: `failure` says so, the next is made later.
    retrying = _retrying(store.used_for("snapshot"), clock, _SNAPSHOT_PATIENCE_S)
    return SnapshotStore(retrying, failpoints)


def _snapshots(
    settings: Settings,
    bucket: SnapshotStore,
    database: StateDatabase,
    follower: StateFollower,
    report: StartReport,
    journal: StoredJournal | FollowedJournal,
    clock: Clock,
) -> SnapshotKeeper:
    entry_s = _REPLAY_S[journal.durability]
    if report.entries_replayed >= _MEASURED_FROM:
        entry_s = report.replay_seconds / report.entries_replayed
    schedule = SnapshotSchedule(
        clock,
        entry_s=entry_s,
        snapshot_seq=report.newest_snapshot_seq,
        seq=journal.position.seq,
    )
    return SnapshotKeeper(database, follower, bucket, schedule, settings.data / "snapshot.new")


def _rewriter(
    settings: Settings, store: CountedStore, journal: StoredJournal | FollowedJournal, clock: Clock
) -> Rewriter:
    if settings.address.kind != "memory":
        return ChildRewriter(settings, journal.mode, _cache_folder(settings, journal))
    # No other process can read it.
    retrying = _retrying(store.used_for("tidier"), clock, _TIDIER_PATIENCE_S)
    return ObjectRewriter(retrying, journal.mode, settings.data)


def _retrying(store: CountedStore, clock: Clock, give_up_after_s: float) -> RetryingStore:
    return RetryingStore(store, clock, random.random, give_up_after_s=give_up_after_s)


async def _cost(settings: Settings, sources: Sources) -> CostKeeper:
    return await CostKeeper.open(
        settings.data / "local.sqlite",
        sources,
        sources.broker.linger,
        sources.broker.log_clock,
        settings.price_list,
        settings.budget,
        longest_ms=settings.linger_max_ms if settings.linger_ms == "auto" else None,
    )


def _tidier(
    rewriter: Rewriter,
    store: CountedStore,
    bucket: SnapshotStore,
    journal: StoredJournal | FollowedJournal,
    broker: Broker,
    snapshots: SnapshotKeeper,
    clock: Clock,
    failpoints: Failpoints,
    traces: Traces | None,
) -> TidierKeeper:
    retrying = _retrying(store.used_for("tidier"), clock, _TIDIER_PATIENCE_S)
    cleaner = BucketCleaner(retrying, bucket, journal.mode, failpoints)
    return TidierKeeper(broker.tidying, rewriter, cleaner, snapshots, clock, failpoints, traces)


async def _last_used(settings: Settings, loaded: LoadedState, clock: Clock) -> LastUsedKeeper:
    known = {row.api_key_id for row in loaded.api_keys}
    return await LastUsedKeeper.open(settings.data / "local.sqlite", known, clock)


async def _key_index(
    settings: Settings, journal: StoredJournal | FollowedJournal, report: StartReport
) -> SqliteKeyIndex:
    # Beside a local state that was not of this bucket's log, it may not be of it either.
    trusted = report.began_from == "local"
    path = settings.data / "keyindex.sqlite"
    return await SqliteKeyIndex.open(path, journal.bucket_id, trusted=trusted)


def _sections(
    settings: Settings,
    store: CountedStore,
    journal: StoredJournal | FollowedJournal,
    clock: Clock,
    failpoints: Failpoints,
) -> BucketSections:
    folder = _cache_folder(settings, journal)
    cache = None if folder is None else DiskCache(folder, settings.cache_bytes, failpoints)
    bucket = store.used_for("read")
    return BucketSections(bucket, lambda ref: layout.object_key(journal.mode, ref), cache, clock)


def _cache_folder(settings: Settings, journal: StoredJournal | FollowedJournal) -> Path | None:
    """A cache of a bucket that is a local disk, or memory, would only hold everything twice."""
    if settings.address.kind != "s3" or not settings.cache_bytes:
        return None
    return settings.data / "cache" / journal.bucket_id.hex()


def _reading(appliance: Appliance) -> Reading:
    broker, sections = appliance.broker, appliance.sections
    counters = broker.counters
    return Reading(
        records_in=counters.records,
        bytes_in=counters.entry_bytes,
        entries=counters.entries,
        records_out=counters.read_records,
        sections_at_hand=sections.from_memory + sections.from_disk,
        sections_fetched=sections.from_bucket,
        bucket_requests=appliance.store.counts.requests(),
        puts=tuple(counters.puts.counts),
        size_bytes=broker.topics.totals().size_bytes,
        lags=broker.groups.lags(limits.LAGS_SAMPLED),
        came_in=counters.take_came_in(),
    )


def _start_options(settings: Settings) -> StartOptions:
    """A directory's LIST, and memory's, always shows what was PUT."""
    shows_at_once = settings.address.kind != "s3" or settings.s3_immediate_list
    return StartOptions(take_over=settings.take_over, list_is_known=shows_at_once)
