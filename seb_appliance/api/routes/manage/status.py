"""`GET /v1/status`: how the appliance is, for its operator."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import json_answer
from seb_appliance.api.server.auth import AnyRequest, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.status import Status


class StatusOut(Status):
    """`problems`: sentences for the operator; ready when there are none, and it is no standby."""

    ready: bool
    problems: list[str]


def routes(broker: Broker, status: Callable[[], Status]) -> list[HTTPRouteHandler]:
    @get("/v1/status")
    async def get_status(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        broker.authorize(call.key, "admin")
        readiness = await broker.readiness()
        known = msgspec.structs.asdict(status())
        answer = StatusOut(**known, ready=readiness.ready, problems=readiness.problems)
        return json_answer(200, answer)

    return [get_status]
