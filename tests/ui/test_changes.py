"""What a page that changes something gets from the desk: only an admin, from a page of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from litestar.types import ASGIApp

from seb_appliance.api.server.app import create_app
from seb_appliance.broker.ports import AuditQuery
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.serve.http_server import api_options, ui_options
from seb_appliance.ui.answers import Renderer
from seb_appliance.ui.app import Assets, Site, error_answers
from seb_appliance.ui.page_context import Desk, Routes, Visit
from seb_appliance.ui.pages import users
from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user


def a_page(seb: RunningAppliance) -> Site:
    """A page as CONTRIBUTING.md shows it."""
    options = ui_options(seb.appliance)
    desk = Desk(
        seb.appliance.broker, options, Renderer(options.templates, Assets(options.static).url, str)
    )

    routes = Routes()

    @routes.get("/topics")
    async def show(visit: Visit) -> ASGIApp:
        return visit.page("settings", rows=[])

    @routes.post("/topics", {"name"})
    async def create(visit: Visit) -> ASGIApp:
        name = visit.form.text("name")
        await visit.broker.topics.create(name, TopicSettings(), visit.actor)
        return visit.see_other("/ui/topics", f"The topic {name} is there.")

    endpoints = [desk.endpoint(*one) for one in [*routes.all, *users.routes.all]]
    return Site(endpoints, error_answers(desk))


@pytest.fixture
async def seb(tmp_path: Path) -> AsyncIterator[RunningAppliance]:
    async with running_appliance(tmp_path / "seb") as running:
        await add_user(running, "admin", "admin")
        await add_user(running, "olga", "viewer")
        yield running


@pytest.fixture
async def guest(seb: RunningAppliance) -> AsyncIterator[Visitor]:
    nobody_asks: Any = lambda: pytest.fail("nobody asks")  # noqa: E731
    app = create_app(
        seb.appliance.broker,
        options=api_options(seb.appliance),
        status=nobody_asks,
        costs=nobody_asks,
        snapshot=nobody_asks,
        samples=nobody_asks,
        site=a_page(seb),
    )
    transport = httpx2.ASGITransport(app=app)  # type: ignore[arg-type]
    origin = "http://seb.example.org"
    headers = {"user-agent": "Browser/1.0 " + 300 * "x"}
    async with httpx2.AsyncClient(transport=transport, base_url=origin, headers=headers) as client:
        yield Visitor(client, origin)


async def test_an_admin_changes_something_and_is_told_once(guest: Visitor) -> None:
    await guest.log_in("admin")
    answer = await guest.post("/ui/topics", name="orders.eu")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/topics")
    assert "The topic orders.eu is there." in (await guest.get("/ui/topics")).text
    assert "The topic orders.eu is there." not in (await guest.get("/ui/topics")).text


async def test_the_audit_names_user_address_and_client(
    seb: RunningAppliance, guest: Visitor
) -> None:
    await guest.log_in("admin")
    await guest.post("/ui/topics", name="orders.eu")
    (row,) = await seb.appliance.broker.audit(AuditQuery(10, subject="orders.eu"))
    assert (row.actor, row.address) == ("user:admin", "127.0.0.1")
    assert row.user_agent.startswith("Browser/1.0 xxx")
    assert len(row.user_agent) == 200


async def test_a_viewer_sees_the_page_and_changes_nothing(
    seb: RunningAppliance, guest: Visitor
) -> None:
    await guest.log_in("olga")
    assert (await guest.get("/ui/topics")).status_code == 200
    answer = await guest.post("/ui/topics", name="orders.eu")
    assert answer.status_code == 403
    assert "You are logged in as a viewer" in answer.text
    assert seb.appliance.broker.topics.all() == []


async def test_a_stranger_changes_nothing(seb: RunningAppliance, guest: Visitor) -> None:
    answer = await guest.post("/ui/topics", name="orders.eu")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
    assert seb.appliance.broker.topics.all() == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://seb.example.org", "sec-fetch-site": "cross-site"},
    ],
)
async def test_another_site_changes_nothing_with_an_admins_cookie(
    seb: RunningAppliance, guest: Visitor, headers: dict[str, str]
) -> None:
    await guest.log_in("admin")
    data = {"name": "orders.eu"}
    answer = await guest.client.post("/ui/topics", data=data, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
    assert seb.appliance.broker.topics.all() == []


async def test_a_refusal_of_the_broker_is_told_in_words(guest: Visitor) -> None:
    await guest.log_in("admin")
    answer = await guest.post("/ui/topics", name="a..b")
    assert answer.status_code == 400
    assert "empty word between its dots" in answer.text


@pytest.mark.parametrize(
    ("content_type", "content", "status"),
    [
        ("application/json", b'{"name":"a"}', 415),
        ("application/x-www-form-urlencoded", b"name=a&more=b", 400),
        ("application/x-www-form-urlencoded", b"name=a&name=b", 400),
        ("application/x-www-form-urlencoded", b"name=%ff", 400),
        ("multipart/form-data; boundary=x", b"--x--", 415),
    ],
)
async def test_what_is_no_form_of_the_page_changes_nothing(
    seb: RunningAppliance, guest: Visitor, content_type: str, content: bytes, status: int
) -> None:
    await guest.log_in("admin")
    headers = {"content-type": content_type, "origin": guest.origin}
    answer = await guest.client.post("/ui/topics", content=content, headers=headers)
    assert answer.status_code == status
    assert seb.appliance.broker.topics.all() == []
