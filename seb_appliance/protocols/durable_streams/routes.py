"""The routes of the door, which refuse in the protocol's way."""

from __future__ import annotations

from litestar import Router

from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.protocols.durable_streams import reading, writing
from seb_appliance.protocols.durable_streams.answers import answer_error


def router(broker: Broker, options: ApiOptions) -> Router:
    return Router(
        path="/v1/stream",
        route_handlers=[*reading.routes(broker, options), *writing.routes(broker, options)],
        exception_handlers={Exception: answer_error},
    )
