"""`/v1/topics` and `/v1/topics/{topic}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec
from litestar import delete, get, patch, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import JSON, Answer, json_answer
from seb_appliance.api.encoding.json_bodies import read_json
from seb_appliance.api.encoding.parameters import refuse_unsupported
from seb_appliance.api.encoding.times import format_time
from seb_appliance.api.routes.records.consume import encoded
from seb_appliance.api.server.auth import (
    AnyRequest,
    authorize_to_delete,
    authorize_to_fork,
    enter,
    may_see,
)
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.values import ForkOf, TopicView
from seb_appliance.formats.declared import changes_of, given
from seb_appliance.formats.numbers import Whole
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices

LIST_QUERY: Final = frozenset({"pattern"})


class TopicChanges(changes_of(TopicSettings, constrained=False)):  # type: ignore[misc]
    """Settings to change; null goes back to the appliance's default, an absent one stays."""


class ForkWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The topic to fork, and the offset from which on the fork goes its own way; null: the log
    end."""

    topic: str
    offset: Whole | None = None


class NewTopic(TopicSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a topic to be made (null: the appliance's default). With `fork_of` it shares the
    records of another, and its settings, if none is given here."""

    fork_of: ForkWanted | None = None


class Trim(msgspec.Struct, forbid_unknown_fields=True):
    """`before`: the log start offset to be; records below it go."""

    before: Whole


class TopicOut(msgspec.Struct):
    """A topic. `settings` as they were set (null: the appliance's default); `effective_settings`
    with the defaults filled in. `log_end_offset` is the offset that the next record gets. Of a
    fork, `fork_of` names its parent, which may be deleted, and where it left it; `size_bytes` are
    its own. `forks`: how many there are of the topic. `closed`: it is a stream that was closed and
    takes no records."""

    topic: str
    topic_id: int
    created: str
    settings: TopicSettings
    effective_settings: TopicSettings
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    fork_of: ForkOf | None
    forks: int
    closed: bool


class TopicsOut(msgspec.Struct):
    topics: list[TopicOut]


_LISTED_AT_ONCE: Final = 100  # about a millisecond

_encoder: Final = msgspec.json.Encoder()
_new_topic_decoder: Final = msgspec.json.Decoder(NewTopic)
_trim_decoder: Final = msgspec.json.Decoder(Trim)
_changes_decoder: Final = msgspec.json.Decoder(TopicChanges)


def topic_out(view: TopicView) -> TopicOut:
    return TopicOut(
        view.name,
        view.topic_id,
        format_time(view.created_us),
        view.settings,
        view.effective,
        view.log_start_offset,
        view.log_end_offset,
        view.bytes,
        view.fork_of,
        view.forks,
        view.closed,
    )


def _list_parts(views: Iterable[TopicView]) -> Iterator[bytes]:
    """`TopicsOut` as JSON, a few topics at a time."""
    before = b'{"topics":['
    views = iter(views)
    while some := [topic_out(view) for view in islice(views, _LISTED_AT_ONCE)]:
        yield before + _encoder.encode(some)[1:-1]
        before = b","
    yield b"]}\n" if before == b"," else before + b"]}\n"


def _settings_of(asked: NewTopic) -> TopicSettings:
    return TopicSettings(**{name: getattr(asked, name) for name in TopicSettings.__struct_fields__})


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/v1/topics")
    async def list_topics(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, LIST_QUERY)
        wanted = Patterns([check_pattern(call.query.get("pattern", "**"))])
        names = [
            name
            async for name in in_slices(broker.topic_lists.names())
            if wanted.cover(name) and may_see(broker, call.key, name)
        ]
        parts = _list_parts(broker.topics.some(names))
        return await encoded(broker, call, [(b"content-type", JSON)], parts)

    @get("/v1/topics/{topic:str}")
    async def get_topic(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        topic: str = request.scope["path_params"]["topic"]
        if not may_see(broker, call.key, topic):
            broker.authorize(call.key, "consume", topic)
        return json_answer(200, topic_out(broker.topics.get(topic)))

    @patch("/v1/topics/{topic:str}")
    async def change_topic(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, "manage", topic)
        asked = await read_json(request, call, broker, _changes_decoder)
        changes = given(asked)
        if not changes:
            return json_answer(200, topic_out(broker.topics.get(topic)))
        return json_answer(200, topic_out(await broker.topics.change(topic, changes, call.actor)))

    @delete("/v1/topics/{topic:str}", status_code=200)  # the answer itself says 204
    async def delete_topic(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        topic: str = request.scope["path_params"]["topic"]
        authorize_to_delete(broker, call.key, topic)
        refuse_unsupported(call.headers)
        await broker.topics.delete(topic, call.actor)
        return Answer(204, [])

    made, trimmed, reopened = _making(broker), _trimming(broker), _reopening(broker)
    return [list_topics, get_topic, made, change_topic, delete_topic, trimmed, reopened]


def _making(broker: Broker) -> HTTPRouteHandler:
    @put("/v1/topics/{topic:str}")
    async def create_topic(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, "manage", topic)
        asked = await read_json(request, call, broker, _new_topic_decoder)
        settings = _settings_of(asked)
        if (wanted := asked.fork_of) is None:
            view, made = await broker.topics.create(topic, settings, call.actor)
        else:
            authorize_to_fork(broker, call.key, wanted.topic)
            own = None if settings == TopicSettings() else settings
            view, made = await broker.topics.fork(
                topic, wanted.topic, wanted.offset, own, call.actor
            )
        return json_answer(201 if made else 200, topic_out(view))

    return create_topic


def _trimming(broker: Broker) -> HTTPRouteHandler:
    @post("/v1/topics/{topic:str}/trim", status_code=200)
    async def trim_topic(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, "manage", topic)
        asked = await read_json(request, call, broker, _trim_decoder)
        trimmed = await broker.topics.trim(topic, asked.before, call.actor)
        return json_answer(200, topic_out(trimmed))

    return trim_topic


def _reopening(broker: Broker) -> HTTPRouteHandler:
    @post("/v1/topics/{topic:str}/reopen", status_code=200)
    async def reopen_topic(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, "admin")
        refuse_unsupported(call.headers)
        await broker.streams.reopen(topic, call.actor)
        return json_answer(200, topic_out(broker.topics.get(topic)))

    return reopen_topic
