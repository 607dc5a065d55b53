"""Transactions over HTTP."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/transactions"


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def ground(seb):
    """Topic in with a hundred records."""
    records = [{"value": str(n)} for n in range(100)]
    await seb.client.post("/v1/topics/in/records", json={"records": records})


async def values(seb, topic):
    answer = await seb.client.get(f"/v1/topics/{topic}/records")
    return [record["value"] for record in answer.json()["records"]]


async def committed(seb, group):
    answer = await seb.client.get(f"/v1/groups/{group}")
    return {topic["topic"]: topic["committed_offset"] for topic in answer.json()["topics"]}


async def test_records_and_offsets_are_stored_together(seb):
    answer = await seb.client.post(
        PATH,
        json={
            "produce": {
                "x.a": [{"value": "1"}, {"value": {"n": 2}, "key": "k"}],
                "x.b": [{"value_base64": "/w=="}],
            },
            "commit": {
                "group": "x",
                "offsets": {"in": 7},
                "expected": {"in": None},
                "metadata": {"in": "note"},
            },
        },
    )
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert told["committed"] == {"group": "x", "offsets": {"in": 7}}
    a, b = told["produced"]["x.a"], told["produced"]["x.b"]
    assert (a["offset"], a["count"], a["last_offset"]) == (0, 2, 1)
    assert (b["offset"], b["count"], b["last_offset"]) == (0, 1, 0)
    assert a["topic_id"] != b["topic_id"]
    assert a["timestamp"].endswith("Z")
    assert answer.headers["seb-durability"] == "memory"
    assert await values(seb, "x.a") == ["1", '{"n":2}']
    assert await committed(seb, "x") == {"in": 7}


async def test_only_records_or_only_a_commit(seb):
    answer = await seb.client.post(PATH, json={"produce": {"y": [{"value": 1}]}})
    assert (answer.status_code, answer.json()["committed"]) == (201, None)
    answer = await seb.client.post(PATH, json={"commit": {"group": "y", "offsets": {"in": 1}}})
    assert (answer.status_code, answer.json()["produced"]) == (201, {})


async def test_a_blind_retry_is_refused_and_one_with_a_key_is_answered(seb):
    step = {
        "produce": {"steps": [{"value": "once"}]},
        "commit": {"group": "steps", "offsets": {"in": 5}},
    }
    headers = {"idempotency-key": "steps-5"}
    first = await seb.client.post(PATH, json=step, headers=headers)
    again = await seb.client.post(PATH, json=step, headers=headers)
    blind = await seb.client.post(PATH, json=step)
    assert (first.status_code, again.status_code, blind.status_code) == (201, 201, 409)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert (blind.json()["code"], blind.json()["committed"]) == ("commit_backward", 5)
    assert await values(seb, "steps") == ["once"]


async def test_of_many_equal_steps_at_once_one_is_done(seb):
    step = {
        "produce": {"crowd": [{"value": "once"}]},
        "commit": {"group": "crowd", "offsets": {"in": 9}},
    }
    answers = await asyncio.gather(*(seb.client.post(PATH, json=step) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 19
    assert await values(seb, "crowd") == ["once"]


async def test_all_grants_or_nothing(seb):
    grants = [
        {"operation": "produce", "topics": "ours.**"},
        {"operation": "consume", "topics": "in", "groups": "ours"},
    ]
    made = await seb.client.post("/v1/api-keys", json={"name": "worker", "grants": grants})
    await seb.client.put("/v1/topics/ours.out")
    await seb.client.put("/v1/topics/theirs")
    record = [{"value": "x"}]
    commit = {"group": "ours", "offsets": {"in": 3}}
    async with seb.client_with(made.json()["secret"]) as worker:
        for asked in (
            {"produce": {"ours.out": record, "theirs": record}, "commit": commit},
            {"produce": {"ours.out": record}, "commit": {**commit, "group": "theirs"}},
            {"produce": {"ours.out": record}, "commit": {**commit, "offsets": {"ours.out": 0}}},
        ):
            answer = await worker.post(PATH, json=asked)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert await values(seb, "ours.out") == []
        good = await worker.post(PATH, json={"produce": {"ours.out": record}, "commit": commit})
        assert good.status_code == 201, good.text
        # A topic that is missing is made only by who may manage it.
        answer = await worker.post(PATH, json={"produce": {"ours.new": record}})
        assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")


async def test_a_lease_guards_transactions_too(seb):
    lease = await seb.client.post("/v1/groups/led/lease", json={"holder": "a", "ttl_ms": 60_000})
    commit = {"group": "led", "offsets": {"in": 1}}
    asked = {"produce": {"led": [{"value": "x"}]}, "commit": commit}
    answer = await seb.client.post(PATH, json=asked)
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_generation")
    commit["generation"] = lease.json()["generation"]
    assert (await seb.client.post(PATH, json=asked)).status_code == 201
