"""How long a start takes: 10,000 entries from a local directory, and with a snapshot."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from seb_appliance.broker.append.admission import Admission
from seb_appliance.broker.append.sealing import seal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.values import NewRecords
from seb_appliance.clock import SystemClock
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.entry import encode
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.state.database import StateDatabase
from seb_appliance.storage import layout
from seb_appliance.storage.recovery.opening import StartOptions, open_journal
from seb_appliance.storage.stores.directory import DirectoryStore
from tests.crash.arena import Arena, directory_arena
from tests.support.yardstick import at_this_speed

pytestmark = [pytest.mark.slow, pytest.mark.measured]

ENTRIES = 10_000
TOPICS = 50
FROM_EMPTY_S_MAX = 8.0
WITH_A_SNAPSHOT_S_MAX = 2.0


async def write_entries(folder: Path, count: int) -> None:
    """A bucket in `folder`/bucket whose journal has `count` entries after its first."""
    data = folder / "writer"
    data.mkdir()
    store = DirectoryStore(folder / "bucket")
    clock = SystemClock()
    database = await StateDatabase.open(data / "state.sqlite")
    journal, _ = await open_journal(
        store,
        database,
        data,
        StartOptions(),
        clock=clock,
        failpoints=NO_FAILPOINTS,
        random_bytes=os.urandom,
        jitter=random.random,
        progress=lambda *_: None,
    )
    admission = Admission(
        Catalog(await database.load(), clock.monotonic_s),
        1,
        BrokerSettings().effective,
        clock.wall_us,
        AllShares(),
    )
    await database.close()
    position = journal.position
    for i in range(count):
        window, now_us = Window(), clock.wall_us()
        for topic in {i % TOPICS, 7 * i % TOPICS}:
            records, effective = NewRecords([b"x" * 100] * 5), admission.effective(TopicSettings())
            prepared = admission.prepare(records, effective, now_us)
            admission.place(window, f"topic-{topic}", prepared, now_us)
        sealed = seal(window, now_us)
        encoded = encode(
            sealed.contents,
            sealed.parts,
            after=position,
            epoch=journal.epoch,
            writer_id=journal.writer_id,
            entry_id=os.urandom(16),
            bucket_id=journal.bucket_id,
            created_us=now_us,
        )
        position = encoded.entry.header.position
        path = folder / "bucket" / layout.create_only_key(position.seq)
        path.write_bytes(encoded.body)
    await store.close()


async def started(arena: Arena) -> float:
    """Seconds from nothing to ready, on an empty data directory; then a stop without a snapshot."""
    seb = arena.start(fresh=True)
    seconds = await seb.ready(30)
    print(next(line for line in seb.shown.splitlines() if "recovery" in line), f"{seconds:.2f} s")
    seb.kill()
    return seconds


async def leave_a_snapshot(arena: Arena) -> None:
    seb = arena.start(take_over=True)
    await seb.ready()
    seb.process.terminate()
    assert await seb.ended() == 0, seb.shown


async def test_a_long_journal_is_replayed_in_seconds_and_a_snapshot_makes_it_short(
    tmp_path: Path,
) -> None:
    await write_entries(tmp_path, ENTRIES)
    async with directory_arena("A", tmp_path) as arena:
        # The better of two: the machine may have had something else to do.
        assert min([await started(arena), await started(arena)]) < at_this_speed(FROM_EMPTY_S_MAX)
        await leave_a_snapshot(arena)
        assert min([await started(arena), await started(arena)]) < at_this_speed(
            WITH_A_SNAPSHOT_S_MAX
        )
