"""Which consumer groups an API key may use: those that it may use by HTTP."""

from __future__ import annotations

from seb_appliance.api.routes.groups.groups import authorize_group
from seb_appliance.errors import ForbiddenError
from seb_appliance.protocols.kafka.groups.telling import subscribed_of
from seb_appliance.protocols.kafka.requests import Request
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.tasks import in_slices


async def may_use(server: Server, request: Request, group: str) -> bool:
    """A grant on one of the topics that the group stands on. A group that has not committed yet
    belongs to its members: to their API keys, and to those that may read what they subscribe to."""
    broker, key = server.broker, request.caller.key
    if not request.may("consume", group=group):
        return False
    try:
        await authorize_group(broker, key, "consume", group)
    except ForbiddenError:
        return False
    if broker.may(key, "admin") or broker.groups.stands_on(group):
        return True
    is_new = True
    async for owner, metadata in in_slices(server.coordinator.owners(group)):
        is_new = False
        if owner == key.api_key_id or any(
            request.may("consume", topic, group) for topic in subscribed_of(metadata)
        ):
            return True
    return is_new
