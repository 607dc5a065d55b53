"""The list of topics, and the form to create one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter as of
from typing import Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.topics.names import Patterns, check_pattern
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.topics.topics import Readers
from seb_appliance.broker.values import TopicView
from seb_appliance.errors import BadParameterError, TopicNotFoundError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ui.lists import FIELDS as LIST_FIELDS
from seb_appliance.ui.lists import Column, is_asked, joined, linked, listed, quiet
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.pages.topics.topic import (
    FIELDS,
    FORM,
    MORE,
    changes_of,
    defaults,
    retention,
)
from seb_appliance.ui.units import ago, count, rate, size, size_rate, time_tag

routes = Routes()
_PATH: Final = "/ui/topics"
_AT_ONCE: Final = 500  # names matched without a break; a few milliseconds


@dataclass(frozen=True, slots=True)
class Line:
    view: TopicView
    written_us: int | None
    readers: Readers

    @property
    def records(self) -> int:
        return self.view.log_end_offset - self.view.log_start_offset

    @property
    def largest_lag(self) -> int | None:
        return self.readers.largest_lag if self.readers.groups else None


@routes.get("/topics", LIST_FIELDS)
async def show(visit: Visit) -> ASGIApp:
    return await _list(visit)


async def _list(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    words, topics = visit.form.text("filter"), visit.broker.topics
    names, filter_problem = topics.names(), None
    matching: Sequence[str] = []
    try:
        matching = await _matching(names, words) if words else names
    except BadParameterError as error:
        filter_problem = FormProblem(error.detail, {})
    readers: dict[str, Readers] = {}
    if is_asked(visit, "groups", "lag"):
        readers = await topics.readers(matching)
    columns = _columns(visit, lambda topic: readers.get(topic.name, Readers()))

    async def lines(page: Sequence[Topic]) -> list[Line]:
        return await _lines(visit, [topic.name for topic in page])

    listing = await listed(visit, "topic-rows", columns, list(topics.held(matching)), lines)
    return visit.page(
        "topics",
        parts=["topic-rows"],
        address=listing.address,
        # htmx shows no other answer.
        status=200 if visit.part and not problem else None,
        listing=listing,
        topics=len(names),
        filter_problem=filter_problem,
        problem=problem,
        form=FORM,
        more=MORE,
        defaults=defaults(topics.effective(TopicSettings())),
        values=problem.values if problem else {},
        every_s=limits.SAMPLE_EVERY_S,
    )


@routes.post("/topics", FIELDS | {"name"}, again=_list)
async def create(visit: Visit) -> ASGIApp:
    name = visit.form.text("name")
    settings = TopicSettings(**changes_of(visit.form))
    _, made = await visit.broker.topics.create(name, settings, visit.actor)
    said = "is created" if made else "already exists, with these settings"
    return visit.see_other(f"{_PATH}/{name}", f"The topic {name} {said}.")


def _columns(visit: Visit, readers: Callable[[Topic], Readers]) -> list[Column[Topic, Line]]:
    now_us, rates, costs = visit.now_us, visit.options.rates, visit.options.topic_costs()
    effective = visit.broker.topics.with_defaults

    def incoming(line: Line) -> str:
        found = rates.of(line.view.topic_id)
        if found is None or not found.records:
            return "-"
        return joined(rate(found.records), quiet(size_rate(found.bytes)))

    def kept_ms(topic: Topic) -> float:
        return float(effective(topic.settings).retention_ms or math.inf)

    def recent(topic: Topic) -> float:
        found = rates.of(topic.topic_id)
        return 0.0 if found is None else found.records

    def groups(topic: Topic) -> int:
        return readers(topic).groups

    def lag(topic: Topic) -> int | None:
        found = readers(topic)
        return found.largest_lag if found.groups else None

    def path(line: Line) -> str:
        return linked(line.view.name, f"{_PATH}/{line.view.name}")

    def cost(line: Line) -> str:
        return costs(line.view.topic_id).words

    return [
        Column("name", "Topic", path, of("name")),
        Column("records", "Records", lambda one: count(one.records), _records, "number"),
        Column("stored", "Stored", lambda one: size(one.view.bytes), of("size_bytes"), "number"),
        Column("incoming", "Incoming", incoming, recent, "number"),
        Column("written", "Last write", lambda one: ago(one.written_us, now_us), of("written_us")),
        Column("retention", "Retention", lambda one: retention(one.view.effective), kept_ms),
        Column("groups", "Groups", lambda one: count(one.readers.groups), groups, "number"),
        Column("lag", "Largest lag", lambda one: count(one.largest_lag), lag, "number"),
        Column("cost", "Cost this month", cost, lambda one: costs(one.topic_id).amount, "number"),
        Column(
            "end",
            "Log end",
            lambda one: count(one.view.log_end_offset),
            of("log_end_offset"),
            "number",
            False,
        ),
        Column(
            "created",
            "Created",
            lambda one: time_tag(one.view.created_us),
            of("created_us"),
            "",
            False,
        ),
    ]


def _records(topic: Topic) -> int:
    return topic.log_end_offset - topic.log_start_offset


async def _matching(names: Sequence[str], match: str) -> list[str]:
    """The names that a pattern matches; text without * is looked for anywhere in them, in small or
    capital letters. Raises BadParameterError."""
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
    topics = visit.broker.topics
    readers = await topics.readers(names)
    lines = []
    for name in names:
        try:
            view, last_us = topics.get(name), await topics.last_write_us(name)
        except TopicNotFoundError:  # deleted meanwhile
            continue
        lines.append(Line(view, last_us, readers.get(name, Readers())))
    return lines
