"""Many small topics in an appliance over a bucket in memory, hours of them in seconds: the clock is
moved, and everything else is real."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from seb_appliance import limits, setting_sources
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.ops.serve import assembly
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.storage import layout
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.fakes import FakeClock

ADMIN = ApiKeyView("test", "test", (Grant(operation="admin"),), 0)


class NotingStore(MemoryStore):
    """`tidier_puts`: how many segments and packed objects were PUT."""

    def __init__(self) -> None:
        super().__init__()
        self.tidier_puts = 0

    async def put(self, key: str, body: bytes) -> None:
        self.tidier_puts += key.startswith((layout.SEGMENTS, layout.PACKED))
        await super().put(key, body)


class SmallTopics:
    """`topics` topics that get one record of `value_bytes` a minute each, evenly spread."""

    def __init__(self, appliance: Appliance, clock: FakeClock, store: NotingStore) -> None:
        self.appliance = appliance
        self.clock = clock
        self.store = store
        self.produced: Counter[str] = Counter()

    @classmethod
    async def start(cls, folder: Path, patch: pytest.MonkeyPatch, linger: str) -> SmallTopics:
        clock, store = FakeClock(), NotingStore()
        patch.setattr(assembly, "SystemClock", lambda: clock)
        given = {"data": str(folder), "bucket": "memory:", "linger": linger, "tidier": "off"}
        chosen = setting_sources.load(flags=given, environment={})
        appliance = await Appliance.open(
            chosen, CountedStore(store), NO_FAILPOINTS, lambda *_: None
        )
        place = cls(appliance, clock, store)
        begun = asyncio.create_task(appliance.start())
        while not begun.done():
            await clock.advance(1)
            await asyncio.sleep(0.001)
        await begun
        return place

    async def run(self, topics: int, minutes: int, value_bytes: int, step_s: float) -> None:
        """What arrives in `step_s` comes at one time; the tidier looks every five seconds."""
        value = b"v" * value_bytes
        steps = round(60 / step_s)
        tidied_s = self.clock.now_s
        for n in range(minutes * steps):
            step = n % steps
            names = range(step * topics // steps, (step + 1) * topics // steps)
            await self._produce([f"small-{number:05d}" for number in names], value, step_s)
            if self.clock.now_s - tidied_s >= limits.TIDY_EVERY_S:
                tidied_s = self.clock.now_s
                await self._tidy()

    async def _produce(self, names: list[str], value: bytes, step_s: float) -> None:
        broker = self.appliance.broker
        sent = [
            asyncio.ensure_future(
                broker.appends.append(
                    ADMIN, name, NewRecords([value]), broker.pending.reserve(OPERATOR, 1)
                )
            )
            for name in names
        ]
        await self.clock.advance(step_s)
        await asyncio.gather(*sent)
        self.produced.update(names)

    async def _tidy(self) -> None:
        stepping = asyncio.create_task(self.appliance.tidier.step())
        while not stepping.done():  # its operations wait for a window, which waits for the clock
            await self.clock.advance(0.01)
            await asyncio.sleep(0.0005)
        if await stepping:
            await self._tidy()

    @property
    def sections_in_force(self) -> int:
        """Of segments and packed objects: each is a row in memory."""
        objects = self.appliance.broker._catalog.stored.all()
        return sum(found.sections for found in objects)

    async def stored(self, name: str) -> int:
        """How many records of the topic can be read."""
        request = ReadRequest(From(earliest=True), max_records=limits.FETCH_RECORDS_MAX)
        result = await self.appliance.broker.read(name, request)
        return sum(piece.end - piece.begin for piece in result.slices)
