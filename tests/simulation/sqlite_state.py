"""Local state that is SQLite, with the product's own database, follower and snapshots of it.

A kill leaves what was committed by then: the next process has a copy of the files as they were at
that instant, a write-ahead log that may end in what no commit followed included. A power failure
takes the last transactions of that log as well, as `synchronous = NORMAL` lets it.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from seb_appliance.broker.ports import LoadedState
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.clock import Clock
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.formats.entry import Entry, Position
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.follower import StateFollower
from tests.simulation.fold import folded
from tests.simulation.verdict import catalog_digest

_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAX_FRAME_AT, _BACKFILLED_AT = 16, 96  # in the index of the write-ahead log


class KnownEntries:
    """Every entry that any process projected, so that a position says what lies below it.
    `differences`: between what SQLite held and what its entries amount to."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self._known: dict[tuple[int, int], Entry] = {}

    def note(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._known[entry.header.seq, entry.header.position.header_crc] = entry

    def up_to(self, position: Position) -> list[Entry]:
        found: list[Entry] = []
        at = (position.seq, position.header_crc)
        while at[0] > 0:
            found.append(self._known[at])
            at = (found[-1].header.prev_seq, found[-1].header.prev_header_crc)
        return found[::-1]

    def compare(self, loaded: LoadedState) -> None:
        """What a start has loaded with what its entries amount to, in plain Python."""
        found = {f.name: getattr(loaded, f.name) for f in fields(loaded)}
        copied = {name: list(v) for name, v in found.items() if isinstance(v, list)}
        of_sqlite = catalog_digest(Catalog(replace(loaded, **copied), _still))
        of_log = catalog_digest(Catalog(folded(self.up_to(loaded.position)), _still))
        self.differences += [
            f"P14 SQLite and the log differ in {name}: {item} and {of_log[name]}"
            for name, item in of_sqlite.items()
            if item != of_log[name]
        ]


def _still() -> float:
    return 0.0


class SqliteDisk:
    """A machine's local state. It outlives its processes: each that is killed leaves its files
    behind, and the next goes on in another folder, with what they held."""

    def __init__(self, folder: Path, known: KnownEntries) -> None:
        self.folder = folder
        self.known = known
        self._lives = 0
        self._safe_frames = 0  # of the write-ahead log, which no power failure takes
        self._new_life()

    def _new_life(self) -> None:
        self._lives += 1
        self.state_folder.mkdir(parents=True)

    @property
    def state_folder(self) -> Path:
        return self.folder / f"life-{self._lives}"

    @property
    def path(self) -> Path:
        return self.state_folder / "state.sqlite"

    @property
    def _wal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def state(self, clock: Clock, failpoints: Failpoints) -> SqliteState:
        return SqliteState(self, clock, failpoints)

    def cache(self, failpoints: Failpoints) -> None:
        """There is none."""

    @property
    def entries(self) -> list[Entry]:
        """All that the committed state is made of."""
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT applied_seq, header_crc FROM journal_state").fetchone()
        return self.known.up_to(Position(seq=row[0], header_crc=row[1]))

    def killed(self) -> None:
        before, self._safe_frames = self.state_folder, _backfilled(self.path)
        self._new_life()
        for path in before.iterdir():
            if not path.name.endswith("-shm"):
                shutil.copyfile(path, self.state_folder / path.name)

    def copy_from(self, other: SqliteDisk) -> None:
        """Become what a copy of `other`, as it is now, holds."""
        self.lose()
        self._safe_frames = _backfilled(other.path)
        for folder, to in ((other.folder, self.folder), (other.state_folder, self.state_folder)):
            for path in folder.iterdir():
                if path.is_file() and not path.name.endswith("-shm"):
                    shutil.copyfile(path, to / path.name)

    def set_back(self, transactions: int) -> None:
        """The newest transactions are gone, as after a power failure."""
        if not self._wal.exists():
            return
        log = self._wal.read_bytes()
        if len(log) < _WAL_HEADER_BYTES:
            return
        frame_bytes = _FRAME_HEADER_BYTES + struct.unpack_from(">I", log, 8)[0]
        frames = range((len(log) - _WAL_HEADER_BYTES) // frame_bytes)
        salt = log[16:24]
        commits = [0]
        for at in frames:
            head = _WAL_HEADER_BYTES + at * frame_bytes
            if log[head + 8 : head + 16] != salt:
                break  # of an earlier round of the log
            if struct.unpack_from(">I", log, head + 4)[0]:
                commits.append(at + 1)
        left = commits[max(0, len(commits) - 1 - transactions)]
        kept = _WAL_HEADER_BYTES + max(left, self._safe_frames) * frame_bytes
        self._wal.write_bytes(log[:kept])

    def lose(self) -> None:
        """Another disk, empty."""
        self._new_life()
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink()


def _backfilled(path: Path) -> int:
    """Frames of the write-ahead log that are in the file already, and so are on the disk."""
    index = path.with_name(f"{path.name}-shm")
    if not index.exists():
        return 0
    head = index.read_bytes()[: _BACKFILLED_AT + 4]
    if len(head) < _BACKFILLED_AT + 4:
        return 0
    backfilled, newest = (
        int(struct.unpack_from("=I", head, at)[0]) for at in (_BACKFILLED_AT, _MAX_FRAME_AT)
    )
    return min(backfilled, newest)


class _Database(StateDatabase):
    known: KnownEntries

    async def apply(
        self, entries: Sequence[Entry], *, failpoints: Failpoints = NO_FAILPOINTS
    ) -> None:
        self.known.note(entries)
        await super().apply(entries, failpoints=failpoints)


class SqliteState:
    """The local state of one process: `database` once it is open, `follower` once it is at the end
    of the log."""

    def __init__(self, disk: SqliteDisk, clock: Clock, failpoints: Failpoints) -> None:
        self.database: Any = None
        self.follower: Any = None
        self._disk = disk
        self._clock = clock
        self._failpoints = failpoints

    async def open(self) -> None:
        self.database = await _Database.open(self._disk.path)
        self.database.known = self._disk.known

    async def begin_to_follow(self) -> LoadedState:
        self.follower = StateFollower(self.database, clock=self._clock, failpoints=self._failpoints)
        loaded = await self.follower.load()
        self._disk.known.compare(loaded)
        return loaded  # type: ignore[no-any-return]

    async def close(self) -> None:
        if self.follower is not None:
            await self.follower.close()
        if self.database is not None:
            await self.database.close()
