"""`/v1/api-keys`: for admin keys. Secrets are shown once, hashes never."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from litestar import delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp
from msgspec import UNSET, UnsetType

from seb_appliance import limits, quantities
from seb_appliance.api.encoding.answers import Answer, json_answer
from seb_appliance.api.encoding.json_bodies import read_json
from seb_appliance.api.encoding.parameters import duration_ms, refuse_unsupported
from seb_appliance.api.encoding.times import AwareTime, format_time, to_us
from seb_appliance.api.routes.records.many import patterns_of
from seb_appliance.api.server.auth import AnyRequest, Call, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import NO_QUOTAS, ApiKeyView
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.declared import changes_of, given

KeyName = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.API_KEY_NAME_LENGTH_MAX)]
Description = Annotated[str, msgspec.Meta(max_length=limits.API_KEY_DESCRIPTION_LENGTH_MAX)]
Grants = Annotated[
    tuple[Grant, ...], msgspec.Meta(min_length=1, max_length=limits.GRANTS_PER_API_KEY_MAX)
]


class NewApiKey(msgspec.Struct, forbid_unknown_fields=True):
    """An API key to be made. `expires` null: never."""

    name: KeyName
    grants: Grants
    expires: AwareTime | None = None
    description: Description = ""
    disabled: bool = False
    quotas: Quotas | None = None


class QuotaChanges(changes_of(Quotas, constrained=True)):  # type: ignore[misc]
    """Quotas to change; null takes one away, an absent one stays."""


class ApiKeyChanges(msgspec.Struct, forbid_unknown_fields=True):
    """What to change; an absent member stays. `grants` replace all grants; `expires` null: never;
    `quotas` null: none."""

    name: KeyName | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    grants: Grants | UnsetType = UNSET
    expires: AwareTime | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET
    quotas: QuotaChanges | UnsetType | None = UNSET


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """`overlap`: how long the secret of now works beside the new one, with its unit."""

    overlap: str = quantities.format_duration(limits.API_KEY_OVERLAP_MS_DEFAULT)


class ApiKeyOut(msgspec.Struct):
    """An API key without its secret. `overlap_until`: until when the secret before the newest one
    works. `last_used`: as far as this machine knows, which forgets it with its data directory."""

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
    """The answer that shows the secret, once: it is the whole key, to be sent as Bearer."""

    secret: str


class ApiKeysOut(msgspec.Struct):
    api_keys: list[ApiKeyOut]


_decoder: Final = msgspec.json.Decoder(NewApiKey)
_changes_decoder: Final = msgspec.json.Decoder(ApiKeyChanges)
_rotation_decoder: Final = msgspec.json.Decoder(Rotation)


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


def _enter(request: AnyRequest, broker: Broker) -> Call:
    """The call of an admin key. Raises ForbiddenError, and what `enter` raises."""
    call = enter(request, broker)
    broker.authorize(call.key, "admin")
    return call


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    return [*_reading(broker), *_changing(broker)]


def _reading(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/v1/api-keys")
    async def list_api_keys(request: AnyRequest) -> ASGIApp:
        _enter(request, broker)
        return json_answer(200, ApiKeysOut([_out(broker, view) for view in broker.access.all()]))

    @get("/v1/api-keys/{api_key_id:str}")
    async def get_api_key(request: AnyRequest) -> ASGIApp:
        _enter(request, broker)
        return json_answer(
            200, _out(broker, broker.access.get(request.scope["path_params"]["api_key_id"]))
        )

    return [list_api_keys, get_api_key]


def _changing(broker: Broker) -> list[HTTPRouteHandler]:
    @post("/v1/api-keys")
    async def create_api_key(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker)
        asked = await read_json(request, call, broker, _decoder)
        view, secret = await broker.access.create(
            asked.name,
            asked.grants,
            None if asked.expires is None else to_us(asked.expires),
            description=asked.description,
            disabled=asked.disabled,
            quotas=asked.quotas or NO_QUOTAS,
            by=call.actor,
        )
        return json_answer(201, _made(_out(broker, view), secret))

    @patch("/v1/api-keys/{api_key_id:str}")
    async def change_api_key(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker)
        asked = await read_json(request, call, broker, _changes_decoder)
        api_key_id: str = request.scope["path_params"]["api_key_id"]
        view = await broker.access.change(api_key_id, _changes(asked), call.actor)
        return json_answer(200, _out(broker, view))

    @post("/v1/api-keys/{api_key_id:str}/rotate", status_code=200)
    async def rotate_api_key(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker)
        asked = await read_json(request, call, broker, _rotation_decoder)
        overlap_ms = duration_ms(asked.overlap, "overlap", largest=limits.API_KEY_OVERLAP_MS_MAX)
        api_key_id: str = request.scope["path_params"]["api_key_id"]
        view, secret = await broker.access.rotate(api_key_id, overlap_ms, call.actor)
        return json_answer(200, _made(_out(broker, view), secret))

    @delete("/v1/api-keys/{api_key_id:str}", status_code=200)  # the answer itself says 204
    async def revoke_api_key(request: AnyRequest) -> ASGIApp:
        call = _enter(request, broker)
        refuse_unsupported(call.headers)
        await broker.access.revoke(request.scope["path_params"]["api_key_id"], call.actor)
        return Answer(204, [])

    return [create_api_key, change_api_key, rotate_api_key, revoke_api_key]


# `POST /v1/tickets`: what an EventSource in a browser shows, as it can send no header.


class NewTicket(msgspec.Struct, forbid_unknown_fields=True):
    """`topics`: patterns with commas between them, of the topics that may be read with it."""

    topics: str


class TicketOut(msgspec.Struct):
    """`ticket` goes into the query, as `?ticket=`, any number of times until `expires`."""

    ticket: str
    topics: str
    expires: str


_ticket_decoder: Final = msgspec.json.Decoder(NewTicket)


def ticket_routes(broker: Broker) -> list[HTTPRouteHandler]:
    @post("/v1/tickets")
    async def make_ticket(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        broker.authorize(call.key, "consume")
        until_us = broker.access.holds_until_us(call.key)
        asked = await read_json(request, call, broker, _ticket_decoder)
        made = broker.access.tickets.give(call.key, until_us, patterns_of(asked.topics))
        return json_answer(201, TicketOut(made.text, asked.topics, format_time(made.expires_us)))

    return [make_ticket]
