"""The routes of Durable Streams, with errors as the protocol wants them."""

from __future__ import annotations

from typing import Final

from litestar import Router

from seb_appliance.api.routes.route import Services
from seb_appliance.protocols.durable_streams import reading, writing
from seb_appliance.protocols.durable_streams.answers import answer_error

ROUTES: Final = [*writing.ROUTES, *reading.ROUTES]


def router(services: Services) -> Router:
    return Router(
        path="/",
        route_handlers=[route.served(services) for route in ROUTES],
        exception_handlers={Exception: answer_error},
    )
