"""The page of users: an admin adds, changes and removes; sessions end with what they stood on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from seb_appliance.broker.ports import AuditQuery
from tests.support.appliance import RunningAppliance
from tests.ui.pages import PASSWORD, Visitor, add_user, visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
ANOTHER = "another password"


@pytest_asyncio.fixture(loop_scope="module")
async def other(seb: RunningAppliance) -> AsyncIterator[Visitor]:
    visiting = visitor(seb)
    async with visiting.client:
        yield visiting


async def test_an_added_user_can_log_in_with_the_role_given(
    seb: RunningAppliance, admin: Visitor, other: Visitor
) -> None:
    fields = {"name": "otto", "role": "admin", "password": ANOTHER}
    answer = await admin.post("/ui/users", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/users")
    text = (await admin.get("/ui/users")).text
    assert "otto can log in, as admin." in text
    assert ANOTHER not in text
    assert (await other.log_in("otto", ANOTHER)).status_code == 303
    (row,) = await seb.appliance.broker.audit(AuditQuery(10, subject="otto"))
    assert (row.action, row.actor, row.address) == ("user_added", "user:admin", "127.0.0.1")
    assert ANOTHER not in (row.after or "")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"name": "olga"}, "already exists"),
        ({"name": "<script>alert(1)</script>"}, "is not a valid user name"),
        ({"name": "../audit"}, "is not a valid user name"),
        ({"role": "owner"}, "viewer or admin"),
        ({"password": "short"}, "at least 10 characters"),
        ({"password": "x" * 5_000}, "characters"),
    ],
)
async def test_a_user_that_cannot_be_is_told_and_not_added(
    seb: RunningAppliance, admin: Visitor, wrong: dict[str, str], problem: str
) -> None:
    before = seb.appliance.broker.accounts.all()
    fields = {"name": "new", "role": "viewer", "password": ANOTHER, **wrong}
    answer = await admin.post("/ui/users", **fields)
    assert answer.status_code == 422
    assert problem in answer.text
    assert "<script>alert" not in answer.text
    assert fields["password"] not in answer.text
    assert seb.appliance.broker.accounts.all() == before


async def test_another_password_ends_the_sessions_of_the_user(
    seb: RunningAppliance, admin: Visitor, other: Visitor
) -> None:
    await add_user(seb, "paul", "viewer")
    await other.log_in("paul")
    assert (await admin.post("/ui/users/paul/password", password="short")).status_code == 422
    assert (await other.get("/ui")).status_code == 200
    assert (await admin.post("/ui/users/paul/password", password=ANOTHER)).status_code == 303
    assert (await other.get("/ui")).status_code == 303
    assert (await other.log_in("paul")).status_code == 401
    assert (await other.log_in("paul", ANOTHER)).status_code == 303


async def test_an_admin_logs_somebody_out_everywhere(
    seb: RunningAppliance, admin: Visitor, other: Visitor
) -> None:
    await other.log_in("olga")
    form = {"origin": admin.origin, "content-type": "application/x-www-form-urlencoded"}
    answer = await admin.client.post("/ui/users/olga/logout", headers=form)
    assert answer.status_code == 303
    assert "olga is logged out everywhere." in (await admin.get("/ui/users/olga")).text
    assert (await other.get("/ui")).status_code == 303
    assert (await other.log_in("olga")).status_code == 303


async def test_a_user_is_removed_only_by_name_and_never_by_themselves(
    seb: RunningAppliance, admin: Visitor, other: Visitor
) -> None:
    await add_user(seb, "quinn", "viewer")
    await other.log_in("quinn")
    assert (await admin.post("/ui/users/quinn/remove", name="Quinn")).status_code == 422
    assert (await admin.post("/ui/users/quinn/remove", name="quinn")).status_code == 303
    assert (await other.get("/ui")).status_code == 303
    assert (await admin.get("/ui/users/quinn")).status_code == 404
    answer = await admin.post("/ui/users/admin/remove", name="admin")
    assert answer.status_code == 403
    assert "You cannot remove yourself" in answer.text
    assert seb.appliance.broker.accounts.get("admin") is not None


async def test_a_viewer_sees_users_and_changes_none(seb: RunningAppliance, other: Visitor) -> None:
    await other.log_in("olga")
    text = (await other.get("/ui/users/admin")).text
    assert "admin: can change everything" in text.lower()
    assert "<form" not in text.partition("<main")[2]
    before = seb.appliance.broker.accounts.all()
    for path, fields in (
        ("/ui/users", {"name": "mine", "role": "admin", "password": ANOTHER}),
        ("/ui/users/admin/password", {"password": ANOTHER}),
        ("/ui/users/olga/password", {"password": ANOTHER}),
        ("/ui/users/admin/logout", {}),
        ("/ui/users/admin/remove", {"name": "admin"}),
    ):
        assert (await other.post(path, **fields)).status_code == 403
    assert seb.appliance.broker.accounts.all() == before


async def test_another_site_changes_no_user(seb: RunningAppliance, admin: Visitor) -> None:
    data, headers = {"password": PASSWORD + "x"}, {"origin": "https://evil.example"}
    path = "/ui/users/olga/password"
    assert (await admin.client.post(path, data=data, headers=headers)).status_code == 403
