"""Users of the admin page: what operators do to them, and what is noted of it."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import AT_THE_MACHINE, Actor
from seb_appliance.broker.ports import AuditQuery
from seb_appliance.errors import BadNameError, BadRequestError, NotFoundError
from tests.unit.broker.conftest import House

BY = Actor("user:admin", "192.0.2.9", "Browser/1.0")


async def test_a_user_is_there_once_the_bucket_has_it(house: House) -> None:
    accounts = house.broker.accounts
    await house.done(accounts.add("olga", "viewer", "hash", BY))
    (user,) = accounts.all()
    assert (user.name, user.role, user.password_hash) == ("olga", "viewer", "hash")
    assert accounts.get("olga") is user


async def test_a_new_password_makes_a_new_row_with_the_same_role(house: House) -> None:
    accounts = house.broker.accounts
    await house.done(accounts.add("olga", "viewer", "hash", BY))
    before = accounts.get("olga")
    await house.done(accounts.set_password("olga", "hash", BY))
    after = accounts.get("olga")
    assert after is not before
    assert after is not None
    assert after.role == "viewer"


async def test_a_removed_user_is_gone_and_the_name_free(house: House) -> None:
    accounts = house.broker.accounts
    await house.done(accounts.add("olga", "viewer", "hash", BY))
    await house.done(accounts.remove("olga", BY))
    assert accounts.get("olga") is None
    await house.done(accounts.add("olga", "admin", "other", BY))
    assert [user.role for user in accounts.all()] == ["admin"]


async def test_what_is_done_to_users_is_noted_without_their_passwords(house: House) -> None:
    accounts = house.broker.accounts
    await house.done(accounts.add("olga", "viewer", "$argon2id$1", AT_THE_MACHINE))
    await house.done(accounts.set_password("olga", "$argon2id$2", BY))
    await house.done(accounts.remove("olga", BY))
    rows = await house.broker.audit(AuditQuery(10))
    assert [(row.action, row.actor, row.subject_kind, row.subject) for row in rows] == [
        ("user_removed", "user:admin", "user", "olga"),
        ("user_password_set", "user:admin", "user", "olga"),
        ("user_added", "", "user", "olga"),
    ]
    assert (rows[0].address, rows[0].user_agent) == ("192.0.2.9", "Browser/1.0")
    assert "argon2id" not in "".join(f"{row.before}{row.after}" for row in rows)


async def test_what_is_not_there_cannot_be_changed(house: House) -> None:
    accounts = house.broker.accounts
    for change in (accounts.set_password("olga", "hash", BY), accounts.remove("olga", BY)):
        with pytest.raises(NotFoundError):
            await house.done(change)


async def test_a_name_is_taken_once(house: House) -> None:
    await house.done(house.broker.accounts.add("olga", "viewer", "hash", BY))
    with pytest.raises(BadRequestError, match="already"):
        await house.done(house.broker.accounts.add("olga", "admin", "hash", BY))


async def test_users_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USERS_MAX", 1)
    await house.done(house.broker.accounts.add("olga", "viewer", "hash", BY))
    with pytest.raises(BadRequestError, match="already 1 users"):
        await house.done(house.broker.accounts.add("otto", "viewer", "hash", BY))


@pytest.mark.parametrize("name", ["", "Olga", "o" * 33, ".olga", "ol ga", "ölga", "a\n", "user:a"])
async def test_a_name_that_could_be_another_is_refused(house: House, name: str) -> None:
    with pytest.raises(BadNameError):
        await house.broker.accounts.add(name, "viewer", "hash", BY)
