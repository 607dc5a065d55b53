"""`/v1/api-keys`: made, shown and revoked by admin keys. Secrets are shown once, hashes never."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.answers import Answer, json_answer
from seb_appliance.api.auth import AnyRequest, Call, enter
from seb_appliance.api.json_bodies import read_json
from seb_appliance.api.parameters import refuse_unsupported
from seb_appliance.api.times import AwareTime, format_time, to_us
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.formats.operations import Grant

KeyName = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.API_KEY_NAME_LENGTH_MAX)]
Grants = Annotated[
    tuple[Grant, ...], msgspec.Meta(min_length=1, max_length=limits.GRANTS_PER_API_KEY_MAX)
]


class NewApiKey(msgspec.Struct, forbid_unknown_fields=True):
    """An API key to be made. `expires` null: never."""

    name: KeyName
    grants: Grants
    expires: AwareTime | None = None


class ApiKeyOut(msgspec.Struct):
    """An API key without its secret."""

    api_key_id: str
    name: str
    grants: tuple[Grant, ...]
    created: str
    expires: str | None


class ApiKeyMade(ApiKeyOut):
    """The answer that shows the secret, once: it is the whole key, to be sent as Bearer."""

    secret: str


class ApiKeysOut(msgspec.Struct):
    api_keys: list[ApiKeyOut]


_decoder: Final = msgspec.json.Decoder(NewApiKey)


def _members(view: ApiKeyView) -> tuple[str, str, tuple[Grant, ...], str, str | None]:
    expires = None if view.expires_us is None else format_time(view.expires_us)
    return view.api_key_id, view.name, view.grants, format_time(view.created_us), expires


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    def enter_as_admin(request: AnyRequest) -> Call:
        call = enter(request, broker)
        broker.authorize(call.key, "admin")
        return call

    @get("/v1/api-keys")
    async def list_api_keys(request: AnyRequest) -> ASGIApp:
        enter_as_admin(request)
        return json_answer(200, ApiKeysOut([ApiKeyOut(*_members(v)) for v in broker.api_keys()]))

    @post("/v1/api-keys")
    async def create_api_key(request: AnyRequest) -> ASGIApp:
        call = enter_as_admin(request)
        asked = await read_json(request, call, broker, _decoder)
        expires_us = None if asked.expires is None else to_us(asked.expires)
        view, secret = await broker.create_api_key(asked.name, asked.grants, expires_us)
        return json_answer(201, ApiKeyMade(*_members(view), secret))

    @get("/v1/api-keys/{api_key_id:str}")
    async def get_api_key(request: AnyRequest) -> ASGIApp:
        enter_as_admin(request)
        view = broker.api_key(request.scope["path_params"]["api_key_id"])
        return json_answer(200, ApiKeyOut(*_members(view)))

    @delete("/v1/api-keys/{api_key_id:str}", status_code=200)  # the answer itself says 204
    async def revoke_api_key(request: AnyRequest) -> ASGIApp:
        call = enter_as_admin(request)
        refuse_unsupported(call.headers)
        await broker.revoke_api_key(request.scope["path_params"]["api_key_id"])
        return Answer(204, [])

    return [list_api_keys, create_api_key, get_api_key, revoke_api_key]
