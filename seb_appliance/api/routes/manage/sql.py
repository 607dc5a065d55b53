"""`POST /v1/sql`: a statement that reads lake tables."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.routes.records.reading import unless_gone
from seb_appliance.api.routes.route import RequestContext, json_body, json_reply, route
from seb_appliance.errors import (
    BadRequestError,
    OverloadedError,
    ShareExceededError,
    SqlStatementError,
    SqlTimeoutError,
    SqlUnavailableError,
    StoreUnavailableError,
)
from seb_appliance.formats.numbers import Whole


class SqlIn(msgspec.Struct, forbid_unknown_fields=True):
    """One statement that reads. A table has the name that it has in the catalog (`orders_eu`), or
    its topic's, in quotation marks (`"orders.eu"`)."""

    sql: str
    max_rows: Whole = limits.SQL_ROWS_DEFAULT
    timeout_ms: Whole = int(limits.SQL_S_DEFAULT * 1_000)


class SqlColumnOut(msgspec.Struct):
    """A column of the answer; `type`: as DuckDB names it."""

    name: str
    type: str


class SqlOut(msgspec.Struct):
    """The rows. Times are in RFC 3339; bytes that are not UTF-8 are in base64. `truncated`: there
    are more. `next_offsets`: for each table that the statement may read, up to which offset
    (exclusive) its records were in it."""

    columns: list[SqlColumnOut]
    rows: list[Annotated[list[Any], msgspec.Meta(extra_json_schema={"items": {}})]]
    truncated: bool
    elapsed_ms: float
    next_offsets: dict[str, int]


_EXAMPLE: Final = {
    "columns": [{"name": "customer", "type": "VARCHAR"}, {"name": "total", "type": "DOUBLE"}],
    "rows": [["c-17", 120.5]],
    "truncated": False,
    "elapsed_ms": 31.4,
    "next_offsets": {"orders_eu": 18_000},
}


@route(
    "POST",
    "/v1/sql",
    "querySql",
    tag="Tables",
    summary="Read lake tables with SQL",
    description="One statement of DuckDB that reads: SELECT, WITH, FROM, DESCRIBE, SUMMARIZE, "
    "EXPLAIN. It sees the tables whose topics the API key may `consume`; others do not exist for "
    "it. It runs in a process without network and files.",
    body=json_body(
        SqlIn, {"sql": "SELECT customer, sum(total) AS total FROM orders_eu GROUP BY 1"}
    ),
    replies=json_reply(SqlOut, _EXAMPLE, "Rows"),
    errors=(
        OverloadedError,
        ShareExceededError,
        SqlStatementError,
        SqlTimeoutError,
        SqlUnavailableError,
        StoreUnavailableError,
    ),
)
async def query_sql(ctx: RequestContext) -> object:
    asked: SqlIn = ctx.body
    key = ctx.call.key
    for name, given, most in (
        ("max_rows", asked.max_rows, limits.SQL_ROWS_MAX),
        ("timeout_ms", asked.timeout_ms, int(limits.SQL_S_MAX * 1_000)),
        ("sql", len(asked.sql.encode()), limits.SQL_STATEMENT_BYTES_MAX),
    ):
        if not 0 < given <= most:
            raise BadRequestError(f"{name} must be 1 to {most:,} (of sql: bytes).")
    query = ctx.broker.sql.query(
        ctx.call.owner,
        asked.sql,
        lambda topic: ctx.broker.may(key, "consume", topic),
        rows_max=asked.max_rows,
        timeout_s=asked.timeout_ms / 1_000,
    )
    # It may wait, and run for long.
    found = await unless_gone(query, ctx.broker, ctx.request, waits=True)
    return SqlOut(
        [SqlColumnOut(*one) for one in found.result.columns],
        msgspec.Raw(found.result.rows),  # type: ignore[arg-type]  # encoded by its process
        found.result.is_cut,
        round(found.seconds * 1_000, 1),
        found.next_offsets,
    )


ROUTES: Final = [query_sql]
