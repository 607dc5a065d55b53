"""API keys over HTTP: who may do what, and what is shown of a key."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import pytest

from seb_appliance.clock import SystemClock
from seb_appliance.ops.host.data_directory import reset_admin_key

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDS = "/v1/topics/{}/records"


async def make_key(seb, *grants, **members):
    listed = [{"operation": operation, "topics": topics} for operation, topics in grants]
    answer = await seb.client.post(
        "/v1/api-keys", json={"name": "test", "grants": listed, **members}
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_the_secret_is_shown_once_and_works(seb):
    made = await make_key(seb, ("produce", "**"))
    assert made["secret"].startswith(f"seb_{made['api_key_id']}_")
    shown = (await seb.client.get(f"/v1/api-keys/{made['api_key_id']}")).json()
    assert shown == {name: value for name, value in made.items() if name != "secret"}
    listed = await seb.client.get("/v1/api-keys")
    assert shown in listed.json()["api_keys"]
    assert made["secret"] not in listed.text
    await seb.client.put("/v1/topics/shown")
    async with seb.client_with(made["secret"]) as client:
        assert (await client.post(RECORDS.format("shown"), content=b"x")).status_code == 201


async def test_a_key_is_also_the_password_of_basic(seb):
    async with seb.client_with(None) as client:
        answer = await client.get("/v1/topics", auth=("anybody", seb.admin_key))
        assert answer.status_code == 200
        wrong = await client.get("/v1/topics", auth=("anybody", "nothing"))
        assert wrong.json()["code"] == "unauthenticated"


async def test_each_operation_needs_its_grant_on_that_topic(seb):
    for name in ("grants.mine", "grants.other"):
        await seb.client.post(RECORDS.format(name), content=b"x")
    grants = {
        "produce": lambda c, t: c.post(RECORDS.format(t), content=b"x"),
        "consume": lambda c, t: c.get(RECORDS.format(t)),
        "manage": lambda c, t: c.patch(f"/v1/topics/{t}", json={"linger_ms": 1}),
        "admin": lambda c, t: c.get("/v1/api-keys"),
    }
    for granted in grants:
        made = await make_key(seb, (granted, "grants.mine"))
        async with seb.client_with(made["secret"]) as client:
            for operation, act in grants.items():
                answer = await act(client, "grants.mine")
                if operation == granted or granted == "admin":
                    assert answer.status_code in (200, 201), (granted, operation)
                else:
                    assert answer.status_code == 403, (granted, operation)
                    assert answer.json()["missing_grant"]["operation"] == operation
            if granted != "admin":
                answer = await grants[granted](client, "grants.other")
                assert answer.json()["code"] == "forbidden"


async def test_a_list_shows_only_what_the_key_may_see(seb):
    for name in ("seen.a", "hidden.a"):
        await seb.client.put(f"/v1/topics/{name}")
    made = await make_key(seb, ("produce", "seen.*"))
    async with seb.client_with(made["secret"]) as client:
        listed = (await client.get("/v1/topics")).json()["topics"]
        assert [topic["topic"] for topic in listed] == ["seen.a"]
        assert (await client.get("/v1/topics/seen.a")).status_code == 200
        assert (await client.get("/v1/topics/hidden.a")).status_code == 403
        assert (await client.get("/v1/topics/hidden.none")).status_code == 403


async def test_only_admin_keys_touch_api_keys(seb):
    made = await make_key(seb, ("manage", "**"), ("produce", "**"), ("consume", "**"))
    async with seb.client_with(made["secret"]) as client:
        for answer in (
            await client.get("/v1/api-keys"),
            await client.post("/v1/api-keys", json={}),
            await client.get(f"/v1/api-keys/{made['api_key_id']}"),
            await client.delete(f"/v1/api-keys/{made['api_key_id']}"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_a_revoked_key_is_refused_at_once(seb):
    made = await make_key(seb, ("consume", "**"))
    async with seb.client_with(made["secret"]) as client:
        assert (await client.get("/v1/topics")).status_code == 200
        revoked = await seb.client.delete(f"/v1/api-keys/{made['api_key_id']}")
        assert revoked.status_code == 204
        assert (await client.get("/v1/topics")).status_code == 401
    gone = await seb.client.get(f"/v1/api-keys/{made['api_key_id']}")
    assert (gone.status_code, gone.json()["code"]) == (404, "api_key_not_found")


class Later(SystemClock):
    def wall_us(self):
        return super().wall_us() + 3_600_000_000


async def test_an_expired_key_is_refused(seb, monkeypatch):
    soon = datetime.now(UTC) + timedelta(minutes=50)
    made = await make_key(seb, ("consume", "**"), expires=soon.isoformat())
    assert made["expires"] == soon.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    async with seb.client_with(made["secret"]) as client:
        assert (await client.get("/v1/topics")).status_code == 200
        monkeypatch.setattr(seb.appliance.broker.access, "_clock", Later())
        answer = await client.get("/v1/topics")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_an_expiry_that_no_list_could_show_is_refused(seb):
    made = await make_key(seb, ("consume", "**"))
    for expires, status in (("9999-12-31T23:59:59-01:00", 400), ("9999-12-31T23:59:59Z", 200)):
        url = f"/v1/api-keys/{made['api_key_id']}"
        changed = await seb.client.patch(url, json={"expires": expires})
        assert changed.status_code == status, changed.text
        asked = {"name": "late", "grants": [{"operation": "consume"}], "expires": expires}
        assert (await seb.client.post("/v1/api-keys", json=asked)).is_success == (status == 200)
        assert (await seb.client.get("/v1/api-keys")).status_code == 200


async def test_the_last_admin_key_stays(seb):
    admins = [
        key["api_key_id"]
        for key in (await seb.client.get("/v1/api-keys")).json()["api_keys"]
        if key["grants"][0]["operation"] == "admin"
    ]
    mine = seb.admin_key.split("_")[1]
    for other in set(admins) - {mine}:
        await seb.client.delete(f"/v1/api-keys/{other}")
    answer = await seb.client.delete(f"/v1/api-keys/{mine}")
    assert (answer.status_code, answer.json()["code"]) == (409, "last_admin_key")


def _basic(password: bytes) -> str:
    return "Basic " + base64.b64encode(b"u:" + password).decode()


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer seb_",
        "Basic",
        "Basic !!!",
        "Digest x",
        "Bearer {id}",
        "Bearer {one_off}",
        "Bearer {wrong_crc}",
        "Bearer {key}x",
        "Bearer {key} x",
        "{key}",
        "Bearer " + "s" * 8000,
        _basic(b"\0"),
        _basic("é".encode()),
        _basic(b"x" * 4000),
    ],
)
async def test_what_is_no_valid_key_is_unauthenticated(seb, authorization):
    key = seb.admin_key
    filled = (
        authorization.replace("{key}", key)
        .replace("{id}", key.split("_")[1])
        .replace("{one_off}", key[:20] + ("A" if key[20] != "A" else "B") + key[21:])
        .replace("{wrong_crc}", key[:-1] + ("A" if key[-1] != "A" else "B"))
    )
    async with seb.client_with(None) as client:
        answer = await client.get("/v1/topics", headers={"authorization": filled})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == 'Bearer realm="seb", Basic realm="seb"'
    assert key not in answer.text


async def test_two_authorization_headers_are_refused(seb):
    async with seb.client_with(None) as client:
        answer = await client.get(
            "/v1/topics",
            headers=[("authorization", f"Bearer {seb.admin_key}")] * 2,
        )
    assert answer.json()["code"] == "unauthenticated"


async def test_a_key_in_the_url_is_refused(seb):
    for name in ("api_key", "token", "access_token"):
        answer = await seb.client.get("/v1/topics", params={name: seb.admin_key})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")
        assert "not accepted in a URL" in answer.json()["detail"]
        assert seb.admin_key not in answer.text


async def test_admin_keys_that_are_made_at_once_are_made_one_after_the_other(seb, tmp_path):
    """Else one fails whose key exists, and nobody knows it."""
    broker, turn, seen = seb.appliance.broker, asyncio.Lock(), set[str]()

    async def reset():
        path = await reset_admin_key(broker, tmp_path, turn)
        seen.add(path.read_text().strip())

    await asyncio.gather(*(reset() for _ in range(4)))
    assert len(seen) == 4
    for secret in seen:
        async with seb.client_with(secret) as client:
            assert (await client.get("/v1/api-keys")).status_code == 200
    assert [path.name for path in tmp_path.iterdir()] == ["admin.key"]
