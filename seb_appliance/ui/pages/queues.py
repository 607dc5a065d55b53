"""Work queues: what waits, what is out, what became a dead letter, and every setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.queues.redriving import Wanted
from seb_appliance.broker.queues.views import QueueView
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import BadRequestError, QueueNotFoundError, TopicNotFoundError
from seb_appliance.formats.queues.queues import (
    DEAD_LETTER_HEADERS,
    SETTINGS,
    QueueSettings,
    flat,
    nested,
)
from seb_appliance.ui.forms import Form, parsed, time_us, whole
from seb_appliance.ui.page_context import FormProblem, Routes, Visit, link
from seb_appliance.ui.pages.records import parts, places, unpacked
from seb_appliance.ui.units import count, short

routes = Routes()
_PATH: Final = "/ui/queues"
_NEW: Final = "/ui/new-queue"
_FIELDS: Final = frozenset(SETTINGS)
_MORE: Final = _FIELDS - {"topics", "ordering", "max_deliveries", "dead_letter"}
_CREATES: Final = {"field": "queue", "label": "Name", "button": "Create the queue"}
_QUEUES_PER_PAGE: Final = 50
_TOPICS_SHOWN: Final = 100
_HELD_SHOWN: Final = 50
_DEAD_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of the topic of dead letters; the texts are what its headers say. `record`: topic
    and offset of the record that it was."""

    offset: int
    timestamp_us: int
    record: str
    attempts: str
    reason: str


@routes.get("/queues", {"filter", "after"})
async def show(visit: Visit) -> ASGIApp:
    words, after = visit.form.text("filter"), visit.form.text("after")
    names = [one.name for one in visit.broker.queues.all() if words in one.name > after]
    views: list[QueueView] = []
    for name in names[:_QUEUES_PER_PAGE]:
        try:
            views.append(await visit.broker.queues.describe(name))
        except QueueNotFoundError:  # deleted meanwhile
            continue
    more = bool(names[_QUEUES_PER_PAGE:])
    return visit.page(
        "queues",
        parts=["queue-rows"],
        views=views,
        words=words,
        first=link(_PATH, filter=words) if after else "",
        following=link(_PATH, filter=words, after=names[_QUEUES_PER_PAGE - 1]) if more else "",
    )


async def _new(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    defaults = {
        n: "" if one.default is None else one.text(one.default) for n, one in SETTINGS.items()
    }
    values = {"queue": "", **defaults} | visit.form.values
    return visit.page(
        "queue_new",
        values=values,
        fields=SETTINGS.values(),
        more=_MORE,
        path=_NEW,
        problem=problem,
        creates=_CREATES,
    )


@routes.get("/new-queue")
async def show_new(visit: Visit) -> ASGIApp:
    return await _new(visit)


@routes.post("/new-queue", _FIELDS | {"queue"}, again=_new)
async def create(visit: Visit) -> ASGIApp:
    name = check_topic_name(visit.form.text("queue"), "queue")
    if any(one.name == name for one in visit.broker.queues.all()):
        raise BadRequestError(f"There is a queue {name} already.")
    return await _saved(visit, name)


async def _queue_page(visit: Visit, queue: str, problem: FormProblem | None = None) -> ASGIApp:
    """Raises QueueNotFoundError."""
    view = await visit.broker.queues.describe(queue)
    values = flat(msgspec.to_builtins(view.settings))
    texts = {n: "" if values[n] is None else one.text(values[n]) for n, one in SETTINGS.items()}
    topics = sorted(view.topics, key=lambda one: (-one.waiting, one.topic))
    return visit.page(
        "queue",
        parts=["queue-figures"],
        view=view,
        topics=topics[:_TOPICS_SHOWN],
        held=await visit.broker.queues.held(queue, _HELD_SHOWN),
        dead_letters=await _dead_letters(visit, view),
        values=texts | (problem.values if problem else {}),
        fields=SETTINGS.values(),
        more=_MORE,
        path=f"{_PATH}/{queue}",
        problem=problem,
    )


@routes.get("/queues/{queue:str}")
async def show_one(visit: Visit, queue: str) -> ASGIApp:
    return await _queue_page(visit, queue)


@routes.post("/queues/{queue:str}", _FIELDS, again=_queue_page)
async def change(visit: Visit, queue: str) -> ASGIApp:
    visit.broker.queues.get(queue)
    return await _saved(visit, queue)


@routes.post("/queues/{queue:str}/reset", {"time"}, again=_queue_page)
async def reset(visit: Visit, queue: str) -> ASGIApp:
    at_us = time_us(visit.form.text("time"), "The time")
    start = From(earliest=True) if at_us is None else From(timestamp_us=at_us)
    await visit.broker.queues.restart(queue, start, None, visit.actor)
    return visit.see_other(f"{_PATH}/{queue}", "The queue has begun again there.")


@routes.post("/queues/{queue:str}/purge", {"name"}, again=_queue_page)
async def purge(visit: Visit, queue: str) -> ASGIApp:
    if visit.form.text("name") != queue:
        raise BadRequestError("This is not the name of the queue; nothing was dropped.")
    await visit.broker.queues.restart(queue, From(latest=True), None, visit.actor)
    return visit.see_other(f"{_PATH}/{queue}", "What waited in the queue is dropped.")


@routes.post("/queues/{queue:str}/redrive", {"offset"}, again=_queue_page)
async def redrive(visit: Visit, queue: str) -> ASGIApp:
    """The dead letters that are chosen, or all."""
    chosen = sorted({whole(text, "An offset") for text in visit.form.all("offset")})
    wanted = Wanted(offsets=chosen or None)
    redriving, total, before = visit.broker.queues.redriving, 0, 0
    while True:
        done = await redriving.redrive(queue, wanted, visit.actor, lambda _topic: None)
        total, before = total + sum(done.records.values()), before + done.before
        if done.next_offset is None or chosen:
            break
        wanted = Wanted(start=done.next_offset)
    words = f"Records again: {count(total)}. Redriven before: {count(before)}."
    return visit.see_other(f"{_PATH}/{queue}", words)


@routes.post("/queues/{queue:str}/delete", {"name"}, again=_queue_page)
async def delete(visit: Visit, queue: str) -> ASGIApp:
    if visit.form.text("name") != queue:
        raise BadRequestError("This is not the name of the queue; nothing was deleted.")
    await visit.broker.queues.delete(queue, visit.actor)
    return visit.see_other(_PATH, f"The queue {queue} is deleted.")


async def _saved(visit: Visit, name: str) -> ASGIApp:
    await visit.broker.queues.put(name, _wanted(visit.form), visit.actor)
    return visit.see_other(f"{_PATH}/{name}", "The changes are saved.")


def _wanted(form: Form) -> QueueSettings:
    """Raises BadRequestError."""
    given = {name: parsed(one, form) for name, one in SETTINGS.items()}
    members = {name: value for name, value in given.items() if value not in (None, [])}
    if "topics" not in members:
        raise BadRequestError("Enter the topics that the queue reads.")
    try:
        return msgspec.convert(nested(members), QueueSettings)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}.") from error


async def _dead_letters(visit: Visit, view: QueueView) -> list[DeadLetter]:
    """Those of this queue among the last ones, the newest first."""
    topic, found = view.settings.dead_letter, list[DeadLetter]()
    if topic is None:
        return found
    request = ReadRequest(
        From(last=_DEAD_SHOWN), max_records=_DEAD_SHOWN, max_bytes=limits.FETCH_BYTES_DEFAULT
    )
    try:
        result = await visit.broker.read(topic, request)
    except TopicNotFoundError:  # it is made with the first dead letter
        return found
    for piece, i in places(result):
        headers = unpacked(parts(piece, i)[2])

        def said(name: str, headers: dict[str, bytes] = headers) -> str:
            return short(headers.get(DEAD_LETTER_HEADERS + name, b""))

        if said("queue") == view.name:
            offset = int(piece.batch.offsets()[i])
            timestamp_us = int(piece.batch.columns.timestamps_us[i])
            record = f"{said('topic')} {said('offset')}"
            one = DeadLetter(offset, timestamp_us, record, said("attempts"), said("reason"))
            found.append(one)
    return found[::-1]
