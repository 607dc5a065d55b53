"""A topic's lake table and the log after it as one view in DuckDB, up to the newest record.

    import duckdb
    from seb_appliance.client.tables import create_view

    connection = duckdb.connect()
    connection.execute("INSTALL iceberg; LOAD iceberg")
    create_view(connection, "orders.eu", url="https://seb.example", api_key="seb_…")
    connection.sql("SELECT count(*) FROM orders_eu")

Needs pyarrow. DuckDB reads the table's files itself, with its own credentials for the bucket.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.blocking import LoopThread
from seb_appliance.client.failures import ApplianceError, ConfigurationError
from seb_appliance.client.reading import Form, Reading, Source, pages
from seb_appliance.client.records import UnreadableAnswerError
from seb_appliance.client.transport import Caller, Endpoint
from seb_appliance.clock import SystemClock
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch
from seb_appliance.formats.lake.readers import table_name
from seb_appliance.formats.lake.tables import columns_shown
from seb_appliance.lake.rows import RowMaker

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.2
READ_BYTES: Final = 8 * limits.MIB
_PAGE: Final = "seb_page"


class Pinned(NamedTuple):
    """What a view has: the rows of `snapshot` (None: the table has none yet), which end before
    `next_offset`, and the records of the log from there up to `log_end_offset` (exclusive)."""

    snapshot: int | None
    next_offset: int
    log_end_offset: int


def create_view(
    connection: Any,
    topic: str,
    *,
    url: str,
    api_key: str,
    view: str | None = None,
    table: str | None = None,
    patience_s: float = PATIENCE_S,
) -> Pinned:
    """Create or replace a temporary view with each record of the topic up to now once: one snapshot
    of its Iceberg table, and the log from there, in the columns of the snapshot. The view does not
    change: call this again for newer records. Those of the log are in a temporary table, VIEW_log.

    `connection`: of DuckDB with its extension iceberg, and not within a transaction. `view`:
    default as in the catalog (`orders_eu`). `table`: its name in an attached catalog
    (`seb.topics.orders_eu`); default: DuckDB opens the metadata in the bucket. Raises
    ApplianceError, UnreadableAnswerError, TopicReplacedError, ConfigurationError, and what DuckDB
    raises; the view is then as before."""
    name = view or table_name(topic)
    thread = LoopThread()  # the caller's own loop may be running, as in a notebook
    try:
        return thread.wait_for(_create(connection, topic, name, table, url, api_key, patience_s))
    finally:
        thread.stop()


async def _create(
    connection: Any,
    topic: str,
    view: str,
    table: str | None,
    url: str,
    api_key: str,
    patience_s: float,
) -> Pinned:
    clock = SystemClock()
    caller = Caller(
        Endpoint(url, api_key), clock, random.random, connections=1, patience_s=patience_s
    )
    until_s = clock.monotonic_s() + patience_s
    lost = 0
    try:
        while True:
            found = await _found(caller, topic)
            # A trim by hand does not wait for the table. Then its gap is final once the table is
            # known not to have these records: retention may be ahead of what is printed.
            begin = max(found.next_offset, lost) if found.is_printed else found.next_offset
            is_late = clock.monotonic_s() > until_s
            if found.snapshot is not None or found.is_printed or is_late:
                try:
                    with _transaction(connection):
                        end = await _read_log(connection, caller, topic, view, found, begin)
                        _union(connection, topic, view, table, found)
                    return Pinned(found.snapshot, found.next_offset, end)
                except ApplianceError as error:
                    if error.code != "offset_expired" or is_late:
                        raise
                    lost = int(error.problem["log_start_offset"])
            await clock.sleep(PAUSE_S)
    finally:
        caller.close()


class _Found(NamedTuple):
    """What the appliance tells of a table. `is_printed`: `snapshot` is all that is in it."""

    snapshot: int | None
    metadata: str | None
    next_offset: int
    topic_id: int
    rows: RowMaker
    is_printed: bool


async def _found(caller: Caller, topic: str) -> _Found:
    table = (await caller.get(path_of("tables", topic))).json()
    nothing = {**table, "snapshot": None, "metadata": None, "next_offset": 0}
    pinned = table["published"] or nothing
    return _Found(
        pinned["snapshot"],
        pinned["metadata"],
        pinned["next_offset"],
        table["topic_id"],
        RowMaker(columns_shown(pinned["columns"])),
        pinned["next_offset"] == table["next_offset"],
    )


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


async def _read_log(
    connection: Any, caller: Caller, topic: str, view: str, found: _Found, begin: int
) -> int:
    """Read what is there now into the table VIEW_log; the offset up to which that is."""

    def decode(_: str, body: bytes, start: int, end: int) -> list[pa.RecordBatch]:
        try:
            return [
                rows
                for at, header in batch.walk(body)
                for rows, _ in found.rows.rows(batch.decode(body, at, header), start, end)
            ]
        except BadBatchError as error:
            raise UnreadableAnswerError(f"the answer cannot be read ({error})") from error

    def put(rows: Sequence[pa.RecordBatch], statement: str) -> None:
        connection.register(_PAGE, pa.Table.from_batches(rows, found.rows.schema))
        try:
            connection.execute(f"{statement} FROM {_PAGE}")
        finally:
            connection.unregister(_PAGE)

    log = _quoted(f"{view}_log")
    put([], f"CREATE OR REPLACE TEMP TABLE {log} AS")
    source = Source(caller, topic, found.topic_id)
    reading = Reading(begin, None, follow=False, max_bytes=READ_BYTES)
    end = begin
    async for page in pages(source, reading, Form("batch", decode), begin, None):
        put(page.records, f"INSERT INTO {log}")
        end = page.next_offset
    return end


def _union(connection: Any, topic: str, view: str, table: str | None, found: _Found) -> None:
    """Raises ConfigurationError."""
    parts = [f"FROM {_quoted(f'{view}_log')}"]
    if found.snapshot is not None:
        if table is not None:
            rows = f"{table} AT (VERSION => {found.snapshot})"
        elif found.metadata is None:
            raise ConfigurationError(f"the table of topic {topic} has no Iceberg metadata")
        else:
            rows = f"iceberg_scan({_text(found.metadata)}, snapshot_from_id={found.snapshot})"
        parts.insert(0, f"FROM {rows}")
    union = " UNION ALL BY NAME ".join(parts)
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(view)} AS {union}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
