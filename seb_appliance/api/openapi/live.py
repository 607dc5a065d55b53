"""Streams of many topics, and tickets, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, Operation, Reply, ref
from seb_appliance.api.openapi.parameters import header, query
from seb_appliance.api.openapi.records import RECORD, TIME
from seb_appliance.api.routes.manage.api_keys import NewTicket, TicketOut
from seb_appliance.api.routes.records.live_many import FORMATS
from seb_appliance.api.routes.records.many import (
    STARTS,
    FollowedRecordOut,
    ManyRecordsOut,
    ToCommit,
)
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    FollowerTooSlowError,
    NotAcceptableError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    RequestTooLargeError,
    ShuttingDownError,
    UnsupportedMediaTypeError,
)

_DATA: Final = msgspec.json.encode({"topic": "orders.eu", **RECORD}).decode()
_LIVE: Final = Content(
    schema={"type": "string", "description": "One event a record; its data: FollowedRecordOut."},
    example=f"id: 3-18.7-1044\ndata: {_DATA}\n\n",
)
_PAGE: Final = Content(
    schema=ref(ManyRecordsOut),
    example={
        "records": [{"topic": "orders.eu", **RECORD}],
        "cursor": "3-18.7-1044",
        "commit": {
            "offsets": {"orders.eu": 1044},
            "expected": {"orders.eu": 1000},
            "topic_ids": {"orders.eu": 7},
        },
    },
)

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v1/records",
        operation_id="readMany",
        tag="Records",
        summary="Read many topics at once, or follow them in one live stream",
        description="As JSON, one page: records of topics in turn, `cursor` to go on with, and "
        "with `wait` a long poll for all of them. With `group` it begins where the group has "
        "committed, and `commit` is the body of the commit to send once the records are dealt "
        "with.\n\nAs a live stream, each event is a record, with its topic. The `id` is the "
        "stream's place in all of its topics: Last-Event-ID (or `cursor`) goes on exactly behind "
        "it in each. Records of one topic come in order; between topics there is no order. "
        "Topics that are made meanwhile join from their first record; so do those that the API "
        "key may read only later. Topics that it may not read are left out. At most "
        f"{limits.FOLLOWED_TOPICS_MAX} topics; the fewer, the shorter the ids. A follower that "
        f"takes nothing for {limits.FOLLOWER_STALLED_S_MAX} s is told so and cut.",
        parameters=[
            query("topics", "Patterns, with commas between them.", "orders.*,iot.**"),
            query(
                "offset",
                "Where topics begin that the cursor does not know, if there is none.",
                type="string",
                enum=list(STARTS),
                default="earliest",
            ),
            query(
                "cursor",
                "Of a page, or the id of an event; Last-Event-ID goes before it.",
                "3-18.7-1044",
            ),
            header("Last-Event-ID", "The id of the last event that was received."),
            query(
                "max_records",
                "Of a page (1,000 when it is not given); the stream ends behind so many.",
                type="integer",
                minimum=1,
            ),
            query("max_bytes", "Of a page, about; at least one record comes. 1MiB.", "64KiB"),
            query("wait", "Of a page: how long it may wait for a first record.", "30s"),
            query("group", "Of a page: begin where this group has committed.", "lake"),
            query("ticket", "Instead of an API key: see POST /v1/tickets."),
            parameters.VALUES,
            parameters.format_of(FORMATS),
        ],
        replies={
            200: Reply(
                description="The page, or the stream",
                content={"text/event-stream": _LIVE, "application/json": _PAGE},
            )
        },
        errors=(
            BadNameError,
            NotAcceptableError,
            OffsetExpiredError,
            OffsetOutOfRangeError,
            FollowerTooSlowError,
            ShuttingDownError,
        ),
    ),
    Operation(
        method="POST",
        path="/v1/tickets",
        operation_id="makeTicket",
        tag="Records",
        summary="A ticket to read with, for a minute, where no header can be sent",
        description="For an EventSource in a browser: `?ticket=` on reading and following records, "
        f"any number of times for {limits.TICKET_S} s, on topics that match. A stream that was "
        "opened in that time goes on. The ticket ends when the API key is changed in any way.",
        body={"application/json": Content(schema=ref(NewTicket), example={"topics": "orders.*"})},
        replies={
            201: Reply(
                description="The ticket",
                content={
                    "application/json": Content(
                        schema=ref(TicketOut),
                        example={
                            "ticket": "tkt_q2Zk3v5rYtUuPd1nN0s8c0oX9L1hQm7w",
                            "topics": "orders.*",
                            "expires": TIME,
                        },
                    )
                },
            )
        },
        errors=(BadJsonError, RequestTooLargeError, UnsupportedMediaTypeError),
    ),
]
SCHEMAS: Final = [FollowedRecordOut, ManyRecordsOut, ToCommit, NewTicket, TicketOut]
