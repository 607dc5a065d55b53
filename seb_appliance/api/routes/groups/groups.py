"""`/v1/groups`, `/v1/groups/{group}` and its reset; and what an API key may do with a group.

The topics of a group are those on which it has an offset. A key that may use one of them may use
the group. A group without topics belongs to its members (of the Kafka protocol), and without
members to any key with a grant for its name. Refusals name only topics that the caller named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import JSON, format_time
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.openapi.shared import (
    REMOVAL_ERRORS,
    WRITE_ERRORS,
)
from seb_appliance.api.routes.records.reading import encoded
from seb_appliance.api.routes.route import (
    RequestContext,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.consumer_groups import Owns, Sees
from seb_appliance.broker.groups.groups import (
    GroupTopicView,
    GroupView,
    ResetRow,
    no_such_group,
)
from seb_appliance.broker.topics.names import check_group_name, check_topic_name
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import (
    BadNameError,
    BadRequestError,
    CorruptObjectError,
    GroupNotFoundError,
    OffsetConflictError,
    TopicNotFoundError,
)
from seb_appliance.formats.numbers import Whole
from seb_appliance.tasks import in_slices

_AT_ONCE: Final = 32  # topics of a group, which may have 4 KiB of metadata each
_encode: Final = msgspec.json.Encoder().encode
_NO_TOPICS: Final = b'"topics":[]'
Shift = Annotated[int, msgspec.Meta(ge=-limits.OFFSET_MAX, le=limits.OFFSET_MAX)]


class LeaseOut(msgspec.Struct):
    """A lease that has not expired. It was granted for `ttl_ms`; a restart of the appliance grants
    that time again."""

    generation: int
    holder: str
    ttl_ms: int
    expires_in_ms: int


class GroupTopicOut(msgspec.Struct):
    """The position of a group on a topic. `committed_offset`: the next offset to read.
    `lag_seconds`: the age of the oldest unread record; 0 if there is none."""

    topic: str
    topic_id: int
    committed_offset: int
    metadata: str
    last_commit: str
    log_start_offset: int
    log_end_offset: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float


class MemberOut(msgspec.Struct):
    """A member of a group. `instance_id`: of a static member. `subscribed` and `assigned`: those
    topics that the API key may see (partition 2 of `orders` is `orders.kafka-2`); null while the
    group is not stable, or if the members do not say it in the way of consumers."""

    member_id: str
    instance_id: str | None
    client: str
    address: str
    subscribed: list[str] | None
    assigned: list[str] | None


class MembershipOut(msgspec.Struct):
    """The members that a group has by the Kafka protocol. `state`, `generation` and `assignor` are
    Kafka's; `assignor` is empty while the group is not stable."""

    protocol: str
    state: str
    generation: int
    assignor: str
    members: list[MemberOut]


class GroupSummary(msgspec.Struct):
    """A group: totals of those of its topics that the API key may see. `member_count`: of the
    Kafka protocol."""

    group: str
    topic_count: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float
    last_commit: str | None
    lease: LeaseOut | None
    member_count: int


class GroupOut(GroupSummary):
    """`membership` is null if the group has no members by the Kafka protocol."""

    topics: list[GroupTopicOut]
    membership: MembershipOut | None


class GroupsOut(msgspec.Struct):
    """A page of groups. Send `next_after` as `after` to get the next page; null on the last
    page."""

    groups: list[GroupSummary]
    next_after: str | None


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """`topics`: names, and patterns that select among the group's topics; default: all of them.
    Send either `to` (an offset, `earliest`, `latest`, `-N`, `@time`) or `shift`."""

    topics: Annotated[list[str], msgspec.Meta(max_length=limits.RESET_PATTERNS_MAX)] | None = None
    to: str | Whole | None = None
    shift: Shift | None = None
    dry_run: bool = False


class ResetTopic(msgspec.Struct):
    """`before` is null if the group had no offset on the topic."""

    topic: str
    topic_id: int
    before: int | None
    after: int


class ResetOut(msgspec.Struct):
    """What a reset did, or would do."""

    group: str
    dry_run: bool
    topics: list[ResetTopic]


def _summary(
    view: GroupView,
) -> tuple[str, int, int, int, float, str | None, LeaseOut | None, int]:
    lag = view.lag
    committed = None if view.committed_us is None else format_time(view.committed_us)
    lease = msgspec.convert(view.lease, LeaseOut | None, from_attributes=True)
    lags = lag.records, lag.bytes, lag.seconds
    return view.group, len(view.topics), *lags, committed, lease, view.member_count


def _topic_out(view: GroupTopicView) -> GroupTopicOut:
    return GroupTopicOut(
        view.topic,
        view.topic_id,
        view.committed_offset,
        view.metadata,
        format_time(view.committed_us),
        view.log_start_offset,
        view.log_end_offset,
        view.lag.records,
        view.lag.bytes,
        view.lag.seconds,
    )


def _parts(out: GroupOut, topics: Sequence[GroupTopicView]) -> Iterator[bytes]:
    """`out` as JSON, with the topics in the place of none."""
    # A quote inside of a text is escaped: this can only be the field itself.
    before, _, after = _encode(out).partition(_NO_TOPICS)
    yield before + _NO_TOPICS[:-1]
    for at in range(0, len(topics), _AT_ONCE):
        part = _encode(list(map(_topic_out, topics[at : at + _AT_ONCE])))[1:-1]
        yield b"," + part if at else part
    yield b"]" + after + b"\n"


def group_sees(broker: Broker, key: ApiKeyView) -> Sees:
    """What the caller may see of groups: the topics that it may read or manage."""

    def sees(group: str, topic: str | None) -> bool:
        return any(broker.may(key, operation, topic, group) for operation in ("consume", "manage"))

    return sees


def group_owns(broker: Broker, key: ApiKeyView) -> Owns:
    """Whose groups the caller sees as its own."""
    return lambda owner: owner == key.api_key_id or broker.may(key, "admin")


async def authorize_group(broker: Broker, key: ApiKeyView, operation: str, group: str) -> None:
    """A grant on one of the topics that the group stands on, or that its members subscribe to.
    Raises ForbiddenError."""
    broker.authorize(key, operation, group=group)
    none = True
    async for topic in in_slices(broker.groups.stands_on(group)):
        none = False
        if broker.may(key, operation, topic, group):
            return

    def sees(group: str, topic: str | None) -> bool:
        return broker.may(key, operation, topic, group)

    if not none or not await broker.groups.is_open_to(group, sees, group_owns(broker, key)):
        raise broker.access.no_grant(key, operation, None, group)


async def authorize_commit(
    broker: Broker, key: ApiKeyView, group: str, topics: Collection[str]
) -> None:
    """`consume` on each of `topics`, and on one that the group stands on. Raises ForbiddenError."""
    async for topic in in_slices(topics):
        broker.authorize(key, "consume", topic, group)
    if not broker.groups.stands_on_one_of(group, topics):
        await authorize_group(broker, key, "consume", group)


async def authorize_whole(broker: Broker, key: ApiKeyView, group: str) -> None:
    """`manage` on every topic that the group stands on, as of when this returns. Raises
    ForbiddenError; GroupNotFoundError, also for a group of which the key sees nothing."""
    await check_seen(broker, key, group)
    looked_at: set[str] = set()
    while not looked_at.issuperset(broker.groups.stands_on(group)):
        async for topic in in_slices(broker.groups.stands_on(group)):
            looked_at.add(topic)
            if not broker.may(key, "manage", topic, group):
                raise broker.access.no_grant(key, "manage", None, group)


async def check_seen(broker: Broker, key: ApiKeyView, group: str) -> None:
    """Raises GroupNotFoundError if the group does not exist, or if the key may see none of its
    topics."""
    sees, none = group_sees(broker, key), not broker.groups.topics_of(group)
    async for topic in in_slices(broker.groups.stands_on(group)):
        if sees(group, topic):
            return
    if not none or not await broker.groups.is_open_to(group, sees, group_owns(broker, key)):
        raise no_such_group(group)


async def _to_reset(
    broker: Broker, key: ApiKeyView, group: str, patterns: list[str] | None
) -> list[str]:
    """The topics to reset. A name is refused if the key may not manage that topic; a pattern
    selects only topics that it may manage. Raises ForbiddenError, GroupNotFoundError,
    TopicNotFoundError."""
    if patterns is None:
        await authorize_whole(broker, key, group)
        return broker.groups.topics_of(group)
    named = {check_topic_name(pattern) for pattern in patterns if "*" not in pattern}
    for topic in named:
        broker.authorize(key, "manage", topic, group)
    if len(named) < len(set(patterns)):
        await check_seen(broker, key, group)
    await authorize_group(broker, key, "manage", group)
    picked = broker.groups.pick(group, patterns)
    return [t for t in picked if t in named or broker.may(key, "manage", t, group)]


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
    "member_count": 1,
}
_MEMBERSHIP: Final = {
    "protocol": "Kafka",
    "state": "Stable",
    "generation": 3,
    "assignor": "range",
    "members": [
        {
            "member_id": "billing-7c2f6a0e-5c2b-4f0f-9a55-0d2a1b7f3c11",
            "instance_id": None,
            "client": "billing",
            "address": "192.0.2.7",
            "subscribed": ["orders.eu"],
            "assigned": ["orders.eu", "orders.eu.kafka-1"],
        }
    ],
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
    "membership": _MEMBERSHIP,
}


@route(
    "GET",
    "/v1/groups",
    "listGroups",
    tag="Groups",
    summary="List the groups that the API key may see, by name",
    description="Continue while `next_after` is not null: a page may have fewer groups than "
    "`limit`.",
    parameters=[
        query("after", "The `next_after` of the previous page.", "lake.orders"),
        query(
            "limit",
            "At most so many groups.",
            type="integer",
            minimum=1,
            maximum=limits.GROUPS_PER_PAGE_MAX,
            default=limits.GROUPS_PER_PAGE_DEFAULT,
        ),
    ],
    replies=json_reply(GroupsOut, {"groups": [_SUMMARY], "next_after": None}, "A page of groups"),
    errors=(BadNameError,),
)
async def list_groups(ctx: RequestContext) -> object:
    after = ctx.call.query.get("after", "")
    most = parameters.integer(
        ctx.call.query.get("limit", str(limits.GROUPS_PER_PAGE_DEFAULT)),
        "limit",
        smallest=1,
        largest=limits.GROUPS_PER_PAGE_MAX,
    )
    if after:
        check_group_name(after)
    views, next_after = await ctx.broker.groups.page(
        after,
        most,
        group_sees(ctx.broker, ctx.call.key),
        group_owns(ctx.broker, ctx.call.key),
    )
    return GroupsOut([GroupSummary(*_summary(v)) for v in views], next_after)


@route(
    "GET",
    "/v1/groups/{group}",
    "getGroup",
    tag="Groups",
    summary="Show a group: its offsets, its lag, its lease and its members",
    replies=json_reply(GroupOut, _GROUP, "The group"),
    errors=(GroupNotFoundError,),
)
async def get_group(ctx: RequestContext) -> object:
    sees = group_sees(ctx.broker, ctx.call.key)
    if not sees(ctx.group, None):
        ctx.broker.authorize(ctx.call.key, "consume", group=ctx.group)
    owns = group_owns(ctx.broker, ctx.call.key)
    view = await ctx.broker.groups.describe(ctx.group, sees, owns)
    found = await ctx.broker.groups.membership(ctx.group, sees)
    membership = msgspec.convert(found, MembershipOut | None, from_attributes=True)
    parts = _parts(GroupOut(*_summary(view), [], membership), view.topics)
    headers = [(b"content-type", JSON)]
    return await encoded(ctx.broker, ctx.call, headers, parts)


@route(
    "DELETE",
    "/v1/groups/{group}",
    "deleteGroup",
    tag="Groups",
    summary="Delete a group: its offsets and its lease",
    replies=no_content("Deleted"),
    errors=(*REMOVAL_ERRORS, GroupNotFoundError),
    grant="manage",
)
async def delete_group(ctx: RequestContext) -> None:
    await authorize_whole(ctx.broker, ctx.call.key, ctx.group)
    await ctx.broker.groups.delete(ctx.group, ctx.call.actor)


@route(
    "POST",
    "/v1/groups/{group}/reset",
    "resetGroup",
    tag="Groups",
    summary="Move the offsets of a group forward or back, or preview the change",
    description="`topics` are names, and patterns that select among the topics on which the "
    "group has an offset; default: all of these. An offset outside the log becomes the nearest "
    "offset inside it. Stop the consumers first; otherwise their next commit overwrites the "
    "reset.",
    body=json_body(Reset, {"topics": ["orders.*"], "to": "earliest", "dry_run": True}),
    replies=json_reply(
        ResetOut,
        {
            "group": "lake.orders",
            "dry_run": True,
            "topics": [{"topic": "orders.eu", "topic_id": 3, "before": 1044, "after": 0}],
        },
        "Before and after, by topic",
    ),
    errors=(
        *WRITE_ERRORS,
        CorruptObjectError,
        GroupNotFoundError,
        OffsetConflictError,
        TopicNotFoundError,
    ),
    grant="manage",
)
async def reset_group(ctx: RequestContext) -> object:
    asked: Reset = ctx.body
    if (asked.to is None) == (asked.shift is None):
        raise BadRequestError("Send either the new position (`to`) or the distance (`shift`).")
    to = None if asked.to is None else parameters.position(str(asked.to), "to")
    broker, group = ctx.broker, ctx.group
    topics = await _to_reset(broker, ctx.call.key, group, asked.topics)
    rows: list[ResetRow] = await broker.groups.plan_reset(group, topics, to, asked.shift or 0)
    if not asked.dry_run:
        rows = await broker.groups.reset(group, rows, ctx.call.actor)
    listed = msgspec.convert(rows, list[ResetTopic], from_attributes=True)
    return ResetOut(group, asked.dry_run, listed)


ROUTES: Final = [list_groups, get_group, delete_group, reset_group]
