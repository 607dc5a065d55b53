"""Appliances reduced to their journal: a data directory, a replica in memory, and a start.

The replica checks that what it is given is one unbroken chain, and can be saved and restored as a
file, so that the journal, the starts and the snapshots are the real ones.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from seb_appliance.errors import CorruptObjectError, StoreError, StoreUnusableError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import ORIGIN, Entry, Position
from seb_appliance.formats.operations import TopicDeleted
from seb_appliance.storage.journal.journal import StoredJournal
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import SnapshotName
from seb_appliance.storage.recovery.opening import StartOptions, StartReport, open_journal
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.object_store import ObjectStore


class HurriedClock:
    """A clock that is forwarded by whoever sleeps on it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s: list[float] = []

    def wall_us(self) -> int:
        return 1_800_000_000_000_000 + int(self.now_s * 1e6)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)

    def call_later(self, seconds, callback):
        raise NotImplementedError


class _Saved(msgspec.Struct):
    position: Position
    bucket_id: bytes | None
    numbers: list[int]


class ListReplica:
    """`numbers`: what the applied entries carried, in order (epoch entries carry none)."""

    def __init__(self) -> None:
        self.state = _Saved(ORIGIN, None, [])
        self.cleared = 0
        self.restored = 0

    @property
    def numbers(self) -> list[int]:
        return self.state.numbers

    async def position(self) -> Position:
        return self.state.position

    async def bucket_id(self) -> bytes | None:
        return self.state.bucket_id

    async def clear(self) -> None:
        self.state = _Saved(ORIGIN, None, [])
        self.cleared += 1

    async def restore(self, snapshot: Path) -> Position:
        try:
            self.state = msgspec.msgpack.decode(snapshot.read_bytes(), type=_Saved)
        except msgspec.DecodeError as error:
            raise CorruptObjectError("not a state") from error
        self.restored += 1
        return self.state.position

    async def apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            assert entry.header.follows(self.state.position), (entry.header, self.state.position)
            for operation in entry.contents.operations:
                if isinstance(operation, TopicDeleted):
                    self.state.numbers.append(operation.topic_id)
            self.state.position = entry.header.position
            self.state.bucket_id = entry.header.bucket_id

    async def save(self, target: Path) -> Position:
        target.write_bytes(msgspec.msgpack.encode(self.state))
        return self.state.position


async def check_nothing(path: Path) -> None:
    assert path.stat().st_size > 0


class Appliance:
    """One data directory, started on one store perhaps several times."""

    journal: StoredJournal
    report: StartReport

    def __init__(self, store: ObjectStore, data_dir: Path, *, seed: int | None = None) -> None:
        self.store = store
        self.data_dir = data_dir
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.replica = ListReplica()
        self.clock = HurriedClock()
        self.random_bytes = random.Random(seed).randbytes if seed is not None else os.urandom
        self.acknowledged: list[int] = []

    async def start(self, **options) -> Appliance:
        options.setdefault("list_rounds", 10)
        self.journal, self.report = await open_journal(
            self.store,
            self.replica,
            self.data_dir,
            StartOptions(**options),
            clock=self.clock,
            failpoints=NO_FAILPOINTS,
            random_bytes=self.random_bytes,
            jitter=random.Random(1).random,
            progress=lambda done, total, phase: None,
        )
        return self

    async def append(self, number: int) -> None:
        contents = Contents([TopicDeleted(topic_id=number)], [])
        encoded = self.journal.encoder(self.clock.wall_us())(contents, [])
        await self.journal.append(encoded)
        await self.replica.apply([encoded.entry])
        self.acknowledged.append(number)

    def snapshots(self) -> SnapshotStore:
        retrying = RetryingStore(self.store, self.clock, random.Random(2).random, give_up_after_s=5)
        return SnapshotStore(retrying, NO_FAILPOINTS)

    async def snapshot(self) -> SnapshotName:
        path = self.data_dir / "snapshot"
        position = await self.replica.save(path)
        return await self.snapshots().publish(path, position, check_nothing)


async def rebuilt(store: ObjectStore, folder: Path) -> list[int]:
    """What a new machine finds in the bucket alone."""
    try:
        appliance = await Appliance(store, folder).start(take_over=True)
    except StoreError as error:
        raise StoreUnusableError("the bucket cannot be rebuilt") from error
    return appliance.replica.numbers
