"""Which consumer groups an API key may use: those that it may use by HTTP."""

from __future__ import annotations

from seb_appliance.api.routes.groups.groups import authorize_group
from seb_appliance.errors import ForbiddenError
from seb_appliance.protocols.kafka.requests import Request
from seb_appliance.protocols.kafka.server import Server


async def may_use(server: Server, request: Request, group: str) -> bool:
    if not request.may("consume", group=group):
        return False
    try:
        await authorize_group(server.broker, request.caller.key, "consume", group)
    except ForbiddenError:
        return False
    return True
