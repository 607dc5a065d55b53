"""Local state without SQLite: the entries themselves, on a disk that a crash may set back.

SQLite stays out: a start with it costs more than a whole seed may. What it must be is simulated
instead: it follows the acknowledgement, a crash loses what it has not committed (and, as a power
failure does, some of what it has), and a snapshot is a copy of it. `sqlite_state.py` has SQLite.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery, AuditRow, LoadedState
from seb_appliance.broker.topics.topic import IndexRows
from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.entry import ORIGIN, Entry, Position
from seb_appliance.storage.objects.disk_cache import DiskCache
from tests.simulation.fold import folded
from tests.support.delays import DelaysOfEntries


class Copies:
    """What snapshots hold. A file has the name of a copy alone: entries never change, and writing
    them out would take longer than all the rest of a seed."""

    def __init__(self) -> None:
        self._copies: dict[bytes, tuple[Entry, ...]] = {}

    def write(self, target: Path, entries: Sequence[Entry]) -> None:
        last = entries[-1].header.position if entries else ORIGIN
        name = b"state %d %s" % (last.seq, last.entry_id.hex().encode())
        self._copies[name] = tuple(entries)
        target.write_bytes(name)

    def read(self, path: Path) -> list[Entry]:
        """Raises CorruptObjectError."""
        entries = self._copies.get(path.read_bytes())
        if entries is None:
            raise CorruptObjectError(f"{path.name} is no state")
        return list(entries)


class Disk:
    """A machine's local state. It outlives its processes."""

    def __init__(self, folder: Path, copies: Copies) -> None:
        self.folder = folder
        self.copies = copies
        self.entries: list[Entry] = []

    def state(self, clock: Clock, failpoints: Failpoints) -> SimulatedState:
        """For one process. It has no use for these."""
        return SimulatedState(self)

    def cache(self, failpoints: Failpoints) -> DiskCache | None:
        """Of sections. None: every read that is not of memory goes to the bucket."""
        return None

    def killed(self) -> None:
        """What was committed is there."""

    def copy_from(self, other: Disk) -> None:
        """Become what a copy of `other`, as it is now, holds."""
        self.entries = list(other.entries)
        empty(self.folder)
        shutil.copytree(other.folder, self.folder, dirs_exist_ok=True)

    def set_back(self, entries: int) -> None:
        """The newest transactions are gone, as after a power failure."""
        del self.entries[max(0, len(self.entries) - entries) :]

    def lose(self) -> None:
        """Another disk, empty."""
        self.entries = []
        empty(self.folder)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


class SimulatedState(DelaysOfEntries):
    """Fulfils `Replica` and `State` for one process: it is its own database and follower."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._behind: list[Entry] = []
        self._timer: asyncio.TimerHandle | None = None
        self.paged_seq = 0
        self.failure = ""
        self.database: Any = self
        self.follower: Any = self

    async def open(self) -> None:
        """It is."""

    async def begin_to_follow(self) -> LoadedState:
        return await self.load()

    async def close(self) -> None:
        await self.drain()

    # --- while a start brings it up ---

    async def position(self) -> Position:
        return self._disk.entries[-1].header.position if self._disk.entries else ORIGIN

    async def bucket_id(self) -> bytes | None:
        return self._disk.entries[-1].header.bucket_id if self._disk.entries else None

    async def clear(self) -> None:
        self._disk.entries = []

    async def restore(self, snapshot: Path) -> Position:
        self._disk.entries = self._disk.copies.read(snapshot)
        return await self.position()

    async def apply(self, entries: Sequence[Entry]) -> None:
        await asyncio.sleep(0.001)
        position = await self.position()
        for entry in entries:
            if not entry.header.follows(position):
                raise CorruptObjectError(f"{entry.header} does not follow {position}")
            position = entry.header.position
        self._disk.entries.extend(entries)

    async def save(self, target: Path) -> Position:
        self._disk.copies.write(target, self._disk.entries)
        return await self.position()

    # --- behind the acknowledgement ---

    async def load(self) -> LoadedState:
        return folded(self._disk.entries)

    def follow(self, entry: Entry) -> None:
        self._behind.append(entry)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.STATE_GATHER_S, self._commit)

    def _commit(self) -> None:
        self._timer = None
        self._disk.entries.extend(self._behind)
        self._behind = []

    @property
    def lag_entries(self) -> int:
        return len(self._behind)

    @property
    def pause_s(self) -> float:
        return 0.0

    @property
    def is_far_behind(self) -> bool:
        return len(self._behind) >= limits.STATE_LAG_ENTRIES_MAX

    async def drain(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._commit()

    async def index_page(self, topic_id: int, offset: int) -> IndexRows | None:
        raise AssertionError(f"nothing is in a page ({topic_id}, {offset})")

    async def index_page_at(self, topic_id: int, timestamp_us: int) -> IndexRows | None:
        raise AssertionError(f"nothing is in a page ({topic_id}, {timestamp_us})")

    @property
    def entries(self) -> list[Entry]:  # type: ignore[override]
        return [*self._disk.entries, *self._behind]

    async def audit(self, query: AuditQuery) -> list[AuditRow]:
        raise AssertionError(f"nobody asks here ({query})")

    async def audited(self) -> list[tuple[str, str]]:
        raise AssertionError("nobody asks here")
