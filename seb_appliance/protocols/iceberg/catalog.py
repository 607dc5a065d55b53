"""The routes of the catalog: tokens, properties, the one namespace, and the tables in it.

A table is there for whoever may `consume` its topic, once its metadata is in the bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import network_of
from seb_appliance.api.encoding.answers import Answer, Headers, json_answer
from seb_appliance.api.encoding.parameters import choice, read_headers
from seb_appliance.api.openapi.parameters import Json, header, query
from seb_appliance.api.routes.records.live import HEAD_STATE
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    Route,
    json_reply,
    no_content,
    route,
)
from seb_appliance.api.server.auth import let_in, peer_address, refuse_attached_key
from seb_appliance.api.server.bodies import read_body
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.lake.names import metadata_name
from seb_appliance.broker.lake.table import TableHead
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import (
    BadRequestError,
    NotFoundError,
    RequestTooLargeError,
    ShareExceededError,
    UnauthenticatedError,
    UnsupportedMediaTypeError,
)
from seb_appliance.protocols.iceberg.wire import (
    JSON_MEDIA,
    ROOT,
    TOKENS,
    enter_catalog,
    no_such_namespace,
    secret_of,
)

_TAG: Final = "Iceberg catalog"
_NAMESPACE: Final = "topics"
_TOKEN_S: Final = 3_600
_NAMESPACES: Final = f"{ROOT}/namespaces"
_IN_NAMESPACE: Final = _NAMESPACES + "/{namespace}"
_IN_TABLE: Final = _IN_NAMESPACE + "/tables/{table}"
# With this list, Spark refuses a write itself.
_ENDPOINTS: Final = [
    f"{method} {path.replace(ROOT, '/v1/{prefix}')}"
    for path, methods in (
        (_NAMESPACES, ("GET",)),
        (_IN_NAMESPACE, ("GET", "HEAD")),
        (_IN_NAMESPACE + "/tables", ("GET",)),
        (_IN_TABLE, ("GET", "HEAD")),
    )
    for method in methods
]


class IcebergToken(msgspec.Struct):
    """The API key, as OAuth2 names it."""

    access_token: str
    token_type: str
    expires_in: int
    issued_token_type: str


class IcebergIdentifier(msgspec.Struct):
    namespace: list[str]
    name: str


class IcebergIdentifiers(msgspec.Struct):
    identifiers: list[IcebergIdentifier]


_OBJECT: Final[Json] = {"type": "object"}


def _object(example: Any, description: str, **more: str) -> dict[int, Reply]:
    content = {JSON_MEDIA: Content(schema=_OBJECT, example=example)}
    return {200: Reply(description=description, content=content, headers=more)}


_OF_NAMESPACE: Final = [
    {**query("namespace", "The namespace.", _NAMESPACE), "in": "path", "required": True}
]
_PAGING: Final = [
    query("pageToken", "Ignored: the answer is whole."),
    query("pageSize", "Ignored."),
]
_DECLARED: Final[dict[str, Any]] = {
    "tag": _TAG,
    "authenticate": enter_catalog,
    "error_media": [JSON_MEDIA],
    "errors": (NotFoundError,),
    "refuses": False,
}


@route(
    "POST",
    TOKENS,
    "icebergToken",
    tag=_TAG,
    summary="Get a token for an API key: the API key itself",
    description="OAuth2 with client credentials. The secret is the API key, in the form or as "
    "password (HTTP Basic); any client id.",
    body={
        "application/x-www-form-urlencoded": Content(
            schema=_OBJECT, example={"grant_type": "client_credentials", "client_secret": "seb_…"}
        )
    },
    replies=json_reply(
        IcebergToken,
        {
            "access_token": "seb_…",
            "token_type": "bearer",
            "expires_in": _TOKEN_S,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        },
        "The token",
    ),
    errors=(
        UnauthenticatedError,
        RequestTooLargeError,
        ShareExceededError,
        UnsupportedMediaTypeError,
    ),
    error_media=[JSON_MEDIA],
    api_key=False,
)
async def token(ctx: RequestContext) -> object:
    scope, access = ctx.request.scope, ctx.broker.access
    headers = read_headers(list(scope["headers"]))
    refuse_attached_key(scope, headers)
    authorization = headers.get(b"authorization")
    owner = network_of(peer_address(scope))
    secret = secret_of(await _form(ctx, headers, owner), authorization)
    key = access.authenticate(secret)
    let_in(scope, access, key, lambda: access.authenticate(secret))
    left_s = (access.holds_until_us(key) - ctx.broker.clock.wall_us()) // 1_000_000
    issued = "urn:ietf:params:oauth:token-type:access_token"
    return IcebergToken(secret, "bearer", max(1, min(_TOKEN_S, left_s)), issued)


async def _form(ctx: RequestContext, headers: dict[bytes, bytes], owner: str) -> dict[str, str]:
    """Raises BadRequestError, and what `read_body` raises."""
    body, reservation = await read_body(
        ctx.request.receive, headers, owner, ctx.broker.strangers, limits.OAUTH_BYTES_MAX
    )
    with reservation:
        try:
            return dict(parse_qsl(body.decode("ascii"), errors="strict", max_num_fields=32))
        except ValueError as error:
            raise BadRequestError("The body must be a form (name=value&…).") from error


@route(
    "GET",
    f"{ROOT}/config",
    "icebergConfig",
    summary="Show how to reach the bucket",
    parameters=[query("warehouse", "Ignored: there is one.")],
    replies=_object(
        {"defaults": {"s3.region": "eu-central-1"}, "overrides": {}, "endpoints": _ENDPOINTS},
        "Properties, and the routes that there are",
    ),
    **_DECLARED,
)
async def config(ctx: RequestContext) -> object:
    # Not in a table's `config`: an endpoint without keys there makes DuckDB ignore its own secret.
    return {
        "defaults": dict(ctx.options.table_store),
        "overrides": {},
        "endpoints": _ENDPOINTS,
    }


@route(
    "GET",
    _NAMESPACES,
    "icebergNamespaces",
    summary="List the namespaces: `topics`",
    parameters=[query("parent", "Below a namespace there is none."), *_PAGING],
    replies=_object({"namespaces": [[_NAMESPACE]]}, "Namespaces"),
    **_DECLARED,
)
async def namespaces(ctx: RequestContext) -> object:
    return {"namespaces": [] if ctx.call.query.get("parent") else [[_NAMESPACE]]}


def _check_namespace(ctx: RequestContext) -> None:
    if ctx.path["namespace"] != _NAMESPACE:
        raise no_such_namespace(ctx.path["namespace"])


def _is_head(ctx: RequestContext) -> bool:
    return bool(ctx.request.scope["state"].get(HEAD_STATE))


@route(
    "GET",
    _IN_NAMESPACE,
    "icebergNamespace",
    summary="Show the namespace",
    parameters=_OF_NAMESPACE,
    replies=_object({"namespace": [_NAMESPACE], "properties": {}}, "The namespace")
    | no_content("HEAD: there is one"),
    **_DECLARED,
)
async def namespace(ctx: RequestContext) -> object:
    _check_namespace(ctx)
    return None if _is_head(ctx) else {"namespace": [_NAMESPACE], "properties": {}}


def _readable(broker: Broker, key: ApiKeyView) -> dict[str, TableHead]:
    """What the key may read of what is published, by name. A name does not depend on who asks."""
    found = {}
    for name, table in broker.sql.named().items():
        head = broker.tables.published(table.head.table_id)
        if head is None or "iceberg" not in head.definition.formats:
            continue
        if broker.may(key, "consume", table.head.definition.name):
            found[name] = head
    return found


@route(
    "GET",
    _IN_NAMESPACE + "/tables",
    "icebergTables",
    summary="List the tables whose topics the API key may consume",
    parameters=[*_OF_NAMESPACE, *_PAGING],
    replies=json_reply(
        IcebergIdentifiers,
        {"identifiers": [{"namespace": [_NAMESPACE], "name": "orders_eu"}]},
        "Tables",
    ),
    **_DECLARED,
)
async def tables(ctx: RequestContext) -> object:
    _check_namespace(ctx)
    names = sorted(_readable(ctx.broker, ctx.call.key))
    return IcebergIdentifiers([IcebergIdentifier([_NAMESPACE], name) for name in names])


@route(
    "GET",
    _IN_NAMESPACE + "/views",
    "icebergViews",
    summary="List the views: none",
    parameters=[*_OF_NAMESPACE, *_PAGING],
    replies=json_reply(IcebergIdentifiers, {"identifiers": []}, "Views"),
    **_DECLARED,
)
async def views(ctx: RequestContext) -> object:
    _check_namespace(ctx)
    return IcebergIdentifiers([])


def _found(ctx: RequestContext) -> TableHead:
    """Raises NotFoundError, the same for a table that is not there and one that must not be seen;
    its readers are told of one that is not published yet."""
    _check_namespace(ctx)
    name, key = ctx.path["table"], ctx.call.key
    table = ctx.broker.sql.named().get(name)
    if table is not None and "iceberg" not in table.head.definition.formats:
        table = None
    if table is None or not ctx.broker.may(key, "consume", table.head.definition.name):
        raise NotFoundError(f"There is no table {name[:150]!r} that you may consume.")
    head = ctx.broker.tables.published(table.head.table_id)
    if head is None:
        raise NotFoundError(f"The table {name!r} has no metadata in the bucket yet; try again.")
    return head


@route(
    "GET",
    _IN_TABLE,
    "icebergTable",
    summary="Load a table: its metadata",
    parameters=[
        *_OF_NAMESPACE,
        query("snapshots", "Which snapshots: `all`, or `refs` for the newest alone.", "all"),
        header("If-None-Match", "The ETag of an earlier answer."),
    ],
    replies=_object(
        {"metadata-location": "s3://lake/tables/…/v12.metadata.json", "metadata": {}, "config": {}},
        "The table",
        ETag="Of this metadata.",
    )
    | {304: Reply(description="Not changed")}
    | no_content("HEAD: there is one"),
    **_DECLARED,
)
async def table(ctx: RequestContext) -> object:
    wanted = choice(ctx.call.query.get("snapshots", "all"), "snapshots", ("all", "refs"))
    head = _found(ctx)
    if _is_head(ctx):
        return None
    config = _reader_config(ctx)
    said = f"{head.table_id} {head.number} {wanted} {sorted(config.items())}"
    etag = f'"{blake2b(said.encode(), digest_size=12).hexdigest()}"'.encode()
    headers: Headers = [(b"etag", etag), (b"cache-control", b"private, no-cache")]
    given = ctx.call.headers.get(b"if-none-match", b"")
    if etag in [tag.strip().removeprefix(b"W/") for tag in given.split(b",")]:
        return Answer(304, headers)
    definition = head.definition
    at = f"{definition.address}/{definition.location}{metadata_name(head.number)}"
    metadata = await asyncio.to_thread(_metadata, head, wanted)  # 2 MB, of many columns
    loaded = {"metadata-location": at, "metadata": metadata, "config": config}
    return json_answer(200, loaded, headers)


def _reader_config(ctx: RequestContext) -> dict[str, str]:
    if ctx.options.table_reader_key is None:
        return {}
    access_key_id, secret = ctx.options.table_reader_key
    keys = {"s3.access-key-id": access_key_id, "s3.secret-access-key": secret}
    return {**ctx.options.table_store, **keys}


def _metadata(head: TableHead, wanted: str) -> msgspec.Raw:
    """With `refs`, without the snapshots that no branch has."""
    from seb_appliance.lake.iceberg import metadata  # no table, no printer

    printed = metadata(head)
    if wanted == "all":
        return msgspec.Raw(printed)
    members: dict[str, Any] = msgspec.json.decode(printed)
    kept = {ref["snapshot-id"] for ref in members.get("refs", {}).values()}
    members["snapshots"] = [
        one for one in members.get("snapshots", ()) if one["snapshot-id"] in kept
    ]
    return msgspec.Raw(msgspec.json.encode(members))


@route(
    "POST",
    _IN_TABLE + "/metrics",
    "icebergMetrics",
    summary="Take a report of a scan, and forget it",
    parameters=_OF_NAMESPACE,
    body={JSON_MEDIA: Content(schema=_OBJECT, example={"report-type": "scan-report"})},
    decodes=False,
    replies=no_content("Taken"),
    **_DECLARED | {"errors": (NotFoundError, RequestTooLargeError, UnsupportedMediaTypeError)},
)
async def metrics(ctx: RequestContext) -> None:
    _found(ctx)
    _, reservation = await read_body(
        ctx.request.receive,
        ctx.call.headers,
        ctx.call.owner,
        ctx.broker.pending,
        limits.MANAGE_BYTES_MAX,
    )
    reservation.release()


ROUTES: Final[Sequence[Route]] = [
    token,
    config,
    namespaces,
    namespace,
    tables,
    views,
    table,
    metrics,
]
