"""`/v1/tables`: topics that are also tables in the bucket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from seb_appliance.api.encoding.answers import format_time
from seb_appliance.api.openapi.shared import REMOVAL_ERRORS, WRITE_ERRORS
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    json_reply,
    no_content,
    route,
)
from seb_appliance.api.server.auth import may_see
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.lake.names import metadata_name
from seb_appliance.broker.lake.table import LakeTable, TableHead
from seb_appliance.errors import NotFoundError, TopicNotFoundError
from seb_appliance.formats.lake.tables import Column
from seb_appliance.tasks import in_slices


class TableColumnOut(msgspec.Struct):
    """A column; `path`: the members that lead to its value in a record's JSON value."""

    name: str
    type: str
    path: list[str]


class PublishedOut(msgspec.Struct):
    """A snapshot that readers find in the bucket: it has every record below `next_offset`, in
    `columns`. `metadata`: of Iceberg; null if the table is Delta alone. Delta's version is
    `snapshot` - 1."""

    snapshot: int
    metadata: str | None
    next_offset: int
    columns: list[TableColumnOut]


class BadRowOut(msgspec.Struct):
    """A record that could not be read as the columns say; `raw`: the beginning of its value."""

    offset: int
    error: str
    raw: str


class TableOut(msgspec.Struct):
    """A table. `state`: `live`, `behind`, `backfill`, `paused`, `foreign` (someone else wrote its
    metadata, at `foreign`), `off` (the topic's setting is none) or `detached` (the topic is
    deleted). `metadata`: the newest Iceberg metadata file, for readers; null before the first one.
    The table has all records of the topic below `next_offset`. `published`: what is printed of it;
    null before the first commit is. `stored_bytes` includes files that only older snapshots
    have."""

    table: str
    table_id: str
    topic_id: int
    state: str
    formats: list[str]
    location: str
    metadata: str | None
    columns: list[TableColumnOut]
    commits: int
    next_offset: int
    published: PublishedOut | None
    lag_records: int
    lag_s: float
    rows: int
    bad_rows: int
    files: int
    size_bytes: int
    stored_bytes: int
    snapshots: int
    updated: str
    failure: str
    foreign: str


class TableDetailsOut(TableOut):
    """As `TableOut`, with the newest records that could not be read, since the start."""

    bad_examples: list[BadRowOut]


class TablesOut(msgspec.Struct):
    tables: list[TableOut]


_RAW_SHOWN: Final = 200  # bytes

_TABLE: Final = {
    "table": "orders.eu",
    "table_id": "9f86d081884c7d65",
    "topic_id": 3,
    "state": "live",
    "formats": ["iceberg"],
    "location": "s3://lake/seb/tables/9f86d081-orders-eu",
    "metadata": "s3://lake/seb/tables/9f86d081-orders-eu/metadata/v12.metadata.json",
    "columns": [
        {"name": "offset", "type": "long", "path": []},
        {"name": "total", "type": "double", "path": ["order", "total"]},
    ],
    "commits": 12,
    "next_offset": 18_000,
    "published": {
        "snapshot": 12,
        "metadata": "s3://lake/seb/tables/9f86d081-orders-eu/metadata/v12.metadata.json",
        "next_offset": 18_000,
        "columns": [
            {"name": "offset", "type": "long", "path": []},
            {"name": "total", "type": "double", "path": ["order", "total"]},
        ],
    },
    "lag_records": 12,
    "lag_s": 1.5,
    "rows": 18_000,
    "bad_rows": 1,
    "files": 2,
    "size_bytes": 1_048_576,
    "stored_bytes": 2_097_152,
    "snapshots": 11,
    "updated": "2026-11-21T10:00:00.000Z",
    "failure": "",
    "foreign": "",
}
_BAD_ROW: Final = {"offset": 17, "error": "total: expected a number", "raw": '{"total":"x"}'}
_REPLY: Final = {
    200: Reply(
        description="The table",
        content={
            "application/json": Content(
                struct=TableDetailsOut, example={**_TABLE, "bad_examples": [_BAD_ROW]}
            )
        },
    )
}
_ERRORS: Final = (NotFoundError, TopicNotFoundError)


def _members(broker: Broker, table: LakeTable) -> dict[str, object]:
    head, commits = table.head, broker.table_commits
    definition, newest = head.definition, head.newest
    location = f"{definition.address}/{definition.location}"
    printed = broker.tables.published(head.table_id)
    metadata = None
    if printed is not None and "iceberg" in definition.formats:
        metadata = location + metadata_name(printed.number)
    return {
        "table": definition.name,
        "table_id": head.table_id,
        "topic_id": definition.topic_id,
        "state": commits.state(table),
        "formats": list(definition.formats),
        "location": location.rstrip("/"),
        "metadata": metadata,
        "columns": _columns(definition.columns),
        "commits": head.number,
        "next_offset": head.next_offset,
        "published": _published(printed, metadata),
        "lag_records": commits.lags.records(table),
        "lag_s": commits.lags.seconds(table),
        "rows": newest.records if newest else 0,
        "bad_rows": newest.bad if newest else 0,
        "files": newest.files if newest else 0,
        "size_bytes": newest.length if newest else 0,
        "stored_bytes": table.stored_bytes,
        "snapshots": len(head.snapshots),
        "updated": format_time(head.updated_ms * 1_000),
        "failure": commits.notes(head.table_id).failure,
        "foreign": commits.foreign.get(head.table_id, ""),
    }


def _columns(columns: Iterable[Column]) -> list[TableColumnOut]:
    return [TableColumnOut(one.name, one.type, list(one.path)) for one in columns]


def _published(printed: TableHead | None, metadata: str | None) -> PublishedOut | None:
    if printed is None or printed.newest is None or printed.is_unlisted:
        return None
    newest = printed.newest
    columns = _columns(printed.schemas[newest.schema])
    return PublishedOut(newest.number, metadata, newest.next_offset, columns)


def _details(ctx: RequestContext, table: LakeTable) -> TableDetailsOut:
    rows = ctx.broker.table_commits.notes(table.head.table_id).bad_rows
    examples = [
        BadRowOut(one.offset, one.error, one.raw[:_RAW_SHOWN].decode(errors="replace"))
        for one in rows
    ]
    if not ctx.broker.may(ctx.call.key, "consume", table.head.definition.name):
        examples = []  # they are records
    return TableDetailsOut(**_members(ctx.broker, table), bad_examples=examples)  # type: ignore[arg-type]


def _found(ctx: RequestContext, grant: str) -> LakeTable:
    """The table of the path, which is named as its topic, or by its id. Raises ForbiddenError
    before NotFoundError, so that nobody learns what others have."""
    name = ctx.path["table"]
    known = ctx.broker.tables.get(name)
    topic = name if known is None else known.head.definition.name
    if grant != "see" or not may_see(ctx.broker, ctx.call.key, topic):
        ctx.broker.authorize(ctx.call.key, "consume" if grant == "see" else grant, topic)
    return ctx.broker.table_commits.find(name)


@route(
    "GET",
    "/v1/tables",
    "listTables",
    tag="Tables",
    summary="List the tables of the topics that the API key may see",
    replies=json_reply(TablesOut, {"tables": [_TABLE]}, "Tables"),
)
async def list_tables(ctx: RequestContext) -> object:
    tables = sorted(ctx.broker.tables.all(), key=lambda table: table.head.definition.name)
    return TablesOut(
        [
            TableOut(**_members(ctx.broker, table))  # type: ignore[arg-type]
            async for table in in_slices(tables)
            if may_see(ctx.broker, ctx.call.key, table.head.definition.name)
        ]
    )


@route(
    "GET",
    "/v1/tables/{table}",
    "getTable",
    tag="Tables",
    summary="Show a table: state, columns, lag, size, records that could not be read",
    replies=_REPLY,
    errors=_ERRORS,
)
async def get_table(ctx: RequestContext) -> object:
    return _details(ctx, _found(ctx, "see"))


async def _pause(ctx: RequestContext, *, paused: bool) -> object:
    table = _found(ctx, "manage")
    await ctx.broker.table_commits.pause(table.head.table_id, ctx.call.actor, paused=paused)
    return _details(ctx, table)


@route(
    "POST",
    "/v1/tables/{table}/pause",
    "pauseTable",
    tag="Tables",
    summary="Add nothing more to a table until it is resumed",
    replies=_REPLY,
    errors=(*WRITE_ERRORS, *_ERRORS),
)
async def pause_table(ctx: RequestContext) -> object:
    return await _pause(ctx, paused=True)


@route(
    "POST",
    "/v1/tables/{table}/resume",
    "resumeTable",
    tag="Tables",
    summary="Continue a paused table where it stopped",
    replies=_REPLY,
    errors=(*WRITE_ERRORS, *_ERRORS),
)
async def resume_table(ctx: RequestContext) -> object:
    return await _pause(ctx, paused=False)


@route(
    "POST",
    "/v1/tables/{table}/repair",
    "repairTable",
    tag="Tables",
    summary="Replace metadata that someone else wrote",
    description="The table continues from its own last commit. Commits that someone else made in "
    "the bucket are discarded; their data files are removed.",
    replies=_REPLY,
    errors=(*WRITE_ERRORS, *_ERRORS),
)
async def repair_table(ctx: RequestContext) -> object:
    table = _found(ctx, "manage")
    await ctx.broker.table_commits.repair(table.head.table_id, ctx.call.actor)
    return _details(ctx, table)


@route(
    "DELETE",
    "/v1/tables/{table}",
    "dropTable",
    tag="Tables",
    summary="Remove a table and its objects; its topic stays",
    description="The topic's setting `table` must be none, or the topic deleted.",
    replies=no_content("Dropped"),
    errors=(*REMOVAL_ERRORS, *_ERRORS),
)
async def drop_table(ctx: RequestContext) -> None:
    table = _found(ctx, "manage")
    await ctx.broker.table_commits.drop(table.head.table_id, ctx.call.actor)


ROUTES: Final = [list_tables, get_table, pause_table, resume_table, repair_table, drop_table]
