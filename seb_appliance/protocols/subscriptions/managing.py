"""`/v1/subscriptions`: who may manage a queue, and read its topics, may have it pushed."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from seb_appliance.api.encoding.answers import format_time, json_answer
from seb_appliance.api.encoding.parameters import integer, position
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.openapi.shared import READ_ERRORS, REMOVAL_ERRORS, TIME, WRITE_ERRORS
from seb_appliance.api.routes.queues.queues import authorize_queue, authorize_topics, queue_of
from seb_appliance.api.routes.route import (
    Reply,
    RequestContext,
    Route,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import (
    BadNameError,
    ForbiddenError,
    NotFoundError,
    NotReadyError,
    QueueNotFoundError,
)
from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.delivering import Sent
from seb_appliance.protocols.subscriptions.running import Subscriptions, no_such_subscription
from seb_appliance.protocols.subscriptions.subscriptions import (
    State,
    Subscription,
    SubscriptionWanted,
    shown,
)

_TAG: Final = "Subscriptions"
_KEPT: Final = push_limits.LOG_KEPT
_PATH: Final = "/v1/subscriptions/{queue}"


class SubscriptionOut(msgspec.Struct):
    """A subscription without its secrets. `settings`: those that are not the default. `topics`: of
    its queue, null if that is gone. `headers`: their names. `state`: active, paused or disabled,
    and `why`. `failing_since`: nothing but failures since then; null if it works. `failure`: why
    nothing is sent, "" if there is no such reason. `on_its_way`: requests. `secret`: a random one,
    shown once."""

    subscription: str
    settings: dict[str, Any]
    topics: list[str] | None
    headers: list[str]
    secrets: int
    updated: str
    state: State
    why: str
    failing_since: str | None
    failure: str
    on_its_way: int
    secret: str | UnsetType = UNSET


class SubscriptionsOut(msgspec.Struct):
    subscriptions: list[SubscriptionOut]


class PushOut(msgspec.Struct):
    """One request. `id`: its `webhook-id`, the same whenever the same records are sent. `topic` and
    `offset`: of its first record; topic "" for a test. `status`: 0 if there was no answer.
    `outcome`: `put_off` means that the receiver asked for a pause. `detail`: the beginning of the
    answer, or why there is none."""

    at: str
    id: str
    topic: str
    offset: int
    records: int
    attempt: int
    request_bytes: int
    status: int
    took_ms: int
    outcome: str
    detail: str


class PushesOut(msgspec.Struct):
    deliveries: list[PushOut]


class Replay(msgspec.Struct, forbid_unknown_fields=True):
    """`offset`: where to begin, as in a read: an offset, `earliest`, `latest`, `-N` or `@time`.
    `topic`: one of those that the queue reads; default: all of them."""

    offset: str
    topic: str | None = None


class ReplayOut(msgspec.Struct):
    """The first offset of each topic that is sent again."""

    offsets: dict[str, int]


_SETTINGS: Final = {"url": "https://shop.example/hooks", "body": "records", "batch": 100}
_SUBSCRIPTION: Final = {
    "subscription": "mails",
    "settings": _SETTINGS,
    "topics": ["orders.*"],
    "headers": ["Authorization"],
    "secrets": 1,
    "updated": TIME,
    "state": "active",
    "why": "",
    "failing_since": None,
    "failure": "",
    "on_its_way": 0,
}
_PUSH: Final = {
    "at": TIME,
    "id": "msg_5f1c0de0a7b94d1f8e6f0c2b3a495867",
    "topic": "orders.eu",
    "offset": 17,
    "records": 1,
    "attempt": 1,
    "request_bytes": 13,
    "status": 204,
    "took_ms": 41,
    "outcome": "delivered",
    "detail": "",
}


def subscriptions_of(ctx: RequestContext) -> Subscriptions:
    found = ctx.options.beside[Subscriptions]
    assert isinstance(found, Subscriptions)
    return found


async def _seen(ctx: RequestContext) -> Subscription:
    """The subscription, for those who manage its queue. Raises NotFoundError, ForbiddenError."""
    name = queue_of(ctx)
    try:
        await authorize_queue(ctx, "manage")
    except QueueNotFoundError:  # it is gone, or not to be seen
        if any(queue.name == name for queue in ctx.broker.queues.all()):
            raise no_such_subscription(name) from None
        ctx.broker.authorize(ctx.call.key, "manage", group=name)
    found = subscriptions_of(ctx).find(name)
    if found is None:
        raise no_such_subscription(name)
    return found


def subscription_out(ctx: RequestContext, found: Subscription) -> SubscriptionOut:
    worker, settings = subscriptions_of(ctx).worker(found), found.settings
    try:
        topics = list(ctx.broker.queues.get(found.name).settings.topics)
    except QueueNotFoundError:
        topics = None
    since_us = worker.failing_since_us
    return SubscriptionOut(
        found.name,
        shown(settings),
        topics,
        list(settings.header_names),
        len(settings.secrets),
        format_time(found.set_us),
        settings.state,
        settings.why,
        format_time(since_us) if since_us else None,
        worker.failure,
        worker.on_its_way,
    )


def push_out(sent: Sent) -> PushOut:
    return PushOut(
        format_time(sent.at_us),
        sent.webhook_id,
        *(getattr(sent, name) for name in PushOut.__struct_fields__[2:]),
    )


@route(
    "GET",
    "/v1/subscriptions",
    "listSubscriptions",
    tag=_TAG,
    summary="List the subscriptions to queues that the API key manages, by name",
    replies=json_reply(SubscriptionsOut, {"subscriptions": [_SUBSCRIPTION]}, "Subscriptions"),
    errors=REMOVAL_ERRORS,
)
async def list_subscriptions(ctx: RequestContext) -> object:
    found = []
    for one in subscriptions_of(ctx).all():
        ctx.path["queue"] = one.name
        try:
            found.append(subscription_out(ctx, await _seen(ctx)))
        except (NotFoundError, QueueNotFoundError, ForbiddenError):
            continue
    return SubscriptionsOut(found)


@route(
    "PUT",
    _PATH,
    "setSubscription",
    tag=_TAG,
    summary="Have a queue pushed: create or replace a subscription",
    description="Needs what a change of the queue needs: `manage` and `consume` on each topic and "
    "pattern, for groups that match the name; and `produce` on its "
    "`dead_letter`, if its `topics` change. The queue has the name of the subscription; with "
    "`topics` it is made if it does not exist. `secrets` and `headers` are encrypted with a key "
    "that is not in the bucket. Without them a subscription keeps its own; a new one gets a random "
    "secret, which is shown once.",
    body=json_body(SubscriptionWanted, {**_SETTINGS, "topics": ["orders.*"]}),
    replies={
        201: Reply(description="Created", content=json_body(SubscriptionOut, _SUBSCRIPTION)),
        200: Reply(description="Replaced", content=json_body(SubscriptionOut, _SUBSCRIPTION)),
    },
    errors=(*WRITE_ERRORS, QueueNotFoundError),
)
async def set_subscription(ctx: RequestContext) -> object:
    wanted: SubscriptionWanted = ctx.body
    name = check_topic_name(queue_of(ctx), "subscription")
    await authorize_topics(ctx, wanted.topics or ())

    async def check() -> None:
        try:
            for operation in ("manage", "consume"):
                await authorize_queue(ctx, operation)
            settings = ctx.broker.queues.get(name).settings
            await authorize_topics(ctx, wanted.topics or settings.topics)
            if settings.dead_letter is not None and wanted.topics not in (None, settings.topics):
                ctx.broker.authorize(ctx.call.key, "produce", settings.dead_letter)
        except QueueNotFoundError:
            if wanted.topics is None or any(one.name == name for one in ctx.broker.queues.all()):
                raise

    await check()
    subscriptions = subscriptions_of(ctx)
    made, secret = await subscriptions.save(name, wanted, ctx.call.actor, check)
    found = subscriptions.find(name)
    if found is None:
        raise no_such_subscription(name)
    answer = subscription_out(ctx, found)
    if secret is not None:
        answer.secret = secret
    return json_answer(201 if made else 200, answer)


@route(
    "GET",
    _PATH,
    "getSubscription",
    tag=_TAG,
    summary="Show a subscription",
    replies=json_reply(SubscriptionOut, _SUBSCRIPTION, "The subscription"),
    errors=(*REMOVAL_ERRORS, NotFoundError, BadNameError),
)
async def get_subscription(ctx: RequestContext) -> object:
    return subscription_out(ctx, await _seen(ctx))


@route(
    "DELETE",
    _PATH,
    "deleteSubscription",
    tag=_TAG,
    summary="Delete a subscription; its queue stays",
    replies=no_content("Nothing more is sent"),
    errors=(*REMOVAL_ERRORS, NotFoundError, BadNameError),
)
async def delete_subscription(ctx: RequestContext) -> None:
    await subscriptions_of(ctx).remove((await _seen(ctx)).name, ctx.call.actor)


@route(
    "GET",
    f"{_PATH}/deliveries",
    "listDeliveries",
    tag=_TAG,
    summary="Show the latest requests, newest first",
    description=f"Of the last {_KEPT} since the start of the appliance.",
    parameters=[
        query("limit", "At most so many.", type="integer", minimum=1, maximum=_KEPT, default=_KEPT)
    ],
    replies=json_reply(PushesOut, {"deliveries": [_PUSH]}, "Requests"),
    errors=(*REMOVAL_ERRORS, NotFoundError, BadNameError),
)
async def list_deliveries(ctx: RequestContext) -> object:
    most = integer(ctx.call.query.get("limit", str(_KEPT)), "limit", smallest=1, largest=_KEPT)
    log = subscriptions_of(ctx).worker(await _seen(ctx)).log
    return PushesOut([push_out(one) for one in islice(reversed(log), most)])


@route(
    "POST",
    f"{_PATH}/test",
    "testSubscription",
    tag=_TAG,
    summary="Send a test request now",
    description="It is signed, holds no record, and is sent in any state. The answer says what "
    "became of it.",
    replies=json_reply(PushOut, {**_PUSH, "topic": "", "outcome": "test"}, "It was tried"),
    errors=(*REMOVAL_ERRORS, NotFoundError, BadNameError, NotReadyError),
)
async def test_subscription(ctx: RequestContext) -> object:
    return push_out(await subscriptions_of(ctx).test((await _seen(ctx)).name))


def _stating(verb: str, state: State, summary: str) -> Route:
    @route(
        "POST",
        f"{_PATH}/{verb}",
        f"{verb}Subscription",
        tag=_TAG,
        summary=summary,
        replies=json_reply(SubscriptionOut, {**_SUBSCRIPTION, "state": state}, "Done"),
        errors=(*REMOVAL_ERRORS, NotFoundError, BadNameError),
    )
    async def handle(ctx: RequestContext) -> object:
        subscriptions, found = subscriptions_of(ctx), await _seen(ctx)
        await subscriptions.set_state(found.name, state, "", ctx.call.actor)
        return subscription_out(ctx, subscriptions.find(found.name) or found)

    return handle


@route(
    "POST",
    f"{_PATH}/replay",
    "replaySubscription",
    tag=_TAG,
    summary="Send records again, or skip some: a new start of the queue",
    description="Needs `consume`, too. All leases of the queue end; what it did on these topics "
    "is forgotten. Records keep their ids: a receiver that knows them may ignore them.",
    body=json_body(Replay, {"offset": "@2026-11-21T10:00:00Z"}),
    replies=json_reply(ReplayOut, {"offsets": {"orders.eu": 17}}, "Begun"),
    errors=(*WRITE_ERRORS, *READ_ERRORS, NotFoundError, QueueNotFoundError),
)
async def replay_subscription(ctx: RequestContext) -> object:
    asked: Replay = ctx.body
    ctx.broker.authorize(ctx.call.key, "consume", group=queue_of(ctx))
    start, found = position(asked.offset, "offset"), await _seen(ctx)
    await authorize_queue(ctx, "consume")
    queues = ctx.broker.queues
    return ReplayOut(await queues.restart(found.name, start, asked.topic, ctx.call.actor))


ROUTES: Final = [
    list_subscriptions,
    set_subscription,
    get_subscription,
    delete_subscription,
    list_deliveries,
    test_subscription,
    _stating("pause", "paused", "Take and send nothing more until it is resumed"),
    _stating("resume", "active", "Send again, also after it was disabled"),
    replay_subscription,
]
