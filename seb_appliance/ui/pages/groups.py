"""Consumer groups: their lag, and how to reset or delete them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from typing import Any, Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.groups.consumer_groups import Sees, everybody
from seb_appliance.broker.groups.groups import GroupTopicView, GroupView, Lag, ResetRow
from seb_appliance.broker.values import From
from seb_appliance.errors import BadRequestError, GroupNotFoundError, RefusedError
from seb_appliance.quantities import counted
from seb_appliance.tasks import in_slices
from seb_appliance.ui import answers, charts
from seb_appliance.ui.forms import Form, time_field, time_us, whole
from seb_appliance.ui.lists import FIELDS, Column, having, is_asked, linked, listed, quiet
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago, count, size, span

routes = Routes()
_PATH: Final = "/ui/groups"
_DEEP: Final = ("bytes", "oldest")  # columns whose order needs more than memory
_ORDERED_DEEP_MAX: Final = 1_000  # groups
_TOPICS_PER_PAGE: Final = 100
_LINES_DRAWN: Final = 4  # a colour each
_RESET_FIELDS: Final = frozenset({"how", "value", "topics"})
_HOWS: Final = {
    "earliest": "the log start: all records",
    "latest": "the log end: only new records",
    "offset": "the offset",
    "time": "the first record from this time on (UTC)",
    "shift": "forward by this many records, or back (-100)",
}
_ROWS_SHOWN: Final = 200
_MEMBERS_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Line:
    """A group on a topic. `change`: of its lag in the last hour, in records; None if it is not
    sampled, or not yet."""

    view: GroupTopicView
    change: int | None


@routes.get("/groups", FIELDS)
async def show(visit: Visit) -> ASGIApp:
    names = await having(visit.form.text("filter"), await visit.broker.groups.names(), str)
    lags: dict[str, Lag] = {}
    if is_asked(visit, *_DEEP):
        lags = {view.group: view.lag for view in await _views(visit, names[:_ORDERED_DEEP_MAX])}
    columns = _columns(visit, lags, is_deep=len(names) <= _ORDERED_DEEP_MAX)
    listing = await listed(visit, "group-rows", columns, names, partial(_views, visit))
    return visit.page(
        "groups",
        parts=["group-rows"],
        address=listing.address,
        listing=listing,
        topic=next(iter(visit.broker.topics.names()), "TOPIC"),
    )


async def _views(visit: Visit, names: Sequence[str]) -> list[GroupView]:
    views = []
    async for name in in_slices(names):
        with contextlib.suppress(GroupNotFoundError):  # deleted meanwhile
            views.append(await visit.broker.groups.describe(name, lambda *_: True, everybody))
    return views


def _columns(
    visit: Visit, lags: Mapping[str, Lag], *, is_deep: bool
) -> list[Column[str, GroupView]]:
    """`lags` of the groups, if one asks for their order; `is_deep`: whether one may."""
    now_us, figures = visit.now_us, visit.broker.groups.figures
    none = quiet("none")

    def path(view: GroupView) -> str:
        return linked(view.group, f"{_PATH}/{view.group}")

    def oldest(view: GroupView) -> str:
        return span(view.lag.seconds) if view.lag.records else none

    def bytes_of(group: str) -> int | None:
        return lags[group].bytes if group in lags else None

    def age_s(group: str) -> float | None:
        return lags[group].seconds if group in lags and lags[group].records else None

    def holder(view: GroupView) -> str:
        return view.lease.holder if view.lease else none

    def by(figure: str) -> Callable[[str], Any]:
        return lambda group: getattr(figures(group), figure) or None

    deep = (bytes_of, age_s) if is_deep else (None, None)
    return [
        Column("name", "Group", path, str),
        Column("topics", "Topics", lambda one: count(len(one.topics)), by("topics"), "number"),
        Column("lag", "Lag, records", lambda one: count(one.lag.records), by("records"), "number"),
        Column("bytes", "Lag, bytes", lambda one: size(one.lag.bytes), deep[0], "number"),
        Column("oldest", "Oldest unread", oldest, deep[1], "number"),
        Column(
            "committed",
            "Last commit",
            lambda one: ago(one.committed_us, now_us),
            by("committed_us"),
        ),
        Column("lease", "Lease", holder, by("holder")),
        Column("members", "Members", lambda one: count(one.member_count), by("members"), "number"),
    ]


@routes.get("/groups/{group:str}", {"page"})
async def show_one(visit: Visit, group: str) -> ASGIApp:
    return await _group_page(visit, group)


async def _group_page(visit: Visit, group: str, problem: FormProblem | None = None) -> ASGIApp:
    """The page of one group, a hundred of its topics at a time. Raises GroupNotFoundError,
    BadRequestError."""
    topics = visit.broker.groups.topics_of(group)
    number = whole(visit.form.text("page", "1"), "page", smallest=1)
    shown = topics[(number - 1) * _TOPICS_PER_PAGE : number * _TOPICS_PER_PAGE]
    view = await visit.broker.groups.describe(group, _only(shown), everybody)
    path = f"/ui/groups/{group}"
    return visit.page(
        "group",
        parts=["group-topics"],
        view=view,
        lines=_lines(visit, view),
        drawn=f"{path}/lag",
        membership=await visit.broker.groups.membership(group, lambda _group, _topic: True),
        members_shown=_MEMBERS_SHOWN,
        topic_count=len(topics),
        problem=problem,
        path=path if number == 1 else f"{path}?page={number}",
        earlier=f"{path}?page={number - 1}" if number > 1 else "",
        following=f"{path}?page={number + 1}" if topics[number * _TOPICS_PER_PAGE :] else "",
    )


@routes.post("/groups/{group:str}/delete", {"name"}, again=_group_page)
async def delete(visit: Visit, group: str) -> ASGIApp:
    if visit.form.text("name") != group:
        raise BadRequestError("This is not the name of the group; nothing was deleted.")
    await visit.broker.groups.delete(group, visit.actor)
    return visit.see_other("/ui/groups", f"The group {group} is deleted.")


def _only(topics: list[str]) -> Sees:
    """The group, and these of its topics."""
    seen = frozenset(topics)
    return lambda _group, topic: topic is None or topic in seen


def _lines(visit: Visit, view: GroupView) -> list[Line]:
    lines = []
    for topic in view.topics:
        points = visit.options.lags.of(view.group, topic.topic_id)
        change = round(points[-1][1] - points[0][1]) if len(points) > 1 else None
        lines.append(Line(topic, change))
    return lines


@routes.get("/groups/{group:str}/lag")
async def draw_lag(visit: Visit, group: str) -> ASGIApp:
    """For charts.js: the topics on which the group is furthest behind, in the last hour."""
    found = {
        topic: visit.options.lags.of(group, visit.broker.topics.get(topic).topic_id)
        for topic in visit.broker.groups.topics_of(group)  # raises GroupNotFoundError
    }
    behind = nlargest(_LINES_DRAWN, found, lambda topic: [lag for _, lag in found[topic][-1:]])
    lines = {topic: found[topic] for topic in behind if found[topic]}
    return answers.json(charts.drawing_of_lags(lines, visit.now_us, charts.SPANS["1h"]))


@dataclass(frozen=True, slots=True)
class Asked:
    """The target of a reset: a position (`to`) or a distance (`shift`). `command`: the flags for
    `seb groups reset`. `body`: the body for the API."""

    to: From | None
    shift: int
    command: str
    body: str


async def _reset_page(visit: Visit, group: str, problem: FormProblem | None = None) -> ASGIApp:
    """The preview of a reset."""
    topics = visit.broker.groups.topics_of(group)  # raises GroupNotFoundError
    values = {name: visit.form.text(name) for name in _RESET_FIELDS}
    rows: list[ResetRow] = []
    asked = None
    if values["how"]:
        try:
            asked = _asked(visit.form)
            rows = await _plan(visit, group)
        except RefusedError as error:
            problem = problem or FormProblem.of(error, visit.form)
    return visit.page(
        "group_reset",
        group=group,
        hows=_HOWS,
        values=values,
        asked=asked,
        rows=rows[:_ROWS_SHOWN],
        left_out=max(0, len(rows) - _ROWS_SHOWN),
        stood=_stood(rows),
        topic_count=len(topics),
        problem=problem,
    )


@routes.get("/groups/{group:str}/reset", _RESET_FIELDS)
async def show_reset(visit: Visit, group: str) -> ASGIApp:
    return await _reset_page(visit, group)


@routes.post("/groups/{group:str}/reset", _RESET_FIELDS | {"stood"}, again=_reset_page)
async def reset(visit: Visit, group: str) -> ASGIApp:
    rows = await _plan(visit, group)
    if _stood(rows) != visit.form.raw("stood"):
        raise BadRequestError(
            "The group's offsets have changed since the preview; nothing was changed. Stop its "
            "consumers first."
        )
    done = await visit.broker.groups.reset(group, rows, visit.actor)
    notice = f"{group} was reset on {counted(len(done), 'topic')}."
    return visit.see_other(f"/ui/groups/{group}", notice)


async def _plan(visit: Visit, group: str) -> list[ResetRow]:
    """Raises BadRequestError, and what `pick` and `plan_reset` raise."""
    asked, patterns = _asked(visit.form), visit.form.text("topics").split()
    if len(patterns) > limits.RESET_PATTERNS_MAX:
        raise BadRequestError(f"At most {limits.RESET_PATTERNS_MAX} names and patterns.")
    groups = visit.broker.groups
    topics = groups.pick(group, patterns) if patterns else groups.topics_of(group)
    return await groups.plan_reset(group, topics, asked.to, asked.shift)


def _asked(form: Form) -> Asked:
    """Raises BadRequestError."""
    how, value = form.text("how"), form.text("value")
    if how in ("earliest", "latest"):
        to = From(earliest=True) if how == "earliest" else From(latest=True)
        return Asked(to, 0, f"--to {how}", f'"to":"{how}"')
    if how == "offset":
        offset = whole(value, "The offset")
        return Asked(From(offset=offset), 0, f"--to {offset}", f'"to":{offset}')
    if how == "shift":
        far = limits.OFFSET_MAX
        shift = whole(value, "The shift", smallest=-far, largest=far)
        return Asked(None, shift, f"--shift {shift}", f'"shift":{shift}')
    at_us = time_us(value, "The time") if how == "time" else None
    if at_us is None:
        raise BadRequestError(
            f"Choose where to move the group: {', '.join(_HOWS)}. For a time, enter it."
        )
    text = f"@{time_field(at_us)}Z"
    return Asked(From(timestamp_us=at_us), 0, f"--to {text}", f'"to":"{text}"')


def _stood(rows: list[ResetRow]) -> str:
    """The offsets of the group, to detect that it moved between the preview and the reset."""
    return " ".join(f"{row.topic_id}:{'-' if row.before is None else row.before}" for row in rows)
