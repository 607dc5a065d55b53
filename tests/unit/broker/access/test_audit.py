"""Operators' changes: a note in the same entry, and none where nothing changes."""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.broker.access.audit import Action, Actor, AuditedWrites, RowsAhead, note
from seb_appliance.broker.append.window import Window
from seb_appliance.errors import NotFoundError
from seb_appliance.formats.operations import AuditNoted, UserRemoved
from tests.unit.broker.conftest import House

BY = Actor("user:admin", "192.0.2.9", "Browser/1.0")


async def test_what_changes_nothing_is_neither_noted_nor_stored(house: House) -> None:
    seq = house.journal.position.seq
    assert not await AuditedWrites(house.broker._writes).store(lambda _: None, BY)
    assert house.journal.position.seq == seq


def test_a_value_too_large_for_the_audit_is_only_counted() -> None:
    window = Window()
    note(window, BY, 1, Action("x", "topic", "t", {"a": "b" * limits.AUDIT_JSON_LENGTH_MAX}))
    (event,) = window.steps
    assert isinstance(event, AuditNoted)
    assert event.before is not None
    assert event.before.startswith('{"omitted_bytes":')


def test_a_removed_row_is_missing_with_the_window_that_removes_it() -> None:
    ahead = RowsAhead({"olga": 1}, NotFoundError)
    window = Window()
    ahead.change(window, "olga", None, UserRemoved(name="olga"))
    assert ahead.rows == {}
    assert ahead.changed_in("olga") is ahead.last_pending() is window
