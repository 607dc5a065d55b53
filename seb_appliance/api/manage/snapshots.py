"""`POST /v1/snapshots`: a snapshot of the state in the bucket, now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.answers import json_answer
from seb_appliance.api.auth import AnyRequest, enter
from seb_appliance.broker.broker import Broker


class SnapshotOut(msgspec.Struct):
    """`seq`: up to which entry the newest snapshot reaches now."""

    seq: int


def routes(broker: Broker, snapshot: Callable[[], Awaitable[int]]) -> list[HTTPRouteHandler]:
    @post("/v1/snapshots")
    async def make_snapshot(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        broker.authorize(call.key, "admin")
        return json_answer(200, SnapshotOut(await snapshot()))

    return [make_snapshot]
