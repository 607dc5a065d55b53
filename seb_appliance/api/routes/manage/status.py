"""`GET /v1/status`: how the appliance is, for its operator."""

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


class StatusOut(Status):
    """`problems`: sentences for the operator; ready when there are none, and it is no standby."""

    ready: bool
    problems: list[str]


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
    "counts": {"topics": 14, "groups": 6, "api_keys": 11, "records": 1204338},
    "ready": True,
    "problems": [],
}


@route(
    "GET",
    "/v1/status",
    "getStatus",
    tag="System",
    summary="How the appliance is, for its operator: an admin key is needed",
    description="Ready when there are no `problems`. The bucket is asked only when its last "
    "answer is over 30 s old.",
    replies=json_reply(StatusOut, _STATUS, "How it is"),
    grant="admin",
)
async def get_status(ctx: RequestContext) -> object:
    readiness = await ctx.broker.readiness()
    known = msgspec.structs.asdict(ctx.services.status())
    return StatusOut(**known, ready=readiness.ready, problems=readiness.problems)


ROUTES: Final = [get_status]
