"""What operators did: by whom, what, and when; newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery, AuditRow
from seb_appliance.errors import BadRequestError
from seb_appliance.ui.forms import Form, time_us
from seb_appliance.ui.page_context import AnyRequest, Desk, FormProblem

_FIELDS: Final = frozenset({"who", "what", "action", "from", "until", "before"})
_PER_PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class Changed:
    """One member of what changed. None: it was not there."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Line:
    row: AuditRow
    changed: list[Changed]


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/audit")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request, _FIELDS)
        asked = {name: visit.query.text(name) for name in _FIELDS}
        rows: list[AuditRow] = []
        problem = None
        try:
            rows = await desk.broker.audit(_query(visit.query))
        except BadRequestError as error:
            problem = FormProblem(error.detail, asked)
        more = len(rows) > _PER_PAGE
        rows = rows[:_PER_PAGE]
        older = {**asked, "before": str(rows[-1].number)} if more else {}
        return desk.page(
            visit,
            "audit",
            parts=frozenset({"audit-rows"}),
            status=422 if problem else 200,
            lines=[Line(row, _changed(row)) for row in rows],
            asked=asked,
            problem=problem,
            older=_path(older),
            newest=_path({**asked, "before": ""}) if asked["before"] else "",
            filtered=any(asked.values()),
        )

    return [show]


def _path(query: dict[str, str]) -> str:
    """ "" for no query at all."""
    given = {name: value for name, value in sorted(query.items()) if value}
    return f"/ui/audit?{urlencode(given)}" if given else "/ui/audit" if query else ""


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
    """What a JSON object says, by name (`settings.linger_ms` for what lies deeper); null says
    nothing. Texts are as they are, other values JSON."""
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
