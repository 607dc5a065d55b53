"""`/v1/stream/__ds`: the subscriptions of Durable Streams and the keys of their signatures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Answer, format_time, json_answer, json_line
from seb_appliance.api.encoding.parameters import read_headers
from seb_appliance.api.openapi.shared import TIME, WRITE_ERRORS
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    Route,
    Services,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.api.server.auth import AnyRequest, Call, is_still_let_in, peer_address, token_of
from seb_appliance.broker.topics.names import check_topic_name, samples_of
from seb_appliance.errors import (
    BadNameError,
    BadParameterError,
    BadRequestError,
    CommitBackwardError,
    CommitBeyondEndError,
    ForbiddenError,
    LeaseHeldError,
    NotFoundError,
    OffsetConflictError,
    StaleGenerationError,
    StreamConflictError,
    TopicNotFoundError,
    UnauthenticatedError,
)
from seb_appliance.protocols.durable_streams.delivering import StreamSubscriptions
from seb_appliance.protocols.durable_streams.subscriptions import (
    PendingStreamOut,
    StreamLinkOut,
    StreamSubscriptionIn,
    Subscription,
    Wake,
    link_out,
    pending_out,
    topic_at,
    topic_patterns,
)
from seb_appliance.protocols.durable_streams.wire import (
    CROSS_ORIGIN,
    PATH,
    PREFIX,
    SAYS,
    TAG,
    enter,
    offset_token,
    parse_offset,
    told,
)

_CHANGES: Final = ("manage", "consume")  # the grants of who makes and changes it
_KEYS: Final = "application/jwk-set+json"
_ANY_OBJECT: Final = Content(schema={"type": "object"})
_PATH: Final = "/v1/stream/__ds/subscriptions/{subscription}"


class StreamSubscriptionOut(msgspec.Struct):
    """`failure`: why the last delivery failed; empty if it did not."""

    id: str
    subscription_id: str
    type: str
    pattern: str | None
    streams: list[StreamLinkOut]
    webhook: dict[str, Any] | None
    wake_stream: str | None
    lease_ttl_ms: int
    created_at: str
    status: str
    failure: str
    description: str | None


class ClaimIn(msgspec.Struct):
    worker: Annotated[str, msgspec.Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX)]


class ClaimOut(msgspec.Struct):
    """`token`: for acks and the release of this wake."""

    wake_id: str
    generation: int
    token: str
    streams: list[PendingStreamOut]
    lease_ttl_ms: int


class AckIn(msgspec.Struct):
    stream: str
    offset: str


class DoneIn(msgspec.Struct):
    """`done`: the lease ends. Without it, the lease begins again."""

    wake_id: str
    generation: int
    acks: Annotated[list[AckIn], msgspec.Meta(max_length=limits.FOLLOWED_TOPICS_MAX)] = []
    done: bool = False


class DoneOut(msgspec.Struct):
    """`next_wake`: there is something new already."""

    ok: bool
    next_wake: bool


class StreamsIn(msgspec.Struct):
    streams: Annotated[list[str], msgspec.Meta(min_length=1, max_length=limits.FOLLOWED_TOPICS_MAX)]


class ReleaseIn(msgspec.Struct):
    wake_id: str
    generation: int


_OFFSET: Final = offset_token(17).decode()
_LINK: Final = {"path": "chat/room-1", "link_type": "glob", "acked_offset": _OFFSET}
_PENDING: Final = {**_LINK, "tail_offset": offset_token(18).decode(), "has_pending": True}
_WANTED: Final = {"type": "pull-wake", "pattern": "chat/*", "wake_stream": "wake/pool"}
_SUBSCRIPTION: Final = {
    "id": "bots",
    "subscription_id": "bots",
    **_WANTED,
    "streams": [_LINK],
    "webhook": None,
    "lease_ttl_ms": 30_000,
    "created_at": TIME,
    "status": "active",
    "failure": "",
    "description": None,
}
_WAKE: Final = {"wake_id": "w_3kTqN0", "generation": 1_048_583}
_CLAIM: Final = {**_WAKE, "token": "…", "streams": [_PENDING], "lease_ttl_ms": 30_000}
_DONE: Final = {**_WAKE, "acks": [{"stream": "chat/room-1", "offset": _OFFSET}], "done": True}


def _service(services: Services) -> StreamSubscriptions:
    """Raises StandbyError."""
    if services.broker.standby is not None:  # its subscriptions do not run
        raise services.broker.standby.again()
    found = services.options.beside[StreamSubscriptions]
    assert isinstance(found, StreamSubscriptions)
    return found


def _name(ctx: RequestContext) -> str:
    return check_topic_name(ctx.path["subscription"], "subscription")


def _authorize(
    ctx: RequestContext,
    operations: Iterable[str],
    settings: StreamSubscriptionIn,
    streams: Iterable[str],
) -> None:
    """On all its streams; to grants it is what a group is. Raises ForbiddenError, BadNameError,
    BadParameterError."""
    broker, key, name = ctx.broker, ctx.call.key, _name(ctx)
    for operation in operations:
        for pattern in (*topic_patterns(settings), *streams):
            for topic in samples_of(pattern):
                if not broker.may(key, operation, topic, name):
                    raise broker.access.no_grant(key, operation, pattern, name)


def _may(ctx: RequestContext, operation: str, found: Subscription) -> bool:
    try:
        _authorize(ctx, (operation,), found.stored.settings, found.stored.streams)
    except ForbiddenError:
        return False
    return True


def _find(ctx: RequestContext, *operations: str) -> Subscription:
    """Raises NotFoundError, also for who may not do that with all of its streams: the names of
    these are not for everybody."""
    name = _name(ctx)
    found = _service(ctx.services).find(name)
    if found is None or not all(_may(ctx, one, found) for one in operations):
        error = NotFoundError(f"There is no subscription {name!r} with which you may do that.")
        raise told(error, "SUBSCRIPTION_NOT_FOUND")
    return found


async def _out(service: StreamSubscriptions, found: Subscription) -> StreamSubscriptionOut:
    stored = found.stored
    settings = stored.settings
    webhook = None
    if settings.webhook is not None:
        kid = (await service.public_key())["kid"]
        signing = {"alg": "ed25519", "kid": kid, "jwks_url": f"{stored.base}__ds/jwks.json"}
        webhook = {"url": settings.webhook.url, "signing": signing}
    return StreamSubscriptionOut(
        found.name,
        found.name,
        settings.type,
        settings.pattern,
        list(map(link_out, found.links())),
        webhook,
        settings.wake_stream,
        settings.lease_ttl_ms,
        format_time(stored.created_us),
        "failed" if found.failures else "active",
        found.failure,
        settings.description,
    )


def _of_wake(request: AnyRequest, services: Services, _known: frozenset[str]) -> Call:
    """By the token of a wake instead of an API key. Raises UnauthenticatedError."""
    headers = read_headers(list(request.scope["headers"]))
    name = request.scope["path_params"]["subscription"]
    service = _service(services)
    named = service.tokens.wake_of(name, token_of(headers.get(b"authorization")))
    if named is None:
        error = UnauthenticatedError("The token is not one of a wake of this subscription.")
        raise told(error, "TOKEN_INVALID")
    return Call(services.broker.access.let_in_anybody(), headers, {}, peer_address(request.scope))


def _wake(ctx: RequestContext, given: DoneIn | ReleaseIn) -> tuple[Subscription, Wake]:
    """Raises StaleGenerationError if token, id and generation are not all of the wake of now."""
    name = _name(ctx)
    service = _service(ctx.services)
    found = service.find(name)
    named = service.tokens.wake_of(name, token_of(ctx.call.headers[b"authorization"]))
    wake = found.wake if found is not None and found.is_leased() else None
    if (
        found is None
        or wake is None
        or not (named == (given.generation, given.wake_id) == (wake.generation, wake.wake_id))
    ):
        error = StaleGenerationError("This wake has ended: its lease is over, or it is done.")
        raise told(error, "FENCED")
    return found, wake


@route(
    "PUT",
    _PATH,
    "setStreamSubscription",
    tag=TAG,
    summary="Create a subscription, or confirm that it is there",
    description="Wakes a worker when streams have something new: by a webhook, or by an event in "
    "`wake_stream`. Streams that exist are followed from their end on, later ones from their "
    "beginning. Needs manage and consume on all of them, for groups that match the name of the "
    "subscription, and produce on `wake_stream`. " + SAYS,
    body=json_body(StreamSubscriptionIn, _WANTED),
    replies={
        **json_reply(StreamSubscriptionOut, _SUBSCRIPTION, "It is there already"),
        **json_reply(StreamSubscriptionOut, _SUBSCRIPTION, "Created", status=201),
    },
    errors=(*WRITE_ERRORS, BadNameError, StreamConflictError),
    authenticate=enter,
    refuses=False,
)
async def set_subscription(ctx: RequestContext) -> object:
    name, wanted = _name(ctx), ctx.body
    assert isinstance(wanted, StreamSubscriptionIn)
    service = _service(ctx.services)
    if wanted.webhook is not None:
        _check_url(wanted.webhook.url, service)
    _authorize(ctx, _CHANGES, wanted, map(topic_at, wanted.streams))
    if wanted.wake_stream is not None:
        ctx.broker.authorize(ctx.call.key, "produce", topic_at(wanted.wake_stream))
    known, made = await service.create(name, wanted, _base(ctx), ctx.call.actor)
    if not made and not all(_may(ctx, one, known) for one in _CHANGES):
        raise ctx.broker.access.no_grant(ctx.call.key, "manage", None, name)  # of what is not said
    if known.stored.settings != wanted:
        error = StreamConflictError(f"The subscription {name!r} exists with other settings.")
        raise told(error, "SUBSCRIPTION_ALREADY_EXISTS")
    return json_answer(201 if made else 200, await _out(service, known))


def _check_url(url: str, service: StreamSubscriptions) -> None:
    """Raises BadRequestError. A name is checked again when a request is sent."""
    try:
        service.check_url(url)
    except BadRequestError as error:
        raise told(error, "WEBHOOK_URL_REJECTED") from error


def _base(ctx: RequestContext) -> str:
    """The URL under which the client reaches the streams."""
    host = ctx.call.headers.get(b"host", b"").decode("latin-1")
    return f"{ctx.request.scope['scheme']}://{host}{PREFIX.decode()}"


@route(
    "GET",
    _PATH,
    "getStreamSubscription",
    tag=TAG,
    summary="Show a subscription and its cursors",
    replies=json_reply(StreamSubscriptionOut, _SUBSCRIPTION, "The subscription"),
    errors=(BadNameError, NotFoundError),
    authenticate=enter,
    refuses=False,
)
async def get_subscription(ctx: RequestContext) -> object:
    return await _out(_service(ctx.services), _find(ctx, "consume"))


@route(
    "DELETE",
    _PATH,
    "deleteStreamSubscription",
    tag=TAG,
    summary="Delete a subscription and its cursors; its streams stay",
    replies=no_content("Deleted"),
    errors=(*WRITE_ERRORS, BadNameError, NotFoundError),
    authenticate=enter,
    refuses=False,
)
async def delete_subscription(ctx: RequestContext) -> None:
    await _service(ctx.services).delete(_find(ctx, *_CHANGES), ctx.call.actor)


@route(
    "POST",
    _PATH + "/streams",
    "linkStreams",
    tag=TAG,
    summary="Add streams to a subscription, from their end on",
    body=json_body(StreamsIn, {"streams": ["chat/room-2"]}),
    replies=no_content("They are linked"),
    errors=(*WRITE_ERRORS, BadNameError, NotFoundError),
    authenticate=enter,
    refuses=False,
)
async def link_streams(ctx: RequestContext) -> None:
    found, topics = _find(ctx, *_CHANGES), list(map(topic_at, ctx.body.streams))
    _authorize(ctx, _CHANGES, found.stored.settings, topics)
    await _service(ctx.services).change_streams(found, ctx.call.actor, link=topics)


@route(
    "DELETE",
    _PATH + "/streams/{path}",
    "unlinkStream",
    tag=TAG,
    summary="Remove a stream that was added; a pattern may still match it",
    parameters=[PATH],
    replies=no_content("It is not linked any more"),
    errors=(*WRITE_ERRORS, BadNameError, NotFoundError),
    authenticate=enter,
    refuses=False,
)
async def unlink_stream(ctx: RequestContext) -> None:
    found, topic = _find(ctx, *_CHANGES), topic_at(ctx.path["path"])
    await _service(ctx.services).change_streams(found, ctx.call.actor, unlink=(topic,))


@route(
    "POST",
    _PATH + "/claim",
    "claimWake",
    tag=TAG,
    summary="Take the lease of a subscription that has something new",
    body=json_body(ClaimIn, {"worker": "worker-1"}),
    replies=json_reply(ClaimOut, _CLAIM, "The lease is the worker's"),
    errors=(BadNameError, NotFoundError, LeaseHeldError, StreamConflictError),
    authenticate=enter,
    refuses=False,
)
async def claim(ctx: RequestContext) -> object:
    found = _find(ctx, "consume")
    if found.is_leased():
        wake = found.wake
        assert wake is not None, found.name
        error = LeaseHeldError(f"The worker {wake.holder!r} has the lease.")
        raise told(error, "ALREADY_CLAIMED", current_holder=wake.holder, generation=wake.generation)
    pending = found.look_at_all()
    if not pending:
        raise told(StreamConflictError("There is nothing new."), "NO_PENDING_WORK")
    wake = found.wake or found.begin(pending)
    found.lease(wake, ctx.body.worker)
    wake.is_let_in = partial(is_still_let_in, ctx.request.scope)
    return ClaimOut(
        wake.wake_id,
        wake.generation,
        _service(ctx.services).tokens.of(found.name, wake),
        list(map(pending_out, pending)),
        found.stored.settings.lease_ttl_ms,
    )


async def _settle(ctx: RequestContext) -> object:
    """Apply the acks of a wake, and end it or lease it on."""
    given = ctx.body
    found, wake = _wake(ctx, given)
    links = found.links_in(wake)
    done = []
    for ack in given.acks:
        topic = topic_at(ack.stream)
        if topic not in links:
            raise BadRequestError(f"{ack.stream[:200]!r} is no stream of this subscription.")
        done.append(replace(links[topic], end=parse_offset(ack.offset)))
    if done:
        try:
            await found.commit(done)
        except (CommitBackwardError, CommitBeyondEndError, OffsetConflictError) as error:
            raise told(error, "INVALID_OFFSET") from error
    if found.wake is not wake:  # its lease has ended; what was acknowledged stays so
        return DoneOut(ok=True, next_wake=bool(found.pending()))
    if given.done:
        return DoneOut(ok=True, next_wake=found.release())
    found.lease(wake, wake.holder)
    return DoneOut(ok=True, next_wake=False)


def _settling(last: str, operation_id: str, summary: str) -> Route:
    return route(
        "POST",
        f"{_PATH}/{last}",
        operation_id,
        tag=TAG,
        summary=summary,
        description="The token of the wake stands for an API key. " + SAYS,
        body=json_body(DoneIn, _DONE),
        replies=json_reply(DoneOut, {"ok": True, "next_wake": False}, "The offsets are stored"),
        errors=(
            *WRITE_ERRORS,
            BadNameError,
            BadParameterError,
            StaleGenerationError,
            TopicNotFoundError,
            CommitBackwardError,
            CommitBeyondEndError,
            OffsetConflictError,
        ),
        authenticate=_of_wake,
        refuses=False,
    )(_settle)


@route(
    "POST",
    _PATH + "/release",
    "releaseWake",
    tag=TAG,
    summary="Give the lease back without an ack",
    description="The token of the wake stands for an API key. " + SAYS,
    body=json_body(ReleaseIn, _WAKE),
    replies=no_content("The lease is free"),
    errors=(BadNameError, StaleGenerationError),
    authenticate=_of_wake,
    refuses=False,
)
async def release(ctx: RequestContext) -> None:
    found, _ = _wake(ctx, ctx.body)
    found.release()


@route(
    "GET",
    "/v1/stream/__ds/jwks.json",
    "getStreamSigningKeys",
    tag=TAG,
    summary="Show the public keys of the signatures of webhooks",
    replies={200: Reply(description="A JSON Web Key Set", content={_KEYS: _ANY_OBJECT})},
    api_key=False,
)
async def signing_keys(ctx: RequestContext) -> object:
    headers = [(b"content-type", _KEYS.encode()), (b"cache-control", b"public, max-age=300")]
    keys = json_line({"keys": await _service(ctx.services).public_keys()})
    return Answer(200, [CROSS_ORIGIN, *headers], keys)


ROUTES: Final = [
    set_subscription,
    get_subscription,
    delete_subscription,
    link_streams,
    unlink_stream,
    claim,
    _settling("ack", "ackWake", "Store what a worker has done, and end or prolong its lease"),
    _settling("callback", "ackWebhookWake", "The same, of a wake that a webhook was told"),
    release,
    signing_keys,
]
