"""The local state: one SQLite file and the one connection that ever writes to it.

Fulfils `broker.ports.Replica`. The file follows the journal and is never ahead of it, so nothing
here waits for the disk: what a power cut loses is replayed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from seb_appliance.broker.ports import AuditQuery, AuditRow, LoadedState
from seb_appliance.errors import CorruptObjectError, NewerReleaseError
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.formats.entry import ORIGIN, Entry, Position
from seb_appliance.state import checks, files, loading
from seb_appliance.state.files import sqlite_errors
from seb_appliance.state.projection import project
from seb_appliance.state.rows.delays import DelayReader
from seb_appliance.state.rows.index_pages import PageReader
from seb_appliance.state.schema import connect, make
from seb_appliance.state.tables import JournalState

P = ParamSpec("P")
T = TypeVar("T")


class StateDatabase:
    """Made by `open`. `set_aside`: why the existing file was not used, "" if it was, or if absent.
    `paged_seq`: the last entry whose sections are known to be in pages of the index."""

    def __init__(self, path: Path, *, set_aside: str = "") -> None:
        """For `open` only: `path` has been checked."""
        self.set_aside = set_aside
        self.paged_seq = 0
        self.path = path
        self._pages = PageReader(path)
        self.index_page = self._pages.of_offset
        self.index_page_at = self._pages.at_time
        self.delays = DelayReader(path)
        # One thread uses the connection: transactions follow one another in the order of the calls.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open the state file, or begin empty if there is none or it cannot be trusted.

        Raises ConfigurationError if the machine does not let us use it, or if a newer release
        wrote it.
        """
        return cls(path, set_aside=await asyncio.to_thread(_ready, path))

    async def close(self) -> None:
        """Close the connections, which moves the whole write-ahead log into the file."""
        if self._closed:
            return
        self._closed = True
        await self._pages.close()
        await self.delays.close()
        await self._run(self._disconnect)
        self._thread.shutdown(wait=False)

    # --- Replica ---

    async def position(self) -> Position:
        """The last entry projected; ORIGIN if there is none."""
        return (await self._transact(JournalState.read)).position

    async def bucket_id(self) -> bytes | None:
        """The bucket of the entries projected so far; None if there is none."""
        return (await self._transact(JournalState.read)).bucket_id

    async def clear(self) -> None:
        """Move the file aside and begin empty, at ORIGIN. An empty one stays as it is."""
        if await self.position() != ORIGIN:
            await self._while_closed(_begin_again, self.path)

    async def restore(self, snapshot: Path) -> Position:
        """Replace the state by a copy of the SQLite file `snapshot`, after checking the copy.

        Raises CorruptObjectError if it fails a check, ConfigurationError if a newer release wrote
        it; the state is then as before.
        """
        await self._while_closed(_install_copy, snapshot, self.path)
        return await self.position()

    async def apply(
        self, entries: Sequence[Entry], *, failpoints: Failpoints = NO_FAILPOINTS
    ) -> None:
        """Project entries that follow the position, in order, in one transaction.

        Raises CorruptObjectError if they do not follow, or if the file turns out to be damaged;
        ConfigurationError if SQLite cannot write. Nothing is changed then.
        """

        def projected(connection: sqlite3.Connection) -> int:
            paged_seq = project(connection, entries)
            failpoints.reach("K8")
            return paged_seq

        if entries:
            self.paged_seq = await self._transact(projected)
            failpoints.reach("K9")

    @staticmethod
    async def check(path: Path) -> None:
        """Check the closed SQLite file `path` as `restore` does, which migrates an older one.
        Raises CorruptObjectError, ConfigurationError."""
        await asyncio.to_thread(checks.prepare, path)

    async def save(self, target: Path) -> Position:
        """Write a consistent copy of the committed state to `target`; the position of the copy.

        A read-only connection makes the copy, so that entries are projected meanwhile. Raises
        ConfigurationError if the disk does not take it.
        """
        return await asyncio.to_thread(_copy_committed, self.path, target)

    # --- for the broker's memory ---

    async def load(self) -> LoadedState:
        """Everything the broker keeps in memory. Raises CorruptObjectError."""
        return await self._transact(loading.load)

    async def audit(self, query: AuditQuery) -> list[AuditRow]:
        """Actions in the entries projected so far, newest first."""
        return await self._transact(loading.audit, query)

    async def audited(self) -> list[tuple[str, str]]:
        """The actors and actions of `audit`."""
        return await self._transact(loading.audited)

    # --- the thread ---

    async def _transact(
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What `work` returns for the connection, in one transaction that is committed after it."""

        def transaction() -> T:
            with sqlite_errors(self.path):
                if self._connection is None:
                    self._connection = connect(self.path)
                connection = self._connection
                # IMMEDIATE: a transaction that reads first could not become a writer otherwise.
                connection.execute("BEGIN IMMEDIATE")
                try:
                    found = work(connection, *args, **kwargs)
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                return found

        return await self._run(transaction)

    async def _while_closed(
        self, change: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Close the connections, and let `change` replace the file before it is reopened."""

        def changed() -> None:
            self._disconnect()
            change(*args, **kwargs)

        await self._pages.disconnect()
        await self.delays.disconnect()
        await self._run(changed)

    async def _run(self, work: Callable[[], T]) -> T:
        """Do `work` in the thread, completely, also if the caller is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _ready(path: Path) -> str:
    """Make sure that `path` is a trusted state file; why an earlier one was not, or ""."""
    with sqlite_errors(path):
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
    except NewerReleaseError as error:
        raise NewerReleaseError(
            f"{error.detail}. Install that release again, or move {path} away: it is then rebuilt "
            "from the bucket"
        ) from error
    return ""


def _begin(path: Path) -> None:
    """Put an empty state in place. It is made under another name, so that the path never holds an
    incomplete file."""
    candidate = _scratch(path)
    with sqlite_errors(path):
        files.create_private(candidate)
        make(candidate)
        files.install(candidate, path)


def _begin_again(path: Path) -> Path:
    """Move the state file aside and put an empty one in place; the new path of the old one."""
    with sqlite_errors(path):
        moved_to = files.move_aside(path)
    _begin(path)
    return moved_to


def _install_copy(snapshot: Path, path: Path) -> None:
    """Put a checked copy of `snapshot` in place."""
    candidate = _scratch(path)
    try:
        with sqlite_errors(candidate):
            files.copy_private(snapshot, candidate)
        checks.prepare(candidate)
        with sqlite_errors(path):
            files.install(candidate, path)
    finally:
        files.remove(candidate)


def last_created_us(path: Path) -> int:
    """`created` of the last entry that the state file at `path` knows; 0 if there is none."""
    try:
        with closing(files.read_only(path)) as connection:
            row = connection.execute("SELECT created_us FROM journal_state").fetchone()
            return int(row[0])
    except (sqlite3.Error, TypeError):
        return 0


def _copy_committed(path: Path, target: Path) -> Position:
    with sqlite_errors(target):
        files.create_private(target)
        with closing(files.read_only(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(target),))
        with closing(sqlite3.connect(target)) as connection:
            return JournalState.read(connection).position


def _scratch(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")
