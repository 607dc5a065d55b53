"""The pages of API keys: a secret is shown once, and what is changed is in force."""

from __future__ import annotations

import logging
import re
import time

import httpx2
import pytest
import pytest_asyncio

from seb_appliance.broker.ports import AuditQuery
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.ui.forms import Form
from seb_appliance.ui.pages import api_keys as key_forms
from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = "\"><script>alert(1)</script>' onmouseover='x \u202egnp"
GRANT = {"operation": "consume", "topics": "orders.*", "groups": ""}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(seb: RunningAppliance) -> RunningAppliance:
    for topic in ("orders.eu", "orders.us", "bills"):
        await seb.client.put(f"/v1/topics/{topic}")
    return seb


def fields(**more: str) -> dict[str, str]:
    empty = dict.fromkeys(
        (
            "description",
            "expires",
            "requests_per_second",
            "bytes_in_per_second",
            "bytes_out_per_second",
        ),
        "",
    )
    return {"name": "billing", **empty, **GRANT, "step": "save", **more}


async def create(admin: Visitor, **more: str) -> tuple[str, str]:
    """Id and secret of a new API key."""
    answer = await admin.post("/ui/api-keys/new", **fields(**more))
    assert answer.status_code == 201, answer.text
    return shown_secret(answer)


def shown_secret(answer: httpx2.Response) -> tuple[str, str]:
    found = re.search(r'<code id="secret">(seb_([a-z2-7]{8})_[^<]{50})</code>', answer.text)
    assert found
    return found[2], found[1]


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", text))


async def status_with(seb: RunningAppliance, secret: str, path: str) -> int:
    async with seb.client_with(secret) as client:
        return (await client.get(path)).status_code


async def test_a_secret_is_shown_once_and_works(
    seb: RunningAppliance, admin: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key_id, secret = await create(admin)
    assert await status_with(seb, secret, "/v1/topics/orders.eu/records") == 200
    assert await status_with(seb, secret, "/v1/topics/bills/records") == 403
    for path in ("/ui/api-keys", f"/ui/api-keys/{key_id}", "/ui/audit"):
        answer = await admin.get(path)
        assert "billing" in answer.text
        assert secret[len("seb_12345678_") :][:20] not in answer.text
    assert secret not in caplog.text
    (row,) = await seb.appliance.broker.audit(AuditQuery(10, subject=key_id))
    assert (row.action, row.actor, row.address) == ("api_key_created", "user:admin", "127.0.0.1")


async def test_the_page_with_the_secret_is_not_kept_and_can_be_copied(admin: Visitor) -> None:
    answer = await admin.post("/ui/api-keys/new", **fields(name="copied"))
    assert answer.headers["cache-control"] == "no-store"
    assert 'data-copy="secret"' in answer.text


async def test_each_grant_tells_which_topics_it_matches_now(admin: Visitor) -> None:
    asked = {"operation": ["consume", "produce", "manage", "admin", ""]}
    asked |= {"topics": ["orders.*", "", "none.**", "", "x**"], "groups": [""] * 5}
    data = {**fields(step="look"), **asked}
    headers = {"origin": admin.origin, "hx-request": "true", "hx-target": "grant-rows"}
    answer = await admin.client.post("/ui/api-keys/new", data=data, headers=headers)
    assert answer.status_code == 200
    assert "<html" not in answer.text
    shown = words(answer.text)
    assert "2 of 3 topics: orders.eu, orders.us" in shown
    assert "3 of 3 topics: bills, orders.eu, orders.us" in shown
    assert "no existing topic" in shown
    assert "everything, including API keys and users" in shown
    headers.pop("hx-request")
    page = await admin.client.post("/ui/api-keys/new", data=data, headers=headers)
    assert "<html" in page.text
    assert 'value="billing"' in page.text


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"name": ""}, "A name has 1 to"),
        ({"name": "x" * 201}, "A name has 1 to"),
        ({"operation": ""}, "Choose an operation"),
        ({"operation": "destroy"}, "An operation is one of"),
        ({"topics": "a..b"}, "is not a pattern"),
        ({"expires": "2001-01-01T00:00"}, "would have expired already"),
        ({"expires": "soon"}, "The expiry must be a time"),
        ({"expires": "9999-12-31T23:59:59-01:00"}, "The expiry must be a time"),
        ({"requests_per_second": "0"}, "Requests a second: 1 to"),
        ({"bytes_in_per_second": "many"}, "Bytes in a second: "),
        ({"bytes_out_per_second": "0B"}, "Bytes out a second: 1 to"),
    ],
)
async def test_a_form_that_makes_no_sense_is_shown_again(
    seb: RunningAppliance, admin: Visitor, wrong: dict[str, str], problem: str
) -> None:
    before = len(seb.appliance.broker.access.all())
    answer = await admin.post("/ui/api-keys/new", **fields(description="kept", **wrong))
    assert answer.status_code == 422
    assert problem in answer.text
    assert 'value="kept"' in answer.text
    assert len(seb.appliance.broker.access.all()) == before


async def test_what_is_changed_is_in_force(seb: RunningAppliance, admin: Visitor) -> None:
    key_id, secret = await create(admin, name="changing")
    changed = fields(
        name="changed",
        topics="bills",
        requests_per_second="7",
        bytes_in_per_second="2MiB",
        expires="2999-01-01T00:00",
    )
    answer = await admin.post(f"/ui/api-keys/{key_id}", **changed)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/api-keys/{key_id}")
    assert await status_with(seb, secret, "/v1/topics/bills/records") == 200
    assert await status_with(seb, secret, "/v1/topics/orders.eu/records") == 403
    key = seb.appliance.broker.access.get(key_id)
    assert (key.name, key.grants) == ("changed", (Grant(operation="consume", topics="bills"),))
    assert (key.quotas.requests_per_second, key.quotas.bytes_in_per_second) == (7, 2 << 20)
    text = (await admin.get(f"/ui/api-keys/{key_id}")).text
    for held in ('value="changed"', 'value="7"', 'value="2MiB"', 'value="2999-01-01T00:00:00"'):
        assert held in text
    await admin.post(f"/ui/api-keys/{key_id}", **fields(name="changed", topics="bills"))
    key = seb.appliance.broker.access.get(key_id)
    assert (key.expires_us, key.quotas.requests_per_second) == (None, None)


async def test_rotating_gives_a_second_secret_and_an_overlap(
    seb: RunningAppliance, admin: Visitor
) -> None:
    key_id, first = await create(admin, name="rotating")
    answer = await admin.post(f"/ui/api-keys/{key_id}/rotate", overlap="24h")
    _, second = shown_secret(answer)
    for secret in (first, second):
        assert await status_with(seb, secret, "/v1/topics/orders.eu/records") == 200
    assert "the previous secret works until" in (await admin.get(f"/ui/api-keys/{key_id}")).text
    _, third = shown_secret(await admin.post(f"/ui/api-keys/{key_id}/rotate", overlap="0s"))
    statuses = [await status_with(seb, one, "/v1/topics/orders.eu") for one in (first, second)]
    assert statuses == [401, 401]
    assert await status_with(seb, third, "/v1/topics/orders.eu/records") == 200
    assert (await admin.post(f"/ui/api-keys/{key_id}/rotate", overlap="9y")).status_code == 422


async def test_a_disabled_key_is_refused_until_it_is_enabled(
    seb: RunningAppliance, admin: Visitor
) -> None:
    key_id, secret = await create(admin, name="switched")
    for disabled, status, state in (("yes", 401, "disabled"), ("no", 200, "active")):
        answer = await admin.post(f"/ui/api-keys/{key_id}/disabled", disabled=disabled)
        assert answer.status_code == 303
        assert await status_with(seb, secret, "/v1/topics/orders.eu/records") == status
        assert state in words((await admin.get(f"/ui/api-keys/{key_id}")).text)


async def test_a_key_is_revoked_only_by_its_id(seb: RunningAppliance, admin: Visitor) -> None:
    key_id, secret = await create(admin, name="going")
    answer = await admin.post(f"/ui/api-keys/{key_id}/revoke", id="going")
    assert (answer.status_code, "nothing was revoked" in answer.text) == (422, True)
    answer = await admin.post(f"/ui/api-keys/{key_id}/revoke", id=key_id)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/api-keys")
    assert await status_with(seb, secret, "/v1/topics/orders.eu") == 401
    assert (await admin.get(f"/ui/api-keys/{key_id}")).status_code == 404


async def test_the_last_admin_key_stays_and_the_page_says_why(
    seb: RunningAppliance, admin: Visitor
) -> None:
    (key,) = [one for one in seb.appliance.broker.access.all() if one.name == "admin"]
    path = f"/ui/api-keys/{key.api_key_id}"
    for answer in (
        await admin.post(f"{path}/revoke", id=key.api_key_id),
        await admin.post(f"{path}/disabled", disabled="yes"),
        await admin.post(path, **fields(name="admin")),
    ):
        assert answer.status_code == 422
        assert re.search("last|admin key", answer.text)
    assert seb.appliance.broker.access.get(key.api_key_id) is key


async def test_a_viewer_sees_keys_and_changes_none(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    key_id, _ = await create(admin, name="watched")
    text = (await olga.get(f"/ui/api-keys/{key_id}")).text
    assert "2 of 3 topics" in text
    assert "Revoke the API key" not in text
    before = seb.appliance.broker.access.all()
    for path, sent in (
        ("/ui/api-keys/new", fields()),
        (f"/ui/api-keys/{key_id}", fields(name="mine")),
        (f"/ui/api-keys/{key_id}/rotate", {"overlap": "0s"}),
        (f"/ui/api-keys/{key_id}/disabled", {"disabled": "yes"}),
        (f"/ui/api-keys/{key_id}/revoke", {"id": key_id}),
    ):
        assert (await olga.post(path, **sent)).status_code == 403
    assert seb.appliance.broker.access.all() == before


async def test_nothing_in_a_name_or_a_form_can_run(admin: Visitor) -> None:
    key_id, _ = await create(admin, name=HOSTILE, description=HOSTILE)
    pages = [await admin.get(path) for path in ("/ui/api-keys", f"/ui/api-keys/{key_id}")]
    pages.append(await admin.post("/ui/api-keys/new", **fields(**GRANT | {"topics": HOSTILE})))
    pages.append(await admin.post(f"/ui/api-keys/{key_id}/rotate", overlap="0s"))
    for answer in pages:
        assert "&lt;script&gt;" in answer.text
        assert "<script>alert" not in answer.text
        assert "' onmouseover='" not in answer.text


async def test_many_keys_are_paged_and_filtered(seb: RunningAppliance, admin: Visitor) -> None:
    access, grants = seb.appliance.broker.access, (Grant(operation="produce"),)
    for number in range(120):
        await access.create(f"many-{number:03}", grants)
    path, seen = "/ui/api-keys?filter=many-", []
    while path:
        headers = {"hx-request": "true", "hx-target": "api-key-rows"}
        text = (await admin.get(path, **headers)).text
        seen += re.findall(r">(many-\d+)<", text)
        following = re.search(r'href="([^"]*)"[^>]*>Next<', text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert seen == [f"many-{number:03}" for number in range(120)]
    # A hyphen and a blank: three letters alone are now and then in one of 120 random ids.
    assert "No API key has a matching" in (await admin.get("/ui/api-keys?filter=no-such key")).text


async def test_a_hundred_grants_over_ten_thousand_topics_are_told_at_once() -> None:
    topics = [f"orders.{number % 100}.{number}" for number in range(10_000)]
    pairs = [
        pair
        for number in range(100)
        for pair in (("operation", "produce"), ("topics", f"orders.{number}.**"), ("groups", ""))
    ]
    began_s = time.process_time()
    rows = await key_forms.rows_of(key_forms._given(Form(pairs)), lambda: topics)
    assert time.process_time() - began_s < 1  # 0.05 s is usual
    assert rows[7].matches.startswith("100 of 10,000 topics: orders.7.7, orders.7.107")
