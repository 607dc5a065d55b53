"""Topics, health and this document itself, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, ErrorTypes, Operation, Reply, ref
from seb_appliance.api.openapi.records import WRITE_ERRORS
from seb_appliance.api.routes.manage.cost import SnapshotOut
from seb_appliance.api.routes.manage.status import StatusOut
from seb_appliance.api.routes.manage.topics import (
    ForkWanted,
    NewTopic,
    TopicChanges,
    TopicOut,
    TopicsOut,
    Trim,
)
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.values import ForkOf
from seb_appliance.errors import (
    BadNameError,
    BadParameterError,
    FencedError,
    ForbiddenError,
    ForkRefusedError,
    NameHeldError,
    NotFoundError,
    NotReadyError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    QuotaExceededError,
    ShuttingDownError,
    StandbyError,
    StoreUnavailableError,
    TopicDiffersError,
    TopicHeldError,
    TopicNotFoundError,
    UnauthenticatedError,
)
from seb_appliance.formats.topic_settings import TopicSettings

_JSON: Final = "application/json"
_SET: Final = TopicSettings(
    linger_ms=100, retention_ms=604_800_000, key_index="latest", cleanup="compact"
)
_SETTINGS: Final = msgspec.to_builtins(_SET)
_TOPIC: Final = {
    "topic": "orders.eu",
    "topic_id": 3,
    "created": "2026-11-21T10:00:00.000123Z",
    "settings": _SETTINGS,
    "effective_settings": msgspec.to_builtins(BrokerSettings().effective(_SET)),
    "log_start_offset": 0,
    "log_end_offset": 18,
    "size_bytes": 4096,
    "fork_of": None,
    "forks": 1,
    "closed": False,
}
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
_TOPIC_REPLY: Final = {_JSON: Content(schema=ref(TopicOut), example=_TOPIC)}
REMOVAL_ERRORS: Final[ErrorTypes] = (
    StandbyError,
    FencedError,
    ShuttingDownError,
    StoreUnavailableError,
    OutcomeUnknownError,
)

TOPICS: Final = [
    Operation(
        method="GET",
        path="/v1/topics",
        operation_id="listTopics",
        tag="Topics",
        summary="List the topics that the API key may see, by name",
        parameters=[parameters.PATTERN],
        replies={
            200: Reply(
                description="Topics",
                content={_JSON: Content(schema=ref(TopicsOut), example={"topics": [_TOPIC]})},
            )
        },
    ),
    Operation(
        method="PUT",
        path="/v1/topics/{topic}",
        operation_id="createTopic",
        tag="Topics",
        summary="Create a topic, or check that it is there with these settings",
        description="With `fork_of` the topic shares the records of another below an offset, "
        "without a copy, and goes its own way from there. Besides `manage` of the new topic, "
        "`manage` and `consume` of the other are needed. What is shared stays when the other is "
        "trimmed or deleted; a deleted topic with forks answers 410 `topic_held`, and its name "
        "stays taken until they are gone.",
        parameters=[parameters.TOPIC],
        body={
            _JSON: Content(
                schema=ref(NewTopic),
                example={**_SETTINGS, "fork_of": {"topic": "orders.us", "offset": 12}},
            )
        },
        body_required=False,
        replies={
            201: Reply(description="Created", content=_TOPIC_REPLY),
            200: Reply(description="It was there, with these settings", content=_TOPIC_REPLY),
        },
        errors=(
            *WRITE_ERRORS,
            TopicDiffersError,
            TopicNotFoundError,
            TopicHeldError,
            NameHeldError,
            ForkRefusedError,
            OffsetExpiredError,
            OffsetOutOfRangeError,
        ),
    ),
    Operation(
        method="GET",
        path="/v1/topics/{topic}",
        operation_id="getTopic",
        tag="Topics",
        summary="Show a topic: settings, offsets, size",
        parameters=[parameters.TOPIC],
        replies={200: Reply(description="The topic", content=_TOPIC_REPLY)},
        errors=(BadNameError, TopicNotFoundError),
    ),
    Operation(
        method="PATCH",
        path="/v1/topics/{topic}",
        operation_id="changeTopic",
        tag="Topics",
        summary="Change the settings that are named; null goes back to the default",
        parameters=[parameters.TOPIC],
        body={_JSON: Content(schema=ref(TopicChanges), example={"linger_ms": 250})},
        replies={200: Reply(description="The topic as it is now", content=_TOPIC_REPLY)},
        errors=(*WRITE_ERRORS, TopicNotFoundError),
    ),
    Operation(
        method="DELETE",
        path="/v1/topics/{topic}",
        operation_id="deleteTopic",
        tag="Topics",
        summary="Delete a topic and its records",
        description="A topic made anew under the name starts at offset 0 with another `topic_id`. "
        "A fork may also be deleted with `manage` of a topic that it was forked from.",
        parameters=[parameters.TOPIC],
        replies={204: Reply(description="Deleted")},
        errors=(*REMOVAL_ERRORS, BadNameError, TopicNotFoundError),
    ),
    Operation(
        method="POST",
        path="/v1/topics/{topic}/trim",
        operation_id="trimTopic",
        tag="Topics",
        summary="Remove the records below an offset",
        description="The log start offset moves at once: whoever reads below it gets 410. The "
        "bytes go later. Nothing changes when the log starts there already, or later.",
        parameters=[parameters.TOPIC],
        body={_JSON: Content(schema=ref(Trim), example={"before": 1044})},
        replies={200: Reply(description="The topic as it is now", content=_TOPIC_REPLY)},
        errors=(*WRITE_ERRORS, TopicNotFoundError, OffsetOutOfRangeError),
    ),
    Operation(
        method="POST",
        path="/v1/topics/{topic}/reopen",
        operation_id="reopenTopic",
        tag="Topics",
        summary="Open a closed stream again: an admin key is needed",
        description="The stream takes records again. Nothing changes when it is not closed. "
        "Readers that saw its end do not come back by themselves.",
        parameters=[parameters.TOPIC],
        replies={200: Reply(description="The topic as it is now", content=_TOPIC_REPLY)},
        errors=(*WRITE_ERRORS, TopicNotFoundError),
    ),
]

SYSTEM: Final = [
    Operation(
        method="GET",
        path="/v1/status",
        operation_id="getStatus",
        tag="System",
        summary="How the appliance is, for its operator: an admin key is needed",
        description="Ready when there are no `problems`. The bucket is asked only when its last "
        "answer is over 30 s old.",
        replies={
            200: Reply(
                description="How it is",
                content={_JSON: Content(schema=ref(StatusOut), example=_STATUS)},
            )
        },
    ),
    Operation(
        method="POST",
        path="/v1/snapshots",
        operation_id="makeSnapshot",
        tag="System",
        summary="Put a snapshot of the state into the bucket now: an admin key is needed",
        description="So that the next start replays nothing. None is made when nothing was stored "
        "since the last one. The appliance makes them by itself, too.",
        replies={
            200: Reply(
                description="Up to which journal entry the newest snapshot reaches",
                content={_JSON: Content(schema=ref(SnapshotOut), example={"seq": 1207})},
            )
        },
        errors=(StandbyError, StoreUnavailableError),
    ),
    Operation(
        method="GET",
        path="/healthz",
        operation_id="healthz",
        tag="System",
        summary="Whether the process lives",
        replies={200: Reply(description="It does", content={_JSON: Content(schema={})})},
        api_key=False,
    ),
    Operation(
        method="GET",
        path="/readyz",
        operation_id="readyz",
        tag="System",
        summary="Whether reads and writes are taken",
        description="To this machine the answer names the problems.",
        replies={200: Reply(description="They are", content={_JSON: Content(schema={})})},
        errors=(NotReadyError,),
        api_key=False,
    ),
    Operation(
        method="GET",
        path="/metrics",
        operation_id="metrics",
        tag="System",
        summary="Metrics in the Prometheus text format",
        description="Without an API key this answers only to the machine it runs on, asked by a "
        "loopback address, unless `metrics_public` is set; with one that has the grant `admin`, to "
        "everybody.",
        parameters=[
            parameters.query(
                "names",
                "Also the metrics with names of topics and groups as labels.",
                type="boolean",
                default=False,
            )
        ],
        replies={
            200: Reply(
                description="Metrics", content={"text/plain": Content(schema={"type": "string"})}
            )
        },
        errors=(BadParameterError, ForbiddenError, QuotaExceededError, UnauthenticatedError),
        api_key=False,
    ),
    Operation(
        method="GET",
        path="/schema",
        operation_id="schemaPage",
        tag="System",
        summary="This document as a page; it needs no other server",
        replies={
            200: Reply(
                description="A page", content={"text/html": Content(schema={"type": "string"})}
            )
        },
        api_key=False,
    ),
    Operation(
        method="GET",
        path="/schema/openapi.json",
        operation_id="openapi",
        tag="System",
        summary="This document",
        replies={
            200: Reply(
                description="OpenAPI 3.1",
                content={"application/vnd.oai.openapi+json": Content(schema={"type": "object"})},
            )
        },
        api_key=False,
    ),
    Operation(
        method="GET",
        path="/schema/assets/{asset}",
        operation_id="schemaAsset",
        tag="System",
        summary="Scripts and styles of the page",
        parameters=[parameters.ASSET],
        replies={200: Reply(description="A file"), 304: Reply(description="Not changed")},
        errors=(NotFoundError,),
        api_key=False,
    ),
]
OPERATIONS: Final = [*TOPICS, *SYSTEM]
SCHEMAS: Final = [
    TopicSettings,
    NewTopic,
    ForkWanted,
    ForkOf,
    TopicChanges,
    Trim,
    TopicOut,
    TopicsOut,
    StatusOut,
    SnapshotOut,
]
