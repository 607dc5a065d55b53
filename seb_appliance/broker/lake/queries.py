"""SQL on lake tables: which tables a statement may read, and how many run at once.

The statement is not parsed here. The process that runs it is given the tables whose names occur in
it and that the caller may read, and nothing else: a table that must not be seen does not exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from seb_appliance import limits
from seb_appliance.broker.lake.commits import TableCommits
from seb_appliance.broker.lake.table import LakeTable
from seb_appliance.broker.lake.tables import LakeTables
from seb_appliance.broker.shares import AllShares
from seb_appliance.clock import Clock
from seb_appliance.errors import SqlTimeoutError, SqlUnavailableError
from seb_appliance.formats.lake.tables import Column


class SqlFiles(msgspec.Struct, array_like=True):
    """Data files of one schema: keys in the store with their lengths. `columns`: for each column of
    the table its name in these files, None where they do not have it."""

    objects: tuple[tuple[str, int], ...]
    columns: tuple[str | None, ...]


class SqlTable(msgspec.Struct, array_like=True):
    """`names`: under which statements find it."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    files: tuple[SqlFiles, ...]


class SqlJob(msgspec.Struct):
    statement: str
    tables: tuple[SqlTable, ...]
    rows_max: int
    bytes_max: int


class SqlRows(msgspec.Struct, tag=True):
    """Columns (name, type of DuckDB) and rows, as JSON: to decode a million values would hold the
    event loop. `is_cut`: there are more."""

    columns: list[tuple[str, str]]
    rows: bytes
    is_cut: bool = False


class SqlRunner(Protocol):
    async def run(self, job: SqlJob) -> SqlRows:
        """Raises SqlStatementError, StoreError. Ends the process when it is cancelled."""


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """`next_offsets`: by table, up to which offset its rows were seen."""

    result: SqlRows
    next_offsets: dict[str, int]
    seconds: float


class TableQueries:
    """`runner` is None where there is none, for the reason `unavailable`."""

    def __init__(
        self, tables: LakeTables, commits: TableCommits, shares: AllShares, clock: Clock
    ) -> None:
        self.runner: SqlRunner | None = None
        self.unavailable = "This appliance cannot run SQL."
        self.outcomes = {"ok": 0, "timeout": 0, "failed": 0}
        self.seconds = 0.0
        self._tables = tables
        self._commits = commits
        self._clock = clock
        self._waiting = shares.declare("sql", limits.SQL_QUERIES_MAX, "SQL queries")
        self._slots = asyncio.Semaphore(limits.SQL_AT_ONCE)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def named(self) -> dict[str, LakeTable]:
        """All tables by the names that the catalog and SQL give them. Tables of topics that are
        there come first, then the older ones: of a name that is taken, the table gets one with the
        beginning of its id. Topics may have names of that form, too, so that it may take more."""
        named: dict[str, LakeTable] = {}
        tables = self._tables.all()
        for table in sorted(tables, key=lambda one: self._commits.state(one) == "detached"):
            table_id = table.head.table_id
            plain = table.head.definition.name.lower().replace(".", "_")
            more = (f"{plain}_{table_id}_{number}" for number in count(2))
            names = chain((plain, f"{plain}_{table_id[:8]}", f"{plain}_{table_id}"), more)
            named[next(name for name in names if name not in named)] = table
        return named

    async def query(
        self,
        owner: str,
        statement: str,
        may_read: Callable[[str], bool],
        *,
        rows_max: int = limits.SQL_ROWS_DEFAULT,
        timeout_s: float = limits.SQL_S_DEFAULT,
    ) -> SqlAnswer:
        """`may_read` says it of a topic. Raises SqlStatementError, SqlTimeoutError,
        SqlUnavailableError, ShareExceededError, OverloadedError, StoreError."""
        if self.runner is None:
            raise SqlUnavailableError(self.unavailable)
        began_s, outcome = self._clock.monotonic_s(), "failed"
        with self._waiting.reserve(owner, 1):
            try:
                # One statement of an owner runs at a time, so that others find a free slot.
                turn = self._turns.setdefault(owner, asyncio.Lock())
                async with asyncio.timeout(timeout_s), turn, self._slots:
                    found = list(self._of(statement, may_read))
                    job = SqlJob(
                        statement,
                        tuple(_described(names, table) for names, table in found),
                        rows_max,
                        limits.SQL_ANSWER_BYTES,
                    )
                    ends = {names[0]: table.head.next_offset for names, table in found}
                    result = await self.runner.run(job)
                outcome = "ok"
            except TimeoutError as error:
                outcome = "timeout"
                raise SqlTimeoutError(
                    f"The statement did not end within {timeout_s:g} s; nothing was changed. "
                    "Select fewer rows, or give it more time (timeout_ms)."
                ) from error
            finally:
                seconds = self._clock.monotonic_s() - began_s
                self.outcomes[outcome] += 1
                self.seconds += seconds
        return SqlAnswer(result, ends, seconds)

    def _of(
        self, statement: str, may_read: Callable[[str], bool]
    ) -> Iterator[tuple[tuple[str, ...], LakeTable]]:
        """The tables whose names occur in the statement, and that may be read. A topic whose name
        is that of another table does not take it away: somebody else may have named it."""
        words = _words(statement.lower())
        readable = {
            name: table
            for name, table in self.named().items()
            if table.head.newest is not None and may_read(table.head.definition.name)
        }
        taken = set(readable)
        for name, table in readable.items():
            topic = table.head.definition.name
            names = (name,) if topic.lower() in taken else (name, topic)
            taken.add(topic.lower())
            if any(one.lower() in words for one in names):
                yield names, table


def _words(text: str) -> set[str]:
    """What may be the name of a table, as a whole: one such as `e` does not belong to every
    statement. Names with `.` or `-` are in quotation marks."""
    return {*re.findall(r"\w+", text), *re.findall(r"[\w.-]+", text)}


def _described(names: tuple[str, ...], table: LakeTable) -> SqlTable:
    head = table.head
    columns = head.definition.columns
    by_schema: dict[int, list[tuple[str, int]]] = {}
    for one in table.living():
        place = (head.key_of(one.file.name), one.file.length)
        by_schema.setdefault(one.file.schema, []).append(place)
    files = []
    for schema, objects in sorted(by_schema.items()):
        stored = {one.field_id: one.name for one in head.schemas[schema]}
        files.append(SqlFiles(tuple(objects), tuple(stored.get(one.field_id) for one in columns)))
    return SqlTable(names, columns, tuple(files))
