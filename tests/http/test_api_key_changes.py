"""API keys over HTTP: changed, rotated, disabled, bounded by quotas; and what of it is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.http.bad_input import JSON, nothing_happens, refused
from tests.http.test_api_keys import RECORDS, make_key

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def admin_ids(seb) -> list[str]:
    listed = (await seb.client.get("/v1/api-keys")).json()["api_keys"]
    return [
        key["api_key_id"]
        for key in listed
        if any(grant["operation"] == "admin" for grant in key["grants"])
    ]


async def change(seb, api_key_id, **members):
    return await seb.client.patch(f"/v1/api-keys/{api_key_id}", json=members)


async def test_a_change_shows_at_once_and_the_rest_stays(seb):
    made = await make_key(
        seb, ("produce", "**"), description="d", quotas={"bytes_in_per_second": 9}
    )
    expires = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    answer = await change(
        seb,
        made["api_key_id"],
        name="other",
        expires=expires,
        grants=[{"operation": "consume", "topics": "x.*", "groups": "g"}],
        quotas={"requests_per_second": 1000},
    )
    assert answer.status_code == 200, answer.text
    changed = answer.json()
    assert changed == {
        **{name: value for name, value in made.items() if name != "secret"},
        "name": "other",
        "expires": expires,
        "grants": [{"operation": "consume", "topics": "x.*", "groups": "g"}],
        "quotas": {
            "requests_per_second": 1000,
            "bytes_in_per_second": 9,
            "bytes_out_per_second": None,
        },
    }
    again = await change(seb, made["api_key_id"], quotas=None, expires=None)
    assert set(again.json()["quotas"].values()) == {None}
    assert again.json()["expires"] is None


async def test_new_grants_bind_the_next_request(seb):
    await seb.client.put("/v1/topics/bind.a")
    made = await make_key(seb, ("produce", "bind.*"))
    async with seb.client_with(made["secret"]) as client:
        assert (await client.post(RECORDS.format("bind.a"), content=b"x")).status_code == 201
        await change(seb, made["api_key_id"], grants=[{"operation": "consume"}])
        assert (await client.post(RECORDS.format("bind.a"), content=b"x")).status_code == 403
        assert (await client.get(RECORDS.format("bind.a"))).status_code == 200


async def test_a_disabled_key_is_unauthenticated_until_it_is_enabled(seb):
    made = await make_key(seb, ("consume", "**"))
    async with seb.client_with(made["secret"]) as client:
        assert (await change(seb, made["api_key_id"], disabled=True)).json()["disabled"] is True
        assert (await client.get("/v1/topics")).json()["code"] == "unauthenticated"
        await change(seb, made["api_key_id"], disabled=False)
        assert (await client.get("/v1/topics")).status_code == 200


async def test_both_secrets_work_in_the_overlap(seb):
    made = await make_key(seb, ("consume", "**"))
    path = f"/v1/api-keys/{made['api_key_id']}/rotate"
    rotated = (await seb.client.post(path, json={"overlap": "1h"})).json()
    assert rotated["secret"] != made["secret"]
    assert rotated["secret"].startswith(f"seb_{made['api_key_id']}_")
    assert rotated["overlap_until"] > made["created"]
    for secret in (made["secret"], rotated["secret"]):
        async with seb.client_with(secret) as client:
            assert (await client.get("/v1/topics")).status_code == 200
    last = (await seb.client.post(path, json={"overlap": "0s"})).json()
    for secret, status in (
        (made["secret"], 401),
        (rotated["secret"], 401),
        (last["secret"], 200),
    ):
        async with seb.client_with(secret) as client:
            assert (await client.get("/v1/topics")).status_code == status


async def test_a_rotation_without_a_body_overlaps_for_a_day(seb):
    made = await make_key(seb, ("consume", "**"))
    rotated = await seb.client.post(f"/v1/api-keys/{made['api_key_id']}/rotate")
    until = datetime.fromisoformat(rotated.json()["overlap_until"])
    assert timedelta(hours=23) < until - datetime.now(UTC) < timedelta(hours=25)


async def test_a_key_that_revokes_itself_is_answered(seb):
    made = await make_key(seb, ("admin", "**"))
    async with seb.client_with(made["secret"]) as client:
        assert (await client.delete(f"/v1/api-keys/{made['api_key_id']}")).status_code == 204
        assert (await client.get("/v1/topics")).status_code == 401


async def test_last_used_is_shown(seb):
    made = await make_key(seb, ("consume", "**"))
    assert made["last_used"] is None
    async with seb.client_with(made["secret"]) as client:
        await client.get("/v1/topics")
    shown = (await seb.client.get(f"/v1/api-keys/{made['api_key_id']}")).json()
    assert shown["last_used"] > shown["created"]


async def test_requests_past_the_quota_are_told_when_to_come_again(seb):
    made = await make_key(seb, ("consume", "**"), quotas={"requests_per_second": 3})
    async with seb.client_with(made["secret"]) as client:
        answers = await asyncio.gather(*(client.get("/v1/topics") for _ in range(12)))
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) >= 3
    late = next(answer for answer in answers if answer.status_code == 429)
    assert late.headers["retry-after"] == "1"
    problem = late.json()
    assert (problem["code"], problem["retryable"], problem["side_effects"]) == (
        "quota_exceeded", True, "none",
    )  # fmt: skip
    assert (problem["quota"], problem["allowed"]) == ("requests_per_second", 3)


async def test_bytes_sent_are_charged_and_refuse_the_next_body_unread(seb):
    await seb.client.put("/v1/topics/charged")
    made = await make_key(seb, ("produce", "**"), quotas={"bytes_in_per_second": 1000})
    async with seb.client_with(made["secret"]) as client:
        first = await client.post(RECORDS.format("charged"), content=b"x" * 60_000)
        assert first.status_code == 201
        second = await client.post(RECORDS.format("charged"), content=b"y")
        assert (second.status_code, second.json()["quota"]) == (429, "bytes_in_per_second")
        assert 50 <= int(second.headers["retry-after"]) <= 60
    assert (await seb.client.get("/v1/topics/charged")).json()["log_end_offset"] == 1


async def test_a_transaction_is_charged_as_records_are(seb):
    await seb.client.put("/v1/topics/charged.together")
    made = await make_key(seb, ("produce", "**"), quotas={"bytes_in_per_second": 1000})
    async with seb.client_with(made["secret"]) as client:
        asked = {"produce": {"charged.together": [{"value": "x" * 60_000}]}}
        assert (await client.post("/v1/transactions", json=asked)).status_code == 201
        second = await client.post("/v1/transactions", json=asked)
        assert (second.status_code, second.json()["quota"]) == (429, "bytes_in_per_second")
    assert (await seb.client.get("/v1/topics/charged.together")).json()["log_end_offset"] == 1


async def test_bytes_received_are_charged(seb):
    await seb.client.post(RECORDS.format("taken"), content=b"x" * 60_000)
    made = await make_key(seb, ("consume", "**"), quotas={"bytes_out_per_second": 1000})
    async with seb.client_with(made["secret"]) as client:
        assert (await client.get(RECORDS.format("taken"))).status_code == 200
        answer = await client.get(RECORDS.format("taken"))
        assert (answer.status_code, answer.json()["quota"]) == (429, "bytes_out_per_second")


async def test_the_last_admin_key_keeps_its_power(seb):
    mine = seb.admin_key.split("_")[1]
    for other in set(await admin_ids(seb)) - {mine}:
        await seb.client.delete(f"/v1/api-keys/{other}")
    async with nothing_happens(seb):
        for members in (
            {"disabled": True},
            {"expires": "2999-01-01T00:00:00Z"},
            {"grants": [{"operation": "manage"}]},
        ):
            answer = await change(seb, mine, **members)
            assert (answer.status_code, answer.json()["code"]) == (409, "last_admin_key")


async def test_of_two_admin_keys_that_demote_each_other_one_stays(seb):
    mine = seb.admin_key.split("_")[1]
    for other in set(await admin_ids(seb)) - {mine}:
        await seb.client.delete(f"/v1/api-keys/{other}")
    second = await make_key(seb, ("admin", "**"))
    async with seb.client_with(second["secret"]) as client:
        answers = await asyncio.gather(
            client.patch(f"/v1/api-keys/{mine}", json={"disabled": True}),
            change(seb, second["api_key_id"], disabled=True),
        )
        # The later one is told 409, or 401 if it was disabled before it was read.
        told = sorted(answer.status_code for answer in answers)
        assert told in ([200, 409], [200, 401])
        await client.patch(f"/v1/api-keys/{mine}", json={"disabled": False})
    await seb.client.delete(f"/v1/api-keys/{second['api_key_id']}")
    assert await admin_ids(seb) == [mine]


GRANT = {"operation": "produce", "topics": "a"}
BAD_PATTERNS = [
    "***", "a.", ".a", "a**", "**a", "#", "a.#", "", ".", "a..b", "a/b", "é", "a b", "*a",
    "x" * 129, ".".join(["w"] * 10_000),
]  # fmt: skip


@pytest.mark.parametrize("pattern", BAD_PATTERNS, ids=lambda pattern: repr(pattern[:12]))
@pytest.mark.parametrize("member", ["topics", "groups"])
async def test_a_bad_pattern_is_refused(seb, pattern, member):
    made = await make_key(seb, ("produce", "**"))
    grants = [GRANT, {"operation": "consume", member: pattern}]
    async with nothing_happens(seb):
        new = {"name": "n", "grants": grants}
        await refused(seb, "POST", "/v1/api-keys", 400, "bad_parameter", json=new)
        path = f"/v1/api-keys/{made['api_key_id']}"
        await refused(seb, "PATCH", path, 400, "bad_parameter", json={"grants": grants})


BAD_MEMBERS = [
    ({"grants": []}, "bad_json"),
    ({"grants": [GRANT] * 101}, "bad_json"),
    ({"grants": None}, "bad_json"),
    ({"grants": [{}]}, "bad_json"),
    ({"grants": [{"operation": "everything"}]}, "bad_json"),
    ({"grants": [{"operation": "produce", "topic": "a"}]}, "bad_json"),
    ({"grants": [{"operation": "produce", "topics": None}]}, "bad_json"),
    ({"name": ""}, "bad_json"),
    ({"name": "x" * 201}, "bad_json"),
    ({"name": None}, "bad_json"),
    ({"description": "x" * 1001}, "bad_json"),
    ({"disabled": "yes"}, "bad_json"),
    ({"disabled": None}, "bad_json"),
    ({"expires": "2001-01-01T00:00:00Z"}, "bad_request"),
    ({"expires": "2999-01-01T00:00:00"}, "bad_json"),
    ({"expires": "tomorrow"}, "bad_json"),
    ({"expires": 7}, "bad_json"),
    ({"quotas": {"requests_per_second": 0}}, "bad_json"),
    ({"quotas": {"requests_per_second": -1}}, "bad_json"),
    ({"quotas": {"requests_per_second": 1.5}}, "bad_json"),
    ({"quotas": {"bytes_in_per_second": 2**53}}, "bad_json"),
    ({"quotas": {"bytes_per_second": 1}}, "bad_json"),
    ({"quotas": 5}, "bad_json"),
    ({"secret": "mine"}, "bad_json"),
    ({"api_key_id": "mine"}, "bad_json"),
]


@pytest.mark.parametrize(("members", "code"), BAD_MEMBERS, ids=str)
async def test_a_bad_member_is_refused(seb, members, code):
    made = await make_key(seb, ("produce", "**"))
    async with nothing_happens(seb):
        path = f"/v1/api-keys/{made['api_key_id']}"
        await refused(seb, "PATCH", path, 400, code, json=members)
        new = {"name": "n", "grants": [GRANT], **members}
        await refused(seb, "POST", "/v1/api-keys", 400, code, json=new)


@pytest.mark.parametrize("overlap", ["", "1", "-1s", "31d", "1w", "for ever", "9" * 40 + "d"])
async def test_a_bad_overlap_is_refused(seb, overlap):
    made = await make_key(seb, ("produce", "**"))
    path = f"/v1/api-keys/{made['api_key_id']}/rotate"
    async with nothing_happens(seb):
        await refused(seb, "POST", path, 400, "bad_parameter", json={"overlap": overlap})


@pytest.mark.parametrize("body", [b"[]", b"{", b"null", b'{"overlap": 5}', b'{"overlaps": "1h"}'])
async def test_a_rotation_with_a_bad_body_is_refused(seb, body):
    made = await make_key(seb, ("produce", "**"))
    path = f"/v1/api-keys/{made['api_key_id']}/rotate"
    async with nothing_happens(seb):
        await refused(seb, "POST", path, 400, "bad_json", content=body, headers=JSON)


@pytest.mark.parametrize("api_key_id", ["nobody", "aaaaaaaa", "-", "x" * 500])
async def test_an_unknown_id_is_not_found(seb, api_key_id):
    path = f"/v1/api-keys/{api_key_id}"
    async with nothing_happens(seb):
        for method, at, body in (
            ("GET", path, None),
            ("PATCH", path, {"name": "x"}),
            ("PATCH", path, {}),
            ("POST", f"{path}/rotate", {}),
            ("DELETE", path, None),
        ):
            await refused(seb, method, at, 404, "api_key_not_found", json=body)


async def test_only_admin_keys_change_or_rotate(seb):
    made = await make_key(seb, ("manage", "**"), ("consume", "**"))
    path = f"/v1/api-keys/{made['api_key_id']}"
    async with nothing_happens(seb), seb.client_with(made["secret"]) as client:
        for answer in (
            await client.patch(path, json={"name": "x"}),
            await client.post(f"{path}/rotate"),
            await client.get("/v1/audit"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
