"""`seb sql`: read tables of topics with SQL."""

from __future__ import annotations

import click

from seb_appliance import limits
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import Json, Result, talks
from seb_appliance.cli.output import table
from seb_appliance.formats.lake.answers import csv_of


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
    """Run STATEMENT, which reads tables: seb sql "SELECT count(*) FROM orders_eu"."""
    body = {"sql": statement, "max_rows": max_rows, "timeout_ms": int(timeout * 1_000)}
    answer: Json = client.ask("POST", "sql", body=body)
    names = [one["name"] for one in answer["columns"]]
    note = f"only the first {len(answer['rows']):,} rows" if answer["truncated"] else ""
    if as_csv:
        return Result(answer, csv_of(names, answer["rows"]).rstrip("\r\n"), note=note)
    return Result(answer, lambda _: table(names, answer["rows"], "no rows"), note=note)
