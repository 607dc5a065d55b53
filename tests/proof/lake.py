"""The lake tables of a ground: topics that are tables, a stranger who reads them in the bucket all
the while, and what all readers find in the end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seb_appliance.errors import ObjectMissingError
from seb_appliance.storage.stores.object_store import ObjectStore, list_all
from tests.proof import workers
from tests.proof.history import Record, TableSeen
from tests.support.lake_reader import DataFiles, Found, read_delta, read_iceberg

if TYPE_CHECKING:
    from tests.proof.ground import Ground

TABLES: Final = (workers.TOPICS[0], workers.KEYED)
SETTINGS: Final = {"table": "iceberg,delta", "table_lag_ms": 1_000, "table_file_bytes": 1 << 20}
FORK: Final = "branch"
READERS: Final = Path(__file__).parents[2] / ".state" / "readers" / "bin" / "python"
_ROWS: Final = Path(__file__).parents[1] / "lake" / "rows.py"
_LOOK_EVERY_S: Final = 1.0
_LOOKS: Final = 5  # at a table whose objects are removed while it is read
_WITHIN_S: Final = 90.0  # after a failure, a table rests for 30 s


class Lake:
    """`looks`: how often a table was read. `commits`: of all tables, in the end."""

    def __init__(self, here: Ground) -> None:
        self.looks = self.commits = 0
        self._here = here
        self._store: ObjectStore = here.arena.store
        self._files = DataFiles(self._store.get, _row)
        self._forks: dict[str, int] = {}  # where they begin

    async def begin(self) -> None:
        """A fork of what is there gets a table, too."""
        topic = TABLES[0]
        end = (await self._here.asked("GET", f"/v1/topics/{topic}"))["log_end_offset"]
        of = {"topic": topic, "offset": end - end // 3}
        await self._here.asked("PUT", f"/v1/topics/{FORK}", {"fork_of": of, **SETTINGS})
        self._forks[FORK] = of["offset"]

    async def watch(self) -> None:
        while not self._here.crowd.stopping.is_set():
            await asyncio.sleep(_LOOK_EVERY_S)
            for location in await self._locations():
                await self._look(location, is_last=False)

    async def _locations(self) -> list[str]:
        listed = await list_all(self._store, "tables/")
        end = "metadata/version-hint.text"
        return [info.key.removesuffix(end) for info in listed if info.key.endswith(end)]

    async def _look(self, location: str, *, is_last: bool) -> None:
        self.looks += 1
        try:
            found = await self._found(location, "iceberg")
            self._note("a stranger", found.topic, found, is_last=is_last)
            if is_last:
                delta = await self._found(location, "delta")
                self._note("a stranger by Delta", found.topic, delta, is_last=True)
        except ObjectMissingError as error:
            (slug,) = [one for one in (*TABLES, FORK) if one.replace(".", "-") in location]
            topic = TABLES[0] if slug == FORK else slug
            seen = TableSeen(topic, "a stranger", failure=f"{error.key} is not there")
            self._here.crowd.history.tables.append(seen)

    async def _found(self, location: str, kind: str) -> Found:
        """Raises ObjectMissingError if that is so again and again."""
        for looks_left in reversed(range(_LOOKS)):
            try:
                if kind == "iceberg":
                    return await read_iceberg(self._files, location)
                names = [info.key for info in await list_all(self._store, location)]
                return await read_delta(self._files, names, location)
            except ObjectMissingError:
                if not looks_left:
                    raise
                await asyncio.sleep(0.2)
        raise AssertionError

    def _note(self, reader: str, topic: str, found: Found, *, is_last: bool) -> None:
        seen = TableSeen(topic, reader, found.next_offset, found.rows, is_last=is_last)
        if topic in self._forks:  # nothing was added to it
            if is_last and found.next_offset != self._forks[topic]:
                seen.failure = f"it ends at {found.next_offset}, and not {self._forks[topic]}"
            seen.topic, seen.reader, seen.is_last = TABLES[0], f"{reader} of a fork", False
        self._here.crowd.history.tables.append(seen)

    async def look_last(self) -> None:
        """Once the tables have all records."""
        self._files = DataFiles(self._store.get, _row)  # each file is there still
        tables = [await self._settled(topic) for topic in (*TABLES, *self._forks)]
        for table in tables:
            self.commits += table["commits"]
            key = table["location"][table["location"].rindex("/tables/") + 1 :]
            await self._look(f"{key}/", is_last=True)
        if self._here.arena.proxy is None and READERS.exists():
            await self._read_by_all(tables)

    async def _settled(self, topic: str) -> dict[str, Any]:
        until_s = time.monotonic() + _WITHIN_S
        while True:
            told = await self._here.asked("GET", "/v1/tables")
            table: dict[str, Any]
            for table in told["tables"]:
                is_printed = f"/v{table['commits']}." in (table["metadata"] or "")
                if table["table"] == topic and table["lag_records"] == 0 and is_printed:
                    return table
            assert time.monotonic() < until_s, f"P17: the table of {topic} is behind: {told}"
            await asyncio.sleep(0.1)

    async def _read_by_all(self, tables: Sequence[dict[str, Any]]) -> None:
        """DuckDB, PyIceberg, Polars and delta-rs, in a process of their own."""
        asked = [{name: one[name] for name in ("location", "metadata")} for one in tables]
        command = [str(READERS), str(_ROWS), json.dumps(asked)]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        for table, by_reader in zip(tables, json.loads(done.stdout.splitlines()[-1]), strict=True):
            for reader, rows in by_reader.items():
                topic = table["table"]
                if isinstance(rows, str):
                    topic = TABLES[0] if topic in self._forks else topic
                    self._here.crowd.history.tables.append(TableSeen(topic, reader, failure=rows))
                    continue
                read = [_row(at, key, text and text.encode()) for at, key, text in rows]
                self._note(reader, topic, Found(table["next_offset"], read), is_last=True)


def _row(offset: int, key: str | None, value: bytes | None) -> tuple[int, Record]:
    return offset, Record(value, key)
