"""`/v1/audit`: what operators did, for admin keys."""

from __future__ import annotations

from typing import Final

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import json_answer
from seb_appliance.api.encoding.times import format_time
from seb_appliance.api.server.auth import AnyRequest, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import AuditQuery, AuditRow

AUDIT_QUERY: Final = frozenset({"before", "limit", "actor", "subject"})


class AuditOut(msgspec.Struct):
    """One action. `number` counts them without gaps. `actor` is the id of an API key,
    `user:NAME` for a user of the admin page, "" for the appliance itself; `address` the peer's
    (behind a proxy, the proxy's, unless `trusted_proxies` names it), `user_agent` what its client
    calls itself. `before` and `after` show what changed; one too large is only counted:
    `{"omitted_bytes": 70000}`."""

    number: int
    at: str
    actor: str
    address: str
    user_agent: str
    action: str
    subject_kind: str
    subject: str
    before: msgspec.Raw | None
    after: msgspec.Raw | None


class AuditPageOut(msgspec.Struct):
    """Newest first. `next_before`: give it as `before` for older ones; null: there are none."""

    audit: list[AuditOut]
    next_before: int | None


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/v1/audit")
    async def read_audit(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, AUDIT_QUERY)
        broker.authorize(call.key, "admin")
        query = _query(call.query)
        rows = await broker.audit(query)
        more = len(rows) == query.most and rows[-1].number > 1
        return json_answer(
            200, AuditPageOut([_out(row) for row in rows], rows[-1].number if more else None)
        )

    return [read_audit]


def _query(query: dict[str, str]) -> AuditQuery:
    """Raises BadParameterError."""
    given = query.get("before")
    return AuditQuery(
        parameters.integer(
            query.get("limit", str(limits.AUDIT_PER_PAGE_DEFAULT)),
            "limit",
            smallest=1,
            largest=limits.AUDIT_PER_PAGE_MAX,
        ),
        None
        if given is None
        else parameters.integer(given, "before", smallest=1, largest=limits.OFFSET_MAX),
        query.get("actor"),
        query.get("subject"),
    )


def _out(row: AuditRow) -> AuditOut:
    return AuditOut(
        row.number,
        format_time(row.at_us),
        row.actor,
        row.address,
        row.user_agent,
        row.action,
        row.subject_kind,
        row.subject,
        _raw(row.before),
        _raw(row.after),
    )


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
