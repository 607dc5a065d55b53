"""The routes of the door, which refuse in the protocol's way."""

from __future__ import annotations

from litestar import Router

from seb_appliance.api.options import ApiOptions
from seb_appliance.api.streams import reading, writing
from seb_appliance.api.streams.answers import answer_error
from seb_appliance.broker.broker import Broker


def router(broker: Broker, options: ApiOptions) -> Router:
    return Router(
        path="/v1/stream",
        route_handlers=[*reading.routes(broker, options), *writing.routes(broker, options)],
        exception_handlers={Exception: answer_error},
    )
