"""Whether the lake tables in the bucket are those of the journal: their data files, and their
metadata, which is printed again and compared."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.lake.jobs import PrintedObject, PrintJob
from seb_appliance.broker.lake.names import earlier_faults, names_in_use
from seb_appliance.broker.lake.table import LakeFile, LakeTable, TableHead
from seb_appliance.broker.ports import LoadedState
from seb_appliance.errors import CorruptObjectError, ObjectMissingError
from seb_appliance.formats.lake.tables import TableFile
from seb_appliance.ops.checks.findings import Problem
from seb_appliance.ops.host.memory import ENVIRONMENT, needed_bytes, take_no_more
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore, together

Sizes = dict[str, int]  # of objects, by name below the location of their table
HAS_PARQUET: Final = importlib.util.find_spec("pyarrow") is not None


def _begin() -> None:
    """Before Arrow is there."""
    for name, value in ENVIRONMENT.items():
        os.putenv(name, value)


def _bounded(function: Callable[[bytes, TableFile], str], body: bytes, file: TableFile) -> str:
    take_no_more(needed_bytes([file]))
    return function(body, file)


class Apart:
    """A process that reads Parquet: Arrow ends its process for some damaged files, and takes any
    memory for others."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._turn = asyncio.Lock()  # a process that ends fails all that it was given

    async def run(
        self, function: Callable[[bytes, TableFile], str], body: bytes, file: TableFile
    ) -> str:
        """Raises BrokenProcessPool when the process has ended; the next call starts another."""
        running = asyncio.get_running_loop().run_in_executor
        async with self._turn:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, get_context("spawn"), _begin)
            try:
                return await running(self._pool, _bounded, function, body, file)
            except BrokenProcessPool:
                self.close()
                raise

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None


@dataclass(slots=True)
class LakeCheck:
    """One look at the tables of a state. `quick`: no footers; `full`: every row of each file.
    `strays`: objects that nothing needs, which a running appliance removes within a day."""

    store: RetryingStore
    state: LoadedState
    quick: bool = False
    full: bool = False
    files: int = 0
    strays: int = 0
    _garbage: set[str] = field(default_factory=set)
    _apart: Apart = field(default_factory=Apart)

    async def problems(self) -> list[Problem]:
        if not self.state.lake_tables:
            return []
        try:
            return await self._problems()
        finally:
            self._apart.close()

    async def _problems(self) -> list[Problem]:
        found: list[Problem] = []
        self._garbage = {row.key for row in self.state.garbage}
        tables = {table.head.definition.location: table for table in self.state.lake_tables}
        async for location, sizes in self._by_location():
            table = tables.pop(location, None)
            if table is None:
                self.strays += sum(location + name not in self._garbage for name in sizes)
            else:
                found += await self._of_table(table, sizes)
        for table in tables.values():
            found += await self._of_table(table, {})
        return found

    async def _by_location(self) -> AsyncIterator[tuple[str, Sizes]]:
        """What lies below each location, from one LIST."""
        location, sizes, after = "", Sizes(), ""
        while page := await self.store.list_after(layout.TABLES, after):
            for info in page:
                if not layout.is_of_table(info.key):
                    continue
                cut = info.key.index("/", len(layout.TABLES)) + 1
                if info.key[:cut] != location:
                    if sizes:
                        yield location, sizes
                    location, sizes = info.key[:cut], {}
                sizes[info.key[cut:]] = info.size
            after = page[-1].key
        if sizes:
            yield location, sizes

    async def _of_table(self, table: LakeTable, sizes: Sizes) -> list[Problem]:
        head = table.head
        in_use = names_in_use(table)
        for name in sizes:
            self.strays += not in_use(name) and head.key_of(name) not in self._garbage
        self.files += len(table.files)
        found = list(self._of_files(table, sizes))
        bad = {problem.subject for problem in found}
        for name, fault in earlier_faults(head, sizes):
            found.append(self._problem(head, "table_metadata_missing", name, fault))
        if HAS_PARQUET:
            found += await self._of_metadata(table)
            if not self.quick:
                whole = [
                    one for one in table.files.values() if head.key_of(one.file.name) not in bad
                ]
                found += await self._of_footers(head, whole)
        return found

    def _of_files(self, table: LakeTable, sizes: Sizes) -> Iterator[Problem]:
        for name, one in table.files.items():
            size = sizes.get(name)
            if size is None:
                yield self._problem(table.head, "table_file_missing", one, "it is gone")
            elif size != one.file.length:
                detail = f"it has {size:,} bytes, not {one.file.length:,}"
                yield self._problem(table.head, "table_file_damaged", one, detail)
            elif table.head.key_of(name) in self._garbage:
                yield self._problem(table.head, "condemned_in_force", one, "its table needs it")

    async def _of_metadata(self, table: LakeTable) -> list[Problem]:
        """The metadata of the last commit is as it is printed."""
        from seb_appliance.lake.table_formats import FORMATS

        head = table.head
        job = PrintJob(head, tuple(table.listed()), tuple(table.living()))
        printed = await asyncio.to_thread(FORMATS.objects, job)
        found = []
        for one in printed:
            if fault := await self._fault(one):
                others = one.create_only and fault is _OTHERS
                code = "table_foreign" if others else "table_metadata_differs"
                name = one.key.removeprefix(head.definition.location)
                found.append(self._problem(head, code, name, f"{fault} (commit {head.number})"))
        return found

    async def _fault(self, one: PrintedObject) -> str:
        try:
            return "" if await self.store.get(one.key) == one.body else _OTHERS
        except ObjectMissingError:
            return "it is not there"
        except CorruptObjectError:  # it is too large to be read
            return _OTHERS

    async def _of_footers(self, head: TableHead, files: Iterable[LakeFile]) -> list[Problem]:
        checks = (self._of_footer(head, one) for one in files)
        at_once = 1 if self.full else limits.FSCK_READS_AT_ONCE
        return [one for one in await together(checks, at_once) if one is not None]

    async def _of_footer(self, head: TableHead, one: LakeFile) -> Problem | None:
        from seb_appliance.lake.footer import TAIL_BYTES, footer_bytes, footer_fault, rows_fault

        key, length = head.key_of(one.file.name), one.file.length
        try:
            tail = (await self.store.get_range(key, length - TAIL_BYTES, TAIL_BYTES)).data
            long = footer_bytes(tail)
            if not TAIL_BYTES < long <= length:
                fault = "it is no Parquet file"
            elif self.full:
                body = await self.store.get(key)
                fault = await self._apart.run(rows_fault, body, one.file)
            else:
                end = (await self.store.get_range(key, length - long, long)).data
                fault = await self._apart.run(footer_fault, end, one.file)
        except ObjectMissingError:
            fault = "it is gone"
        except BrokenProcessPool:
            fault = "it ends the process that reads it"
        return self._problem(head, "table_file_damaged", one, fault) if fault else None

    def _problem(self, head: TableHead, code: str, what: LakeFile | str, detail: str) -> Problem:
        topic = head.definition.name
        if isinstance(what, str):
            return Problem(code, head.key_of(what), detail, topic)
        offsets = what.file.first_offset, what.file.last_offset
        return Problem(code, head.key_of(what.file.name), detail, topic, offsets)


_OTHERS: Final = "it has other bytes than are printed for it"
