"""The audit in SQLite: the newest are kept, and what was taken is waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery
from seb_appliance.errors import CorruptObjectError, OverloadedError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.state import checks
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.follower import StateFollower
from tests.support.fakes import FakeClock, settle
from tests.unit.state.journal import Journal, audit_noted


async def numbers(database: StateDatabase, **query) -> list[int]:
    return [row.number for row in await database.audit(AuditQuery(**{"most": 100, **query}))]


@pytest.mark.parametrize("at_once", [1, 2, 7])
async def test_only_the_newest_are_kept_however_entries_come(
    database: StateDatabase, path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_KEPT", 5)
    journal = Journal()
    for entry in range(7):
        journal.write(audit_noted(2 * entry), audit_noted(2 * entry + 1))
    for first in range(0, 7, at_once):
        await database.apply(journal.entries[first : first + at_once])
    assert await numbers(database) == [14, 13, 12, 11, 10]
    await database.close()
    checks.prepare(path)  # the checksum knows what went


async def test_a_page_goes_on_below_a_number_and_filters_hold(database: StateDatabase) -> None:
    journal = Journal()
    journal.write(
        *(audit_noted(n, actor=f"actor-{n % 2}", subject=f"topic-{n % 3}") for n in range(1, 13))
    )
    await database.apply(journal.entries)
    assert await numbers(database, most=3) == [12, 11, 10]
    assert await numbers(database, most=3, before=10) == [9, 8, 7]
    assert await numbers(database, actor="actor-1") == [11, 9, 7, 5, 3, 1]
    assert await numbers(database, subject="topic-0", actor="actor-0") == [12, 6]
    assert await numbers(database, actor="nobody") == []


async def test_reading_waits_for_entries_that_were_taken(database: StateDatabase) -> None:
    follower = StateFollower(database, clock=FakeClock(), failpoints=NO_FAILPOINTS)
    journal = Journal()
    for n in range(3):
        follower.follow(journal.write(audit_noted(n)))
    assert len(await follower.audit(AuditQuery(100))) == 3
    await follower.close()


async def test_while_sqlite_does_not_follow_nothing_old_is_told(
    database: StateDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_args, **_options) -> None:
        raise CorruptObjectError("damaged")

    monkeypatch.setattr(database, "apply", refused)
    follower = StateFollower(database, clock=FakeClock(), failpoints=NO_FAILPOINTS)
    follower.follow(Journal().write(audit_noted(1)))
    reading = asyncio.ensure_future(follower.audit(AuditQuery(100)))
    await settle()
    with pytest.raises(OverloadedError):
        await reading
    await follower.close()
