"""`GET /v1/groups/{group}/topics/{topic}/records`: read on from the committed offset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import Headers
from seb_appliance.api.encoding.record_encoding import RecordsOut, ValueShape, framed
from seb_appliance.api.routes.records.consume import (
    FORMATS,
    READ_QUERY,
    answer_type,
    consumed_headers,
    encode,
    encoded,
    read_request,
    unless_gone,
    value_shape,
)
from seb_appliance.api.server.auth import AnyRequest, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.groups import GroupRead
from seb_appliance.broker.values import From
from seb_appliance.formats.columns import Bytes

GROUP_READ_QUERY: Final = (READ_QUERY - {"offset"}) | {"default"}
DEFAULTS: Final = ("earliest", "latest")


class GroupRecordsOut(RecordsOut):
    """As `RecordsOut`. Commit `next_offset` when these records are dealt with. The lag is the one
    before that; `committed_offset` is null when the group has none on the topic."""

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
    return framed(frame, result, shape)


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/v1/groups/{group:str}/topics/{topic:str}/records")
    async def consume_in_group(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, GROUP_READ_QUERY).without_defaults()
        group: str = request.scope["path_params"]["group"]
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, "consume", topic, group)
        chosen = answer_type(call, FORMATS)
        shape = value_shape(call.query)
        wanted = read_request(call)
        named = parameters.choice(call.query.get("default", "earliest"), "default", DEFAULTS)
        default = From(latest=True) if named == "latest" else From(earliest=True)
        read = await unless_gone(
            broker.groups.read(group, topic, wanted, default=default),
            request,
            waits=wanted.wait_ms > 0,
        )
        return await encoded(
            broker, call, _headers(group, read, chosen), _encode(group, read, chosen, shape)
        )

    return [consume_in_group]
