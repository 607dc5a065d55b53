"""Tables of topics: the list, and one table with its columns, bad rows and first queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.lake.names import metadata_name
from seb_appliance.broker.lake.queries import SqlAnswer
from seb_appliance.broker.lake.table import LakeTable
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.lake.answers import csv_of
from seb_appliance.formats.lake.readers import (
    KEYED,
    first_cells,
    newest_by_key,
    table_name,
)
from seb_appliance.quantities import counted
from seb_appliance.tasks import while_connected
from seb_appliance.ui.answers import csv_file
from seb_appliance.ui.lists import FIELDS as LIST_FIELDS
from seb_appliance.ui.lists import Column, as_they_are, having, linked, listed
from seb_appliance.ui.options import Figure
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago, count, pill, size

routes = Routes()
_PATH: Final = "/ui/tables"
_RAW_SHOWN: Final = 300  # characters
_CELL_MAX: Final = 200  # characters of a value in an answer
_STATES: Final = {
    "live": "commits are made in time",
    "behind": "records wait for longer than they should",
    "backfill": "no rows are committed yet",
    "paused": "by an operator",
    "foreign": "someone else wrote its metadata",
    "off": "the topic's setting is none",
    "detached": "the topic is deleted",
}


@routes.get("/tables", LIST_FIELDS)
async def show(visit: Visit) -> ASGIApp:
    tables = await having(visit.form.text("filter"), visit.broker.tables.all(), _name)
    tables.sort(key=_name)
    listing = await listed(visit, "table-rows", _columns(visit), tables, as_they_are)
    return visit.page(
        "tables",
        parts=["table-rows"],
        address=listing.address,
        listing=listing,
        reason=visit.broker.topics.no_tables,
    )


def _name(table: LakeTable) -> str:
    return table.head.definition.name


def _columns(visit: Visit) -> list[Column[LakeTable, LakeTable]]:
    commits, now_us = visit.broker.table_commits, visit.now_us

    def formats(table: LakeTable) -> str:
        return ", ".join(table.head.definition.formats)

    def updated_us(table: LakeTable) -> int:
        return table.head.updated_ms * 1_000

    def newest(member: str) -> Callable[[LakeTable], int]:
        return lambda table: getattr(table.head.newest, member) if table.head.newest else 0

    def counted(
        name: str, title: str, of: Callable[[LakeTable], int], words: Callable[[int], str] = count
    ) -> Column[LakeTable, LakeTable]:
        return Column(name, title, lambda table: words(of(table)), of, "number")

    return [
        Column(
            "name", "Table", lambda one: linked(_name(one), f"{_PATH}/{one.head.table_id}"), _name
        ),
        Column("state", "State", lambda one: pill(commits.state(one)), commits.state, "nowrap"),
        Column("formats", "Formats", formats, formats, "nowrap"),
        counted("rows", "Rows", newest("records")),
        counted("bad", "Bad rows", newest("bad")),
        counted("waiting", "Waiting", commits.lags.records),
        counted("size", "Size", newest("length"), size),
        Column(
            "updated", "Last commit", lambda one: ago(updated_us(one), now_us), updated_us, "nowrap"
        ),
    ]


@routes.get("/tables/{table:str}")
async def show_one(
    visit: Visit, table: str, problem: FormProblem | None = None, answer: SqlAnswer | None = None
) -> ASGIApp:
    found = visit.broker.table_commits.find(table)
    head, definition = found.head, found.head.definition
    notes = visit.broker.table_commits.notes(head.table_id)
    location = f"{definition.address}/{definition.location}"
    published = visit.broker.tables.published(head.table_id)
    metadata = None
    if published is not None and "iceberg" in definition.formats:
        metadata = location + metadata_name(published.number)
    has_value = any(one.name == "value" for one in definition.columns)
    name = f"seb.topics.{table_name(definition.name)}"
    return visit.page(
        "table",
        parts=["table-figures", "sql-answer"],
        table=found,
        state=visit.broker.table_commits.state(found),
        figures=_figures(visit, found),
        columns=definition.columns,
        bad_rows=[
            (one.offset, one.error, one.raw[:_RAW_SHOWN].decode(errors="replace"))
            for one in reversed(notes.bad_rows)
        ],
        failure=notes.failure,
        foreign=visit.broker.table_commits.foreign.get(head.table_id, ""),
        location=location.rstrip("/"),
        cells=first_cells(
            definition.name, visit.origin, location.rstrip("/"), definition.formats, metadata
        ),
        newest={engine: newest_by_key(engine, name, has_value=has_value) for engine in KEYED},
        answer=answer,
        shown=None if answer is None else _shown(answer),
        statement=visit.form.text("sql") or _first_query(visit, found),
        no_sql=visit.broker.sql.unavailable,
        cell_max=_CELL_MAX,
        every_s=limits.SAMPLE_EVERY_S,
        path=f"{_PATH}/{table}",
        problem=problem,
        # htmx shows no other answer.
        status=200 if visit.part == "sql-answer" else None,
    )


def _shown(answer: SqlAnswer) -> tuple[Sequence[tuple[str, str]], list[list[Any]], bool]:
    """Columns and rows that a page may have, and whether there are more."""
    most, found = limits.SQL_CELLS_SHOWN_MAX, answer.result
    columns, raw = found.columns[:most], _raw_rows(answer)
    at_most = max(1, most // max(1, len(columns)))
    rows = [row[:most] for row in islice(_rows(raw), at_most)]
    is_cut = found.is_cut or len(rows) < len(raw) or len(columns) < len(found.columns)
    return columns, rows, is_cut


def _raw_rows(answer: SqlAnswer) -> list[msgspec.Raw]:
    return msgspec.json.decode(answer.result.rows, type=list[msgspec.Raw])


def _rows(raw: list[msgspec.Raw]) -> Iterator[list[Any]]:
    return map(msgspec.json.Decoder(list[Any]).decode, raw)


def _first_query(visit: Visit, table: LakeTable) -> str:
    names = {found.head.table_id: name for name, found in visit.broker.sql.named().items()}
    name = names[table.head.table_id]
    return f'SELECT * FROM "{name}" ORDER BY "offset" DESC LIMIT 20'  # noqa: S608, only shown


@routes.post("/tables/{table:str}/sql", {"sql", "as"}, role="viewer", again=show_one)
async def query(visit: Visit, table: str) -> ASGIApp:
    visit.broker.table_commits.find(table)
    statement = visit.form.text("sql")
    if len(statement.encode()) > limits.SQL_STATEMENT_BYTES_MAX:
        raise BadRequestError("The statement is too long.")
    asked = visit.broker.sql.query(OPERATOR, statement, lambda _: True)
    answer = await while_connected(asked, visit.receive)
    if visit.form.text("as") == "csv":
        names = [name for name, _ in answer.result.columns]
        text = await asyncio.to_thread(csv_of, names, _rows(_raw_rows(answer)))
        return csv_file(f"{table}.csv", text)
    return await show_one(visit, table, answer=answer)


def _figures(visit: Visit, table: LakeTable) -> list[Figure]:
    head, commits = table.head, visit.broker.table_commits
    newest, state = head.newest, commits.state(table)
    waits = commits.lags.records(table)
    age = (
        f"the oldest for {commits.lags.seconds(table):.0f} s" if waits else "every record is in it"
    )
    return [
        Figure("State", state, _STATES[state]),
        Figure(
            "Rows",
            count(newest.records if newest else 0),
            counted(len(head.snapshots), "snapshot"),
        ),
        Figure("Waiting", count(waits), age),
        Figure("Bad rows", count(newest.bad if newest else 0), "have _error and _raw"),
        Figure(
            "Data files",
            count(newest.files if newest else 0),
            f"{size(newest.length if newest else 0)}; {size(table.stored_bytes)} with snapshots",
        ),
        Figure("Last commit", ago(head.updated_ms * 1_000, visit.now_us), f"number {head.number}"),
    ]


@routes.post("/tables/{table:str}/pause", again=show_one)
async def pause(visit: Visit, table: str) -> ASGIApp:
    await visit.broker.table_commits.pause(table, visit.actor, paused=True)
    return visit.see_other(f"{_PATH}/{table}", "The table is paused. Its topic takes records.")


@routes.post("/tables/{table:str}/resume", again=show_one)
async def resume(visit: Visit, table: str) -> ASGIApp:
    await visit.broker.table_commits.pause(table, visit.actor, paused=False)
    return visit.see_other(f"{_PATH}/{table}", "The table continues where it stopped.")


@routes.post("/tables/{table:str}/repair", again=show_one)
async def repair(visit: Visit, table: str) -> ASGIApp:
    await visit.broker.table_commits.repair(table, visit.actor)
    return visit.see_other(f"{_PATH}/{table}", "The metadata is replaced.")


@routes.post("/tables/{table:str}/drop", {"name"}, again=show_one)
async def drop(visit: Visit, table: str) -> ASGIApp:
    found = visit.broker.table_commits.find(table)
    if visit.form.text("name") != found.head.definition.name:
        raise BadRequestError("This is not the name of the table; nothing was dropped.")
    await visit.broker.table_commits.drop(table, visit.actor)
    return visit.see_other(_PATH, f"The table {found.head.definition.name} is dropped.")
