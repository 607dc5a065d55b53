"""The audit: who did what, and when; newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.access.audit import AT_THE_MACHINE, USER
from seb_appliance.broker.ports import AuditQuery, AuditRow
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.api_key_members import QUOTAS, Grant
from seb_appliance.formats.declared import Declared
from seb_appliance.formats.queues.queues import SETTINGS as QUEUE_SETTINGS
from seb_appliance.formats.topic_settings import SETTINGS
from seb_appliance.ui.forms import time_us
from seb_appliance.ui.page_context import FormProblem, Routes, Visit, link
from seb_appliance.ui.units import count, moment

routes = Routes()
_FIELDS: Final = ("action", "before", "from", "until", "what", "who")
_PER_PAGE: Final = 50
_PATH: Final = "/ui/audit"
# What files and commands call the members of a subject, by its kind.
_DECLARED: Final = {"topic": SETTINGS, "queue": QUEUE_SETTINGS, "api_key": QUOTAS}
# Where a subject has its page, by its kind.
_PAGES: Final = {
    "topic": "/ui/topics",
    "group": "/ui/groups",
    "api_key": "/ui/api-keys",
    "user": "/ui/users",
    "queue": "/ui/queues",
    "table": "/ui/tables",
    "inlet": "/ui/inlets",
    "subscription": "/ui/subscriptions",
}


@dataclass(frozen=True, slots=True)
class Changed:
    """One changed member. None: it did not exist."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """`action`: in words. `who` and `what`: names where there are some. `who_path`, `what_path`: of
    their pages, "" for none."""

    row: AuditRow
    action: str
    who: str
    who_path: str
    what: str
    what_path: str
    changed: list[Changed]


@routes.get("/audit", _FIELDS)
async def show(visit: Visit) -> ASGIApp:
    asked = {name: visit.form.text(name) for name in _FIELDS}
    rows: list[AuditRow] = []
    problem = None
    try:
        rows = await visit.broker.audit(_query(visit))
    except BadRequestError as error:
        problem = FormProblem(error.detail, asked)
    more = len(rows) > _PER_PAGE
    rows = rows[:_PER_PAGE]
    actors, actions = await _choices(visit)
    return visit.page(
        "audit",
        parts=["audit-rows"],
        lines=[_line(visit, row) for row in rows],
        asked=asked,
        actors=actors,
        actions=actions,
        problem=problem,
        older=link(_PATH, **asked | {"before": str(rows[-1].number)}) if more else "",
        newest=link(_PATH, **asked | {"before": ""}) if asked["before"] else "",
        filtered=any(asked.values()),
    )


async def _choices(visit: Visit) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The actors and actions that there are: what the query has of them, and their names."""
    audited = await visit.broker.audited()
    actors = [(actor, _actor(visit, actor)[0]) for actor in {one for one, _ in audited if one}]
    actions = {action for _, action in audited}
    return (
        sorted(actors, key=lambda one: one[1].lower()),
        [(action, _words(action)) for action in sorted(actions)],
    )


def _words(name: str) -> str:
    """`topic_deleted` in words."""
    return name.replace("_", " ")


def _actor(visit: Visit, actor: str) -> tuple[str, str]:
    """The name of a user or an API key, and the path of its page."""
    if actor.startswith(USER):
        name = actor.removeprefix(USER)
        return name, f"/ui/users/{name}"
    return visit.broker.access.name_of(actor) or actor, f"/ui/api-keys/{actor}"


def _line(visit: Visit, row: AuditRow) -> Line:
    what, path = row.subject, _PAGES.get(row.subject_kind, "")
    if row.subject_kind == "api_key":
        what = visit.broker.access.name_of(row.subject) or what
    who, who_path = "seb admin" if row.address == AT_THE_MACHINE.address else "the appliance", ""
    if row.actor:
        who, who_path = _actor(visit, row.actor)
    what_path = path and f"{path}/{row.subject}"
    return Line(row, _words(row.action), who, who_path, what, what_path, _changed(row))


def _query(visit: Visit) -> AuditQuery:
    """Raises BadRequestError."""
    form, what = visit.form, visit.form.text("what")
    if not visit.broker.topics.exists(what):  # the audit has API keys by their ids
        named = (key.api_key_id for key in visit.broker.access.all() if key.name == what)
        what = next(named, what)
    before = form.text("before")
    if before and not (before.isascii() and before.isdigit() and len(before) < 16):
        raise BadRequestError("before is the number of an action.")
    return AuditQuery(
        _PER_PAGE + 1,
        min(int(before), limits.OFFSET_MAX) if before else None,
        form.text("who") or None,
        what or None,
        form.text("action") or None,
        time_us(form.text("from"), "From"),
        time_us(form.text("until"), "Until"),
    )


def _changed(row: AuditRow) -> list[Changed]:
    before, after = _members(row.before), _members(row.after)
    found = []
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            member = name.removeprefix("settings.").removeprefix("quotas.").replace(".", "_")
            declared = _DECLARED.get(row.subject_kind, {}).get(member)
            title = _words(name if declared is None else declared.word)
            texts = [_written(name, one.get(name), declared) for one in (before, after)]
            found.append(Changed(title, *texts))
    return found


def _members(text: str | None) -> dict[str, Any]:
    """The members of a JSON object by name, `settings.linger_ms` for nested ones, without
    those that are empty."""
    return {} if text is None else dict(_flat(msgspec.json.decode(text, type=dict[str, Any])))


def _flat(members: dict[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in members.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{within}{name}.")
        elif value not in (None, "", []):
            yield within + name, value


def _written(name: str, value: Any, declared: Declared | None) -> str | None:
    """A value as forms and lists show it."""
    if value is None:
        return None
    if declared is not None:
        return declared.text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return moment(value) if name.endswith("_us") else count(value)
    if isinstance(value, str):
        return value
    if name == "grants":
        value = [grant.text() for grant in msgspec.convert(value, list[Grant])]
    is_texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return ", ".join(value) if is_texts else msgspec.json.encode(value).decode()
