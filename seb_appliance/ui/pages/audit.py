"""The audit: who did what, and when; newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.access.audit import AT_THE_MACHINE, USER
from seb_appliance.broker.ports import AuditQuery, AuditRow
from seb_appliance.errors import BadRequestError
from seb_appliance.ui.forms import Form, time_us
from seb_appliance.ui.page_context import FormProblem, Routes, Visit, link

routes = Routes()
_FIELDS: Final = ("action", "before", "from", "until", "what", "who")
_PER_PAGE: Final = 50
_PATH: Final = "/ui/audit"
# Where a subject has its page, by its kind.
_PAGES: Final = {
    "topic": "/ui/topics",
    "group": "/ui/groups",
    "api_key": "/ui/api-keys",
    "user": "/ui/users",
    "queue": "/ui/queues",
}


@dataclass(frozen=True, slots=True)
class Changed:
    """One changed member. None: it did not exist."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """`who` and `what`: names where there are some. `who_path`, `what_path`: of their pages, "" for
    none."""

    row: AuditRow
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
        rows = await visit.broker.audit(_query(visit.form))
    except BadRequestError as error:
        problem = FormProblem(error.detail, asked)
    more = len(rows) > _PER_PAGE
    rows = rows[:_PER_PAGE]
    return visit.page(
        "audit",
        parts=["audit-rows"],
        lines=[_line(visit, row) for row in rows],
        asked=asked,
        problem=problem,
        older=link(_PATH, **asked | {"before": str(rows[-1].number)}) if more else "",
        newest=link(_PATH, **asked | {"before": ""}) if asked["before"] else "",
        filtered=any(asked.values()),
    )


def _line(visit: Visit, row: AuditRow) -> Line:
    keys = visit.broker.access
    what, path = row.subject, _PAGES.get(row.subject_kind, "")
    if row.subject_kind == "api_key":
        what = keys.name_of(row.subject) or what
    who, who_path = row.actor, ""
    if row.actor.startswith(USER):
        who_path = f"/ui/users/{row.actor.removeprefix(USER)}"
    elif row.actor:
        who, who_path = keys.name_of(row.actor) or row.actor, f"/ui/api-keys/{row.actor}"
    else:
        who = "seb admin" if row.address == AT_THE_MACHINE.address else "the appliance"
    return Line(row, who, who_path, what, path and f"{path}/{row.subject}", _changed(row))


def _query(form: Form) -> AuditQuery:
    """Raises BadRequestError."""
    before = form.text("before")
    if before and not (before.isascii() and before.isdigit() and len(before) < 16):
        raise BadRequestError("before is the number of an action.")
    return AuditQuery(
        _PER_PAGE + 1,
        min(int(before), limits.OFFSET_MAX) if before else None,
        form.text("who") or None,
        form.text("what") or None,
        form.text("action") or None,
        time_us(form.text("from"), "From"),
        time_us(form.text("until"), "Until"),
    )


def _changed(row: AuditRow) -> list[Changed]:
    before, after = _members(row.before), _members(row.after)
    return [
        Changed(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _members(text: str | None, within: str = "") -> dict[str, str]:
    """The members of a JSON object by name (`settings.linger_ms` for nested ones), without nulls.
    Strings as they are, other values as JSON."""
    if text is None:
        return {}
    found: dict[str, str] = {}
    for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        raw = bytes(value)
        if raw.startswith(b"{"):
            found |= _members(raw.decode(), f"{within}{name}.")
        elif raw.startswith(b'"'):
            found[within + name] = msgspec.json.decode(raw, type=str)
        elif raw != b"null":
            found[within + name] = raw.decode()
    return found
