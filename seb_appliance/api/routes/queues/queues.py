"""`/v1/queues` and `/v1/queues/{queue}`, and what an API key may do with a queue.

A queue is to grants what a group is: an API key needs its operation on each topic that the queue
reads, for a group pattern that matches the queue's name. `consume` covers `work`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from seb_appliance.api.encoding.answers import format_time, json_answer
from seb_appliance.api.openapi.shared import REMOVAL_ERRORS, WRITE_ERRORS
from seb_appliance.api.routes.route import (
    RequestContext,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.broker.queues.admission import AdmittedQueue, no_such_queue
from seb_appliance.broker.queues.progress import Queue
from seb_appliance.broker.queues.views import QueueView
from seb_appliance.broker.topics.names import samples_of
from seb_appliance.errors import BadNameError, QueueNotFoundError
from seb_appliance.formats.queues.queues import QueueSettings
from seb_appliance.tasks import in_slices


class QueueOut(msgspec.Struct):
    """A queue and its settings. `updated`: when it was made or changed."""

    queue: str
    settings: QueueSettings
    updated: str


class QueuesOut(msgspec.Struct):
    queues: list[QueueOut]


class QueueTopicOut(msgspec.Struct):
    """`waiting`: records that are not done, those in flight included; `oldest_s`: the age of the
    oldest of them, in seconds; `delayed`: records of the topic that are not due yet, or were until
    a minute ago; `lost`: records that the topic did not have any more when they would have been
    handed out."""

    topic: str
    topic_id: int
    waiting: int
    oldest_s: float
    delayed: int
    acked: int
    rejected: int
    lost: int


class QueueDetailsOut(QueueOut):
    """`in_flight`: records that are out with workers. Others wait for their retry (`retrying`), are
    behind an earlier one of their record key (`parked`), or are to become dead letters (`doomed`;
    `failure` says why that fails). `waiting_takers`: requests that wait for a record."""

    topics: list[QueueTopicOut]
    in_flight: int
    retrying: int
    parked: int
    doomed: int
    waiting_takers: int
    failure: str


_QUEUE: Final = {
    "queue": "mails",
    "settings": {
        "topics": ["orders.*"],
        "ordering": "none",
        "lease_ms": 30_000,
        "max_deliveries": 5,
        "retry": {"min_ms": 1_000, "max_ms": 300_000, "factor": 2.0, "jitter": 0.2},
        "dead_letter": "mails.dead",
        "max_in_flight": 10_000,
        "start": "earliest",
    },
    "updated": "2026-11-21T10:00:00.000123Z",
}
_DETAILS: Final = {
    **_QUEUE,
    "topics": [
        {
            "topic": "orders.eu",
            "topic_id": 3,
            "waiting": 2,
            "oldest_s": 0.8,
            "delayed": 0,
            "acked": 1_044,
            "rejected": 0,
            "lost": 0,
        }
    ],
    "in_flight": 1,
    "retrying": 0,
    "parked": 0,
    "doomed": 0,
    "waiting_takers": 3,
    "failure": "",
}


def queue_of(ctx: RequestContext) -> str:
    return ctx.path["queue"]


async def may_use(
    ctx: RequestContext, operation: str, queue: Queue, topics: Collection[str]
) -> bool:
    """Whether the API key may do that with a queue over these topics. While there is none: over all
    that its patterns match, because those are the topics that it is for."""
    may, key = ctx.broker.may, ctx.call.key
    if topics:
        async for topic in in_slices(topics):
            if not may(key, operation, topic, queue.name):
                return False
        return True
    async for pattern in in_slices(queue.settings.topics):  # see `authorize_topics`
        if not all(may(key, operation, sample, queue.name) for sample in samples_of(pattern)):
            return False
    return may(key, operation, None, queue.name)


async def authorize_queue(ctx: RequestContext, operation: str) -> None:
    """On every topic that it reads. Raises ForbiddenError, which names none of them, and
    QueueNotFoundError, also for a queue that the key may not see."""
    await authorize_named(ctx, operation, queue_of(ctx))


async def authorize_named(ctx: RequestContext, operation: str, queue: str) -> None:
    """The same for a queue that stands in the body."""
    ctx.broker.authorize(ctx.call.key, operation, group=queue)
    found, topics = ctx.broker.queues.get(queue), await ctx.broker.queues.topics_of(queue)
    if not await may_use(ctx, operation, found, topics):
        if not await _sees(ctx, found, topics):
            raise no_such_queue(queue)
        raise ctx.broker.access.no_grant(ctx.call.key, operation, None, queue)


async def _sees(ctx: RequestContext, queue: Queue, topics: list[str]) -> bool:
    return await may_use(ctx, "work", queue, topics) or await may_use(ctx, "manage", queue, topics)


async def authorize_topics(ctx: RequestContext, patterns: Iterable[str]) -> None:
    """For a queue that reads these. Raises ForbiddenError."""
    queue = queue_of(ctx)
    for operation in ("manage", "consume"):
        async for pattern in in_slices(patterns):  # samples may have thousands of words
            for sample in samples_of(pattern):
                if not ctx.broker.may(ctx.call.key, operation, sample, queue):
                    raise ctx.broker.access.no_grant(ctx.call.key, operation, pattern, queue)


def _out(queue: Queue) -> QueueOut:
    return QueueOut(queue.name, queue.settings, format_time(queue.set_us))


def _details(view: QueueView) -> QueueDetailsOut:
    return QueueDetailsOut(
        view.name,
        view.settings,
        format_time(view.set_us),
        msgspec.convert(view.topics, list[QueueTopicOut], from_attributes=True),
        view.in_flight,
        view.retrying,
        view.parked,
        view.doomed,
        view.waiting_takers,
        view.failure,
    )


@route(
    "GET",
    "/v1/queues",
    "listQueues",
    tag="Queues",
    summary="List the queues that the API key may see, by name",
    replies=json_reply(QueuesOut, {"queues": [_QUEUE]}, "Queues"),
)
async def list_queues(ctx: RequestContext) -> object:
    queues, found = ctx.broker.queues.all(), list[QueueOut]()
    topics_of = await ctx.broker.queues.views.topics_of(queues)
    async for queue in in_slices(queues):
        if await _sees(ctx, queue, [topic.name for topic in topics_of[queue.name].values()]):
            found.append(_out(queue))
    return QueuesOut(found)


@route(
    "GET",
    "/v1/queues/{queue}",
    "getQueue",
    tag="Queues",
    summary="Show a queue: its settings, and what became of its records",
    replies=json_reply(QueueDetailsOut, _DETAILS, "The queue"),
    errors=(QueueNotFoundError,),
)
async def get_queue(ctx: RequestContext) -> object:
    queue = queue_of(ctx)
    if not ctx.broker.may(ctx.call.key, "manage", group=queue):
        ctx.broker.authorize(ctx.call.key, "work", group=queue)
    found = ctx.broker.queues.get(queue)
    if not await _sees(ctx, found, await ctx.broker.queues.topics_of(queue)):
        raise no_such_queue(queue)
    return _details(await ctx.broker.queues.describe(queue))


@route(
    "PUT",
    "/v1/queues/{queue}",
    "setQueue",
    tag="Queues",
    summary="Make a queue, or change it",
    description="Needs the grants manage and consume on each topic and pattern of `topics`, for "
    "groups that match the name of the queue, and produce on `dead_letter`. A change of `topics` "
    "or `ordering` ends all leases; what the queue did on a topic that it does not read any more "
    "is forgotten.",
    body=json_body(QueueSettings, {"topics": ["orders.*"], "dead_letter": "mails.dead"}),
    replies={
        **json_reply(QueueOut, _QUEUE, "Changed"),
        **json_reply(QueueOut, _QUEUE, "Made", status=201),
    },
    errors=(*WRITE_ERRORS, BadNameError, QueueNotFoundError),
)
async def set_queue(ctx: RequestContext) -> object:
    queue, settings = queue_of(ctx), ctx.body
    assert isinstance(settings, QueueSettings)
    await authorize_topics(ctx, settings.topics)
    if settings.dead_letter is not None:
        ctx.broker.authorize(ctx.call.key, "produce", settings.dead_letter)
    queues = ctx.broker.queues
    before = next((known.settings for known in queues.all() if known.name == queue), None)
    if before is not None:
        await authorize_queue(ctx, "manage")

    def check(known: AdmittedQueue | None) -> None:
        if known is not None and known.settings != before and known.owner != ctx.call.actor.owner:
            raise no_such_queue(queue)  # it was not when this request came

    made = await queues.put(queue, settings, ctx.call.actor, check)
    return json_answer(201 if made else 200, _out(queues.get(queue)))


@route(
    "DELETE",
    "/v1/queues/{queue}",
    "deleteQueue",
    tag="Queues",
    summary="Delete a queue; its topics and dead letters stay",
    replies=no_content("Deleted"),
    errors=(*REMOVAL_ERRORS, QueueNotFoundError),
)
async def delete_queue(ctx: RequestContext) -> None:
    await authorize_queue(ctx, "manage")
    await ctx.broker.queues.delete(queue_of(ctx), ctx.call.actor)


ROUTES: Final = [list_queues, get_queue, set_queue, delete_queue]
