"""Where the rooms are joined: store, state, journal and broker become one appliance.

Built in the order in which a start needs them; `close` takes them down the other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import random
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from seb_appliance import limits
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.lake.jobs import TableWriter
from seb_appliance.broker.lake.notes import TablePlace
from seb_appliance.broker.ports import LoadedState
from seb_appliance.broker.settings import BrokerSettings, TidySettings
from seb_appliance.broker.upkeep.rewrite_jobs import Rewriter
from seb_appliance.clock import SystemClock
from seb_appliance.failpoints import Failpoints
from seb_appliance.ops.host.data_directory import ensure_admin_key
from seb_appliance.ops.host.otel import OtelTraces
from seb_appliance.ops.host.passwords import Passwords
from seb_appliance.ops.host.pauses import last_before_pause
from seb_appliance.ops.host.runtime import LoopProbe
from seb_appliance.ops.host.secret_box import FernetBox
from seb_appliance.ops.jobs.check_job import CheckKeeper
from seb_appliance.ops.jobs.cost_job import CostKeeper, Sources
from seb_appliance.ops.jobs.history_job import HistoryKeeper, Reading
from seb_appliance.ops.jobs.lake.keeper import TableKeeper
from seb_appliance.ops.jobs.lake.process import ChildTableWriter
from seb_appliance.ops.jobs.last_used_job import LastUsedKeeper
from seb_appliance.ops.jobs.snapshot_job import SnapshotKeeper
from seb_appliance.ops.jobs.sql.process import SqlProcess
from seb_appliance.ops.jobs.standby_job import StandbyKeeper
from seb_appliance.ops.jobs.tidier_job import TidierKeeper
from seb_appliance.ops.jobs.tidier_process import ChildRewriter
from seb_appliance.ops.serve.protocols import Beside, beside
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.files import KEY_INDEX
from seb_appliance.state.follower import StateFollower
from seb_appliance.state.record_keys.index import SqliteKeyIndex
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
from seb_appliance.storage.stores.counted import CountedStore, Purpose
from seb_appliance.storage.stores.store_clock import StoreClock
from seb_appliance.tasks import Supervisor

# How long one entry takes to replay, in seconds, until a start has measured it (16 at a time).
_REPLAY_S = {"memory": 0.0005, "disk": 0.0005, "s3": 0.01}
_MEASURED_FROM = 100
_JOB_PATIENCE_S = 60.0


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
        no_tables=_no_tables(settings),
    )


def _no_tables(settings: Settings) -> str:
    """Why topics cannot be tables, as a sentence; "" if they can."""
    if settings.address.kind == "memory":
        return "A bucket in memory cannot hold tables."
    if importlib.util.find_spec("pyarrow") is None:
        return (
            "Tables need the package pyarrow, which is not installed on the appliance "
            "(pip install 'seb-appliance[arrow]')."
        )
    return ""


def _no_sql(settings: Settings) -> str:
    """Why there is no SQL, as a sentence; "" if there is."""
    missing = [name for name in ("duckdb", "fsspec") if importlib.util.find_spec(name) is None]
    if missing:
        return (
            f"SQL needs the package {missing[0]}, which is not installed on the appliance "
            "(pip install 'seb-appliance[sql]')."
        )
    return _no_tables(settings)


class Appliance:
    """A broker that writes, or follows the appliance that writes, and everything it is built on.
    Made by `open` and `open_standby`."""

    database: StateDatabase
    follower: StateFollower
    journal: StoredJournal | FollowedJournal
    report: StartReport
    sections: BucketSections
    snapshots: SnapshotKeeper
    last_used: LastUsedKeeper
    tidier: TidierKeeper
    tables: TableKeeper
    cost: CostKeeper
    key_index: SqliteKeyIndex
    broker: Broker
    beside: dict[type, Beside]  # what protocols run beside the API
    traces: OtelTraces | None = None
    opened_s: float  # on the monotonic clock
    standby: StandbyKeeper | None = None  # set while it follows another appliance

    def __init__(self, settings: Settings, store: CountedStore, failpoints: Failpoints) -> None:
        self.settings = settings
        self.store = store
        self.failpoints = failpoints
        self.clock = StoreClock(SystemClock(), store)
        self.supervisor = Supervisor(self.clock)
        self.executor = ThreadPoolExecutor(2, thread_name_prefix="broker")
        self.loop_probe = LoopProbe(self.clock)
        self.passwords = Passwords()
        self.parser = Parser(environment_without_settings())
        self.history = HistoryKeeper(self._reading, self.clock, settings.data / "local.sqlite")
        self.checks = CheckKeeper(settings, self.clock)
        self.secret_box = FernetBox(settings.secrets_key_file or settings.data / "secrets.key")

    @classmethod
    async def open(
        cls, settings: Settings, store: CountedStore, failpoints: Failpoints, progress: Progress
    ) -> Appliance:
        """Bring local state up to the end of the journal, become the writer, start the broker.
        Raises StartError with the sentence and the exit code for the terminal."""
        appliance = cls(settings, store, failpoints)
        async with _database(settings) as database:
            journal, report = await open_journal(
                store,
                database,
                settings.data,
                _start_options(settings),
                clock=appliance.clock,
                failpoints=failpoints,
                random_bytes=os.urandom,
                jitter=random.random,
                progress=progress,
            )
            warnings = (*report.warnings, *appliance.clock.warnings())
            now_us = max(appliance.clock.wall_us(), journal.position.created_us)
            before_us = await last_before_pause(
                settings.data / "local.sqlite", report.before_us, now_us
            )
            report = replace(report, warnings=warnings, before_us=before_us)
            await appliance._build(database, journal, report)
        return appliance

    @classmethod
    async def open_standby(
        cls, settings: Settings, store: CountedStore, failpoints: Failpoints, progress: Progress
    ) -> Appliance | None:
        """Bring local state up to the end of the journal that another appliance writes, to follow
        it. None if the last writer was started from this data directory. Writes nothing to the
        bucket. Raises StartError."""
        appliance = cls(settings, store, failpoints)
        async with _database(settings) as database:
            opened = await open_followed(
                store,
                database,
                settings.data,
                clock=appliance.clock,
                jitter=random.random,
                progress=progress,
            )
            if opened is None:
                await database.close()
                return None
            journal, report = opened
            await appliance._build(database, journal, report)
        appliance.standby = StandbyKeeper(
            appliance.broker, journal, appliance.follower, appliance.clock, settings.follow_poll_ms
        )
        return appliance

    async def _build(
        self,
        database: StateDatabase,
        journal: StoredJournal | FollowedJournal,
        report: StartReport,
    ) -> None:
        """Build everything that needs an open journal."""
        settings, store, clock = self.settings, self.store, self.clock
        store.purpose = "journal"  # from here on: other parts use purposes of their own
        self.database, self.journal, self.report = database, journal, report
        if settings.otlp_endpoint is not None:
            self.traces = OtelTraces.to_collector(settings.otlp_endpoint, clock)
        # A cache of a bucket that is a local disk, or memory, would only hold everything twice.
        folder, cache = None, None
        if settings.address.kind == "s3" and settings.cache_bytes:
            folder = settings.data / "cache" / journal.bucket_id.hex()
            cache = DiskCache(folder, settings.cache_bytes, self.failpoints)
        self.sections = BucketSections(
            store.used_for("read"), lambda ref: layout.object_key(journal.mode, ref), cache, clock
        )
        asyncio.get_running_loop().set_exception_handler(self.supervisor.handle)
        self.follower = StateFollower(
            database, clock=clock, failpoints=self.failpoints, supervisor=self.supervisor
        )
        # A snapshot that cannot be stored for a minute is given up: `failure` shows it, and the
        # next one is made later.
        bucket = SnapshotStore(self._retrying("snapshot"), self.failpoints)
        self.snapshots = SnapshotKeeper(
            database, self.follower, bucket, self._schedule(), settings.data / "snapshot.new"
        )
        await self._start_broker(await self.follower.load())
        self.beside = beside(self.broker, self.secret_box, settings, journal)
        if settings.address.kind == "memory":  # no other process can read it
            rewriter: Rewriter = ObjectRewriter(
                self._retrying("tidier"), journal.mode, settings.data
            )
        else:
            rewriter = ChildRewriter(settings, journal.mode, folder)
        cleaner = BucketCleaner(self._retrying("tidier"), bucket, journal.mode, self.failpoints)
        self.tables = self._tables(ChildTableWriter(settings, journal.mode, folder), cleaner)
        self.tidier = TidierKeeper(
            self.broker.tidying,
            rewriter,
            cleaner,
            self.snapshots,
            clock,
            self.failpoints,
            self.traces,
        )
        self.cost = self._cost({"tidier": rewriter, "tables": self.tables.writer}, bucket)
        await self.cost.load()
        await self.history.load()
        self.opened_s = clock.monotonic_s()

    def _cost(
        self, workers: Mapping[str, Rewriter | TableWriter], snapshots: SnapshotStore
    ) -> CostKeeper:
        settings = self.settings
        return CostKeeper(
            settings.data / "local.sqlite",
            Sources(self.store, self.broker, workers, snapshots),
            self.broker.linger,
            self.broker.log_clock,
            settings.price_list,
            settings.budget,
            longest_ms=settings.linger_max_ms if settings.linger_ms == "auto" else None,
        )

    def _tables(self, writer: TableWriter, cleaner: BucketCleaner) -> TableKeeper:
        broker, mode = self.broker, self.journal.mode
        if not _no_tables(self.settings):
            broker.table_commits.place = TablePlace(
                self.settings.address.uri, lambda ref: layout.object_key(mode, ref)
            )
        broker.sql.unavailable = _no_sql(self.settings)
        if not broker.sql.unavailable:
            broker.sql.runner = SqlProcess(self._retrying("read"))
        return TableKeeper(
            broker.tables,
            broker.table_commits,
            writer,
            broker.tidying,
            cleaner,
            self.journal.confirm_in_force,
            self.clock,
            self.failpoints,
        )

    def _retrying(self, purpose: Purpose) -> RetryingStore:
        """The bucket for a job in the background, which tries again for a minute."""
        store = self.store.used_for(purpose)
        return RetryingStore(store, self.clock, random.random, give_up_after_s=_JOB_PATIENCE_S)

    def _schedule(self) -> SnapshotSchedule:
        entry_s = _REPLAY_S[self.journal.durability]
        if self.report.entries_replayed >= _MEASURED_FROM:
            entry_s = self.report.replay_seconds / self.report.entries_replayed
        return SnapshotSchedule(
            self.clock,
            entry_s=entry_s,
            snapshot_seq=self.report.newest_snapshot_seq,
            seq=self.journal.position.seq,
        )

    async def _start_broker(self, loaded: LoadedState) -> None:
        data, journal = self.settings.data, self.journal
        known = {row.api_key_id for row in loaded.api_keys}
        self.last_used = await LastUsedKeeper.open(data / "local.sqlite", known, self.clock)
        # If the local state was not of this bucket's log, the key index may not be of it either.
        self.key_index = await SqliteKeyIndex.open(
            data / KEY_INDEX, journal.bucket_id, trusted=self.report.began_from == "local"
        )

        def on_applied() -> None:
            if isinstance(journal, StoredJournal):  # else the writer makes the snapshots
                self.snapshots.applied(journal.position.seq)

        self.broker = Broker(
            loaded,
            journal,
            self.sections,
            self.follower,
            broker_settings(self.settings),
            self.key_index,
            clock=self.clock,
            executor=self.executor,
            random_bytes=os.urandom,
            failpoints=self.failpoints,
            on_applied=on_applied,
            last_used=self.last_used.last_used,
            supervisor=self.supervisor,
            before_us=self.report.before_us,
        )

    async def start(self) -> asyncio.Task[None]:
        """Begin to write, with an admin key in place, or to follow; the task that does it."""
        if self.standby is not None:
            running = self.standby.start()
        else:
            running = self.broker.start()
            await ensure_admin_key(self.broker, self.settings.data)
            for one in self.beside.values():
                one.start(self.supervisor)
        self.history.start(self.supervisor)
        self.cost.start(self.supervisor)
        self.loop_probe.start(self.supervisor)
        if self.settings.tidier and self.standby is None:
            self.tidier.start(self.supervisor)
            if self.broker.table_commits.place is not None:
                self.tables.start(self.supervisor)
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
        await self._stop_beside()
        self.broker.stop_accepting()
        if self.standby is not None:
            return True  # there is nothing of its own
        await self.tidier.close()
        await self.tables.close()
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

    async def _stop_beside(self) -> None:
        await asyncio.gather(*(one.stop() for one in self.beside.values()))

    async def close(self) -> None:
        """End everything, whatever state it is in. What was not drained fails as "unknown"."""
        if self.standby is not None:
            await self.standby.close()
        await self._stop_beside()
        await self.history.close()
        await self.checks.close()
        await self.tidier.close()
        await self.tables.close()
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

    async def _reading(self) -> Reading:
        broker, sections = self.broker, self.sections
        counters = broker.counters
        return Reading(
            records_in=counters.records,
            bytes_in=counters.entry_bytes,
            entries=counters.entries,
            records_out=counters.read_records,
            sections_at_hand=sections.from_memory + sections.from_disk,
            sections_fetched=sections.from_bucket,
            bucket_requests=self.store.counts.requests(),
            puts=tuple(counters.puts.counts),
            size_bytes=(await broker.topics.totals()).size_bytes,
            lags=broker.groups.lags(limits.LAGS_SAMPLED),
            came_in=counters.take_came_in(),
        )


@contextlib.asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[StateDatabase]:
    """The local state, closed again if what is done with it fails."""
    database = await StateDatabase.open(settings.data / "state.sqlite")
    try:
        yield database
    except BaseException:
        await database.close()
        raise


def _start_options(settings: Settings) -> StartOptions:
    """A directory's LIST, and memory's, always shows what was PUT."""
    shows_at_once = settings.address.kind != "s3" or settings.s3_immediate_list
    return StartOptions(
        take_over=settings.take_over,
        take_over_when_new=settings.take_over_when_new,
        list_is_known=shows_at_once,
    )
