"""Data directories of the class `doors`: work on them takes time, and they can be copied.

As `state.py` without SQLite, and with the cache of sections, whose files a power failure damages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from seb_appliance import limits
from seb_appliance.broker.ports import LoadedState
from seb_appliance.clock import Clock
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.entry import Entry, Position
from seb_appliance.storage.objects.disk_cache import DiskCache
from tests.simulation.hosts import Host
from tests.simulation.state import Copies, Disk, SimulatedState

T = TypeVar("T")
_CACHE = "cache"
_CACHE_BYTES = 1_000_000  # nothing is removed for room: that would go by the file system's clock


class SlowDisk(Disk):
    """On a disk of `host`."""

    def __init__(self, folder: Path, copies: Copies, host: Host, draws: Random) -> None:
        super().__init__(folder, copies)
        self.host = host
        self.draws = draws

    def state(self, clock: Clock, failpoints: Failpoints) -> SimulatedState:
        return SlowState(self)

    def cache(self, failpoints: Failpoints) -> DiskCache:
        return DiskCache(self.folder / _CACHE, _CACHE_BYTES, failpoints)

    def set_back(self, entries: int) -> None:
        super().set_back(entries)
        for path in sorted((self.folder / _CACHE).glob("*")):
            if self.draws.random() < 0.3:
                data = bytearray(path.read_bytes())
                data[self.draws.randrange(len(data)) :] = b""
                path.write_bytes(data + bytes(self.draws.choice([0, 100])))


class SlowState(SimulatedState):
    """One thing after another, as a single thread does it, each in its time."""

    def __init__(self, disk: SlowDisk) -> None:
        super().__init__(disk)
        self._slow = disk
        self._thread = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._hurries = False

    async def _takes_time(self, work: Callable[[], Awaitable[T]]) -> T:
        draws = self._slow.draws
        async with self._thread:
            takes_s, part = self._slow.host.disk_s * draws.random() ** 2, draws.random()
            await asyncio.sleep(takes_s * part)
            done = await work()
            await asyncio.sleep(takes_s * (1 - part))
            return done

    async def restore(self, snapshot: Path) -> Position:
        return await self._takes_time(partial(super().restore, snapshot))

    async def apply(self, entries: Sequence[Entry]) -> None:
        await self._takes_time(partial(super().apply, entries))

    async def save(self, target: Path) -> Position:
        return await self._takes_time(partial(super().save, target))

    async def load(self) -> LoadedState:
        return await self._takes_time(super().load)

    def follow(self, entry: Entry) -> None:
        self._behind.append(entry)
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        if not self._hurries:
            await asyncio.sleep(limits.STATE_GATHER_S)
        while self._behind:
            await self._takes_time(self._commit_some)
        self._following = None

    async def _commit_some(self) -> None:
        self._slow.entries.extend(self._behind)
        self._behind = []

    async def drain(self) -> None:
        self._hurries = True
        while self._following is not None:
            await asyncio.sleep(0.05)
        self._hurries = False
