"""`/v1/topics` and `/v1/topics/{topic}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from seb_appliance.api.encoding.answers import JSON, format_time, json_answer
from seb_appliance.api.openapi.parameters import PATTERN
from seb_appliance.api.openapi.shared import REMOVAL_ERRORS, WRITE_ERRORS
from seb_appliance.api.routes.records.reading import encoded
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.api.server.auth import (
    authorize_to_delete,
    authorize_to_fork,
    may_see,
)
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.values import ForkOf, TopicView
from seb_appliance.errors import (
    EntryNotFoundError,
    ForkRefusedError,
    NameHeldError,
    NotReadyError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    TopicDiffersError,
    TopicHeldError,
    TopicNotFoundError,
)
from seb_appliance.formats.declared import changes_of, given
from seb_appliance.formats.numbers import Whole
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices


class TopicChanges(changes_of(TopicSettings, constrained=False)):  # type: ignore[misc]
    """Settings to change: null restores the appliance's default, an absent setting does not
    change."""


class ForkWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The topic to fork, and the first offset that is not shared; null: the log end."""

    topic: str
    offset: Whole | None = None


class NewTopic(TopicSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a topic to create (null: the appliance's default). With `fork_of`, the topic
    shares the records of another topic, and gets its settings if none are given here."""

    fork_of: ForkWanted | None = None


class Trim(msgspec.Struct, forbid_unknown_fields=True):
    """`before`: the new log start offset. Records below it are removed."""

    before: Whole


class SettingsOut(TopicSettings, frozen=True, omit_defaults=False):
    """Settings in an answer: all of them, with nulls."""


class TopicOut(msgspec.Struct):
    """A topic. `settings`: as they were set (null: the appliance's default). `effective_settings`:
    with the defaults filled in. `log_end_offset`: the offset of the next record. `last_entry`: the
    journal entry that has all records below it, with the entries before; keep it with an offset
    that you keep yourself (`GET /v1/entries/{entry}`). `fork_of`: for a fork, its parent (which may
    be deleted) and the first offset that is not shared; `size_bytes` does not include shared
    records. `forks`: the number of forks of this topic. `closed`: the topic is a closed stream and
    accepts no records."""

    topic: str
    topic_id: int
    created: str
    settings: SettingsOut
    effective_settings: SettingsOut
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    last_entry: str
    fork_of: ForkOf | None
    forks: int
    closed: bool


class TopicsOut(msgspec.Struct):
    topics: list[TopicOut]


_LISTED_AT_ONCE: Final = 100  # about a millisecond
_encoder: Final = msgspec.json.Encoder()


def topic_out(view: TopicView) -> TopicOut:
    return TopicOut(
        view.name,
        view.topic_id,
        format_time(view.created_us),
        _shown(view.settings),
        _shown(view.effective),
        view.log_start_offset,
        view.log_end_offset,
        view.bytes,
        view.last_entry,
        view.fork_of,
        view.forks,
        view.closed,
    )


def _shown(settings: TopicSettings) -> SettingsOut:
    return SettingsOut(**msgspec.structs.asdict(settings))


def _list_parts(views: Iterable[TopicView]) -> Iterator[bytes]:
    """`TopicsOut` as JSON, a few topics at a time."""
    before = b'{"topics":['
    views = iter(views)
    while some := [topic_out(view) for view in islice(views, _LISTED_AT_ONCE)]:
        yield before + _encoder.encode(some)[1:-1]
        before = b","
    yield b"]}\n" if before == b"," else before + b"]}\n"


_SET: Final = SettingsOut(
    linger_ms=100, retention_ms=604_800_000, key_index="latest", cleanup="compact"
)
_SETTINGS: Final = msgspec.to_builtins(_SET)
_TOPIC: Final = {
    "topic": "orders.eu",
    "topic_id": 3,
    "created": "2026-11-21T10:00:00.000123Z",
    "settings": _SETTINGS,
    "effective_settings": msgspec.to_builtins(BrokerSettings().effective(_SET)),
    "log_start_offset": 0,
    "log_end_offset": 18,
    "size_bytes": 4096,
    "last_entry": "1207-5e0b9c2f7a31d84610fe2b7c9d3a4582",
    "fork_of": None,
    "forks": 1,
    "closed": False,
}
_TOPIC_REPLY: Final = {"application/json": Content(struct=TopicOut, example=_TOPIC)}


@route(
    "GET",
    "/v1/topics",
    "listTopics",
    tag="Topics",
    summary="List the topics that the API key may see, by name",
    parameters=[PATTERN],
    replies=json_reply(TopicsOut, {"topics": [_TOPIC]}, "Topics"),
)
async def list_topics(ctx: RequestContext) -> object:
    wanted = Patterns([check_pattern(ctx.call.query.get("pattern", "**"))])
    names = [
        name
        async for name in in_slices(ctx.broker.topics.names())
        if wanted.cover(name) and may_see(ctx.broker, ctx.call.key, name)
    ]
    parts = _list_parts(ctx.broker.topics.some(names))
    return await encoded(ctx.broker, ctx.call, [(b"content-type", JSON)], parts)


@route(
    "GET",
    "/v1/topics/{topic}",
    "getTopic",
    tag="Topics",
    summary="Show a topic: settings, offsets, size",
    replies={200: Reply(description="The topic", content=_TOPIC_REPLY)},
    errors=(TopicNotFoundError,),
)
async def get_topic(ctx: RequestContext) -> object:
    if not may_see(ctx.broker, ctx.call.key, ctx.topic):
        ctx.broker.authorize(ctx.call.key, "consume", ctx.topic)
    return topic_out(ctx.broker.topics.get(ctx.topic))


@route(
    "GET",
    "/v1/entries/{entry}",
    "checkEntry",
    tag="Topics",
    summary="Check that the journal still has an entry",
    description="For clients that keep offsets themselves: with an offset, keep the `last_entry` "
    "that the topic had after the record was read, and ask before you continue there. 404 "
    "`entry_not_found`: the appliance was restored as of an earlier time, and what was stored "
    "since then has the offsets of records that the log does not have any more. 503 `not_ready`: "
    "this is a standby that has not read that far.",
    replies=no_content("The journal has it, and all records of then have the same offsets"),
    errors=(EntryNotFoundError, NotReadyError),
)
async def check_entry(ctx: RequestContext) -> None:
    found = ctx.broker.topics.is_entry(ctx.path["entry"])
    if found is None and ctx.broker.standby is not None:
        raise NotReadyError("This standby has not read the journal up to this entry.")
    if not found:
        raise EntryNotFoundError(
            "The journal has no such entry. If this appliance gave it to you, it was restored as "
            "of an earlier time since: begin where your group, or the log, is now."
        )


@route(
    "PATCH",
    "/v1/topics/{topic}",
    "changeTopic",
    tag="Topics",
    summary="Change the named settings; null restores the default",
    body=json_body(TopicChanges, {"linger_ms": 250}),
    replies={200: Reply(description="The topic as it is now", content=_TOPIC_REPLY)},
    errors=(*WRITE_ERRORS, TopicNotFoundError),
    grant="manage",
)
async def change_topic(ctx: RequestContext) -> object:
    asked: TopicChanges = ctx.body
    changes = given(asked)
    if not changes:
        return topic_out(ctx.broker.topics.get(ctx.topic))
    return topic_out(await ctx.broker.topics.change(ctx.topic, changes, ctx.call.actor))


@route(
    "DELETE",
    "/v1/topics/{topic}",
    "deleteTopic",
    tag="Topics",
    summary="Delete a topic and its records",
    description="A new topic with the same name starts at offset 0 and has another `topic_id`. "
    "A fork can also be deleted with the grant `manage` on a topic that it was forked from.",
    replies=no_content("Deleted"),
    errors=(*REMOVAL_ERRORS, TopicNotFoundError),
    grant=lambda ctx: authorize_to_delete(ctx.broker, ctx.call.key, ctx.topic),
)
async def delete_topic(ctx: RequestContext) -> None:
    await ctx.broker.topics.delete(ctx.topic, ctx.call.actor)


@route(
    "PUT",
    "/v1/topics/{topic}",
    "createTopic",
    tag="Topics",
    summary="Create a topic, or check that it exists with these settings",
    description="With `fork_of`, the topic shares the records of another topic below an offset, "
    "without a copy; later records are its own. This needs `manage` on the new topic, and "
    "`manage` and `consume` on the other one. Shared records stay when the other topic is "
    "trimmed or deleted. A deleted topic with forks answers 410 `topic_held`; its name stays "
    "reserved until the last fork is deleted.",
    body=json_body(NewTopic, {**_SETTINGS, "fork_of": {"topic": "orders.us", "offset": 12}}),
    body_required=False,
    replies={
        201: Reply(description="Created", content=_TOPIC_REPLY),
        200: Reply(
            description="The topic already exists with these settings", content=_TOPIC_REPLY
        ),
    },
    errors=(
        *WRITE_ERRORS,
        TopicDiffersError,
        TopicNotFoundError,
        TopicHeldError,
        NameHeldError,
        ForkRefusedError,
        OffsetExpiredError,
        OffsetOutOfRangeError,
    ),
    grant="manage",
)
async def create_topic(ctx: RequestContext) -> object:
    asked: NewTopic = ctx.body
    names = TopicSettings.__struct_fields__
    settings = TopicSettings(**{name: getattr(asked, name) for name in names})
    if (wanted := asked.fork_of) is None:
        view, made = await ctx.broker.topics.create(ctx.topic, settings, ctx.call.actor)
    else:
        authorize_to_fork(ctx.broker, ctx.call.key, wanted.topic)
        own = None if settings == TopicSettings() else settings
        view, made = await ctx.broker.topics.fork(
            ctx.topic, wanted.topic, wanted.offset, own, ctx.call.actor
        )
    return json_answer(201 if made else 200, topic_out(view))


@route(
    "POST",
    "/v1/topics/{topic}/trim",
    "trimTopic",
    tag="Topics",
    summary="Remove the records below an offset",
    description="The log start offset moves immediately; reads below it get 410. The bytes are "
    "removed later. Nothing changes if the log already starts there or later.",
    body=json_body(Trim, {"before": 1044}),
    replies={200: Reply(description="The topic as it is now", content=_TOPIC_REPLY)},
    errors=(*WRITE_ERRORS, TopicNotFoundError, OffsetOutOfRangeError),
    grant="manage",
)
async def trim_topic(ctx: RequestContext) -> object:
    asked: Trim = ctx.body
    trimmed = await ctx.broker.topics.trim(ctx.topic, asked.before, ctx.call.actor)
    return topic_out(trimmed)


@route(
    "POST",
    "/v1/topics/{topic}/reopen",
    "reopenTopic",
    tag="Topics",
    summary="Reopen a closed stream; needs an admin key",
    description="The stream accepts records again. Nothing changes if it is not closed. Readers "
    "that have seen the end of the stream do not return by themselves.",
    replies={200: Reply(description="The topic as it is now", content=_TOPIC_REPLY)},
    errors=(*WRITE_ERRORS, TopicNotFoundError),
    grant="admin",
)
async def reopen_topic(ctx: RequestContext) -> object:
    await ctx.broker.streams.reopen(ctx.topic, ctx.call.actor)
    return topic_out(ctx.broker.topics.get(ctx.topic))


ROUTES: Final = [
    list_topics,
    get_topic,
    check_entry,
    change_topic,
    delete_topic,
    create_topic,
    trim_topic,
    reopen_topic,
]
