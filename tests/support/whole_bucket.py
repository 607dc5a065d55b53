"""A real bucket in a directory, with all that can be in one; made once, copied to be damaged."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from seb_appliance import setting_sources
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.clock import SystemClock
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.lake.table_formats import FORMATS
from seb_appliance.ops.checks.check import CheckOptions, CheckReport, check_bucket
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.jobs.lake.work import TableWork
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.state.database import StateDatabase
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.recovery.opening import StartOptions, open_journal
from seb_appliance.storage.stores.directory import DirectoryStore
from seb_appliance.storage.stores.object_store import ObjectStore

ADMIN = ApiKeyView("test", "test", (Grant(operation="admin"),), 0)
TIDY = {"tidier": "off", "tidy_bytes": "1KiB", "tidy_young": "0ms", "garbage_grace": "0ms"}


@dataclass(frozen=True)
class Whole:
    """`bucket` and `data` are folders of this one test."""

    mode: Mode
    bucket: Path
    data: Path

    def copied(self, folder: Path) -> Whole:
        shutil.copytree(self.bucket, folder / "bucket")
        shutil.copytree(self.data, folder / "data")
        return Whole(self.mode, folder / "bucket", folder / "data")

    def keys(self, pattern: str) -> list[Path]:
        """Objects below our folder, in the order of their keys."""
        return sorted((self.bucket / "_seb").glob(pattern))

    @property
    def entries(self) -> list[Path]:
        return self.keys("journal/**/*.seb")

    def key(self, path: Path) -> str:
        return str(path.relative_to(self.bucket))


class HastyClock(SystemClock):
    """Nobody waits for what an appliance may do meanwhile."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0))


async def check(whole: Whole, *, local: bool = False, **options: bool) -> CheckReport:
    """As `seb fsck` does; without the data directory unless `local`."""
    store = DirectoryStore(whole.bucket)
    retrying = RetryingStore(store, SystemClock(), random.random, give_up_after_s=5)
    chosen = CheckOptions(data=whole.data if local else None, **options)
    try:
        return await check_bucket(retrying, HastyClock(), chosen, lambda *_: None)
    finally:
        await store.close()


def codes(report: CheckReport) -> list[str]:
    return sorted({problem.code for problem in report.findings.problems})


async def make_whole(folder: Path, mode: Mode, *, tidied: bool) -> Whole:
    """Two topics, four writers, three snapshots. `tidied`: most of it in segments, and the entries
    below the floor gone."""
    whole = Whole(mode, folder / "bucket", folder / "data")
    whole.data.mkdir()
    (whole.data / "lock").touch()  # as `seb serve` leaves it
    if mode == "B":  # a directory would always choose mode A
        await begin_in_mode_b(whole.bucket, folder / "seed")
    for _ in range(4):
        appliance = await _open(whole)
        broker = appliance.broker
        for topic in ("orders", "iot.kitchen"):
            await broker.topics.create(topic, TopicSettings(key_index="latest"))
        for n in range(12):
            for topic in ("orders", "iot.kitchen"):
                records = NewRecords([b"%d " % n + b"x" * 40], keys=[b"key %d" % (n % 5)])
                await broker.appends.append(
                    ADMIN, topic, records, broker.pending.reserve(OPERATOR, 1)
                )
        for topic in ("orders", "iot.kitchen"):
            await broker.record_keys.latest(topic, b"key 0", fresh=True)
        while tidied and await appliance.tidier.step():
            pass
        assert await appliance.drain()
        await appliance.close()
    if tidied:  # once more, now that there is a floor
        appliance = await _open(whole)
        while await appliance.tidier.step():
            pass
        assert await appliance.drain()
        await appliance.close()
    return whole


async def make_lake(folder: Path) -> Whole:
    """A topic that is a table in both formats, after twelve commits and a merge."""
    whole = Whole("A", folder / "bucket", folder / "data")
    whole.data.mkdir()
    appliance = await _open(whole)
    broker = appliance.broker
    retrying = RetryingStore(appliance.store, SystemClock(), random.random, give_up_after_s=5)
    appliance.tables.writer = TableWork(retrying, "A", FORMATS, NO_FAILPOINTS)
    await broker.topics.create("orders", TopicSettings(table="iceberg,delta"))
    for n in range(12):
        records = NewRecords([b"%d" % n, b"more"], keys=[b"k", b"l"])
        await broker.appends.append(ADMIN, "orders", records, broker.pending.reserve(OPERATOR, 1))
        for table in broker.tables.all():
            broker.table_commits.lags.wait_from(table, float("-inf"))
        while await appliance.tables.step():
            pass
    assert await appliance.drain()
    await appliance.close()
    return whole


async def _open(whole: Whole) -> Appliance:
    given = {"bucket": f"file:{whole.bucket}", "data": str(whole.data), "linger": "0ms", **TIDY}
    chosen = setting_sources.load(flags={**given, "take_over": True}, environment={})
    store = make_store(chosen, NO_FAILPOINTS)
    appliance = await Appliance.open(chosen, store, NO_FAILPOINTS, lambda *_: None)
    await appliance.start()
    return appliance


async def begin_in_mode_b(bucket: Path, data: Path) -> None:
    """Make a bucket whose first writer was started in mode B; `data`: its data directory."""
    store = DirectoryStore(bucket)
    await begin_log_in_mode_b(store, data)
    await store.close()


async def begin_log_in_mode_b(store: ObjectStore, data: Path) -> None:
    """As `begin_in_mode_b`, in any empty store."""
    data.mkdir()
    database = await StateDatabase.open(data / "state.sqlite")
    await open_journal(
        store,
        database,
        data,
        StartOptions(mode="B", list_rounds=5),
        clock=SystemClock(),
        failpoints=NO_FAILPOINTS,
        random_bytes=os.urandom,
        jitter=random.random,
        progress=lambda *_: None,
    )
    await database.close()
