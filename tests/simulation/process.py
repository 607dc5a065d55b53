"""One process: what `assembly.py` joins, with everything that is the machine's simulated."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import msgspec

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.lake.jobs import Printed, PrintJob, WriteJob, Written
from seb_appliance.broker.lake.notes import TablePlace
from seb_appliance.broker.settings import BrokerSettings, TidySettings
from seb_appliance.errors import SebError
from seb_appliance.ops.jobs.lake.keeper import TableKeeper
from seb_appliance.ops.jobs.lake.work import TableWork
from seb_appliance.ops.jobs.snapshot_job import SnapshotKeeper
from seb_appliance.ops.jobs.standby_job import StandbyKeeper
from seb_appliance.ops.jobs.tidier_job import TidierKeeper
from seb_appliance.storage import layout
from seb_appliance.storage.journal.followed import FollowedJournal
from seb_appliance.storage.journal.journal import StoredJournal
from seb_appliance.storage.journal.replay import ReplayError
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.cleanup import BucketCleaner
from seb_appliance.storage.objects.rewriting import ObjectRewriter
from seb_appliance.storage.objects.section_source import BucketSections
from seb_appliance.storage.recovery.opening import StartOptions, StartReport, open_journal
from seb_appliance.storage.recovery.opening_followed import open_followed
from seb_appliance.storage.recovery.snapshots import SnapshotSchedule, SnapshotStore
from seb_appliance.storage.stores.store_clock import StoreClock
from seb_appliance.tasks import Supervisor
from tests.simulation.bucket import Bucket, BucketClient, Network
from tests.simulation.clock import SimulatedClock
from tests.simulation.hosts import Host
from tests.simulation.loop import Owner, SimulatedLoop
from tests.simulation.sqlite_state import SqliteDisk, SqliteState
from tests.simulation.state import Disk, SimulatedState
from tests.support.fakes import FakeKeyIndex
from tests.support.plain_tables import PLAIN

T = TypeVar("T")


@dataclass(frozen=True)
class SmallTables(BrokerSettings):
    """Defaults below what users may set."""

    table_file_bytes: int = 1_500
    table_lag_ms: int = 700
    table_snapshots: int = 3
    table_hold_ms: int = 5_000


SETTINGS = SmallTables(
    linger_ms=20,
    tidy=TidySettings(
        segment_bytes=4_000, trigger_bytes=2_500, after_ms=3_000, young_ms=500, grace_ms=3_000
    ),
)
ENTRY_S = 0.5  # as long as replaying an entry is thought to take: a snapshot after each ten
POLLS_MS = [50, 500]  # of a standby: one of these


class KilledError(BaseException):
    """The process was killed at a failpoint: nothing after it runs."""


class KillingFailpoints:
    """As `Failpoints`: `point` kills the process when it is reached for the `passes`-th time."""

    def __init__(self, owner: Owner) -> None:
        self.point = ""
        self.passes = 1
        self._owner = owner

    def armed(self, point: str) -> bool:
        return point == self.point and self.passes == 1

    def reach(self, point: str) -> None:
        if point == self.point and not self._owner.dead:
            self.passes -= 1
            if self.passes == 0:
                self._owner.kill()
                raise KilledError


class Process:
    """`ended`: why it ended, "" while it runs. `serves`: its broker takes requests."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        network: Network,
        bucket: Bucket,
        disk: Disk | SqliteDisk,
        clock: SimulatedClock,
        draws: Random,
        *,
        standby: bool,
        options: StartOptions,
        epochs: set[int],
        host: Host,
    ) -> None:
        self.owner = Owner(name, host)
        self.name = name
        self.standby = standby
        self.epoch = 0
        self.ended = ""
        self.promote = False
        self.broker: Broker | None = None
        self.tidier: TidierKeeper | None = None
        self.tables: TableKeeper | None = None
        self.failpoints: Any = KillingFailpoints(self.owner)
        self.state: SimulatedState | SqliteState = disk.state(clock, self.failpoints)
        self._loop = loop
        self._disk = disk
        self._draws = draws
        self._options = options
        self._epochs = epochs
        self._store = BucketClient(network, bucket, self.owner)
        self._clock = StoreClock(clock, self._store)
        self._snapshots: SnapshotKeeper | None = None
        self._follower: StandbyKeeper | None = None
        self._stopping = False
        self._asked_to_stop = asyncio.Event()
        self.owner.on_killed = self._killed
        self._task = loop.task_of(self.owner, self._run())

    @property
    def runs(self) -> bool:
        return not self.ended

    @property
    def serves(self) -> bool:
        return self.runs and self.broker is not None

    @property
    def writes(self) -> bool:
        return self.serves and not self.standby and self.broker.failure is None  # type: ignore[union-attr]

    @property
    def stopping(self) -> bool:
        return self._asked_to_stop.is_set()

    def ask_to_stop(self, *, promote: bool = False) -> None:
        """As SIGTERM, or `seb promote`."""
        self.promote = promote
        self._loop.later(0, self._asked_to_stop.set)

    def _killed(self) -> None:
        self.ended = "killed"
        self.broker = None
        self._disk.killed()

    async def _run(self) -> None:
        try:
            await self._serve()
            self.ended = "stopped"
        except (SebError, ReplayError) as error:
            self.ended = f"{type(error).__name__}: {error}"
        except Exception as error:
            self.ended = f"bug: {error!r}"
            self._loop.failures.append("bug: " + "".join(traceback.format_exception(error)))
        finally:
            self.broker = None

    async def _serve(self) -> None:
        await self.state.open()
        try:
            await self._serve_from_state()
        finally:
            await self.state.close()

    async def _serve_from_state(self) -> None:
        opened = await (self._open_followed() if self.standby else self._open())
        if opened is None:
            return
        journal, report = opened
        broker = await self._make_broker(journal, report)
        if isinstance(journal, FollowedJournal):
            poll_ms = self._draws.choice(POLLS_MS)
            self._follower = StandbyKeeper(
                broker, journal, self.state.follower, self._clock, poll_ms
            )
            running = self._follower.start()
        else:
            running = broker.start()
            assert self.tidier is not None
            assert self.tables is not None
            self.tidier.start(Supervisor(self._clock))
            self.tables.start(Supervisor(self._clock))
        self.epoch = journal.epoch
        if not self.standby:
            self._epochs.add(self.epoch)
        self.broker = broker
        stopping = asyncio.create_task(self._asked_to_stop.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and not self.standby:
                await self._drain(broker)
            if running.done() and not running.cancelled():
                running.result()
                if broker.failure is not None:
                    raise broker.failure
        finally:
            stopping.cancel()
            await self._close(broker)

    async def _open(self) -> tuple[StoredJournal, StartReport]:
        return await open_journal(
            self._store,
            self.state.database,
            self._disk.folder,
            self._options,
            clock=self._clock,
            failpoints=self.failpoints,
            random_bytes=self._draws.randbytes,
            jitter=self._draws.random,
            progress=lambda *_: None,
        )

    async def _open_followed(self) -> tuple[FollowedJournal, StartReport] | None:
        return await open_followed(
            self._store,
            self.state.database,
            self._disk.folder,
            clock=self._clock,
            jitter=self._draws.random,
            progress=lambda *_: None,
        )

    async def _make_broker(
        self, journal: StoredJournal | FollowedJournal, report: StartReport
    ) -> Broker:
        sections = BucketSections(
            self._store,
            lambda ref: layout.object_key(journal.mode, ref),
            self._disk.cache(self.failpoints),
            self._clock,
        )
        bucket = SnapshotStore(self._retrying(), self.failpoints)
        schedule = SnapshotSchedule(
            self._clock,
            entry_s=ENTRY_S,
            snapshot_seq=report.newest_snapshot_seq,
            seq=journal.position.seq,
        )
        loaded = await self.state.begin_to_follow()
        snapshots = SnapshotKeeper(
            self.state.database,
            self.state.follower,
            bucket,
            schedule,
            self._disk.folder / "snapshot.new",
        )
        writes = isinstance(journal, StoredJournal)
        broker = Broker(
            loaded,
            journal,
            sections,
            self.state.follower,
            SETTINGS,
            FakeKeyIndex(),  # type: ignore[arg-type]
            clock=self._clock,
            executor=_NoExecutor(),
            random_bytes=self._draws.randbytes,
            failpoints=self.failpoints,
            on_applied=(lambda: snapshots.applied(journal.position.seq))
            if writes
            else lambda: None,
        )
        self._snapshots = snapshots
        rewriter = ObjectRewriter(self._retrying(), journal.mode, self._disk.folder)
        cleaner = BucketCleaner(self._retrying(), bucket, journal.mode, self.failpoints)
        self.tidier = TidierKeeper(
            broker.tidying, rewriter, cleaner, snapshots, self._clock, self.failpoints
        )
        self.tables = self._make_tables(broker, journal, cleaner)
        return broker

    def _make_tables(
        self, broker: Broker, journal: StoredJournal, cleaner: BucketCleaner
    ) -> TableKeeper:
        mode = journal.mode
        broker.table_commits.place = TablePlace(
            self._store.description, lambda ref: layout.object_key(mode, ref)
        )
        writer = PipedWork(self._retrying(), mode, PLAIN, self.failpoints)
        return TableKeeper(
            broker.tables,
            broker.table_commits,
            writer,
            broker.tidying,
            cleaner,
            journal.confirm_in_force,
            self._clock,
            self.failpoints,
        )

    def _retrying(self) -> RetryingStore:
        return RetryingStore(self._store, self._clock, self._draws.random, give_up_after_s=20.0)

    async def _drain(self, broker: Broker) -> None:
        assert self.tidier is not None
        assert self._snapshots is not None
        assert self.tables is not None
        broker.stop_accepting()
        await self.tables.close()
        await self.tidier.close()
        if await broker.drain(20):
            await self._snapshots.publish_last()

    async def _close(self, broker: Broker) -> None:
        self.broker = None
        if self._follower is not None:
            await self._follower.close()
        if self.tables is not None:
            await self.tables.close()
        if self.tidier is not None:
            await self.tidier.close()
        await broker.stop()
        await self.state.follower.drain()
        if self._snapshots is not None:
            await self._snapshots.close()

    def request(
        self, work: Callable[[Broker], Awaitable[T]], one_way_s: float
    ) -> asyncio.Future[T]:
        """Have something done in this process, as an HTTP request would: it arrives after a while,
        and is answered a while later, if the process lives then. Otherwise never."""
        answer: asyncio.Future[T] = self._loop.create_future()

        def arrive() -> None:
            if self.broker is None:
                self._loop.later(one_way_s, refuse)
                return
            task = self._loop.create_task(
                _done(work, self.broker), context=self.owner.context.copy()
            )
            task.add_done_callback(answered, context=self.owner.context.copy())

        def refuse() -> None:
            if not answer.done():
                answer.set_exception(NotServingError())

        def answered(task: asyncio.Task[T]) -> None:
            self._loop.later(one_way_s, settle, task)

        def settle(task: asyncio.Task[T]) -> None:
            if answer.done() or task.cancelled():
                return
            error = task.exception()
            if error is None:
                answer.set_result(task.result())
            elif isinstance(error, Exception):
                answer.set_exception(error)

        self._loop.call_later(one_way_s, arrive, context=self.owner.context.copy())
        return answer


class PipedWork(TableWork):
    """As in a process of its own: it is told what jobs are when they are sent."""

    async def write(self, job: WriteJob) -> Written:
        return await super().write(_piped(job))

    async def print(self, job: PrintJob) -> Printed:
        return await super().print(_piped(job))


def _piped(job: T) -> T:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=type(job))


class NotServingError(Exception):
    """The connection was refused: nothing was sent."""


async def _done(work: Callable[[Broker], Awaitable[T]], broker: Broker) -> T:
    return await work(broker)


class _NoExecutor(Executor):
    """The loop runs what it is given."""
