"""`/v1/groups`, `/v1/groups/{group}` and its reset: where consumer groups stand, for operators."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import Answer, json_answer
from seb_appliance.api.encoding.json_bodies import read_json
from seb_appliance.api.encoding.parameters import refuse_unsupported
from seb_appliance.api.encoding.times import format_time
from seb_appliance.api.routes.groups.rights import (
    authorize_group,
    authorize_whole,
    check_seen,
    group_sees,
)
from seb_appliance.api.server.auth import AnyRequest, Call, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.groups import GroupTopicView, GroupView, LeaseView, ResetRow
from seb_appliance.broker.topics.names import check_group_name, check_topic_name
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.numbers import Whole

LIST_QUERY: Final = frozenset({"after", "limit"})
Shift = Annotated[int, msgspec.Meta(ge=-limits.OFFSET_MAX, le=limits.OFFSET_MAX)]


class LeaseOut(msgspec.Struct):
    """A living lease. `ttl_ms` is what it was granted for, and again after a restart."""

    generation: int
    holder: str
    ttl_ms: int
    expires_in_ms: int


class GroupTopicOut(msgspec.Struct):
    """Where a group stands on a topic: `committed_offset` is the next one that it reads.
    `lag_seconds`: age of the oldest record that it has not read; 0 when there is none."""

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


class GroupSummary(msgspec.Struct):
    """A group, over all of its topics that the API key may see."""

    group: str
    topic_count: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float
    last_commit: str | None
    lease: LeaseOut | None


class GroupOut(GroupSummary):
    topics: list[GroupTopicOut]


class GroupsOut(msgspec.Struct):
    """A page. `next_after`: give it as `after` for the next one; null: this was the last."""

    groups: list[GroupSummary]
    next_after: str | None


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """`topics`: names, and patterns that pick among the group's own; all of these when it is left
    out. Either `to` (an offset, `earliest`, `latest`, `-N`, `@time`) or `shift`."""

    topics: Annotated[list[str], msgspec.Meta(max_length=limits.RESET_PATTERNS_MAX)] | None = None
    to: str | Whole | None = None
    shift: Shift | None = None
    dry_run: bool = False


class ResetTopic(msgspec.Struct):
    """`before` null: the group had no offset on the topic."""

    topic: str
    topic_id: int
    before: int | None
    after: int


class ResetOut(msgspec.Struct):
    """What a reset did, or would do."""

    group: str
    dry_run: bool
    topics: list[ResetTopic]


_decoder: Final = msgspec.json.Decoder(Reset)


def _lease_out(view: LeaseView | None) -> LeaseOut | None:
    if view is None:
        return None
    return LeaseOut(view.generation, view.holder, view.ttl_ms, view.expires_in_ms)


def _summary(
    view: GroupView,
) -> tuple[str, int, int, int, float, str | None, LeaseOut | None]:
    lag = view.lag
    committed = None if view.committed_us is None else format_time(view.committed_us)
    lease = _lease_out(view.lease)
    return view.group, len(view.topics), lag.records, lag.bytes, lag.seconds, committed, lease


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


async def _to_reset(
    broker: Broker, key: ApiKeyView, group: str, patterns: list[str] | None
) -> list[str]:
    """Topics: what is named is refused if the key may not manage it, a pattern picks among those
    that it may. Raises ForbiddenError, GroupNotFoundError, TopicNotFoundError."""
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


async def _reset(broker: Broker, call: Call, group: str, asked: Reset) -> ResetOut:
    if (asked.to is None) == (asked.shift is None):
        raise BadRequestError("Say either where to (`to`) or how far (`shift`).")
    to = None if asked.to is None else parameters.position(str(asked.to), "to")
    topics = await _to_reset(broker, call.key, group, asked.topics)
    groups = broker.groups
    rows: list[ResetRow] = await groups.plan_reset(group, topics, to, asked.shift or 0)
    if not asked.dry_run:
        rows = await groups.reset(group, rows, call.actor)
    listed = [ResetTopic(row.topic, row.topic_id, row.before, row.after) for row in rows]
    return ResetOut(group, asked.dry_run, listed)


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/v1/groups")
    async def list_groups(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, LIST_QUERY)
        after = call.query.get("after", "")
        most = parameters.integer(
            call.query.get("limit", str(limits.GROUPS_PER_PAGE_DEFAULT)),
            "limit",
            smallest=1,
            largest=limits.GROUPS_PER_PAGE_MAX,
        )
        if after:
            check_group_name(after)
        views, next_after = await broker.groups.page(after, most, group_sees(broker, call.key))
        return json_answer(200, GroupsOut([GroupSummary(*_summary(v)) for v in views], next_after))

    @get("/v1/groups/{group:str}")
    async def get_group(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        group: str = request.scope["path_params"]["group"]
        sees = group_sees(broker, call.key)
        if not sees(group, None):
            broker.authorize(call.key, "consume", group=group)
        view = await broker.groups.describe(group, sees)
        return json_answer(200, GroupOut(*_summary(view), list(map(_topic_out, view.topics))))

    @delete("/v1/groups/{group:str}", status_code=200)  # the answer itself says 204
    async def delete_group(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        group: str = request.scope["path_params"]["group"]
        broker.authorize(call.key, "manage", group=group)
        refuse_unsupported(call.headers)
        await authorize_whole(broker, call.key, group)
        await broker.groups.delete(group, call.actor)
        return Answer(204, [])

    @post("/v1/groups/{group:str}/reset", status_code=200)
    async def reset_group(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        group: str = request.scope["path_params"]["group"]
        broker.authorize(call.key, "manage", group=group)
        asked = await read_json(request, call, broker, _decoder)
        return json_answer(200, await _reset(broker, call, group, asked))

    return [list_groups, get_group, delete_group, reset_group]
