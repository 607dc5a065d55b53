"""All topics: how much each holds, who reads it, and how far behind; and a form for a new one."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.topics.topics import Readers
from seb_appliance.broker.values import TopicView
from seb_appliance.errors import RefusedError, TopicNotFoundError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ui.history import TopicRate
from seb_appliance.ui.page_context import AnyRequest, Change, Desk, FormProblem, Visit
from seb_appliance.ui.pages.topic_settings import (
    FIELDS,
    FORM,
    changes_of,
    defaults,
    in_words,
    retention,
)

_QUERY: Final = frozenset({"match", "after"})
_PER_PAGE: Final = 50
_AT_ONCE: Final = 500  # names matched without a break; a few milliseconds


@dataclass(frozen=True, slots=True)
class Line:
    view: TopicView
    records: int
    last_write_us: int | None
    retention: str
    readers: Readers
    rate: TopicRate | None


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/topics")
    async def show(request: AnyRequest) -> ASGIApp:
        return await _list(desk, desk.enter(request, _QUERY), None)

    @post("/topics")
    @desk.changes(FIELDS | {"name"})
    async def create(_request: AnyRequest, change: Change) -> ASGIApp:
        name, visit = change.form.text("name"), change.visit
        try:
            settings = TopicSettings(**changes_of(change.form))
            _, made = await desk.broker.topics.create(name, settings, visit.actor)
        except RefusedError as error:
            return await _list(desk, visit, FormProblem(in_words(error), change.form.values))
        said = "is there" if made else "was there already, with these settings"
        return desk.see_other(visit, f"/ui/topics/{name}", f"The topic {name} {said}.")

    return [show, create]


async def _list(desk: Desk, visit: Visit, problem: FormProblem | None) -> ASGIApp:
    match, after = visit.query.text("match"), visit.query.text("after")
    names = desk.broker.topic_lists.names()
    filter_problem = None
    found: list[str] = []
    try:
        found = await _matching(names[bisect_right(names, after) :], match, _PER_PAGE + 1)
    except RefusedError as error:
        filter_problem = FormProblem(error.detail, {})
    more = len(found) > _PER_PAGE
    found = found[:_PER_PAGE]
    return desk.page(
        visit,
        "topics",
        parts=frozenset({"topic-rows"}),
        status=422 if problem or filter_problem else 200,
        lines=await _lines(desk, found),
        topics=len(names),
        match=match,
        filter_problem=filter_problem,
        problem=problem,
        form=FORM,
        defaults=defaults(desk.broker.topics.effective(TopicSettings())),
        values=problem.values if problem else {},
        here=_path(match, after),
        every_s=limits.SAMPLE_EVERY_S,
        first=_path(match, "") if after else "",
        more=_path(match, found[-1]) if more else "",
    )


def _path(match: str, after: str) -> str:
    given = {name: value for name, value in (("match", match), ("after", after)) if value}
    return f"/ui/topics?{urlencode(given)}" if given else "/ui/topics"


async def _matching(names: Sequence[str], match: str, most: int) -> list[str]:
    """The first `most` names that a pattern matches; text without * is looked for anywhere in them.
    Raises BadNameError."""
    if "*" not in match:
        return [name for name in names if match in name][:most]
    pattern = Patterns([check_pattern(match)])
    words = [word for word in match.split(".") if "*" not in word]
    found: list[str] = []
    for begin in range(0, len(names), _AT_ONCE):
        found += [
            name
            for name in names[begin : begin + _AT_ONCE]
            if all(word in name for word in words) and pattern.cover(name)
        ]
        if len(found) >= most:
            break
        await asyncio.sleep(0)
    return found[:most]


async def _lines(desk: Desk, names: Sequence[str]) -> list[Line]:
    broker = desk.broker
    readers = await broker.topic_lists.readers(names)
    lines = []
    for name in names:
        try:
            view = broker.topics.get(name)
            last_us = await broker.topic_lists.last_write_us(name)
        except TopicNotFoundError:  # deleted meanwhile
            continue
        records = view.log_end_offset - view.log_start_offset
        kept, rate = retention(view.effective), desk.options.rates.of(view.topic_id)
        lines.append(Line(view, records, last_us, kept, readers.get(name, Readers()), rate))
    return lines
