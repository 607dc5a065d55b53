"""`GET /v1/cost`: what the bucket costs this month, for its operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import json_answer
from seb_appliance.api.server.auth import AnyRequest, enter
from seb_appliance.broker.broker import Broker


class CostLine(msgspec.Struct):
    """A line of the bill. `unit`: `requests`, `GB-months`, `GB` (10^9 bytes) or `month`; `included`
    of `quantity` cost nothing. `forecast_amount`: of the whole month."""

    what: str
    quantity: float
    unit: str
    included: float
    amount: float
    forecast_amount: float


class PurposeCost(msgspec.Struct):
    """Requests for one purpose: `start`, `journal`, `read`, `snapshot`, `tidier`; by kind."""

    purpose: str
    requests: dict[str, int]
    amount: float


class TopicCost(msgspec.Struct):
    """A topic's fair share: of the requests as it has of the bytes of each journal entry, summed
    in `entries`; of the storage as it has of the records' bytes. Null: all other topics, and those
    that are gone."""

    topic: str | None
    entries: float
    requests_amount: float
    storage_amount: float
    amount: float


class PricesOut(msgspec.Struct):
    """`as_of`: the year and month in which they were known; "" for own ones. Nobody fetches them:
    compare them with a bill."""

    name: str
    as_of: str


class BudgetOut(msgspec.Struct):
    """`monthly` null: there is none. `linger_ms`: the window of now, of topics that set none
    themselves; `linger_why`: what linger = auto does, as a sentence; "" where it is not auto."""

    monthly: float | None
    linger_ms: int
    linger_why: str


class CostOut(msgspec.Struct):
    """Amounts in `currency`, without tax. `counted_since`: from then on all is counted; later than
    the month's beginning when the machine was new. `failure`: why the numbers cannot be written
    down on this machine, "" while they can."""

    month: str
    counted_since: str
    until: str
    currency: str
    prices: PricesOut
    this_month: float
    forecast: float
    stored_bytes: int
    lines: list[CostLine]
    purposes: list[PurposeCost]
    topics: list[TopicCost]
    budget: BudgetOut
    failure: str


def routes(broker: Broker, cost: Callable[[], CostOut]) -> list[HTTPRouteHandler]:
    @get("/v1/cost")
    async def get_cost(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        broker.authorize(call.key, "admin")
        return json_answer(200, cost())

    return [get_cost]


# `POST /v1/snapshots`: a snapshot of the state in the bucket, now.


class SnapshotOut(msgspec.Struct):
    """`seq`: up to which entry the newest snapshot reaches now."""

    seq: int


def snapshot_routes(
    broker: Broker, snapshot: Callable[[], Awaitable[int]]
) -> list[HTTPRouteHandler]:
    @post("/v1/snapshots")
    async def make_snapshot(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        broker.authorize(call.key, "admin")
        return json_answer(200, SnapshotOut(await snapshot()))

    return [make_snapshot]
