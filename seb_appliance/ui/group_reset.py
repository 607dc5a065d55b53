"""Put a group somewhere else: first what that would do, then, if nothing moved, done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.group_views import ResetRow
from seb_appliance.broker.values import From
from seb_appliance.errors import BadNameError, BadParameterError, BadRequestError, NotFoundError
from seb_appliance.ui.desk import AnyRequest, Change, Desk, FormProblem, Visit
from seb_appliance.ui.fields import time_field, time_us, whole
from seb_appliance.ui.forms import Form
from seb_appliance.ui.units import count

_FIELDS: Final = frozenset({"how", "value", "topics"})
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


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/groups/{group:str}/reset")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request, _FIELDS)
        return await _page(desk, visit, _group(request), visit.query)

    @post("/groups/{group:str}/reset")
    @desk.changes(_FIELDS | {"stood"})
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
    values = {name: form.text(name) for name in _FIELDS}
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
