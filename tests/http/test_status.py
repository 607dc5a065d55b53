"""`GET /v1/status`"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from seb_appliance import __version__, limits

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def status(seb) -> dict:
    answer = await seb.client.get("/v1/status")
    assert answer.status_code == 200
    return answer.json()


async def test_it_counts_what_is_there(seb):
    before = await status(seb)
    await seb.client.post("/v1/topics/counted/records", content=b"one")
    await seb.client.post("/v1/topics/counted/records", content=b"two")
    await seb.client.put("/v1/groups/counted/offsets", json={"offsets": {"counted": 1}})
    grants = [{"operation": "admin"}]
    await seb.client.post("/v1/api-keys", json={"name": "second", "grants": grants})
    after = await status(seb)
    more = {name: after["counts"][name] - before["counts"][name] for name in after["counts"]}
    assert more == {
        "topics": 1,
        "groups": 1,
        "members": 0,
        "queues": 0,
        "connections": 0,
        "api_keys": 1,
        "records": 2,
    }
    assert after["journal"]["seq"] > before["journal"]["seq"]
    assert after["snapshots"]["entries_since"] == after["journal"]["seq"]
    assert after["uptime_s"] > before["uptime_s"]


async def test_it_says_who_writes_where(seb):
    found = await status(seb)
    assert found["version"] == __version__
    assert found["journal"]["fencing_mode"] == "A"
    assert found["journal"]["durability"] == "memory"
    assert found["journal"]["bucket_id"] == seb.appliance.journal.bucket_id.hex()
    assert found["bucket"]["description"] == seb.appliance.store.description
    assert 0 <= found["bucket"]["last_answer_age_s"] < 60
    assert found["waiting"]["pending_bytes_max"] == seb.appliance.settings.max_pending_bytes
    assert (found["ready"], found["problems"]) == (True, [])


async def test_it_tells_a_bucket_that_fails(seb):
    health = seb.appliance.journal.health
    health.failing_since_s, health.failure = seb.appliance.clock.monotonic_s() - 60, "no answer"
    try:
        found = await status(seb)
    finally:
        health.failing_since_s, health.failure = None, ""
    assert found["bucket"]["failing_s"] >= 60
    assert found["bucket"]["failure"] == "no answer"
    assert found["ready"] is False
    assert "no answer" in found["problems"][0]


async def test_it_tells_up_to_where_the_newest_snapshot_reaches(seb):
    await seb.client.put("/v1/topics/snapped")
    await seb.appliance.snapshots.publish_last()
    found = await status(seb)
    assert found["snapshots"] == {
        "seq": found["journal"]["seq"], "entries_since": 0, "failure": ""
    }  # fmt: skip


async def test_it_tells_how_far_back_retries_are_remembered(seb):
    before = (await status(seb))["remembered"]
    path = "/v1/topics/kept/records"
    await seb.client.post(path, content=b"x", headers={"Idempotency-Key": "kept"})
    numbered = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    await seb.client.post(path, content=b"x", headers=numbered)
    found = (await status(seb))["remembered"]
    assert found["requests"] - before["requests"] == found["producers"] - before["producers"] == 1
    assert found["places"] - before["places"] == 1
    assert found["places_max"] == limits.REMEMBERED_REQUESTS_MAX
    age = datetime.now(UTC) - datetime.fromisoformat(found["oldest_request"])
    assert timedelta(0) <= age < timedelta(minutes=10)
    text = (await seb.client.get("/metrics")).text
    assert f"seb_remembered_requests {found['requests']}\n" in text
    assert f"seb_remembered_producers {found['producers']}\n" in text
    assert re.search(r"^seb_remembered_requests_oldest_seconds [0-9.]+$", text, re.MULTILINE)


async def test_it_tells_when_last_used_cannot_be_written_down(seb):
    """Nothing that was promised depends on it: the appliance stays ready."""
    assert (await status(seb))["last_used"] == {"failure": ""}
    seb.appliance.last_used.failure = "the disk is full"
    try:
        found = await status(seb)
        assert "seb_last_used_failing 1\n" in (await seb.client.get("/metrics")).text
    finally:
        seb.appliance.last_used.failure = ""
    assert found["last_used"] == {"failure": "the disk is full"}
    assert found["ready"] is True
    assert "seb_last_used_failing 0\n" in (await seb.client.get("/metrics")).text


async def test_it_is_for_admin_keys_only(seb):
    grants = [{"operation": operation} for operation in ("produce", "consume", "manage")]
    made = await seb.client.post("/v1/api-keys", json={"name": "busy", "grants": grants})
    async with seb.client_with(made.json()["secret"]) as client:
        answer = await client.get("/v1/status")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    async with seb.client_with(None) as client:
        assert (await client.get("/v1/status")).status_code == 401
    answer = await seb.client.get("/v1/status?verbose=1")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")
    assert (await seb.client.head("/v1/status")).status_code == 200


async def test_it_tells_which_background_tasks_have_failed(seb):
    found = {task["name"]: task for task in (await status(seb))["background"]}
    assert found.keys() >= {"callbacks", "state-follower", "streams", "key-index", "history"}
    assert {name for name, task in found.items() if task["essential"]} == {"state-follower"}
    assert not any(task["failures"] or task["failing"] for task in found.values())
    (follower,) = (one for one in seb.appliance.supervisor.tasks if one.name == "state-follower")
    follower.note(ZeroDivisionError("a bug of ours"), "")
    try:
        found = await status(seb)
        answer = await seb.client.get("/metrics")
    finally:
        follower.failures, follower.failure = 0, ""
    assert found["ready"] is False
    assert "state-follower fails: ZeroDivisionError: a bug of ours" in found["problems"][0]
    assert 'seb_background_failures_total{task="state-follower"} 1' in answer.text
    assert 'seb_background_failing{task="state-follower"} 1' in answer.text
