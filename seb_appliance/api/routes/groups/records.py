"""`GET /v1/groups/{group}/topics/{topic}/records`: read on from the committed offset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import FORMATS, Headers
from seb_appliance.api.encoding.record_encoding import (
    RecordsOut,
    ValueShape,
    framed,
    record_parts,
)
from seb_appliance.api.openapi.parameters import CONSUME, Json, query
from seb_appliance.api.openapi.shared import (
    BYTES,
    CSV_ROWS,
    EVENTS,
    POSITIONS,
    READ_ERRORS,
    RECORD,
)
from seb_appliance.api.routes.records.reading import (
    answer_type,
    consumed_headers,
    encode,
    encoded,
    read_request,
    unless_gone,
    value_shape,
)
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    route,
)
from seb_appliance.broker.groups.groups import GroupRead
from seb_appliance.broker.values import From
from seb_appliance.errors import (
    OffsetOutOfRangeError,
    TopicReplacedError,
)
from seb_appliance.formats.columns import Bytes

DEFAULTS: Final = ("earliest", "latest")


class GroupRecordsOut(RecordsOut):
    """`RecordsOut` with the state of the group. Commit `next_offset` after you have processed the
    records. The lag is that before the commit. `committed_offset` is null if the group has none on
    the topic."""

    group: str
    committed_offset: int | None
    lag_records: int
    lag_bytes: int
    lag_seconds: float


def _headers(group: str, read: GroupRead, chosen: str) -> Headers:
    headers = consumed_headers(read.result, chosen)
    headers += [
        (b"seb-group", group.encode()),
        (b"seb-lag-records", str(read.lag.records).encode()),
        (b"seb-lag-bytes", str(read.lag.bytes).encode()),
        (b"seb-lag-seconds", f"{read.lag.seconds:.6f}".encode()),
    ]
    if read.committed_offset is not None:
        headers.append((b"seb-committed-offset", str(read.committed_offset).encode()))
    return headers


def _encode(group: str, read: GroupRead, chosen: str, shape: ValueShape) -> Iterable[Bytes]:
    result = read.result
    if chosen != FORMATS["json"]:
        return encode(result, chosen, shape)
    frame = GroupRecordsOut(
        result.topic,
        result.topic_id,
        [],
        result.next_offset,
        result.log_start_offset,
        result.log_end_offset,
        group,
        read.committed_offset,
        read.lag.records,
        read.lag.bytes,
        read.lag.seconds,
    )
    return framed(frame, record_parts(result, shape))


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
    "Seb-Committed-Offset": "The committed offset; absent if the group has none on the topic.",
    "Seb-Lag-Records": "Log end offset minus committed offset.",
    "Seb-Lag-Bytes": "Approximate size of these records in the bucket.",
    "Seb-Lag-Seconds": "Age of the oldest of them.",
}
_IN_GROUP: Final[list[Json]] = [
    query(
        "default",
        "Where to begin when the group has no offset on the topic.",
        type="string",
        enum=list(DEFAULTS),
        default="earliest",
    ),
    *(parameter for parameter in CONSUME if parameter["name"] != "offset"),
]


@route(
    "GET",
    "/v1/groups/{group}/topics/{topic}/records",
    "consumeInGroup",
    tag="Groups",
    summary="Read from the committed offset of a group",
    description="Reading does not move the offset, so two readers of one group get the same "
    "records unless they use a lease. Commit `next_offset` after you have processed the records.",
    parameters=_IN_GROUP,
    replies={
        200: Reply(
            description="Records, perhaps none, and the group's lag",
            content={
                "application/json": Content(struct=GroupRecordsOut, example=_RECORDS),
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
    grant="consume",
)
async def consume_in_group(ctx: RequestContext) -> object:
    call = ctx.call.without_defaults()
    chosen = answer_type(call, FORMATS)
    shape = value_shape(call.query)
    wanted = read_request(call)
    named = parameters.choice(call.query.get("default", "earliest"), "default", DEFAULTS)
    default = From(latest=True) if named == "latest" else From(earliest=True)
    read = await unless_gone(
        ctx.broker.groups.read(ctx.group, ctx.topic, wanted, default=default),
        ctx.broker,
        ctx.request,
        waits=wanted.wait_ms > 0,
    )
    return await encoded(
        ctx.broker, call, _headers(ctx.group, read, chosen), _encode(ctx.group, read, chosen, shape)
    )


ROUTES: Final = [consume_in_group]
