"""`seb tables …`: topics that are also tables in the bucket; `seb sql`, which reads them."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

import click

from seb_appliance import limits
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import Json, ListsByDefault, Result, ask, talks, yes_option
from seb_appliance.cli.output import Cell, Quantity, moment, outline, size, span, table, tell
from seb_appliance.formats.lake.answers import csv_of
from seb_appliance.formats.lake.columns import suggest as suggested
from seb_appliance.formats.lake.readers import (
    ENGINES,
    KEYED,
    first_cells,
    newest_by_key,
    table_name,
)
from seb_appliance.quantities import counted

_SUGGESTED_FROM: Final = 10_000  # records
_READ_AT_ONCE: Final = 1_000


@click.group(cls=ListsByDefault)
def tables() -> None:
    """Tables of topics: list (the default), show, suggest, pause, resume, repair, drop, attach."""


@tables.command("list")
@talks
def list_tables(client: HttpClient) -> Result:
    """List the tables of the topics that the API key may see."""
    answer = client.ask("GET", "tables")
    names = ("table", "state", "formats", "rows", "bad", "lag", "files", "size", "updated")
    return Result(answer, lambda _: table(names, map(_row, answer["tables"]), "no tables"))


def _row(one: Json) -> tuple[Any, ...]:
    return (
        one["table"],
        one["state"],
        ",".join(one["formats"]),
        one["rows"],
        one["bad_rows"],
        span(one["lag_s"]),
        one["files"],
        size(one["size_bytes"]),
        moment(one["updated"]),
    )


@tables.command()
@click.argument("name", metavar="TABLE")
@talks
def show(client: HttpClient, name: str) -> Result:
    """Show TABLE (a topic, or the id of a table): its columns, and records it could not read."""
    return _result(client.ask("GET", "tables", name))


def _result(found: Json, note: str = "") -> Result:
    return Result(found, _outline(found), note=note)


def _outline(found: Json) -> str:
    members = {
        "table": found["table"],
        "table id": found["table_id"],
        "state": found["state"],
        "formats": ", ".join(found["formats"]),
        "metadata": found["metadata"] or found["location"],
        "rows": found["rows"],
        "bad rows": found["bad_rows"],
        "waiting": f"{counted(found['lag_records'], 'record')}, {span(found['lag_s'])}",
        "files": f"{found['files']:,}, {size(found['size_bytes'])}",
        "with snapshots": f"{counted(found['snapshots'], 'snapshot')}, "
        f"{size(found['stored_bytes'])}",
        "updated": moment(found["updated"]),
        **{name: found[name] for name in ("failure", "foreign") if found[name]},
    }
    columns = table(
        ("column", "type", "from"),
        [(one["name"], one["type"], _path(one["path"])) for one in found["columns"]],
        "no columns",
    )
    parts = [outline(members), columns]
    if found["bad_examples"]:
        rows = [(one["offset"], one["error"], one["raw"]) for one in found["bad_examples"]]
        parts.append(table(("offset", "error", "value"), rows, ""))
    return "\n\n".join(parts)


def _path(path: list[str]) -> str:
    return "$" + "".join(f".{part}" for part in path) if path else ""


@tables.command()
@click.argument("topic")
@click.option("--apply", is_flag=True, help="Declare the columns in the topic's settings.")
@talks
def suggest(client: HttpClient, topic: str, apply: bool) -> Result:
    """Suggest the columns of TOPIC's table from its newest 10,000 records."""
    found = suggested(_newest_values(client, topic))
    rows = [
        (one.column.name, one.column.type, _path(list(one.column.path)), one.example)
        for one in found.columns
    ]
    names = ("name", "type", "path", "example")
    answer = {
        "table_columns": found.text,
        "records": found.looked_at,
        "unreadable": found.unreadable,
        "columns": [dict(zip(names, row, strict=True)) for row in rows],
    }
    shown = table(("column", "type", "from", "example"), rows, "no columns: values are not JSON")
    if apply and found.text:
        client.ask("PATCH", "topics", topic, body={"table_columns": found.text})
        note = "Declared. New records have these columns."
    else:
        # Members are named by whoever produces.
        text = shlex.quote(f"table_columns={found.text}")
        note = f"seb topics change {topic} {text}" if found.text else ""
    return Result(answer, shown, note=note)


def _newest_values(client: HttpClient, topic: str) -> list[bytes | None]:
    known = client.ask("GET", "topics", topic)
    end = known["log_end_offset"]
    offset = max(known["log_start_offset"], end - _SUGGESTED_FROM)
    values: list[bytes | None] = []
    while offset < end:
        query = {"offset": offset, "until": end, "max_records": _READ_AT_ONCE, "values": "text"}
        answer = client.ask("GET", "topics", topic, "records", query=query)
        values += [_value(one) for one in answer["records"]]
        offset = answer["next_offset"]
    return values


def _value(record: Json) -> bytes | None:
    """None for a tombstone, and for what is not text."""
    value = record.get("value")
    return value.encode() if isinstance(value, str) else None


def _change(client: HttpClient, name: str, what: str, note: str) -> Result:
    return _result(client.ask("POST", "tables", name, what), note)


@tables.command()
@click.argument("name", metavar="TABLE")
@talks
def pause(client: HttpClient, name: str) -> Result:
    """Add nothing more to TABLE until it is resumed."""
    return _change(client, name, "pause", "")


@tables.command()
@click.argument("name", metavar="TABLE")
@talks
def resume(client: HttpClient, name: str) -> Result:
    """Continue TABLE where it was paused."""
    return _change(client, name, "resume", "")


@tables.command()
@click.argument("name", metavar="TABLE")
@yes_option
@talks
def repair(client: HttpClient, name: str, yes: bool) -> Result:
    """Replace metadata of TABLE that someone else wrote in the bucket."""
    if not yes:
        found = client.ask("GET", "tables", name)
        tell(_outline(found))
        ask("Discard what others committed to it?")
    return _change(client, name, "repair", "")


@tables.command()
@click.argument("name", metavar="TABLE")
@yes_option
@talks
def drop(client: HttpClient, name: str, yes: bool) -> Result:
    """Remove TABLE and its objects. Its topic stays, and its setting table must be none."""
    found = client.ask("GET", "tables", name)
    if not yes:
        tell(_outline(found))
        ask("Remove it with all its files?")
    client.request("DELETE", "tables", found["table_id"])
    return Result({"dropped": found["table_id"]}, f"table {found['table']} dropped")


@tables.command()
@click.argument("name", metavar="TABLE")
@click.option(
    "--engine", type=click.Choice(ENGINES), default=ENGINES[0], help="For which engine (duckdb)."
)
@click.option("--newest", is_flag=True, help="A query for the newest row of each record key.")
@talks
def attach(client: HttpClient, name: str, engine: str, newest: bool) -> Result:
    """Print what to enter in an engine to read TABLE."""
    found = client.ask("GET", "tables", name)
    url = client.caller.endpoint.address
    if newest:
        if engine not in KEYED:
            raise click.UsageError(f"--newest is for {', '.join(KEYED)}")
        has_value = any(one["name"] == "value" for one in found["columns"])
        known = f"seb.topics.{table_name(found['table'])}"
        text = newest_by_key(engine, known, has_value=has_value)
    else:
        formats, place = found["formats"], found["location"]
        cells = first_cells(found["table"], url, place, formats, found["metadata"])
        if engine not in cells:
            raise click.UsageError(f"{engine} needs Iceberg; table {name} is {', '.join(formats)}")
        text = cells[engine]
    if found["published"] is None:
        tell("Nothing is committed yet: engines find the table after its first commit.")
    return Result({"engine": engine, "text": text}, text)


@click.command()
@click.argument("statement")
@click.option("--csv", "as_csv", is_flag=True, help="CSV, for spreadsheets.")
@click.option(
    "--max-rows",
    type=click.IntRange(1, limits.SQL_ROWS_MAX),
    default=limits.SQL_ROWS_DEFAULT,
    show_default=True,
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.001, limits.SQL_S_MAX),
    default=limits.SQL_S_DEFAULT,
    show_default=True,
    help="Seconds.",
)
@talks
def sql(client: HttpClient, statement: str, as_csv: bool, max_rows: int, timeout: float) -> Result:
    """Run STATEMENT, which reads tables.

    For example: seb sql "SELECT count(*) FROM orders_eu"
    """
    body = {"sql": statement, "max_rows": max_rows, "timeout_ms": int(timeout * 1_000)}
    answer: Json = client.ask("POST", "sql", body=body)
    names = [one["name"] for one in answer["columns"]]
    note = f"only the first {counted(len(answer['rows']), 'row')}" if answer["truncated"] else ""
    if as_csv:
        return Result(answer, csv_of(names, answer["rows"]).rstrip("\r\n"), note=note)
    rows = ([_cell(value) for value in row] for row in answer["rows"])
    return Result(answer, lambda _: table(names, rows, "no rows"), note=note)


def _cell(value: Any) -> Cell:
    """What is neither text nor an integer as its JSON."""
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return Quantity(text) if isinstance(value, float) else text
