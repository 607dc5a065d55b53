"""Consumer groups: how far they are behind, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.groups.consumer_groups import Sees
from seb_appliance.broker.groups.groups import GroupTopicView, GroupView, ResetRow
from seb_appliance.broker.values import From
from seb_appliance.errors import BadNameError, BadParameterError, BadRequestError, NotFoundError
from seb_appliance.ui.charts import Chart, trend
from seb_appliance.ui.forms import Form, time_field, time_us, whole
from seb_appliance.ui.page_context import AnyRequest, Change, Desk, FormProblem, Visit
from seb_appliance.ui.units import count

_FIELDS: Final = frozenset({"filter", "after"})
_GROUPS_PER_PAGE: Final = 50
_TOPICS_PER_PAGE: Final = 100
_TREND_US: Final = 3600 * 1_000_000
_TREND_US_MIN: Final = 120 * 1_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """Where a group stands on a topic. `trend` None: it is not watched, or not yet."""

    view: GroupTopicView
    trend: Chart | None


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/groups")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request, _FIELDS)
        words, after = visit.query.text("filter"), visit.query.text("after")
        views, next_after = await desk.broker.groups.page(
            after, _GROUPS_PER_PAGE, lambda group, _topic: words in group
        )
        return desk.page(
            visit,
            "groups",
            parts=frozenset({"group-rows"}),
            views=views,
            words=words,
            first=_path(words, "") if after else "",
            following=_path(words, next_after) if next_after else "",
        )

    @get("/groups/{group:str}")
    async def show_one(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request, frozenset({"page"}))
        return await page_of(desk, visit, request.scope["path_params"]["group"])

    @post("/groups/{group:str}/delete")
    @desk.changes(frozenset({"name"}))
    async def delete(request: AnyRequest, change: Change) -> ASGIApp:
        group: str = request.scope["path_params"]["group"]
        typed = change.form.text("name")
        if typed != group:
            words = "This is not the name of the group; nothing was deleted."
            return await page_of(desk, change.visit, group, FormProblem(words, {"name": typed}))
        await desk.broker.groups.delete(group, change.visit.actor)
        return desk.see_other(change.visit, "/ui/groups", f"The group {group} is deleted.")

    return [show, show_one, delete]


async def page_of(
    desk: Desk, visit: Visit, group: str, problem: FormProblem | None = None
) -> ASGIApp:
    """The page of one group, a hundred of its topics at a time. Raises GroupNotFoundError,
    BadRequestError."""
    topics = desk.broker.groups.topics_of(group)
    number = whole(visit.query.text("page", "1"), "page", smallest=1)
    shown = topics[(number - 1) * _TOPICS_PER_PAGE : number * _TOPICS_PER_PAGE]
    view = await desk.broker.groups.describe(group, _only(shown))
    path = f"/ui/groups/{group}"
    return desk.page(
        visit,
        "group",
        parts=frozenset({"group-topics"}),
        status=422 if problem else 200,
        view=view,
        lines=_lines(desk, view),
        topic_count=len(topics),
        problem=problem,
        path=path if number == 1 else f"{path}?page={number}",
        earlier=f"{path}?page={number - 1}" if number > 1 else "",
        following=f"{path}?page={number + 1}" if topics[number * _TOPICS_PER_PAGE :] else "",
    )


def _only(topics: list[str]) -> Sees:
    """Lets the group through, and these of its topics."""
    seen = frozenset(topics)
    return lambda _group, topic: topic is None or topic in seen


def _lines(desk: Desk, view: GroupView) -> list[Line]:
    until_us = desk.clock.wall_us()
    lines = []
    for topic in view.topics:
        points = desk.options.lags.of(view.group, topic.topic_id)
        shown = None
        if len(points) > 1:
            # What began lately is drawn wider, so that it can be seen.
            from_us = min(max(points[0][0], until_us - _TREND_US), until_us - _TREND_US_MIN)
            words = f"Lag on {topic.topic}"
            shown = trend(words, points, from_us=from_us, until_us=until_us)
        lines.append(Line(topic, shown))
    return lines


def _path(words: str, after: str) -> str:
    given = {name: value for name, value in (("filter", words), ("after", after)) if value}
    return f"/ui/groups?{urlencode(given)}" if given else "/ui/groups"


# Put a group somewhere else: first what that would do, then, if nothing moved, done.


_RESET_FIELDS: Final = frozenset({"how", "value", "topics"})
_HOWS: Final = {
    "earliest": "the log start: every record that is there",
    "latest": "the log end: none of those that are there",
    "offset": "the offset",
    "time": "the first record from this time on (UTC)",
    "shift": "on by so many records, or back (-100)",
}
_ROWS_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """Where to (`to`), or how far (`shift`); `command` is the flag of `seb groups reset`, `body`
    what the API is sent."""

    to: From | None
    shift: int
    command: str
    body: str


def reset_routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/groups/{group:str}/reset")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request, _RESET_FIELDS)
        return await _page(desk, visit, _group(request), visit.query)

    @post("/groups/{group:str}/reset")
    @desk.changes(_RESET_FIELDS | {"stood"})
    async def reset(request: AnyRequest, change: Change) -> ASGIApp:
        group, form = _group(request), change.form
        rows = await _plan(desk, group, form)
        if _stood(rows) != form.raw("stood"):
            words = (
                "The group has moved since you looked, so nothing was changed. Stop its consumers."
            )
            return await _page(desk, change.visit, group, form, words)
        done = await desk.broker.groups.reset(group, rows, change.visit.actor)
        notice = f"{group} was reset on {count(len(done))} topic{'' if len(done) == 1 else 's'}."
        return desk.see_other(change.visit, f"/ui/groups/{group}", notice)

    return [show, reset]


def _group(request: AnyRequest) -> str:
    group: str = request.scope["path_params"]["group"]
    return group


async def _page(desk: Desk, visit: Visit, group: str, form: Form, moved: str = "") -> ASGIApp:
    """What a reset would do; why not, if it would do nothing."""
    topics = desk.broker.groups.topics_of(group)  # raises GroupNotFoundError
    values = {name: form.text(name) for name in _RESET_FIELDS}
    rows: list[ResetRow] = []
    problem = FormProblem(moved, values) if moved else None
    asked = None
    if values["how"]:
        try:
            asked = _asked(form)
            rows = await _plan(desk, group, form)
        except (BadNameError, BadParameterError, BadRequestError, NotFoundError) as error:
            problem = FormProblem(error.detail, values)
    return desk.page(
        visit,
        "group_reset",
        status=422 if problem else 200,
        group=group,
        hows=_HOWS,
        values=values,
        asked=asked,
        rows=rows[:_ROWS_SHOWN],
        left_out=max(0, len(rows) - _ROWS_SHOWN),
        back=sum(row.before is not None and row.after < row.before for row in rows),
        stood=_stood(rows),
        topic_count=len(topics),
        problem=problem,
    )


async def _plan(desk: Desk, group: str, form: Form) -> list[ResetRow]:
    """Raises BadRequestError, and what `pick` and `plan_reset` raise."""
    asked, patterns = _asked(form), form.text("topics").split()
    if len(patterns) > limits.RESET_PATTERNS_MAX:
        raise BadRequestError(f"At most {limits.RESET_PATTERNS_MAX} names and patterns.")
    groups = desk.broker.groups
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
        raise BadRequestError(f"Say where to: {', '.join(_HOWS)}; and for a time, which.")
    text = f"@{time_field(at_us)}Z"
    return Asked(From(timestamp_us=at_us), 0, f"--to {text}", f'"to":"{text}"')


def _stood(rows: list[ResetRow]) -> str:
    """Where the group stands, to see whether it moves between a look and a reset."""
    return " ".join(f"{row.topic_id}:{'-' if row.before is None else row.before}" for row in rows)
