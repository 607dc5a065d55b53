"""`POST /v1/queues/{queue}/reset` and `/redrive`: what a queue is to do again, or no more."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from seb_appliance import limits
from seb_appliance.api.encoding.parameters import position
from seb_appliance.api.openapi.shared import READ_ERRORS, WRITE_ERRORS
from seb_appliance.api.routes.queues.queues import authorize_queue, queue_of
from seb_appliance.api.routes.route import RequestContext, json_body, json_reply, route
from seb_appliance.broker.queues.redriving import Wanted
from seb_appliance.errors import QueueNotFoundError
from seb_appliance.formats.numbers import Whole

_TEXT: Final = Meta(max_length=limits.QUEUE_REASON_CHARACTERS_MAX)


class QueueReset(msgspec.Struct, forbid_unknown_fields=True):
    """`to`: where to begin, as in a read: an offset, `earliest`, `latest` (drops everything that
    waits), `-N` or `@time`. `topic`: one of those that the queue reads; default: all of them.
    `dry_run`: only tell what it would do."""

    to: str
    topic: str | None = None
    dry_run: bool = False


class QueueResetTopic(msgspec.Struct):
    """`waiting`: records that were not done; `offset`: the first one that is handed out now."""

    topic: str
    waiting: int
    offset: int


class QueueResetOut(msgspec.Struct):
    """What a reset did, or would do."""

    dry_run: bool
    topics: list[QueueResetTopic]


class Redrive(msgspec.Struct, forbid_unknown_fields=True):
    """The dead letters at `offsets` of their topic, or all from `start` on; only those of records
    of `topic`, and whose reason contains `reason`. They go to the topic `to`; default: where they
    came from. `dry_run`: only count them."""

    offsets: (
        Annotated[list[Whole], Meta(min_length=1, max_length=limits.DELIVERIES_PER_REQUEST_MAX)]
        | None
    ) = None
    start: Whole = 0
    topic: Annotated[str, _TEXT] | None = None
    reason: Annotated[str, _TEXT] = ""
    to: Annotated[str, _TEXT] | None = None
    dry_run: bool = False


class RedriveOut(msgspec.Struct):
    """How many dead letters became `records` again, by topic, and how many were redriven `before`,
    which are left alone. `elsewhere`: those that say that they come from a topic which the queue
    does not read; they need `to`. `next_offset`: the `start` of the next request; null at the
    end."""

    dry_run: bool
    records: dict[str, int]
    before: int
    elsewhere: int
    next_offset: int | None


@route(
    "POST",
    "/v1/queues/{queue}/reset",
    "resetQueue",
    tag="Queues",
    summary="Hand out records again, or drop what waits",
    description="Needs manage and consume. All leases of the queue end; what it did on these "
    "topics is forgotten.",
    body=json_body(QueueReset, {"to": "latest"}),
    replies=json_reply(
        QueueResetOut,
        {"dry_run": False, "topics": [{"topic": "orders.eu", "waiting": 2, "offset": 1044}]},
        "Done, or what would be done",
    ),
    errors=(*WRITE_ERRORS, *READ_ERRORS, QueueNotFoundError),
)
async def reset_queue(ctx: RequestContext) -> object:
    asked: QueueReset = ctx.body
    ctx.broker.authorize(ctx.call.key, "consume", group=queue_of(ctx))
    for operation in ("manage", "consume"):
        await authorize_queue(ctx, operation)
    queue, queues, start = queue_of(ctx), ctx.broker.queues, position(asked.to, "to")
    before = {one.topic: one.waiting for one in (await queues.describe(queue)).topics}
    offsets = await queues.restart(queue, start, asked.topic, ctx.call.actor, dry_run=asked.dry_run)
    rows = [QueueResetTopic(name, before.get(name, 0), at) for name, at in sorted(offsets.items())]
    return QueueResetOut(asked.dry_run, rows)


@route(
    "POST",
    "/v1/queues/{queue}/redrive",
    "redriveQueue",
    tag="Queues",
    summary="Make records of dead letters again, each once",
    description="Needs manage on the queue, consume on the topic of its dead letters, and produce "
    "on the topics that get the records. Repeat the request with `start` until `next_offset` is "
    "null. A repeated request makes no record twice.",
    body=json_body(Redrive, {"reason": "timeout"}),
    replies=json_reply(
        RedriveOut,
        {
            "dry_run": False,
            "records": {"orders.eu": 2},
            "before": 0,
            "elsewhere": 0,
            "next_offset": None,
        },
        "Done, or what would be done",
    ),
    errors=(*WRITE_ERRORS, *READ_ERRORS, QueueNotFoundError),
)
async def redrive_queue(ctx: RequestContext) -> object:
    asked: Redrive = ctx.body
    await authorize_queue(ctx, "manage")
    broker, key, queue = ctx.broker, ctx.call.key, queue_of(ctx)
    dead_letter = broker.queues.get(queue).settings.dead_letter
    if dead_letter is not None:
        broker.authorize(key, "consume", dead_letter)
    offsets = None if asked.offsets is None else sorted(set(asked.offsets))
    wanted = Wanted(offsets, asked.start, asked.topic, asked.reason, asked.to, asked.dry_run)
    may_produce = partial(broker.authorize, key, "produce")
    done = await broker.queues.redriving.redrive(queue, wanted, ctx.call.actor, may_produce)
    return RedriveOut(asked.dry_run, done.records, done.before, done.elsewhere, done.next_offset)


ROUTES: Final = [reset_queue, redrive_queue]
