"""What the bucket costs, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.openapi.document import Content, Operation, Reply, ref
from seb_appliance.api.routes.manage.cost import CostOut

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

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v1/cost",
        operation_id="getCost",
        tag="System",
        summary="What the bucket costs this month, by operation, purpose and topic: an admin key "
        "is needed",
        description="Counted from real requests and stored bytes, at prices that nobody fetches: "
        "compare them with a bill. The forecast goes on as the last day did.",
        replies={
            200: Reply(
                description="What it costs",
                content={"application/json": Content(schema=ref(CostOut), example=_COST)},
            )
        },
    )
]
SCHEMAS: Final = [CostOut]
