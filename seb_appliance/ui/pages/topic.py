"""One topic: its numbers, its settings, the two ways to lose records on purpose, and a closed
stream opened again.

What changes something is shown in words first: a GET with the form's fields is the preview, whose
only button sends the same fields by POST.
"""

from __future__ import annotations

from typing import Final

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.topics.topics import Readers
from seb_appliance.broker.values import TopicView
from seb_appliance.errors import BadRequestError, RefusedError
from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings
from seb_appliance.ui.history import TopicRate
from seb_appliance.ui.options import Figure
from seb_appliance.ui.page_context import AnyRequest, Change, Desk, FormProblem, Visit
from seb_appliance.ui.pages.topic_settings import (
    FIELDS,
    FORM,
    changes_of,
    defaults,
    effects,
    in_words,
    retention,
    written,
)
from seb_appliance.ui.units import ago, count, rate, size, size_rate

_TRIM: Final = frozenset({"before"})


def topic_of(request: AnyRequest) -> str:
    name: str = request.scope["path_params"]["topic"]
    return name


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/topics/{topic:str}")
    async def show(request: AnyRequest) -> ASGIApp:
        return await _page(desk, desk.enter(request), topic_of(request))

    return [show, *_settings(desk), *_trimming(desk), _reopening(desk), *_deleting(desk)]


def _settings(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/topics/{topic:str}/settings")
    async def preview(request: AnyRequest) -> ASGIApp:
        visit, name = desk.enter(request, FIELDS), topic_of(request)
        view = desk.broker.topics.get(name)
        if not visit.query.values:  # typed by hand: no form, and not one that resets everything
            return desk.see_other(visit, f"/ui/topics/{name}")
        try:
            changes = changes_of(visit.query)
            wanted = TopicSettings(**changes)
            after = desk.broker.topics.effective(wanted)
        except RefusedError as error:
            problem = FormProblem(in_words(error), visit.query.values)
            return await _page(desk, visit, name, settings_problem=problem)
        return desk.page(
            visit,
            "topic_settings",
            view=view,
            effects=effects(view.effective, after),
            costs=desk.options.setting_cost(name, changes),
            labels={field.name: field.label for field in FORM},
            fields={field: visit.query.text(field) for field in FIELDS},
            same=wanted == view.settings,
            command=_change_command(view, wanted),
            patch=_patch(view, wanted),
        )

    @post("/topics/{topic:str}/settings")
    @desk.changes(FIELDS)
    async def save(request: AnyRequest, change: Change) -> ASGIApp:
        name = topic_of(request)
        try:
            await desk.broker.topics.change(name, changes_of(change.form), change.visit.actor)
        except BadRequestError as error:
            problem = FormProblem(in_words(error), change.form.values)
            return await _page(desk, change.visit, name, settings_problem=problem)
        return desk.see_other(change.visit, f"/ui/topics/{name}", "The settings are in force.")

    return [preview, save]


def _trimming(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/topics/{topic:str}/trim")
    async def preview(request: AnyRequest) -> ASGIApp:
        visit, name = desk.enter(request, _TRIM), topic_of(request)
        view = desk.broker.topics.get(name)
        try:
            before = _offset(visit.query.text("before"), view)
        except BadRequestError as error:
            problem = FormProblem(error.detail, visit.query.values)
            return await _page(desk, visit, name, trim_problem=problem)
        goes = max(0, before - view.log_start_offset)
        return desk.page(visit, "topic_trim", view=view, before=before, goes=goes)

    @post("/topics/{topic:str}/trim")
    @desk.changes(_TRIM)
    async def trim(request: AnyRequest, change: Change) -> ASGIApp:
        name = topic_of(request)
        before = _offset(change.form.text("before"), desk.broker.topics.get(name))
        view = await desk.broker.topics.trim(name, before, change.visit.actor)
        said = f"The log of {name} starts at offset {count(view.log_start_offset)} now."
        return desk.see_other(change.visit, f"/ui/topics/{name}", said)

    return [preview, trim]


def _reopening(desk: Desk) -> HTTPRouteHandler:
    @post("/topics/{topic:str}/reopen")
    @desk.changes()
    async def reopen(request: AnyRequest, change: Change) -> ASGIApp:
        name = topic_of(request)
        await desk.broker.streams.reopen(name, change.visit.actor)
        return desk.see_other(change.visit, f"/ui/topics/{name}", f"{name} takes records again.")

    return reopen


def _deleting(desk: Desk) -> list[HTTPRouteHandler]:
    @post("/topics/{topic:str}/delete")
    @desk.changes(frozenset({"name"}))
    async def delete(request: AnyRequest, change: Change) -> ASGIApp:
        name = topic_of(request)
        desk.broker.topics.get(name)
        if change.form.text("name") != name:
            detail = f"Nothing was deleted: the name that you typed is not {name}."
            problem = FormProblem(detail, change.form.values)
            return await _page(desk, change.visit, name, delete_problem=problem)
        await desk.broker.topics.delete(name, change.visit.actor)
        return desk.see_other(change.visit, "/ui/topics", f"The topic {name} is deleted.")

    return [delete]


async def _page(
    desk: Desk,
    visit: Visit,
    name: str,
    *,
    settings_problem: FormProblem | None = None,
    trim_problem: FormProblem | None = None,
    delete_problem: FormProblem | None = None,
) -> ASGIApp:
    view = desk.broker.topics.get(name)
    last_us = await desk.broker.topic_lists.last_write_us(name)
    readers = (await desk.broker.topic_lists.readers([name])).get(name, Readers())
    return desk.page(
        visit,
        "topic",
        parts=frozenset({"topic-figures"}),
        status=422 if settings_problem or trim_problem or delete_problem else 200,
        view=view,
        figures=[
            *_figures(view, last_us, readers, desk.clock.wall_us()),
            _rate(desk.options.rates.of(view.topic_id)),
        ],
        every_s=limits.SAMPLE_EVERY_S,
        form=FORM,
        defaults=defaults(desk.broker.topics.effective(TopicSettings())),
        values=settings_problem.values if settings_problem else written(view.settings),
        settings_problem=settings_problem,
        trim_problem=trim_problem,
        delete_problem=delete_problem,
    )


def _figures(view: TopicView, last_us: int | None, readers: Readers, now_us: int) -> list[Figure]:
    records = view.log_end_offset - view.log_start_offset
    offsets = f"offsets {count(view.log_start_offset)} to {count(view.log_end_offset - 1)}"
    lag = f"largest lag {count(readers.largest_lag)} records" if readers.groups else ""
    return [
        Figure("Records", count(records), offsets if records else "none stored"),
        Figure("Stored", size(view.bytes), f"kept {retention(view.effective)}"),
        Figure("Last write", ago(last_us, now_us), ""),
        Figure("Groups", count(readers.groups), lag),
        Figure("Created", ago(view.created_us, now_us), f"topic id {view.topic_id}"),
        *_lineage(view),
    ]


def _lineage(view: TopicView) -> list[Figure]:
    """What it shares with others, if it does."""
    found = []
    if view.fork_of is not None:
        shared = f"shares its records below offset {count(view.fork_of.offset)}"
        found.append(Figure("Fork of", view.fork_of.topic, shared))
    if view.forks:
        found.append(Figure("Forks", count(view.forks), "what they share stays when this goes"))
    return found


def _rate(coming: TopicRate | None) -> Figure:
    span_s = f"in the last {limits.SAMPLE_EVERY_S} s"
    if coming is None:
        return Figure("Comes in", rate(None), f"known after {limits.SAMPLE_EVERY_S} s")
    return Figure("Comes in", rate(coming.records), f"{size_rate(coming.bytes)} {span_s}")


def _offset(text: str, view: TopicView) -> int:
    """Raises BadRequestError."""
    digits = text.replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(limits.OFFSET_MAX)):
        raise BadRequestError("Give the offset of the first record that stays.")
    if int(digits) > view.log_end_offset:
        raise BadRequestError(f"The log ends at offset {count(view.log_end_offset)}.")
    return int(digits)


def _changed(view: TopicView, wanted: TopicSettings) -> dict[str, object]:
    before = msgspec.structs.asdict(view.settings)
    after = msgspec.structs.asdict(wanted)
    return {name: after[name] for name in after if after[name] != before[name]}


def _change_command(view: TopicView, wanted: TopicSettings) -> str:
    pairs = [
        f"{SETTINGS[name].word}={'default' if value is None else SETTINGS[name].text(value)}"
        for name, value in _changed(view, wanted).items()
    ]
    return f"seb topics change {view.name} {' '.join(pairs)}"


def _patch(view: TopicView, wanted: TopicSettings) -> str:
    return msgspec.json.encode(_changed(view, wanted)).decode()
