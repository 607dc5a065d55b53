"""`POST /v1/queues/{queue}/take`, and what ends or prolongs a delivery."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from seb_appliance import limits
from seb_appliance.api.encoding.answers import JSON, format_times
from seb_appliance.api.encoding.record_encoding import ValueShape, listed, record_columns
from seb_appliance.api.openapi.shared import READ_ERRORS, RECORD, WRITE_ERRORS
from seb_appliance.api.routes.queues.queues import authorize_queue, may_use, queue_of
from seb_appliance.api.routes.records.reading import NO_STORE, encoded, unless_gone
from seb_appliance.api.routes.route import (
    RequestContext,
    Route,
    json_body,
    json_reply,
    route,
)
from seb_appliance.api.server.auth import look_again
from seb_appliance.api.server.bodies import decode_json
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.queues.admission import no_such_queue
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.takers import Taken
from seb_appliance.broker.queues.views import Result
from seb_appliance.errors import QueueNotFoundError, ShuttingDownError, StandbyError
from seb_appliance.formats.queues.queues import DelayMs, LeaseMs

_TAKEN_BY_DEFAULT: Final = 100

Tokens = Annotated[list[str], Meta(min_length=1, max_length=limits.DELIVERIES_PER_REQUEST_MAX)]


class Take(msgspec.Struct, forbid_unknown_fields=True):
    """At most `max` records. If there is none, the answer comes with the first one, or is empty
    after `wait_ms`. `lease_ms`: how long they are this worker's; default: the queue's. `values`: as
    the parameter of a read."""

    max: Annotated[int, Meta(ge=1, le=limits.DELIVERIES_PER_REQUEST_MAX)] = _TAKEN_BY_DEFAULT
    wait_ms: Annotated[int, Meta(ge=0, le=limits.WAIT_MS_MAX)] = 0
    lease_ms: LeaseMs | None = None
    values: ValueShape = "text"


class DeliveryOut(msgspec.Struct):
    """A record as in RecordOut, with its topic. Send `delivery` to acknowledge it. `attempt`: 1
    for the first time. `first_delivered`: when that was."""

    delivery: str
    attempt: int
    first_delivered: str
    topic: str
    offset: int
    timestamp: str
    key: str | None
    value: str | Raw | None
    headers: dict[str, str]
    key_base64: bytes | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    headers_base64: dict[str, bytes] | UnsetType = UNSET


class TakenOut(msgspec.Struct):
    records: list[DeliveryOut]


class Deliveries(msgspec.Struct, forbid_unknown_fields=True):
    deliveries: Tokens


class Retry(Deliveries):
    """`delay_ms`: until they are handed out again; default: as the queue's rule says."""

    delay_ms: DelayMs | None = None


class Reject(Deliveries):
    """`reason` becomes a header of the dead letters."""

    reason: Annotated[str, Meta(max_length=limits.QUEUE_REASON_CHARACTERS_MAX)] = ""


class Extend(Deliveries):
    """`lease_ms`: from now on."""

    lease_ms: LeaseMs


class ResultsOut(msgspec.Struct):
    """One for each delivery, in the same order. `ok`: done. `settled`: the record was done before.
    `lease_ended`: the lease has ended, or the appliance has restarted; nothing was changed, and the
    record is or was handed out again."""

    results: list[Result]


TAKEN_HEADERS: Final = ((b"content-type", JSON), NO_STORE)
_take_decoder: Final = msgspec.json.Decoder(Take)
_deliveries_decoder: Final = msgspec.json.Decoder(Deliveries)


def parse_take(body: bytes) -> Take:
    """Raises BadJsonError."""
    return decode_json(body, _take_decoder)


def parse_deliveries(body: bytes) -> Deliveries:
    """Raises BadJsonError."""
    return decode_json(body, _deliveries_decoder)


def taken_parts(
    broker: Broker, queue: str, taken: list[Taken], shape: ValueShape
) -> Iterator[bytes]:
    """The body of the answer to a take."""
    rows = _rows(broker, queue, taken, shape)
    return listed(rows, opening=b'{"records":[', closing=b"]}\n")


def _rows(
    broker: Broker, queue: str, taken: list[Taken], shape: ValueShape
) -> Iterator[list[DeliveryOut]]:
    for one in taken:
        topic, first = one.topic, one.piece.begin
        for begin, end, record in record_columns(one.piece, shape):
            out = one.deliveries[begin - first : end - first]
            tokens = [
                broker.queues.token(queue, Place(topic.topic_id, offset), delivery.lease)
                for offset, delivery in zip(record[0], out, strict=True)
            ]
            attempts = [delivery.attempt for delivery in out]
            times = format_times([delivery.first_us for delivery in out])
            yield list(map(DeliveryOut, tokens, attempts, times, repeat(topic.name), *record))


_DELIVERY: Final = "AAAAAAAAAAMAAAAAAAAAEQAAAAAAAAABx0k3m9x2apQ4s5t6u7v8w9"
_TAKEN: Final = {
    "delivery": _DELIVERY,
    "attempt": 1,
    "first_delivered": "2026-11-21T10:00:00.000123Z",
    "topic": "orders.eu",
    **RECORD,
}


@route(
    "POST",
    "/v1/queues/{queue}/take",
    "takeRecords",
    tag="Queues",
    summary="Take records: they are this worker's until their lease ends",
    description="Acknowledge each record before its lease ends. Otherwise it is handed out again: "
    "a record may be handed out more than once. An empty answer costs no PUT.",
    body=json_body(Take, {"max": 100, "wait_ms": 20_000}),
    replies=json_reply(TakenOut, {"records": [_TAKEN]}, "Records, perhaps none"),
    errors=(*READ_ERRORS, QueueNotFoundError, ShuttingDownError, StandbyError),
)
async def take_records(ctx: RequestContext) -> object:
    asked: Take = ctx.body
    await authorize_queue(ctx, "work")
    queue = queue_of(ctx)
    taking, waits = _taken(ctx, queue, asked), asked.wait_ms > 0
    taken = await unless_gone(taking, ctx.broker, ctx.request, waits=waits)
    headers = list(TAKEN_HEADERS)
    parts = taken_parts(ctx.broker, queue, taken, asked.values)
    try:
        return await encoded(ctx.broker, ctx.call, headers, parts)
    except BaseException:  # there is no room for the answer
        ctx.broker.queues.undo(queue, taken)
        raise


async def _taken(ctx: RequestContext, queue: str, asked: Take) -> list[Taken]:
    """Raises what `WorkQueues.take` and `_look_again` raise."""
    queues = ctx.broker.queues
    taken = await queues.take(queue, asked.max, asked.wait_ms, asked.lease_ms, ctx.call.owner)
    try:
        await _look_again(ctx, queue, {one.topic.name for one in taken})
    except BaseException:
        queues.undo(queue, taken)
        raise
    return taken


async def _look_again(ctx: RequestContext, queue: str, topics: set[str]) -> None:
    """While it waited, topics may have joined the queue, and the API key may have changed: it gets
    no record then. Raises QueueNotFoundError, UnauthenticatedError, ApiKeyChangedError."""
    look_again(ctx.request.scope)
    if topics and not await may_use(ctx, "work", ctx.broker.queues.get(queue), topics):
        raise no_such_queue(queue)


def _ending(
    verb: str,
    body: type[Deliveries],
    example: dict[str, object],
    summary: str,
    end: Callable[[RequestContext], Awaitable[list[Result]]],
) -> Route:
    @route(
        "POST",
        f"/v1/queues/{{queue}}/{verb}",
        f"{verb}Deliveries",
        tag="Queues",
        summary=summary,
        body=json_body(body, {"deliveries": [_DELIVERY], **example}),
        replies=json_reply(ResultsOut, {"results": ["ok"]}, "One result for each delivery"),
        errors=(*WRITE_ERRORS, QueueNotFoundError),
    )
    async def handle(ctx: RequestContext) -> object:
        await authorize_queue(ctx, "work")
        return ResultsOut(await end(ctx))

    return handle


async def _ack(ctx: RequestContext) -> list[Result]:
    asked: Deliveries = ctx.body
    return await ctx.broker.queues.ack(queue_of(ctx), asked.deliveries, ctx.call.owner)


async def _retry(ctx: RequestContext) -> list[Result]:
    asked: Retry = ctx.body
    queues, owner = ctx.broker.queues, ctx.call.owner
    return await queues.retry(queue_of(ctx), asked.deliveries, asked.delay_ms, owner)


async def _reject(ctx: RequestContext) -> list[Result]:
    asked: Reject = ctx.body
    return await ctx.broker.queues.reject(queue_of(ctx), asked.deliveries, asked.reason)


async def _extend(ctx: RequestContext) -> list[Result]:
    asked: Extend = ctx.body
    ctx.broker.look_for_newer_writer()  # nothing is written
    return await ctx.broker.queues.extend(queue_of(ctx), asked.deliveries, asked.lease_ms)


ROUTES: Final = [
    take_records,
    _ending("ack", Deliveries, {}, "Acknowledge deliveries: their records are done", _ack),
    _ending("retry", Retry, {"delay_ms": 5_000}, "Hand records out again later", _retry),
    _ending("reject", Reject, {"reason": "no such customer"}, "Make dead letters of them", _reject),
    _ending("extend", Extend, {"lease_ms": 60_000}, "Keep records for longer", _extend),
]
