"""The pages of inlets: what an admin sets is what a sender gets, and secrets are shown once."""

from __future__ import annotations

import hmac
import re

import pytest

from seb_appliance.broker.ports import AuditQuery
from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
FIELDS = {"inlet": "shop", "topic": "shop.events", "scheme": "github", "body": "value"}


def shown(text: str, name: str) -> str:
    found = re.search(rf'<code id="{name}">([^<]*)</code>', text)
    assert found is not None, name
    return found[1]


async def deliver(seb: RunningAppliance, path: str, secret: str, delivery: str = "1") -> int:
    """As GitHub does."""
    signature = "sha256=" + hmac.digest(secret.encode(), b"{}", "sha256").hex()
    headers = {"X-Hub-Signature-256": signature, "X-GitHub-Delivery": delivery}
    async with seb.client_with(None) as client:
        return (await client.post(path, content=b"{}", headers=headers)).status_code


async def test_an_inlet_is_made_shown_changed_rotated_and_deleted(
    seb: RunningAppliance, admin: Visitor
) -> None:
    assert "There is no inlet yet" in (await admin.get("/ui/inlets")).text
    made = await admin.post("/ui/new-inlet", **FIELDS)
    assert made.status_code == 201
    url, secret = shown(made.text, "url"), shown(made.text, "secret")
    assert url == f"{seb.base_url}/v1/inlets/shop"
    assert await deliver(seb, url, secret) == 200
    assert await deliver(seb, url, "another") == 401
    page = (await admin.get("/ui/inlets/shop")).text
    assert "the signature does not fit" in page
    assert secret not in page
    assert "shop.events" in (await admin.get("/ui/inlets")).text

    changes = FIELDS | {"key": "/id", "keep_headers": "X-GitHub-Event", "tolerance_s": "300"}
    del changes["inlet"]
    answer = await admin.post("/ui/inlets/shop", **changes)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/inlets/shop")
    assert 'value="/id"' in (await admin.get("/ui/inlets/shop")).text

    rotated = await admin.post("/ui/inlets/shop/rotate", secret="")
    second = shown(rotated.text, "secret")
    assert await deliver(seb, url, second, "2") == await deliver(seb, url, secret, "3") == 200

    assert "End the previous secret" in (await admin.get("/ui/inlets/shop")).text
    assert (await admin.post("/ui/inlets/shop/end-previous")).status_code == 303
    assert await deliver(seb, url, second, "5") == 200
    assert await deliver(seb, url, secret, "6") == 401
    assert "End the previous secret" not in (await admin.get("/ui/inlets/shop")).text

    wrong = await admin.post("/ui/inlets/shop/delete", name="other")
    assert (wrong.status_code, "nothing was deleted" in wrong.text) == (422, True)
    assert (await admin.post("/ui/inlets/shop/delete", name="shop")).status_code == 303
    assert await deliver(seb, url, second, "4") == 401
    rows = await seb.appliance.broker.audit(AuditQuery(10, subject="shop"))
    assert rows[0].action == "inlet_removed"
    assert not any(one in str(row) for row in rows for one in (secret, second))


async def test_a_secret_in_the_path_is_shown_with_the_url_once(admin: Visitor) -> None:
    made = await admin.post("/ui/new-inlet", **FIELDS | {"inlet": "hidden", "scheme": "path"})
    secret = shown(made.text, "url").rpartition("/")[2]
    assert len(secret) > 20
    page = (await admin.get("/ui/inlets/hidden")).text
    assert secret not in page
    assert shown(page, "url").endswith("/v1/inlets/hidden/…")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"inlet": "not a name"}, "inlet"),
        ({"topic": ""}, "topic"),
        ({"scheme": "none"}, "scheme"),
        ({"scheme": "hmac"}, "needs the name of a header"),
        ({"key": "no pointer"}, "JSON Pointer"),
        ({"tolerance_s": "soon"}, "tolerance_s"),
        ({"scheme": "path", "secret": "short"}, "16 to 200"),
    ],
)
async def test_an_inlet_that_cannot_be_is_told_and_the_form_keeps_what_was_typed(
    admin: Visitor, wrong: dict[str, str], problem: str
) -> None:
    fields = FIELDS | {"inlet": "refused", "description": "<b>typed</b>"} | wrong
    answer = await admin.post("/ui/new-inlet", **fields)
    assert answer.status_code == 422, answer.text
    assert problem in answer.text
    assert "&lt;b&gt;typed&lt;/b&gt;" in answer.text
    assert "short" not in answer.text
    assert (await admin.get("/ui/inlets/refused")).status_code == 404


async def test_a_name_that_is_taken_is_told(admin: Visitor) -> None:
    await admin.post("/ui/new-inlet", **FIELDS | {"inlet": "taken"})
    answer = await admin.post("/ui/new-inlet", **FIELDS | {"inlet": "taken"})
    assert "already" in answer.text


async def test_quotas_are_fields_of_the_form(seb: RunningAppliance, admin: Visitor) -> None:
    wanted = {
        "topic": "quota",
        "verify": {"scheme": "github"},
        "quotas": {"requests_per_second": 7},
    }
    await seb.client.put("/v1/inlets/quota", json=wanted)
    assert (
        'name="requests_per_second" type="text" value="7"'
        in (await admin.get("/ui/inlets/quota")).text
    )
    fields = {"topic": "quota", "scheme": "github", "requests_per_second": "8"}
    await admin.post("/ui/inlets/quota", **fields, description="changed")
    settings = (await seb.client.get("/v1/inlets/quota")).json()["settings"]
    assert settings["description"] == "changed"
    assert settings["quotas"]["requests_per_second"] == 8


async def test_an_inlet_may_be_called_new(admin: Visitor) -> None:
    await admin.post("/ui/new-inlet", **FIELDS | {"inlet": "new"})
    assert "/v1/inlets/new" in (await admin.get("/ui/inlets/new")).text


async def test_a_viewer_sees_deliveries_and_no_forms(admin: Visitor, olga: Visitor) -> None:
    await admin.post("/ui/new-inlet", **FIELDS | {"inlet": "seen"})
    page = (await olga.get("/ui/inlets/seen")).text
    assert "Last deliveries" in page
    assert '<form method="post" action="/ui/inlets' not in page
    assert (await olga.post("/ui/inlets/seen/delete", name="seen")).status_code == 403


async def test_deliveries_are_shown_with_what_became_of_them(
    seb: RunningAppliance, admin: Visitor
) -> None:
    made = await admin.post("/ui/new-inlet", **FIELDS | {"inlet": "told"})
    url, secret = shown(made.text, "url"), shown(made.text, "secret")
    assert [await deliver(seb, url, one) for one in (secret, "wrong")] == [200, 401]
    headers = {"hx-request": "true", "hx-target": "inlet-deliveries"}
    part = (await admin.get("/ui/inlets/told", **headers)).text
    assert "<html" not in part
    newest, oldest = (re.sub("<[^>]*>|\\s+", " ", row) for row in part.split("<tr>")[2:4])
    assert re.search("401 refused .*does not fit", newest)
    assert re.search("200 accepted .*stored", oldest)


async def test_settings_that_are_rarely_needed_are_folded_until_one_is_set(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    await admin.post("/ui/new-inlet", **FIELDS | {"inlet": "folded", "description": "of the shop"})
    path, more = "/ui/inlets/folded", '<details class="add" open>'
    assert more not in (await admin.get(path)).text
    await admin.post(path, topic="shop.events", scheme="github", tolerance_s="60", description="it")
    assert more in (await admin.get(path)).text
    assert "<dd>60</dd>" in (await olga.get(path)).text
