"""Consumer groups: how far they are behind, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.broker.consumer_groups import Sees
from seb_appliance.broker.group_views import GroupTopicView, GroupView
from seb_appliance.ui.charts import Chart, trend
from seb_appliance.ui.desk import AnyRequest, Change, Desk, FormProblem, Visit
from seb_appliance.ui.fields import whole

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
