"""The audit: actions numbered as they come. When it is full, whoever noted most of one action loses
the oldest of these, so that nobody's many changes push out what others did, or what else he did.

The numbers follow from the journal alone and the newest is never deleted, so the rows are the same
whether entries came one by one, many at once, or after a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery, AuditRow
from seb_appliance.formats.operations import AuditNoted, Event
from seb_appliance.state import rows
from seb_appliance.state.found import checksum_of, one_of, rows_with
from seb_appliance.state.room import Owned, gone_for_room
from seb_appliance.state.schema import audit

_NEWEST: Final = select(func.max(audit.c.number))
_COUNT: Final = select(func.count()).select_from(audit)
_OF_ACTORS: Final = Owned((audit.c.actor, audit.c.action), audit.c.number)


def project(connection: Connection, events: Sequence[Event]) -> int:
    """Add the actions among `events`; how much the file's checksum grows by it."""
    noted = [event for event in events if isinstance(event, AuditNoted)]
    if not noted:
        return 0
    newest = connection.execute(_NEWEST).scalar() or 0
    kept = connection.execute(_COUNT).scalar_one()
    fresh = [_row(number, event) for number, event in enumerate(noted, newest + 1)]
    added = 0
    while fresh:
        room = max(1, limits.AUDIT_KEPT + 1 - kept)
        some, fresh = fresh[:room], fresh[room:]
        connection.execute(insert(audit), some)
        added += checksum_of(audit, (row.values() for row in some))
        kept += len(some)
        if kept > limits.AUDIT_KEPT:
            gone = gone_for_room(connection, _OF_ACTORS, limits.AUDIT_KEPT)
            kept -= len(gone)
            added -= checksum_of(audit, rows_with(connection, audit.c.number, gone))
            connection.execute(delete(audit).where(one_of(audit.c.number, gone)))
    return added


async def read(connection: AsyncConnection, *, query: AuditQuery) -> list[AuditRow]:
    """The newest actions that `query` asks for, newest first."""
    wanted = select(audit).order_by(audit.c.number.desc()).limit(query.most)
    if query.before is not None:
        wanted = wanted.where(audit.c.number < query.before)
    if query.actor is not None:
        wanted = wanted.where(audit.c.actor == query.actor)
    if query.subject is not None:
        wanted = wanted.where(audit.c.subject == query.subject)
    if query.action is not None:
        wanted = wanted.where(audit.c.action == query.action)
    if query.from_us is not None:
        wanted = wanted.where(audit.c.at_us >= query.from_us)
    if query.until_us is not None:
        wanted = wanted.where(audit.c.at_us < query.until_us)
    return [AuditRow(*row) for row in await connection.execute(wanted)]


def _row(number: int, event: AuditNoted) -> rows.Row:
    return {
        "number": number,
        "at_us": event.at_us,
        "actor": event.actor,
        "address": event.address,
        "action": event.action,
        "subject_kind": event.subject_kind,
        "subject": event.subject,
        "before": event.before,
        "after": event.after,
        "user_agent": event.user_agent,
    }
