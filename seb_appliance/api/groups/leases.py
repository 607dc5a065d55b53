"""`/v1/groups/{group}/lease`: one consumer at a time, for those who need that."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar import delete, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api import parameters
from seb_appliance.api.answers import Answer, json_answer
from seb_appliance.api.auth import AnyRequest, enter
from seb_appliance.api.groups.rights import authorize_group
from seb_appliance.api.json_bodies import read_json
from seb_appliance.api.parameters import refuse_unsupported
from seb_appliance.broker.broker import Broker
from seb_appliance.errors import BadParameterError

RELEASE_QUERY: Final = frozenset({"generation"})
Holder = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX)]
Ttl = Annotated[int, msgspec.Meta(ge=limits.LEASE_TTL_MS_MIN, le=limits.LEASE_TTL_MS_MAX)]


class NewLease(msgspec.Struct, forbid_unknown_fields=True):
    """`holder` names who asks: the same one renews, any other is refused while it lives."""

    holder: Holder
    ttl_ms: Ttl


class LeaseTakenOut(msgspec.Struct):
    """Send `generation` with each commit. Renew well before `expires_in_ms` is over."""

    group: str
    generation: int
    holder: str
    ttl_ms: int
    expires_in_ms: int


_decoder: Final = msgspec.json.Decoder(NewLease)


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @post("/v1/groups/{group:str}/lease", status_code=200)
    async def take_lease(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        group: str = request.scope["path_params"]["group"]
        broker.authorize(call.key, "consume", group=group)
        asked = await read_json(request, call, broker, _decoder)
        await authorize_group(broker, call.key, "consume", group)
        lease = await broker.groups.take_lease(group, asked.holder, asked.ttl_ms, call.owner)
        taken = LeaseTakenOut(
            group, lease.generation, lease.holder, lease.ttl_ms, lease.expires_in_ms
        )
        return json_answer(200, taken)

    @delete("/v1/groups/{group:str}/lease", status_code=200)  # the answer itself says 204
    async def release_lease(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, RELEASE_QUERY)
        group: str = request.scope["path_params"]["group"]
        await authorize_group(broker, call.key, "consume", group)
        refuse_unsupported(call.headers)
        given = call.query.get("generation")
        if given is None:
            raise BadParameterError("Say which lease: ?generation= with what taking it answered.")
        generation = parameters.integer(given, "generation", smallest=1, largest=limits.OFFSET_MAX)
        await broker.groups.release_lease(group, generation, call.owner)
        return Answer(204, [])

    return [take_lease, release_lease]
