"""`GET /v1/cost`: what the bucket costs this month, for its operator."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance.api.routes.route import (
    RequestContext,
    json_reply,
    route,
)
from seb_appliance.errors import (
    StandbyError,
    StoreUnavailableError,
)


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


# `POST /v1/snapshots`: a snapshot of the state in the bucket, now.
class SnapshotOut(msgspec.Struct):
    """`seq`: up to which entry the newest snapshot reaches now."""

    seq: int


_COST: Final = {
    "month": "2026-11",
    "counted_since": "2026-11-01T00:00:00.000000Z",
    "until": "2026-11-12T10:00:00.000123Z",
    "currency": "USD",
    "prices": {"name": "AWS S3 Standard, us-east-1", "as_of": "2025-06"},
    "this_month": 1.91,
    "forecast": 4.87,
    "stored_bytes": 8123456789,
    "lines": [
        {
            "what": "PUT, LIST",
            "quantity": 361000,
            "unit": "requests",
            "included": 0,
            "amount": 1.81,
            "forecast_amount": 4.63,
        },
        {
            "what": "storage",
            "quantity": 3.1,
            "unit": "GB-months",
            "included": 0,
            "amount": 0.07,
            "forecast_amount": 0.2,
        },
    ],
    "purposes": [{"purpose": "journal", "requests": {"PUT": 360000}, "amount": 1.8}],
    "topics": [
        {
            "topic": "orders.eu",
            "entries": 290112.4,
            "requests_amount": 1.45,
            "storage_amount": 0.05,
            "amount": 1.5,
        },
        {
            "topic": None,
            "entries": 69887.6,
            "requests_amount": 0.36,
            "storage_amount": 0.02,
            "amount": 0.38,
        },
    ],
    "budget": {
        "monthly": 5.0,
        "linger_ms": 1640,
        "linger_why": "Windows are stretched from 1s to 1.64s, so that the month keeps to 5.00 "
        "USD.",
    },
    "failure": "",
}


@route(
    "GET",
    "/v1/cost",
    "getCost",
    tag="System",
    summary="What the bucket costs this month, by operation, purpose and topic: an admin key "
    "is needed",
    description="Counted from real requests and stored bytes, at prices that nobody fetches: "
    "compare them with a bill. The forecast goes on as the last day did.",
    replies=json_reply(CostOut, _COST, "What it costs"),
    grant="admin",
)
async def get_cost(ctx: RequestContext) -> object:
    return ctx.services.costs()


@route(
    "POST",
    "/v1/snapshots",
    "makeSnapshot",
    tag="System",
    summary="Put a snapshot of the state into the bucket now: an admin key is needed",
    description="So that the next start replays nothing. None is made when nothing was stored "
    "since the last one. The appliance makes them by itself, too.",
    replies=json_reply(
        SnapshotOut, {"seq": 1207}, "Up to which journal entry the newest snapshot reaches"
    ),
    errors=(StandbyError, StoreUnavailableError),
    grant="admin",
    refuses=False,
)
async def make_snapshot(ctx: RequestContext) -> object:
    return SnapshotOut(await ctx.services.snapshot())


ROUTES: Final = [get_cost, make_snapshot]
