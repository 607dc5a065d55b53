"""The list of topics, and the form to create one."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.topics.topics import Readers
from seb_appliance.broker.values import TopicView
from seb_appliance.errors import RefusedError, TopicNotFoundError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ui.history import TopicRate
from seb_appliance.ui.page_context import FormProblem, Routes, Visit, link
from seb_appliance.ui.pages.topics.topic import (
    FIELDS,
    FORM,
    MORE,
    changes_of,
    defaults,
    retention,
)

routes = Routes()
_PATH: Final = "/ui/topics"
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


@routes.get("/topics", {"match", "after"})
async def show(visit: Visit) -> ASGIApp:
    return await _list(visit)


async def _list(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    match, after = visit.form.text("match"), visit.form.text("after")
    names = visit.broker.topics.names()
    filter_problem = None
    matching: Sequence[str] = []
    try:
        matching = await _matching(names, match) if match else names
    except RefusedError as error:
        filter_problem = FormProblem(error.detail, {})
    first = bisect_right(matching, after)
    found = matching[first : first + _PER_PAGE]
    before = first - _PER_PAGE
    return visit.page(
        "topics",
        parts=["topic-rows"],
        lines=await _lines(visit, found),
        topics=len(names),
        match=match,
        filter_problem=filter_problem,
        problem=problem,
        form=FORM,
        more=MORE,
        defaults=defaults(visit.broker.topics.effective(TopicSettings())),
        values=problem.values if problem else {},
        here=link(_PATH, match=match, after=after),
        every_s=limits.SAMPLE_EVERY_S,
        first=first + 1,
        matching=len(matching),
        back=link(_PATH, match=match, after=matching[before - 1] if before > 0 else "")
        if first
        else "",
        on=link(_PATH, match=match, after=found[-1]) if first + len(found) < len(matching) else "",
    )


@routes.post("/topics", FIELDS | {"name"}, again=_list)
async def create(visit: Visit) -> ASGIApp:
    name = visit.form.text("name")
    settings = TopicSettings(**changes_of(visit.form))
    _, made = await visit.broker.topics.create(name, settings, visit.actor)
    said = "is created" if made else "already exists, with these settings"
    return visit.see_other(f"/ui/topics/{name}", f"The topic {name} {said}.")


async def _matching(names: Sequence[str], match: str) -> list[str]:
    """The names that a pattern matches; text without * is looked for anywhere in them, in small or
    capital letters. Raises BadNameError."""
    if "*" not in match:
        return [name for name in names if match.lower() in name.lower()]
    pattern = Patterns([check_pattern(match)])
    words = [word for word in match.split(".") if "*" not in word]
    found: list[str] = []
    for begin in range(0, len(names), _AT_ONCE):
        found += [
            name
            for name in names[begin : begin + _AT_ONCE]
            if all(word in name for word in words) and pattern.cover(name)
        ]
        await asyncio.sleep(0)
    return found


async def _lines(visit: Visit, names: Sequence[str]) -> list[Line]:
    broker = visit.broker
    readers = await broker.topics.readers(names)
    lines = []
    for name in names:
        try:
            view = broker.topics.get(name)
            last_us = await broker.topics.last_write_us(name)
        except TopicNotFoundError:  # deleted meanwhile
            continue
        records = view.log_end_offset - view.log_start_offset
        kept, rate = retention(view.effective), visit.options.rates.of(view.topic_id)
        lines.append(Line(view, records, last_us, kept, readers.get(name, Readers()), rate))
    return lines
