"""Work queues: what waits, what is out, what became a dead letter, and every setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter as of
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.queues.progress import Queue
from seb_appliance.broker.queues.redriving import Redriven, Wanted
from seb_appliance.broker.queues.views import QueueView
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import (
    BadRequestError,
    SebError,
    TopicNotFoundError,
)
from seb_appliance.formats.queues.queues import (
    DEAD_LETTER_HEADERS,
    SETTINGS,
    QueueSettings,
    flat,
    nested,
)
from seb_appliance.ui.forms import Form, parsed, time_us, whole
from seb_appliance.ui.lists import FIELDS as LIST_FIELDS
from seb_appliance.ui.lists import Column, having, joined, linked, listed, problem, quiet
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.records.rows import parts, places, unpacked
from seb_appliance.ui.units import count, short, span

routes = Routes()
_PATH: Final = "/ui/queues"
_NEW: Final = "/ui/new-queue"
_FIELDS: Final = frozenset(SETTINGS)
_MORE: Final = _FIELDS - {"topics", "ordering", "max_deliveries", "dead_letter"}
_CREATES: Final = {"field": "queue", "label": "Name", "button": "Create the queue"}
_TOPICS_SHOWN: Final = 100
_HELD_SHOWN: Final = 50
_DEAD_SHOWN: Final = 20
_REDRIVEN_AT_ONCE: Final = 10_000  # dead letters, with one click


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The last ones of a queue, the newest first. `topic`: None if there is none yet; `failure`:
    why they cannot be read."""

    topic: str | None = None
    last: Sequence[DeadLetter] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of the topic of dead letters; the texts are what its headers say. `record`: topic
    and offset of the record that it was."""

    offset: int
    timestamp_us: int
    record: str
    attempts: str
    reason: str


@routes.get("/queues", LIST_FIELDS)
async def show(visit: Visit) -> ASGIApp:
    queues = await having(visit.form.text("filter"), visit.broker.queues.all(), of("name"))
    views: dict[str, QueueView] = {}
    if visit.form.text("sort").removeprefix("-") not in ("", "name"):
        views = {view.name: view for view in await visit.broker.queues.views.of(queues)}
    rows = visit.broker.queues.views.of
    listing = await listed(visit, "queue-rows", _columns(views), queues, rows)
    return visit.page("queues", parts=["queue-rows"], address=listing.address, listing=listing)


def _columns(views: Mapping[str, QueueView]) -> list[Column[Queue, QueueView]]:
    """`views`: of all, if one asks for an order that needs them."""

    def name(view: QueueView) -> str:
        path = linked(view.name, f"{_PATH}/{view.name}")
        return joined(path, problem(view.failure)) if view.failure else path

    def topics(view: QueueView) -> str:
        return ", ".join(view.settings.topics)

    def oldest_s(view: QueueView) -> float | None:
        return view.oldest_s if view.waiting else None

    def oldest(view: QueueView) -> str:
        return span(view.oldest_s) if view.waiting else quiet("none")

    def rejected(view: QueueView) -> int:
        return sum(topic.rejected for topic in view.topics)

    def counted(
        name: str, title: str, number: Callable[[QueueView], int]
    ) -> Column[Queue, QueueView]:
        return Column(name, title, lambda view: count(number(view)), by(number), "number")

    def by(key: Callable[[QueueView], Any]) -> Callable[[Queue], Any]:
        return lambda queue: key(views[queue.name])

    return [
        Column("name", "Queue", name, of("name")),
        Column("topics", "Topics", topics, by(topics), "value"),
        counted("waiting", "Waiting", of("waiting")),
        Column("oldest", "Oldest", oldest, by(oldest_s), "number"),
        counted("flying", "In flight", of("in_flight")),
        counted("retrying", "To retry", of("retrying")),
        counted("rejected", "Rejected", rejected),
        counted("workers", "Waiting workers", of("waiting_takers")),
    ]


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
    held = await visit.broker.queues.held(queue, _HELD_SHOWN)
    is_figures = visit.part == "queue-figures"
    return visit.page(
        "queue",
        parts=["queue-figures"],
        view=view,
        topics=topics[:_TOPICS_SHOWN],
        held=held,
        not_shown=view.in_flight + view.retrying + view.doomed - len(held),
        dead=DeadLetters() if is_figures else await _dead_letters(visit, view),
        values=texts | (problem.values if problem else {}),
        fields=SETTINGS.values(),
        more=_MORE,
        path=f"{_PATH}/{queue}",
        subscription=visit.options.subscription_page(queue),
        problem=problem,
    )


@routes.get("/queues/{queue:str}")
async def show_one(visit: Visit, queue: str) -> ASGIApp:
    return await _queue_page(visit, queue)


@routes.post("/queues/{queue:str}", _FIELDS, again=_queue_page)
async def change(visit: Visit, queue: str) -> ASGIApp:
    visit.broker.queues.get(queue)
    return await _saved(visit, queue)


@routes.post("/queues/{queue:str}/reset", {"time", "name"}, again=_queue_page)
async def reset(visit: Visit, queue: str) -> ASGIApp:
    if visit.form.text("name") != queue:
        raise BadRequestError("This is not the name of the queue; nothing was changed.")
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


@routes.post("/queues/{queue:str}/redrive", {"offset", "topic"}, again=_queue_page)
async def redrive(visit: Visit, queue: str) -> ASGIApp:
    """The dead letters that are chosen, or all: first a look at which topics would get how many,
    then to these topics alone."""
    chosen = sorted({whole(text, "An offset") for text in visit.form.all("offset")})
    agreed = visit.form.all("topic")
    found, is_all = await _redriven(visit, queue, chosen, agreed)
    if agreed:
        words = f"Records again: {count(sum(found.records.values()))}."
        words += f" Redriven before: {count(found.before)}.{_left_out(found)}"
        more = "" if is_all else " There are more: redrive again."
        return visit.see_other(f"{_PATH}/{queue}", words + more)
    if not found.records:
        words = "None of these dead letters is left to be redriven."
        raise BadRequestError(words + _left_out(found))
    return visit.page("queue_redrive", queue=queue, found=found, chosen=chosen, is_all=is_all)


def _left_out(found: Redriven) -> str:
    if not found.elsewhere:
        return ""
    return f" Left out, of topics that the queue does not read: {count(found.elsewhere)}."


async def _redriven(
    visit: Visit, queue: str, chosen: list[int], agreed: list[str]
) -> tuple[Redriven, bool]:
    """What was redriven to the topics `agreed`, or would be, and whether that is all. A dead letter
    can be forged, so nothing goes to a topic that nobody has seen. Raises as
    `Redriving.redrive`."""
    redriving, found, left, looked = visit.broker.queues.redriving, Redriven({}, 0, 0), chosen, 0

    def check(topic: str) -> None:
        if agreed and topic not in agreed:
            raise BadRequestError(
                f"A dead letter comes from the topic {topic}, which was not shown."
            )

    while found.next_offset is not None and looked < _REDRIVEN_AT_ONCE:
        wanted = Wanted(left or None, found.next_offset, dry_run=not agreed)
        done = await redriving.redrive(queue, wanted, visit.actor, check)
        for topic, records in done.records.items():
            found.records[topic] = found.records.get(topic, 0) + records
        found.before += done.before
        found.elsewhere += done.elsewhere
        found.next_offset = done.next_offset
        left = [offset for offset in left if offset >= (done.next_offset or 0)]
        looked += limits.DELIVERIES_PER_REQUEST_MAX
    return found, found.next_offset is None


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


async def _dead_letters(visit: Visit, view: QueueView) -> DeadLetters:
    topic, found = view.settings.dead_letter, list[DeadLetter]()
    if topic is None:
        return DeadLetters()
    try:
        for number in (_DEAD_SHOWN, 5, 1):  # fewer, if they are large: the newest matter
            request = ReadRequest(From(last=number), None, number, limits.FETCH_BYTES_DEFAULT)
            result = await visit.broker.read(topic, request)
            if result.next_offset >= result.log_end_offset:
                break
    except TopicNotFoundError:  # it is made with the first dead letter
        return DeadLetters()
    except SebError as error:
        return DeadLetters(topic, failure=error.detail)
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
    return DeadLetters(topic, found[::-1])
