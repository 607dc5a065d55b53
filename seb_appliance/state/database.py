"""The local state: one SQLite file and the one connection that ever writes to it.

Fulfils `broker.ports.Replica`. The file follows the journal and is never ahead of it, so nothing
here waits for the disk: what a power cut takes is replayed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from seb_appliance.broker.ports import AuditQuery, AuditRow, LoadedState
from seb_appliance.broker.read.index_rows import IndexRows
from seb_appliance.errors import CorruptObjectError
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.formats.entry import ORIGIN, Entry, Position
from seb_appliance.state import audit, checks, files, migrate, queries
from seb_appliance.state.connection import writer_engine
from seb_appliance.state.failures import told_of
from seb_appliance.state.page_reader import PageReader
from seb_appliance.state.projection import project

_Result = TypeVar("_Result")

_POSITION: Final = (
    "SELECT applied_seq, epoch, writer_id, entry_id, header_crc, created_us FROM journal_state"
)


class StateDatabase:
    """Made by `open`. `set_aside` says, for people, why the file found at `open` was not used; ""
    when it was, or when there was none. `paged_seq` is the last entry whose sections are known to
    be in pages of the index."""

    def __init__(self, path: Path, *, set_aside: str = "") -> None:
        """For `open` only: `path` has been checked."""
        self.set_aside = set_aside
        self._path = path
        self._engine = writer_engine(path)
        self._pages = PageReader(path)
        self.paged_seq = 0
        self._turn = asyncio.Lock()  # the connection is used by one at a time

    @classmethod
    async def open(cls, path: Path) -> StateDatabase:
        """Open the state file, or begin empty where there is none or it cannot be trusted.

        Raises ConfigurationError if the machine does not let us use it, or if a newer release
        wrote it.
        """
        return cls(path, set_aside=await asyncio.to_thread(_ready, path))

    async def close(self) -> None:
        """Close the connection, which moves the whole log into the file."""
        await _whole(self._while_closed(lambda _: self._pages.close()))

    # --- Replica ---

    async def position(self) -> Position:
        """The last entry projected; ORIGIN when there is none."""
        return await self._transact(queries.read_position)

    async def bucket_id(self) -> bytes | None:
        """The bucket of the entries projected so far; None when there is none."""
        return await self._transact(queries.read_bucket_id)

    async def clear(self) -> None:
        """Move the file aside and begin empty, at ORIGIN. An empty one stays as it is."""
        if await self.position() != ORIGIN:
            await _whole(self._while_closed(_begin_again))

    async def restore(self, snapshot: Path) -> Position:
        """Replace the state by a copy of the SQLite file `snapshot`, once that was checked.

        Raises CorruptObjectError if it fails a check, ConfigurationError if a newer release wrote
        it; the state is then as before.
        """
        await _whole(self._while_closed(partial(_install_copy, snapshot)))
        return await self.position()

    async def apply(
        self, entries: Sequence[Entry], *, failpoints: Failpoints = NO_FAILPOINTS
    ) -> None:
        """Project entries that follow the position, in order, in one transaction.

        Raises CorruptObjectError if they do not follow, or if the file turns out to be damaged;
        ConfigurationError if SQLite cannot write. Nothing is changed then.
        """

        async def projected(connection: AsyncConnection) -> int:
            paged_seq = await connection.run_sync(project, entries)
            failpoints.reach("K8")
            return paged_seq

        if entries:
            self.paged_seq = await self._transact(projected)
            failpoints.reach("K9")

    @staticmethod
    async def check(path: Path) -> None:
        """Check the SQLite file `path`, which nobody has open, as `restore` does.

        It is migrated if it is older. Raises CorruptObjectError, ConfigurationError.
        """
        await asyncio.to_thread(checks.prepare, path)

    async def save(self, target: Path) -> Position:
        """Write a consistent copy of the committed state to `target`; the position it is as of.

        The copy is made by a connection of its own that only reads, so that entries go on being
        projected meanwhile. Raises ConfigurationError if the disk does not take it.
        """
        return await asyncio.to_thread(_copy_committed, self._path, target)

    # --- for the broker's memory ---

    async def load(self) -> LoadedState:
        """Everything the broker keeps in memory. Raises CorruptObjectError."""
        return await self._transact(queries.load)

    async def index_page(self, topic_id: int, offset: int) -> IndexRows | None:
        """See `broker.ports.State`."""
        return await self._pages.of_offset(topic_id, offset)

    async def index_page_at(self, topic_id: int, timestamp_us: int) -> IndexRows | None:
        """See `broker.ports.State`."""
        return await self._pages.at_time(topic_id, timestamp_us)

    async def audit(self, query: AuditQuery) -> list[AuditRow]:
        """Actions in the entries projected so far, newest first."""
        return await self._transact(partial(audit.read, query=query))

    async def _transact(self, work: Callable[[AsyncConnection], Awaitable[_Result]]) -> _Result:
        """What `work` returns for the connection, in one transaction that is committed after it."""

        async def transaction() -> _Result:
            async with self._turn:
                with told_of(self._path):
                    async with self._engine.begin() as connection:
                        return await work(connection)

        return await _whole(transaction())

    async def _while_closed(self, change: Callable[[Path], object]) -> None:
        """Close the connection, and let `change` do something to the file before it is reopened."""
        async with self._turn:
            await asyncio.to_thread(self._pages.disconnect)
            await self._engine.dispose()
            await asyncio.to_thread(change, self._path)


async def _whole(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Await `work`, which a cancelled caller does not tear: an abandoned transaction would keep
    SQLite's lock, an abandoned thread would go on with the file under the next user's feet."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.cancelled() or task.exception()  # nobody is left to hear of it
        raise


def _ready(path: Path) -> str:
    """Make sure that `path` is a state file to be trusted; why an earlier one was not, or ""."""
    with told_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.remove(_scratch(path))
        if not path.exists():
            _begin(path)
            return ""
        path.chmod(0o600)
    try:
        checks.prepare(path, keep_older=True)
    except CorruptObjectError as error:
        return f"{path.name} was damaged ({error}); it is {_begin_again(path).name} now"
    return ""


def _begin(path: Path) -> None:
    """Put an empty state in place. It is made beside, so that half of one is never found."""
    candidate = _scratch(path)
    with told_of(path):
        files.create_private(candidate)
        migrate.make(candidate)
        files.install(candidate, path)


def _begin_again(path: Path) -> Path:
    """Move the state file aside and put an empty one in place; where the old one is now."""
    with told_of(path):
        moved_to = files.move_aside(path)
    _begin(path)
    return moved_to


def _install_copy(snapshot: Path, path: Path) -> None:
    """Put a copy of `snapshot` in place, once it is fit to be the state."""
    candidate = _scratch(path)
    try:
        with told_of(candidate):
            files.copy_private(snapshot, candidate)
        checks.prepare(candidate)
        with told_of(path):
            files.install(candidate, path)
    finally:
        files.remove(candidate)


def last_created_us(path: Path) -> int:
    """`created` of the last entry that the state file at `path` knows; 0 if there is none."""
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return Position(*connection.execute(_POSITION).fetchone()).created_us
    except (sqlite3.Error, TypeError):
        return 0


def _copy_committed(path: Path, target: Path) -> Position:
    with told_of(target):
        files.create_private(target)
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("PRAGMA busy_timeout = 5000")
            connection.execute("VACUUM INTO ?", (str(target),))
        with closing(sqlite3.connect(target)) as connection:
            return Position(*connection.execute(_POSITION).fetchone())


def _scratch(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")
