"""`GET /v1/audit`: what operators did, and nothing that was refused."""

from __future__ import annotations

import pytest

from tests.http.bad_input import refused
from tests.http.test_api_keys import RECORDS, make_key

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def actions(seb, **query):
    answer = await seb.client.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["audit"]


async def test_what_an_operator_does_is_there_at_once(seb):
    made = await make_key(seb, ("manage", "**"), ("consume", "**"), ("produce", "**"))
    me = made["api_key_id"]
    async with seb.client_with(made["secret"]) as client:
        await client.put("/v1/topics/audited", json={"linger_ms": 1})
        await client.patch("/v1/topics/audited", json={"linger_ms": 2})
        await client.post(RECORDS.format("audited"), content=b"x")
        await client.put("/v1/groups/team/offsets", json={"offsets": {"audited": 1}})
        await client.post("/v1/groups/team/reset", json={"to": "earliest", "dry_run": True})
        await client.post("/v1/groups/team/reset", json={"to": "earliest"})
        await client.delete("/v1/groups/team")
        await client.delete("/v1/topics/audited")
        await client.post(RECORDS.format("audited.anew"), content=b"x")
        both = {topic: [{"value": "x"}] for topic in ("audited.anew", "audited.together")}
        await client.post("/v1/transactions", json={"produce": both})
    found = await actions(seb, actor=me)
    assert [(one["action"], one["subject_kind"], one["subject"]) for one in reversed(found)] == [
        ("topic_created", "topic", "audited"),
        ("topic_changed", "topic", "audited"),
        ("group_created", "group", "team"),
        ("group_reset", "group", "team"),
        ("group_deleted", "group", "team"),
        ("topic_deleted", "topic", "audited"),
        ("topic_created", "topic", "audited.anew"),
        ("topic_created", "topic", "audited.together"),
    ]
    assert {one["address"] for one in found} == {"127.0.0.1"}
    changed = found[-2]
    assert changed["before"]["settings"]["linger_ms"] == 1
    assert changed["after"]["settings"]["linger_ms"] == 2
    reset = found[-4]
    assert (reset["before"], reset["after"]) == (
        {"offsets": {"audited": 1}},
        {"offsets": {"audited": 0}},
    )


async def test_pages_follow_each_other_down_to_the_first(seb):
    for number in range(5):
        await seb.client.put(f"/v1/topics/page-{number}")
    every = await actions(seb, limit=1000)
    assert [one["number"] for one in every] == list(range(len(every), 0, -1))
    assert (every[-1]["actor"], every[-1]["action"]) == ("", "api_key_created")
    paged, query = [], {"limit": 2}
    while True:
        page = (await seb.client.get("/v1/audit", params=query)).json()
        paged += page["audit"]
        if page["next_before"] is None:
            break
        query["before"] = page["next_before"]
    assert paged == every


async def test_a_subject_finds_its_actions(seb):
    made = await make_key(seb, ("produce", "**"))
    await seb.client.post(f"/v1/api-keys/{made['api_key_id']}/rotate")
    await seb.client.delete(f"/v1/api-keys/{made['api_key_id']}")
    found = await actions(seb, subject=made["api_key_id"])
    assert [one["action"] for one in found] == [
        "api_key_revoked",
        "api_key_rotated",
        "api_key_created",
    ]
    assert await actions(seb, subject="nobody") == []


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "before=0", "before=-1", f"before={2**53}", "after=1",
     "limit=1&limit=2", "topic=a"],
)  # fmt: skip
async def test_a_bad_query_is_refused(seb, query):
    await refused(seb, "GET", f"/v1/audit?{query}", 400, "bad_parameter")
