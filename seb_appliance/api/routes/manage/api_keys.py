"""`/v1/api-keys`: for admin keys. Secrets are shown once, hashes never."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from seb_appliance import limits, quantities
from seb_appliance.api.encoding.answers import AwareTime, format_time, to_us
from seb_appliance.api.encoding.parameters import duration_ms
from seb_appliance.api.openapi.shared import REMOVAL_ERRORS, TIME, WRITE_ERRORS
from seb_appliance.api.routes.records.many import (
    patterns_of,
)
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.api.server.bodies import read_json
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import NO_QUOTAS, ApiKeyView
from seb_appliance.errors import (
    ApiKeyNotFoundError,
    BadJsonError,
    LastAdminKeyError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.declared import changes_of, given

KeyName = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.API_KEY_NAME_LENGTH_MAX)]
Description = Annotated[str, msgspec.Meta(max_length=limits.API_KEY_DESCRIPTION_LENGTH_MAX)]

Grants = Annotated[
    tuple[Grant, ...], msgspec.Meta(min_length=1, max_length=limits.GRANTS_PER_API_KEY_MAX)
]


class NewApiKey(msgspec.Struct, forbid_unknown_fields=True):
    """An API key to create. `expires` null: it never expires. `unique_name`: refuse it if another
    API key has this name."""

    name: KeyName
    grants: Grants
    expires: AwareTime | None = None
    description: Description = ""
    disabled: bool = False
    quotas: Quotas | None = None
    unique_name: bool = False


class QuotaChanges(changes_of(Quotas, constrained=True)):  # type: ignore[misc]
    """Quotas to change: null removes a quota, an absent one does not change."""


class ApiKeyChanges(msgspec.Struct, forbid_unknown_fields=True):
    """The members to change; absent ones do not change. `grants` replaces all grants. `expires`
    null: it never expires. `quotas` null: no quotas."""

    name: KeyName | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    grants: Grants | UnsetType = UNSET
    expires: AwareTime | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET
    quotas: QuotaChanges | UnsetType | None = UNSET


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """`overlap`: how long the current secret stays valid besides the new one, with a unit."""

    overlap: str = quantities.format_duration(limits.API_KEY_OVERLAP_MS_DEFAULT)


class ApiKeyOut(msgspec.Struct):
    """An API key without its secret. `overlap_until`: when the previous secret stops working.
    `last_used` is kept only in the data directory of this machine."""

    api_key_id: str
    name: str
    description: str
    grants: tuple[Grant, ...]
    quotas: Quotas
    created: str
    expires: str | None
    disabled: bool
    overlap_until: str | None
    last_used: str | None


class ApiKeyMade(ApiKeyOut):
    """The only answer that shows the secret. The secret is the whole key; send it as Bearer."""

    secret: str


class ApiKeysOut(msgspec.Struct):
    api_keys: list[ApiKeyOut]


def _changes(asked: ApiKeyChanges) -> dict[str, Any]:
    """As Access.change takes them: only what is given, times in µs."""
    changes = given(asked)
    if "expires" in changes:
        expires = changes.pop("expires")
        changes["expires_us"] = None if expires is None else to_us(expires)
    if "quotas" in changes:
        quotas = NO_QUOTAS if asked.quotas is None else asked.quotas
        changes["quotas"] = given(quotas)
    return changes


def _out(broker: Broker, view: ApiKeyView) -> ApiKeyOut:
    return ApiKeyOut(
        view.api_key_id,
        view.name,
        view.description,
        view.grants,
        view.quotas,
        format_time(view.created_us),
        _time(view.expires_us),
        view.disabled,
        _time(view.overlap_until_us),
        _time(broker.access.last_used.get(view.api_key_id)),
    )


def _made(shown: ApiKeyOut, secret: str) -> ApiKeyMade:
    return ApiKeyMade(**msgspec.structs.asdict(shown), secret=secret)


def _time(timestamp_us: int | None) -> str | None:
    return None if timestamp_us is None else format_time(timestamp_us)


# `POST /v1/tickets`: what an EventSource in a browser shows, as it can send no header.
class NewTicket(msgspec.Struct, forbid_unknown_fields=True):
    """`topics`: patterns of the topics that the ticket may read, separated by commas."""

    topics: str


class TicketOut(msgspec.Struct):
    """Send `ticket` in the query (`?ticket=`). It can be used several times until `expires`."""

    ticket: str
    topics: str
    expires: str


_ticket_decoder: Final = msgspec.json.Decoder(NewTicket)

_NEW_API_KEY: Final = {
    "name": "checkout",
    "description": "writes orders from the shop",
    "grants": [{"operation": "consume", "topics": "orders.*", "groups": "lake.**"}],
    "quotas": {
        "requests_per_second": 200,
        "bytes_in_per_second": 1048576,
        "bytes_out_per_second": None,
    },
    "expires": None,
    "disabled": False,
}
_API_KEY: Final = {
    "api_key_id": "k3m9x2ap",
    **_NEW_API_KEY,
    "created": "2026-11-21T10:00:00.000123Z",
    "overlap_until": None,
    "last_used": "2026-11-21T10:05:00.000123Z",
}
_CHANGES: Final = {"disabled": True, "quotas": {"requests_per_second": None}}
_API_KEY_REPLY: Final = {"application/json": Content(struct=ApiKeyOut, example=_API_KEY)}
_MADE_REPLY: Final = {
    "application/json": Content(
        struct=ApiKeyMade, example={**_API_KEY, "secret": "seb_k3m9x2ap_…_…"}
    )
}


@route(
    "GET",
    "/v1/api-keys",
    "listApiKeys",
    tag="API keys",
    summary="List the API keys, without their secrets",
    replies=json_reply(ApiKeysOut, {"api_keys": [_API_KEY]}, "API keys"),
    grant="admin",
)
async def list_api_keys(ctx: RequestContext) -> object:
    return ApiKeysOut([_out(ctx.broker, view) for view in ctx.broker.access.all()])


@route(
    "GET",
    "/v1/api-keys/{api_key_id}",
    "getApiKey",
    tag="API keys",
    summary="Show an API key, without its secret",
    replies={200: Reply(description="The API key", content=_API_KEY_REPLY)},
    errors=(ApiKeyNotFoundError,),
    grant="admin",
)
async def get_api_key(ctx: RequestContext) -> object:
    return _out(ctx.broker, ctx.broker.access.get(ctx.path["api_key_id"]))


@route(
    "POST",
    "/v1/api-keys",
    "createApiKey",
    tag="API keys",
    summary="Create an API key; only this answer shows its secret",
    body=json_body(NewApiKey, _NEW_API_KEY),
    replies={201: Reply(description="The API key with its secret", content=_MADE_REPLY)},
    errors=WRITE_ERRORS,
    grant="admin",
)
async def create_api_key(ctx: RequestContext) -> object:
    asked: NewApiKey = ctx.body
    view, secret = await ctx.broker.access.create(
        asked.name,
        asked.grants,
        None if asked.expires is None else to_us(asked.expires),
        description=asked.description,
        disabled=asked.disabled,
        quotas=asked.quotas or NO_QUOTAS,
        unique_name=asked.unique_name,
        by=ctx.call.actor,
    )
    return _made(_out(ctx.broker, view), secret)


@route(
    "PATCH",
    "/v1/api-keys/{api_key_id}",
    "changeApiKey",
    tag="API keys",
    summary="Change members of an API key: name, description, grants, expiry, disabled, quotas",
    description="The change applies to every request that begins after the answer. The last "
    "admin key cannot be disabled, given an expiry, or lose its grant.",
    body=json_body(ApiKeyChanges, _CHANGES),
    replies={200: Reply(description="The API key as it is now", content=_API_KEY_REPLY)},
    errors=(*WRITE_ERRORS, ApiKeyNotFoundError, LastAdminKeyError),
    grant="admin",
)
async def change_api_key(ctx: RequestContext) -> object:
    asked: ApiKeyChanges = ctx.body
    view = await ctx.broker.access.change(ctx.path["api_key_id"], _changes(asked), ctx.call.actor)
    return _out(ctx.broker, view)


@route(
    "POST",
    "/v1/api-keys/{api_key_id}/rotate",
    "rotateApiKey",
    tag="API keys",
    summary="Give an API key a new secret; only this answer shows it",
    description="The current secret stays valid for `overlap` (default 24h, at most 30d; `0s` "
    "ends it immediately). Id, grants and quotas do not change. A secret before the current one "
    "stops working, even if its overlap is not over.",
    body=json_body(Rotation, {"overlap": "24h"}),
    body_required=False,
    replies={200: Reply(description="The API key with its new secret", content=_MADE_REPLY)},
    errors=(*WRITE_ERRORS, ApiKeyNotFoundError),
    grant="admin",
)
async def rotate_api_key(ctx: RequestContext) -> object:
    asked: Rotation = ctx.body
    overlap_ms = duration_ms(asked.overlap, "overlap", largest=limits.API_KEY_OVERLAP_MS_MAX)
    view, secret = await ctx.broker.access.rotate(
        ctx.path["api_key_id"], overlap_ms, ctx.call.actor
    )
    return _made(_out(ctx.broker, view), secret)


@route(
    "DELETE",
    "/v1/api-keys/{api_key_id}",
    "revokeApiKey",
    tag="API keys",
    summary="Revoke an API key, durably and immediately",
    replies=no_content("Revoked"),
    errors=(*REMOVAL_ERRORS, ApiKeyNotFoundError, LastAdminKeyError),
    grant="admin",
)
async def revoke_api_key(ctx: RequestContext) -> None:
    await ctx.broker.access.revoke(ctx.path["api_key_id"], ctx.call.actor)


@route(
    "POST",
    "/v1/tickets",
    "makeTicket",
    tag="Records",
    summary="Get a ticket for clients that cannot send headers",
    description="For an EventSource in a browser: `?ticket=` on reading and following records, any "
    f"number of times for {limits.TICKET_S} s, on topics that match. A stream that was opened "
    "in that time stays open. Any change of the API key ends the ticket.",
    body=json_body(NewTicket, {"topics": "orders.*"}),
    replies=json_reply(
        TicketOut,
        {
            "ticket": "tkt_q2Zk3v5rYtUuPd1nN0s8c0oX9L1hQm7w",
            "topics": "orders.*",
            "expires": TIME,
        },
        "The ticket",
        status=201,
    ),
    errors=(BadJsonError, RequestTooLargeError, UnsupportedMediaTypeError),
    grant="consume",
    decodes=False,
)
async def make_ticket(ctx: RequestContext) -> object:
    until_us = ctx.broker.access.holds_until_us(ctx.call.key)
    asked = await read_json(ctx.request, ctx.call, ctx.broker, _ticket_decoder)
    made = ctx.broker.access.tickets.give(ctx.call.key, until_us, patterns_of(asked.topics))
    return TicketOut(made.text, asked.topics, format_time(made.expires_us))


ROUTES: Final = [
    list_api_keys,
    get_api_key,
    create_api_key,
    change_api_key,
    rotate_api_key,
    revoke_api_key,
    make_ticket,
]
