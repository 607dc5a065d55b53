"""`/healthz` (the process lives) and `/readyz` (it takes reads and writes): no API key needed."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.answers import json_answer
from seb_appliance.api.auth import AnyRequest
from seb_appliance.api.peers import is_local
from seb_appliance.broker.broker import Broker
from seb_appliance.errors import NotReadyError


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/healthz")
    async def healthz(request: AnyRequest) -> ASGIApp:  # noqa: ARG001 - Litestar passes it by name
        return json_answer(200, {"status": "ok"})

    @get("/readyz")
    async def readyz(request: AnyRequest) -> ASGIApp:
        readiness = await broker.readiness()
        if readiness.ready:
            return json_answer(200, {"ready": True})
        # The sentences name buckets and files: they are for this machine's operator.
        if is_local(request.scope):
            raise NotReadyError("; ".join(readiness.sentences), problems=readiness.sentences)
        raise NotReadyError("The appliance cannot take reads and writes now.")

    return [healthz, readyz]
