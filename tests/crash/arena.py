"""One bucket, the appliances that come and go on it, producers and a consumer; and the verdict."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from seb_appliance.clock import SystemClock
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.ops.checks.check import CheckOptions, check_bucket
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.tables import state_digest
from seb_appliance.storage.journal.bases import BaseChain, ClaimedLog
from seb_appliance.storage.journal.bucket_info import read_bucket_info
from seb_appliance.storage.journal.create_only import CreateOnlyLog
from seb_appliance.storage.journal.replay import Replay
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Mode, SnapshotName
from seb_appliance.storage.recovery.opening import StartOptions, open_journal
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.directory import DirectoryStore
from seb_appliance.storage.stores.object_store import ObjectStore
from seb_appliance.storage.stores.s3 import S3Store
from seb_appliance.storage.stores.s3_options import S3Options
from tests.support.bucket_server import BucketServer
from tests.support.checker import check
from tests.support.consumer import Consumer
from tests.support.faultproxy import FaultProxy
from tests.support.load import read_topic
from tests.support.process import Bucket, SebProcess
from tests.support.producer import Doors, Load
from tests.support.servers.s3_server import S3Server

TOPICS = ("orders", "iot.kitchen")
PRODUCERS = 8
GRACE_MS = 3_600_000  # what a kill left behind may lie about


def rounds(ci: int) -> int:
    """How often to do it: SEB_TEST_ROUNDS, or `ci` times."""
    return int(os.environ.get("SEB_TEST_ROUNDS", ci))


@dataclass
class Arena:
    """`proxy` is there for a bucket on S3 only, `server` where that is the small one."""

    mode: Mode
    folder: Path
    bucket: Bucket
    store: ObjectStore
    proxy: FaultProxy | None = None
    server: BucketServer | None = None
    load: Load = field(default_factory=lambda: Load(Doors("", []), TOPICS))
    consumers: dict[str, Consumer] = field(default_factory=dict)
    processes: list[SebProcess] = field(default_factory=list)

    def start(
        self,
        data: str = "local",
        *flags: str,
        fresh: bool = False,
        take_over: bool = False,
        fail: str = "",
    ) -> SebProcess:
        """A new process. `fresh`: without what is in the data directory, which makes it another
        appliance to the bucket."""
        if fresh:
            shutil.rmtree(self.folder / data, ignore_errors=True)
        if fresh or take_over:
            flags = (*flags, "--take-over")
        self.processes.append(SebProcess(self.bucket, self.folder / data, flags, fail))
        return self.processes[-1]

    async def begin(
        self, seb: SebProcess, producers: int = PRODUCERS, key: str | None = None
    ) -> None:
        """Producers and consumers at the first appliance, which is ready and has the admin key."""
        self.load.doors.key = key or seb.admin_key
        self.serve_from(seb)
        self.load.start(producers)
        await self.load.until_acked(10)
        self.consumers = {topic: Consumer(self.load.doors, topic) for topic in TOPICS}

    def serve_from(self, *running: SebProcess) -> None:
        """Where producers and consumers knock from now on."""
        self.load.doors.ports[:] = [seb.port for seb in running]

    async def verdict(self, seb: SebProcess) -> None:
        """End the load, and hold the log that `seb` serves against what everybody was told."""
        await self.load.stop()
        for consumer in self.consumers.values():
            await consumer.stop()
        for topic in self.load.topics:
            log = await read_topic(seb.port, self.load.doors.key, topic)
            calls = [call for call in self.load.calls if call.topic == topic]
            reads = self.consumers[topic].reads if topic in self.consumers else ()
            check(calls, log, reads)
        told = dict(self.load.answers.most_common())
        print(f"{len(self.processes)} starts, {len(self.load.calls)} calls: {told}")

    async def stop_and_compare(self, seb: SebProcess) -> None:
        """Stop it cleanly: its state equals what the journal alone amounts to."""
        seb.process.terminate()
        assert await seb.ended() == 0, seb.shown
        assert "Traceback" not in seb.shown
        await self.require_sound(seb)
        rebuilt = self.folder / "rebuilt" / "state.sqlite"
        rebuilt.parent.mkdir()
        await rebuild(self.store, rebuilt)
        assert state_digest(rebuilt) == state_digest(seb.data / "state.sqlite")

    async def require_sound(self, seb: SebProcess) -> None:
        """Bucket and data directory, which nobody has, are as `seb fsck --full` wants them."""
        retrying = RetryingStore(self.store, SystemClock(), random.random, give_up_after_s=10)
        options = CheckOptions(full=True, data=seb.data, grace_ms=GRACE_MS)
        report = await check_bucket(retrying, SystemClock(), options, lambda *_: None)
        assert report.findings.problems == [], report.findings.problems

    async def stop_and_compare_snapshots(self, seb: SebProcess) -> None:
        """Stop it cleanly: its state equals what each snapshot and the journal after it amount
        to. Entries below may be gone."""
        seb.process.terminate()
        assert await seb.ended() == 0, seb.shown
        assert "Traceback" not in seb.shown
        await self.require_sound(seb)
        rebuilt = await self.rebuilt_states()
        assert len(rebuilt) == 3
        for beginning, digest in rebuilt.items():
            assert digest == state_digest(seb.data / "state.sqlite"), beginning

    async def rebuilt_states(self) -> dict[str, str]:
        """Digests of the state that the bucket amounts to, by where it was begun: the first entry,
        or, once there are three snapshots and entries below them may be gone, each of these."""
        names = await _snapshots(self.store).list()
        beginnings = names if len(names) >= 3 else [None]
        found = {}
        for name in beginnings:
            beginning = f"from-{name.seq if name else 0}"
            path = self.folder / beginning / "state.sqlite"
            path.parent.mkdir()
            await rebuild(self.store, path, name)
            found[beginning] = state_digest(path)
        return found


def _snapshots(store: ObjectStore) -> SnapshotStore:
    retrying = RetryingStore(store, SystemClock(), random.random, give_up_after_s=10)
    return SnapshotStore(retrying, NO_FAILPOINTS)


Place = Callable[[Mode, Path], AbstractAsyncContextManager[Arena]]


async def rebuild(store: ObjectStore, path: Path, snapshot: SnapshotName | None = None) -> None:
    """The state at `path`, from the first entry of the journal on, or from a snapshot."""
    retrying = RetryingStore(store, SystemClock(), random.random, give_up_after_s=10)
    database = await StateDatabase.open(path)
    replay = Replay(retrying, database, SystemClock(), NO_FAILPOINTS, lambda *_: None)
    info = await read_bucket_info(retrying)
    assert info is not None
    log: CreateOnlyLog | ClaimedLog
    if info.mode == "A":
        log = CreateOnlyLog(replay, info.id_bytes)
    else:
        chain = BaseChain(retrying, info.id_bytes)
        log = ClaimedLog(replay, chain)
    await log.look()
    position = ORIGIN
    if snapshot is not None:
        fetched = path.with_name("fetched")
        await _snapshots(store).fetch(snapshot, fetched)
        position = await database.restore(fetched)
    await log.replay(position)
    await database.close()


@asynccontextmanager
async def directory_arena(mode: Mode, folder: Path) -> AsyncIterator[Arena]:
    """A directory would always choose mode A; a bucket that was begun in mode B stays in it."""
    store = DirectoryStore(folder / "bucket")
    if mode == "B":
        await _begin_in_mode_b(store, folder / "seed")
    arena = Arena(mode, folder, Bucket.directory(folder / "bucket"), store)
    async with closing(arena):
        yield arena


@asynccontextmanager
async def s3_arena(mode: Mode, folder: Path, **settings: str) -> AsyncIterator[Arena]:
    """A small S3 server behind a proxy that can do harm. In mode B it answers 501 to the
    condition."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(BucketServer(create_only=mode == "A"))
        behind_proxy = _proxied_arena(mode, folder, server.options, server.port, **settings)
        arena = await stack.enter_async_context(behind_proxy)
        arena.server = server
        yield arena


def arena_on(server: S3Server, *, versioned: bool = False) -> Place:
    """On a new bucket of a real server, behind the same proxy. The mode is the one that it gets."""

    @asynccontextmanager
    async def place(mode: Mode, folder: Path, **settings: str) -> AsyncIterator[Arena]:
        options = server.new_bucket(versioned=versioned)
        async with _proxied_arena(mode, folder, options, server.port, **settings) as arena:
            yield arena

    return place


@asynccontextmanager
async def _proxied_arena(
    mode: Mode, folder: Path, options: S3Options, port: int, **settings: str
) -> AsyncIterator[Arena]:
    async with FaultProxy(port) as proxy:
        bucket = Bucket.s3(options, proxy.port, **{"linger": "10ms", **settings})
        arena = Arena(mode, folder, bucket, S3Store(options), proxy)
        async with closing(arena):
            yield arena


@asynccontextmanager
async def closing(arena: Arena) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for seb in arena.processes:
            seb.kill()
        await arena.load.stop()
        for consumer in arena.consumers.values():
            await consumer.stop()
        await arena.store.close()


async def _begin_in_mode_b(store: ObjectStore, data: Path) -> None:
    data.mkdir()
    database = await StateDatabase.open(data / "state.sqlite")
    await open_journal(
        store,
        database,
        data,
        StartOptions(mode="B"),
        clock=SystemClock(),
        failpoints=NO_FAILPOINTS,
        random_bytes=os.urandom,
        jitter=random.random,
        progress=lambda *_: None,
    )
    await database.close()
