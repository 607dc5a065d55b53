"""The operations on consumer groups, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Final

from seb_appliance import limits
from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, Json, Operation, Reply, ref
from seb_appliance.api.openapi.manage import REMOVAL_ERRORS
from seb_appliance.api.openapi.records import (
    BYTES,
    CSV_ROWS,
    EVENTS,
    POSITIONS,
    READ_ERRORS,
    RECORD,
    WRITE_ERRORS,
)
from seb_appliance.api.routes.groups.groups import (
    GroupOut,
    GroupsOut,
    GroupSummary,
    GroupTopicOut,
    LeaseOut,
    Reset,
    ResetOut,
    ResetTopic,
)
from seb_appliance.api.routes.groups.offsets import LeaseTakenOut, NewLease, NewOffsets, OffsetsOut
from seb_appliance.api.routes.groups.records import DEFAULTS, GroupRecordsOut
from seb_appliance.errors import (
    BadNameError,
    CommitBackwardError,
    CommitBeyondEndError,
    CorruptObjectError,
    GroupNotFoundError,
    LeaseHeldError,
    OffsetConflictError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    TopicNotFoundError,
    TopicReplacedError,
)

_JSON: Final = "application/json"
_LEASE: Final = {
    "generation": 1207,
    "holder": "worker-1",
    "ttl_ms": 30_000,
    "expires_in_ms": 29_412,
}
_SUMMARY: Final = {
    "group": "lake.orders",
    "topic_count": 1,
    "lag_records": 2,
    "lag_bytes": 512,
    "lag_seconds": 0.73,
    "last_commit": "2026-11-21T10:00:00.000123Z",
    "lease": _LEASE,
}
_GROUP: Final = {
    **_SUMMARY,
    "topics": [
        {
            "topic": "orders.eu",
            "topic_id": 3,
            "committed_offset": 1044,
            "metadata": "",
            "last_commit": "2026-11-21T10:00:00.000123Z",
            "log_start_offset": 0,
            "log_end_offset": 1046,
            "lag_records": 2,
            "lag_bytes": 512,
            "lag_seconds": 0.73,
        }
    ],
}
_RECORDS: Final = {
    "topic": "orders.eu",
    "topic_id": 3,
    "records": [RECORD],
    "next_offset": 18,
    "log_start_offset": 0,
    "log_end_offset": 19,
    "group": "lake.orders",
    "committed_offset": 17,
    "lag_records": 2,
    "lag_bytes": 512,
    "lag_seconds": 0.73,
}
_LAG: Final = {
    "Seb-Group": "The group.",
    "Seb-Committed-Offset": "Where the group stands; absent when it has no offset on the topic.",
    "Seb-Lag-Records": "Log end offset minus committed offset.",
    "Seb-Lag-Bytes": "About what these take in the bucket.",
    "Seb-Lag-Seconds": "Age of the oldest of them.",
}
_IN_GROUP: Final[list[Json]] = [
    parameters.query(
        "default",
        "Where to begin when the group has no offset on the topic.",
        type="string",
        enum=list(DEFAULTS),
        default="earliest",
    ),
    *(parameter for parameter in parameters.CONSUME if parameter["name"] != "offset"),
]

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v1/groups/{group}/topics/{topic}/records",
        operation_id="consumeInGroup",
        tag="Groups",
        summary="Read on from the committed offset",
        description="Two readers of one group get the same records, unless they hold a lease: "
        "reading moves nothing. Commit `next_offset` when the records are dealt with.",
        parameters=[parameters.GROUP, parameters.TOPIC, *_IN_GROUP],
        replies={
            200: Reply(
                description="Records, perhaps none, and the group's lag",
                content={
                    _JSON: Content(schema=ref(GroupRecordsOut), example=_RECORDS),
                    "application/x-ndjson": Content(
                        schema={"type": "string", "description": "One RecordOut per line."}
                    ),
                    "text/csv": CSV_ROWS,
                    "application/vnd.seb.batch": Content(schema=BYTES),
                    "application/cloudevents-batch+json": EVENTS,
                },
                headers={**POSITIONS, **_LAG},
            )
        },
        errors=(*READ_ERRORS, OffsetOutOfRangeError, TopicReplacedError),
    ),
    Operation(
        method="PUT",
        path="/v1/groups/{group}/offsets",
        operation_id="commitOffsets",
        tag="Groups",
        summary="Commit what the group has read: one topic or many, all of it or nothing",
        description="Offsets are the next ones to read; the group's other topics stay as they "
        "are. An offset never goes back unless `allow_backward` says so. `expected` makes it "
        "compare-and-set. While a lease is alive, its `generation` must be sent.",
        parameters=[parameters.GROUP],
        body={
            _JSON: Content(
                schema=ref(NewOffsets),
                example={
                    "offsets": {"orders.eu": 1044},
                    "metadata": {"orders.eu": "file 17"},
                    "expected": {"orders.eu": 1000},
                    "topic_ids": {"orders.eu": 3},
                    "generation": 1207,
                },
            )
        },
        replies={
            200: Reply(
                description="Committed: the bucket has it",
                content={
                    _JSON: Content(
                        schema=ref(OffsetsOut),
                        example={
                            "group": "lake.orders",
                            "offsets": {"orders.eu": 1044},
                            "topic_ids": {"orders.eu": 3},
                        },
                    )
                },
            )
        },
        errors=(
            *WRITE_ERRORS,
            TopicNotFoundError,
            CommitBeyondEndError,
            CommitBackwardError,
            OffsetConflictError,
            StaleGenerationError,
        ),
    ),
    Operation(
        method="GET",
        path="/v1/groups",
        operation_id="listGroups",
        tag="Groups",
        summary="List the groups that the API key may see, by name",
        description="Go on while `next_after` is not null: a page may hold fewer than `limit`.",
        parameters=[
            parameters.query("after", "The `next_after` of the page before.", "lake.orders"),
            parameters.query(
                "limit",
                "At most so many groups.",
                type="integer",
                minimum=1,
                maximum=limits.GROUPS_PER_PAGE_MAX,
                default=limits.GROUPS_PER_PAGE_DEFAULT,
            ),
        ],
        replies={
            200: Reply(
                description="A page of groups",
                content={
                    _JSON: Content(
                        schema=ref(GroupsOut), example={"groups": [_SUMMARY], "next_after": None}
                    )
                },
            )
        },
        errors=(BadNameError,),
    ),
    Operation(
        method="GET",
        path="/v1/groups/{group}",
        operation_id="getGroup",
        tag="Groups",
        summary="Show where a group stands, its lag and its lease",
        parameters=[parameters.GROUP],
        replies={
            200: Reply(
                description="The group",
                content={_JSON: Content(schema=ref(GroupOut), example=_GROUP)},
            )
        },
        errors=(BadNameError, GroupNotFoundError),
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group}",
        operation_id="deleteGroup",
        tag="Groups",
        summary="Delete a group: its offsets and its lease",
        parameters=[parameters.GROUP],
        replies={204: Reply(description="Deleted")},
        errors=(*REMOVAL_ERRORS, BadNameError, GroupNotFoundError),
    ),
    Operation(
        method="POST",
        path="/v1/groups/{group}/reset",
        operation_id="resetGroup",
        tag="Groups",
        summary="Put a group somewhere else, forward or back; or show what that would do",
        description="`topics` are names, and patterns that pick among the topics on which the "
        "group has an offset; left out, these are all meant. A place beyond what can be read "
        "becomes the nearest that can. Stop the consumers first, or their next commit wins.",
        parameters=[parameters.GROUP],
        body={
            _JSON: Content(
                schema=ref(Reset),
                example={"topics": ["orders.*"], "to": "earliest", "dry_run": True},
            )
        },
        replies={
            200: Reply(
                description="Before and after, by topic",
                content={
                    _JSON: Content(
                        schema=ref(ResetOut),
                        example={
                            "group": "lake.orders",
                            "dry_run": True,
                            "topics": [
                                {"topic": "orders.eu", "topic_id": 3, "before": 1044, "after": 0}
                            ],
                        },
                    )
                },
            )
        },
        errors=(
            *WRITE_ERRORS,
            CorruptObjectError,
            GroupNotFoundError,
            OffsetConflictError,
            TopicNotFoundError,
        ),
    ),
    Operation(
        method="POST",
        path="/v1/groups/{group}/lease",
        operation_id="takeLease",
        tag="Groups",
        summary="Take the group's lease, or renew it: only its holder may commit",
        description="A renewal keeps the generation, unless it asks for a longer time than was "
        "granted: send the generation of the newest answer. A restart of the appliance grants "
        "the full time again.",
        parameters=[parameters.GROUP],
        body={
            _JSON: Content(schema=ref(NewLease), example={"holder": "worker-1", "ttl_ms": 30_000})
        },
        replies={
            200: Reply(
                description="The lease is yours",
                content={
                    _JSON: Content(
                        schema=ref(LeaseTakenOut), example={"group": "lake.orders", **_LEASE}
                    )
                },
            )
        },
        errors=(*WRITE_ERRORS, LeaseHeldError),
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group}/lease",
        operation_id="releaseLease",
        tag="Groups",
        summary="Give the lease back",
        parameters=[
            parameters.GROUP,
            parameters.query(
                "generation",
                "What taking the lease answered; required.",
                1207,
                type="integer",
                minimum=1,
                maximum=limits.OFFSET_MAX,
            ),
        ],
        replies={204: Reply(description="Given back")},
        errors=(*REMOVAL_ERRORS, BadNameError, StaleGenerationError),
    ),
]
SCHEMAS: Final = [
    GroupRecordsOut,
    NewOffsets,
    OffsetsOut,
    GroupSummary,
    GroupsOut,
    GroupOut,
    GroupTopicOut,
    LeaseOut,
    Reset,
    ResetOut,
    ResetTopic,
    NewLease,
    LeaseTakenOut,
]
