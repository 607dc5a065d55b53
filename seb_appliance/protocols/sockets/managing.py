"""`/v1/connections`: who is connected to the ports of protocols."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import format_time
from seb_appliance.api.encoding.parameters import integer
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.openapi.shared import TIME
from seb_appliance.api.routes.route import RequestContext, json_reply, no_content, route
from seb_appliance.errors import NotFoundError
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.connected import Connected, connections_of

_TAG: Final = "Connections"


class StalledOut(msgspec.Struct):
    """A producer whose throughput the window bounds: it has as many requests unanswered as it ever
    has (`in_flight`), nearly all of the time, and each waits `window_ms` for the window. `topic`:
    of its last request. A shorter `linger` or `early_flush` of the topic helps, or larger
    requests."""

    topic: str
    in_flight: int
    window_ms: float


class ConnectionOut(msgspec.Struct):
    """A client of the port of a protocol: its connection, or its session while it is away.
    `connection`: the number of that since the start. `client`: what it calls itself, such as an
    MQTT client id. `received` and `sent`: messages since it came; `waiting`: those that were sent
    and are not acknowledged. `until`: when the session of a client that is away ends; null while it
    is connected. `stalled`: of a Kafka client; null if it is not."""

    connection: int
    protocol: str
    client: str
    api_key_id: str
    address: str
    since: str | None
    subscriptions: int
    received: int
    sent: int
    waiting: int
    until: str | None
    stalled: StalledOut | None


class ConnectionsOut(msgspec.Struct):
    """`total`: how many match; 1,000 of them are shown."""

    connections: list[ConnectionOut]
    total: int


_CONNECTION: Final = {
    "connection": 17,
    "protocol": "MQTT 5",
    "client": "thermometer-1",
    "api_key_id": "7ckd4wpx",
    "address": "192.0.2.7",
    "since": TIME,
    "subscriptions": 1,
    "received": 1_044,
    "sent": 3,
    "waiting": 0,
    "until": None,
    "stalled": None,
}


def _out(one: Connected) -> ConnectionOut:
    times = [None if at is None else format_time(at) for at in (one.since_us, one.until_us)]
    stalled = None
    if one.stalled is not None:
        stalled = StalledOut(*one.stalled[:2], round(one.stalled.window_s * 1000, 3))
    return ConnectionOut(*one[:5], times[0], *one[6:10], times[1], stalled)


@route(
    "GET",
    "/v1/connections",
    "listConnections",
    tag=_TAG,
    summary="List the clients of the ports of MQTT and other protocols",
    description="Those that are connected, and those that have a session and are away. Requests of "
    "the API are no such connections.",
    parameters=[query("filter", "Only whose client, API key or address contains this.")],
    replies=json_reply(ConnectionsOut, {"connections": [_CONNECTION], "total": 1}, "Clients"),
    grant="admin",
)
async def list_connections(ctx: RequestContext) -> object:
    all_of_them = connections_of(ctx.options.beside)
    found, total = await all_of_them.find(
        ctx.call.query.get("filter", ""), socket_limits.CONNECTIONS_SHOWN_MAX
    )
    return ConnectionsOut([_out(one) for one in found], total)


@route(
    "DELETE",
    "/v1/connections/{connection}",
    "closeConnection",
    tag=_TAG,
    summary="End a connection, or the session of a client that is away",
    description="The client may come again. To keep it out, disable its API key.",
    replies=no_content("It is ended"),
    errors=(NotFoundError,),
    grant="admin",
)
async def close_connection(ctx: RequestContext) -> None:
    connections_of(ctx.options.beside).disconnect(
        integer(ctx.path["connection"], "connection", smallest=0, largest=limits.OFFSET_MAX)
    )


ROUTES: Final = [list_connections, close_connection]
