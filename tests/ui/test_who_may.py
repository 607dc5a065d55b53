"""Every route of the admin page, asked by everybody: strangers see the log-in, viewers change
nothing, and no change is taken that another site, or nobody, asked for."""

from __future__ import annotations

from typing import Final, Literal

import httpx2
import pytest

from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor, visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")

Kind = Literal["open", "page", "change", "leave"]
# `open`: for everybody. `page`: for users. `change`: for admins, asked for by a page of ours.
# `leave`: for users, asked for by a page of ours.
ROUTES: Final[dict[tuple[str, str], Kind]] = {
    ("GET", "/ui"): "page",
    ("GET", "/ui/{rest:path}"): "page",
    ("GET", "/ui/charts/{kind:str}"): "page",
    ("GET", "/ui/login"): "open",
    ("POST", "/ui/login"): "open",
    ("GET", "/ui/static/{named:str}"): "open",
    ("POST", "/ui/logout"): "leave",
    ("POST", "/ui/logout-everywhere"): "leave",
    ("GET", "/ui/topics"): "page",
    ("POST", "/ui/topics"): "change",
    ("GET", "/ui/topics/{topic:str}"): "page",
    ("GET", "/ui/topics/{topic:str}/settings"): "page",
    ("POST", "/ui/topics/{topic:str}/settings"): "change",
    ("GET", "/ui/topics/{topic:str}/trim"): "page",
    ("POST", "/ui/topics/{topic:str}/trim"): "change",
    ("POST", "/ui/topics/{topic:str}/reopen"): "change",
    ("POST", "/ui/topics/{topic:str}/delete"): "change",
    ("GET", "/ui/topics/{topic:str}/records"): "page",
    ("GET", "/ui/topics/{topic:str}/records/{offset:str}"): "page",
    ("GET", "/ui/topics/{topic:str}/download"): "page",
    ("GET", "/ui/topics/{topic:str}/live"): "page",
    ("GET", "/ui/topics/{topic:str}/live/rows"): "page",
    ("GET", "/ui/topics/{topic:str}/keys"): "page",
    ("GET", "/ui/topics/{topic:str}/key"): "page",
    ("GET", "/ui/topics/{topic:str}/produce"): "page",
    ("POST", "/ui/topics/{topic:str}/produce"): "change",
    ("GET", "/ui/topics/{topic:str}/send"): "page",
    ("POST", "/ui/topics/{topic:str}/send"): "change",
    ("GET", "/ui/groups"): "page",
    ("GET", "/ui/groups/{group:str}"): "page",
    ("GET", "/ui/groups/{group:str}/lag"): "page",
    ("POST", "/ui/groups/{group:str}/delete"): "change",
    ("GET", "/ui/groups/{group:str}/reset"): "page",
    ("POST", "/ui/groups/{group:str}/reset"): "change",
    ("GET", "/ui/queues"): "page",
    ("GET", "/ui/new-queue"): "page",
    ("POST", "/ui/new-queue"): "change",
    ("GET", "/ui/queues/{queue:str}"): "page",
    ("POST", "/ui/queues/{queue:str}"): "change",
    ("POST", "/ui/queues/{queue:str}/reset"): "change",
    ("POST", "/ui/queues/{queue:str}/purge"): "change",
    ("POST", "/ui/queues/{queue:str}/redrive"): "change",
    ("POST", "/ui/queues/{queue:str}/delete"): "change",
    ("GET", "/ui/api-keys"): "page",
    ("GET", "/ui/api-keys/new"): "page",
    ("POST", "/ui/api-keys/new"): "change",
    ("GET", "/ui/api-keys/{api_key_id:str}"): "page",
    ("POST", "/ui/api-keys/{api_key_id:str}"): "change",
    ("POST", "/ui/api-keys/{api_key_id:str}/disabled"): "change",
    ("POST", "/ui/api-keys/{api_key_id:str}/rotate"): "change",
    ("POST", "/ui/api-keys/{api_key_id:str}/revoke"): "change",
    ("GET", "/ui/inlets"): "page",
    ("GET", "/ui/new-inlet"): "page",
    ("POST", "/ui/new-inlet"): "change",
    ("GET", "/ui/inlets/{inlet:str}"): "page",
    ("POST", "/ui/inlets/{inlet:str}"): "change",
    ("POST", "/ui/inlets/{inlet:str}/rotate"): "change",
    ("POST", "/ui/inlets/{inlet:str}/end-previous"): "change",
    ("POST", "/ui/inlets/{inlet:str}/delete"): "change",
    ("GET", "/ui/connections"): "page",
    ("POST", "/ui/connections/close"): "change",
    ("GET", "/ui/subscriptions"): "page",
    ("GET", "/ui/new-subscription"): "page",
    ("POST", "/ui/new-subscription"): "change",
    ("GET", "/ui/subscriptions/{subscription:str}"): "page",
    ("POST", "/ui/subscriptions/{subscription:str}"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/pause"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/resume"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/test"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/replay"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/headers"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/rotate"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/end-previous"): "change",
    ("POST", "/ui/subscriptions/{subscription:str}/delete"): "change",
    ("GET", "/ui/tables"): "page",
    ("GET", "/ui/tables/{table:str}"): "page",
    ("POST", "/ui/tables/{table:str}/sql"): "page",
    ("POST", "/ui/tables/{table:str}/pause"): "change",
    ("POST", "/ui/tables/{table:str}/resume"): "change",
    ("POST", "/ui/tables/{table:str}/repair"): "change",
    ("POST", "/ui/tables/{table:str}/drop"): "change",
    ("GET", "/ui/storage"): "page",
    ("POST", "/ui/storage/snapshot"): "change",
    ("POST", "/ui/storage/doctor"): "change",
    ("POST", "/ui/storage/fsck"): "change",
    ("GET", "/ui/users"): "page",
    ("POST", "/ui/users"): "change",
    ("GET", "/ui/users/{name:str}"): "page",
    ("POST", "/ui/users/{name:str}/password"): "change",
    ("POST", "/ui/users/{name:str}/logout"): "change",
    ("POST", "/ui/users/{name:str}/remove"): "change",
    ("GET", "/ui/settings"): "page",
    ("GET", "/ui/audit"): "page",
    ("GET", "/ui/definitions"): "page",
    ("GET", "/ui/definitions/file"): "page",
    ("POST", "/ui/definitions"): "change",
    ("GET", "/ui/find"): "page",
}
BY_KIND: Final = {
    kind: [(method, path) for (method, path), found in ROUTES.items() if found == kind]
    for kind in ("open", "page", "change", "leave")
}
NAMES: Final = {
    "{topic:str}": "here", "{group:str}": "here", "{api_key_id:str}": "abcdefgh",
    "{queue:str}": "here", "{kind:str}": "overview",
    "{inlet:str}": "here", "{subscription:str}": "here", "{table:str}": "here",
    "{offset:str}": "0", "{name:str}": "olga", "{named:str}": "none.css", "{rest:path}": "nothing",
}  # fmt: skip
# No form has this field: who is let in is told so, and nothing is changed.
UNKNOWN_FIELD: Final = {"unknown": "1"}
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}


def filled(path: str) -> str:
    for placeholder, name in NAMES.items():
        path = path.replace(placeholder, name)
    return path


async def status_of(who: Visitor, method: str, path: str, **headers: str) -> int:
    """The status of an answer that need not end; 401 stands for being sent to the log-in."""
    form = {} if method == "GET" else {"data": UNKNOWN_FIELD}
    request = who.client.build_request(method, filled(path), headers=FORM | headers, **form)
    answer: httpx2.Response = await who.client.send(request, stream=True)
    await answer.aclose()
    to_the_login = answer.headers.get("location", "").startswith("/ui/login")
    return 401 if to_the_login else answer.status_code


async def as_is(seb: RunningAppliance) -> list[str]:
    """All that a change could have changed."""
    paths = ("/v1/topics", "/v1/groups", "/v1/audit")
    return [(await seb.client.get(path)).text for path in paths]


async def test_every_route_has_a_row_and_no_row_is_too_many(seb: RunningAppliance) -> None:
    served = {
        (method, route.path)
        for route in seb.server.config.app.litestar.routes  # type: ignore[union-attr]
        for method in route.methods - {"OPTIONS"}
        if route.path.startswith("/ui")
    }
    assert served == set(ROUTES)


async def test_a_page_is_for_users(seb: RunningAppliance, olga: Visitor, admin: Visitor) -> None:
    await seb.client.post("/v1/topics/here/records", content=b"x")
    nobody, with_api_key = visitor(seb), Visitor(seb.client, seb.base_url)
    async with nobody.client:
        for method, path in BY_KIND["page"]:
            for stranger in (nobody, with_api_key):
                status = await status_of(stranger, method, path, origin=nobody.origin)
                assert status == 401, path
            for user in (olga, admin):
                status = await status_of(user, method, path, origin=user.origin)
                assert status not in (401, 403, 500), path


async def test_what_is_open_needs_no_session(seb: RunningAppliance) -> None:
    nobody = visitor(seb)
    async with nobody.client:
        for method, path in BY_KIND["open"]:
            status = await status_of(nobody, method, path, origin=nobody.origin)
            assert status in (200, 400, 404), path


@pytest.mark.parametrize("kind", ["change", "leave"])
async def test_a_change_is_taken_from_a_page_of_ours_alone(
    seb: RunningAppliance, olga: Visitor, admin: Visitor, kind: str
) -> None:
    before = await as_is(seb)
    foreign = (
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": admin.origin, "sec-fetch-site": "cross-site"},
        {"origin": admin.origin, "sec-fetch-site": "same-site"},
        {"origin": admin.origin + ".evil.example"},
    )
    for method, path in BY_KIND[kind]:
        for headers in foreign:
            for user in (olga, admin):
                assert await status_of(user, method, path, **headers) == 403, (path, headers)
    assert (await admin.get("/ui")).status_code == (await olga.get("/ui")).status_code == 200
    assert await as_is(seb) == before


async def test_a_change_is_for_admins(seb: RunningAppliance, olga: Visitor, admin: Visitor) -> None:
    before = await as_is(seb)
    nobody = visitor(seb)
    async with nobody.client:
        for method, path in BY_KIND["change"]:
            for who, status in ((nobody, 401), (olga, 403), (admin, 400)):
                assert await status_of(who, method, path, origin=who.origin) == status, path
        for method, path in BY_KIND["leave"]:
            assert await status_of(nobody, method, path, origin=nobody.origin) == 401, path
    assert await as_is(seb) == before
