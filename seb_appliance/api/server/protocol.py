"""`Protocol`: what a protocol adds to the application. The composition root names those in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from litestar import Request, Response, Router

from seb_appliance.api.routes.route import Route, Services
from seb_appliance.api.server.plain_requests import PlainProtocol


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """`answer_error` is the exception handler of its routes; `plain` answers its plain requests;
    `path_prefix`: its paths begin so, and it checks them itself."""

    routes: Sequence[Route]
    answer_error: Callable[[Request[Any, Any, Any], Exception], Response[bytes]]
    plain: PlainProtocol | None = None
    path_prefix: bytes | None = None

    def router(self, services: Services) -> Router:
        return Router(
            path="/",
            route_handlers=[route.served(services) for route in self.routes],
            exception_handlers={Exception: self.answer_error},
        )
