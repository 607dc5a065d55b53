"""`/v1/status`, `/v1/cost` and `/v1/snapshots`: for the operator of the appliance."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.routes.route import (
    RequestContext,
    json_reply,
    route,
)
from seb_appliance.broker.status import Status
from seb_appliance.errors import StandbyError, StoreUnavailableError


class StatusOut(Status):
    """`problems`: sentences for the operator. `ready` is true if there are none and the appliance
    is not a standby."""

    ready: bool
    problems: list[str]


class CostLine(msgspec.Struct):
    """A line of the bill. `unit`: `requests`, `GB-months`, `GB` (10^9 bytes) or `month`.
    `included`: the part of `quantity` that is free. `forecast_amount`: the amount for the whole
    month."""

    what: str
    quantity: float
    unit: str
    included: float
    amount: float
    forecast_amount: float


class PurposeCost(msgspec.Struct):
    """Number of requests by kind, for one purpose: `start`, `journal`, `read`, `snapshot` or
    `tidier`."""

    purpose: str
    requests: dict[str, int]
    amount: float


class TopicCost(msgspec.Struct):
    """The cost of a topic. The cost of each journal entry is divided among topics by their bytes in
    it; `entries` is the sum of these fractions. Storage is divided by the bytes of records. `topic`
    null: all other topics, and deleted ones."""

    topic: str | None
    entries: float
    requests_amount: float
    storage_amount: float
    amount: float


class PricesOut(msgspec.Struct):
    """The price list. `as_of`: the year and month of the list; "" for own prices. The appliance
    does not update prices: compare them with a bill."""

    name: str
    as_of: str


class BudgetOut(msgspec.Struct):
    """`monthly` is null if there is no budget. `linger_ms`: the current linger of topics that set
    none themselves. `linger_why`: a sentence about what linger = auto does; "" if linger is not
    auto."""

    monthly: float | None
    linger_ms: int
    linger_why: str


class CostOut(msgspec.Struct):
    """Amounts are in `currency`, without tax. `counted_since`: when counting began; later than the
    beginning of the month if the machine was new then. `failure`: why the numbers cannot be saved
    on this machine; "" if they can. `comparison`: a sentence that compares journal entries with a
    managed queue."""

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
    comparison: str
    failure: str


class SnapshotOut(msgspec.Struct):
    """`seq`: the last journal entry in the newest snapshot."""

    seq: int


_STATUS: Final = {
    "version": "0.1.0",
    "started": "2026-11-21T10:00:00.000123Z",
    "uptime_s": 512.4,
    "standby": None,
    "journal": {
        "seq": 1207,
        "epoch": 4,
        "fencing_mode": "A",
        "durability": "s3",
        "bucket_id": "5f1d6c0be3a2479b8c2e6a90d417f35a",
        "clock_ahead_s": 0.0,
    },
    "remembered": {
        "requests": 41,
        "places": 57,
        "places_max": limits.REMEMBERED_REQUESTS_MAX,
        "oldest_request": "2026-11-20T10:00:00.000123Z",
        "producers": 3,
        "producers_max": limits.PRODUCERS_MAX,
    },
    "bucket": {
        "description": "s3://orders/seb",
        "last_answer_age_s": 0.4,
        "failing_s": None,
        "failure": "",
    },
    "state": {"lag_entries": 0, "failure": ""},
    "snapshots": {"seq": 1100, "entries_since": 107, "failure": ""},
    "tidier": {
        "doing": "merging entries 101 to 940",
        "failure": "",
        "waiting_entries": 1107,
        "waiting_bytes": 17301504,
        "overdue_s": 0,
        "objects": 12,
        "garbage": 2,
        "jobs": 31,
        "failures": 0,
        "bytes_read": 520093696,
        "bytes_written": 498073600,
        "topics_trimmed": 3,
        "compacted_topics": 2,
        "compacted_bytes": 41943040,
        "dirty_bytes": 1048576,
        "compactions": 7,
        "records_removed": 310224,
        "entries_removed": 9120,
        "objects_removed": 4,
    },
    "tables": {
        "doing": "",
        "failure": "",
        "tables": 2,
        "worst_lag_s": 31.5,
        "lag_records": 118,
        "files": 24,
        "stored_bytes": 73400320,
        "unpublished": 0,
        "foreign": 0,
        "commits": 96,
        "failures": 0,
        "rows": 310106,
        "bad_rows": 0,
        "bytes_read": 41943040,
        "bytes_written": 12582912,
        "sql_queries": 7,
        "sql_failures": 0,
        "sql_seconds": 0.9,
        "memory_bytes": 125829120,
    },
    "key_index": {
        "topics": 1,
        "lag_records": 0,
        "size_bytes": 4096,
        "rebuilds": 0,
        "failure": "",
        "behind": [],
    },
    "last_used": {"failure": ""},
    "waiting": {
        "pending_bytes": 2048,
        "pending_bytes_max": 67108864,
        "reading_bytes": 0,
        "reading_bytes_max": 67108864,
        "waiting_readers": 3,
    },
    "shares": [
        {
            "name": "groups",
            "limit": 100000,
            "used": 6,
            "largest": "q2rk7hza",
            "largest_held": 4,
            "refusals": 0,
            "forgets": False,
        }
    ],
    "background": [
        {
            "name": "key-index",
            "essential": True,
            "failing": False,
            "failures": 0,
            "failure": "",
        }
    ],
    "cost": {
        "currency": "USD",
        "this_month": 1.91,
        "forecast": 4.87,
        "budget": 5.0,
        "linger_ms": 1640,
        "failure": "",
    },
    "ports": [{"protocol": "MQTT", "connections": 3, "stalled": 0}],
    "counts": {
        "topics": 14,
        "groups": 6,
        "queues": 1,
        "members": 0,
        "connections": 3,
        "api_keys": 11,
        "records": 1204338,
    },
    "ready": True,
    "problems": [],
}


@route(
    "GET",
    "/v1/status",
    "getStatus",
    tag="System",
    summary="Show the state of the appliance; needs an admin key",
    description="The bucket is queried only if its last answer is more than 30 s old.",
    replies=json_reply(StatusOut, _STATUS, "How it is"),
    grant="admin",
)
async def get_status(ctx: RequestContext) -> object:
    readiness = await ctx.broker.readiness()
    known = msgspec.structs.asdict(await ctx.services.status())
    return StatusOut(**known, ready=readiness.ready, problems=readiness.problems)


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
    "comparison": "From 2 records/s on, journal entries cost less than SQS FIFO (1.50 USD per "
    "million records, each sent and acknowledged on its own). At lower rates they cost at most "
    "7.90 USD a month, more than SQS.",
    "failure": "",
}


@route(
    "GET",
    "/v1/cost",
    "getCost",
    tag="System",
    summary="Show what the bucket costs this month, by operation, purpose and topic; needs an "
    "admin key",
    description="Computed from counted requests and stored bytes. The appliance does not update "
    "its price lists: compare them with a bill. The forecast assumes that the rest of the month "
    "is like the last day.",
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
    summary="Write a snapshot of the state to the bucket now; needs an admin key",
    description="The next start then has nothing to replay. No snapshot is written if nothing "
    "was stored since the last one. The appliance also writes snapshots by itself.",
    replies=json_reply(SnapshotOut, {"seq": 1207}, "The last journal entry in the newest snapshot"),
    errors=(StandbyError, StoreUnavailableError),
    grant="admin",
    refuses=False,
)
async def make_snapshot(ctx: RequestContext) -> object:
    return SnapshotOut(await ctx.services.snapshot())


ROUTES: Final = [get_status, get_cost, make_snapshot]
