"""`/v1/audit`: what operators did, for admin keys."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import format_time
from seb_appliance.api.openapi.parameters import AUDIT
from seb_appliance.api.routes.route import (
    RequestContext,
    json_reply,
    route,
)
from seb_appliance.broker.ports import AuditQuery, AuditRow


class AuditOut(msgspec.Struct):
    """One action. `number` has no gaps. `actor`: the id of an API key, `user:NAME` for a user of
    the admin page, "" for the appliance itself. `address`: that of the peer; behind a proxy it is
    the proxy's, unless `trusted_proxies` names the proxy. `before` and `after` show the change; a
    value that is too large is replaced by its size: `{"omitted_bytes": 70000}`."""

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
    """Newest first. Send `next_before` as `before` to get older actions; null if there are none."""

    audit: list[AuditOut]
    next_before: int | None


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


_ACTION: Final = {
    "number": 41,
    "at": "2026-11-21T10:00:00.000123Z",
    "actor": "k3m9x2ap",
    "address": "192.0.2.7",
    "user_agent": "curl/7.88.1",
    "action": "topic_changed",
    "subject_kind": "topic",
    "subject": "orders.eu",
    "before": {"topic_id": 3, "settings": {"linger_ms": None}},
    "after": {"topic_id": 3, "settings": {"linger_ms": 100}},
}


@route(
    "GET",
    "/v1/audit",
    "readAudit",
    tag="Audit",
    summary="List what was done to topics, groups and API keys, by whom and from where",
    description="Newest first. 10,000 actions are kept. Beyond that, the oldest action of the "
    "actor and kind with the most entries is dropped. Refused actions are not recorded.",
    parameters=AUDIT,
    replies=json_reply(AuditPageOut, {"audit": [_ACTION], "next_before": 41}, "Actions"),
    grant="admin",
)
async def read_audit(ctx: RequestContext) -> object:
    query = _query(ctx.call.query)
    rows = await ctx.broker.audit(query)
    more = len(rows) == query.most and rows[-1].number > 1
    return AuditPageOut([_out(row) for row in rows], rows[-1].number if more else None)


ROUTES: Final = [read_audit]
