"""`POST /v1/snapshots`"""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance.errors import StoreUncertainError

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_snapshot_reaches_to_the_newest_entry(seb):
    await seb.client.post("/v1/topics/snapped/records", content=b"one")
    made = await seb.client.post("/v1/snapshots")
    assert (made.status_code, made.json()) == (200, {"seq": seb.appliance.journal.position.seq})
    status = (await seb.client.get("/v1/status")).json()
    assert status["snapshots"]["entries_since"] == 0


async def test_nothing_new_makes_no_snapshot(seb):
    await seb.client.post("/v1/topics/snapped/records", content=b"one")
    first = await seb.client.post("/v1/snapshots")
    published = seb.appliance.snapshots.published
    assert (await seb.client.post("/v1/snapshots")).json() == first.json()
    assert seb.appliance.snapshots.published == published


async def test_those_who_ask_at_once_get_one_snapshot(seb):
    await seb.client.post("/v1/topics/snapped/records", content=b"one")
    published = seb.appliance.snapshots.published
    answers = await asyncio.gather(*(seb.client.post("/v1/snapshots") for _ in range(5)))
    assert {answer.json()["seq"] for answer in answers} == {seb.appliance.journal.position.seq}
    assert seb.appliance.snapshots.published == published + 1


async def test_a_bucket_that_does_not_take_it_is_told(seb, monkeypatch):
    await seb.client.post("/v1/topics/snapped/records", content=b"one")

    async def refuse(*arguments, **more):
        raise StoreUncertainError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(seb.appliance.snapshots._snapshots, "publish", refuse)
        refused = await seb.client.post("/v1/snapshots")
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert "no answer" in refused.json()["detail"]
    assert (await seb.client.post("/v1/snapshots")).status_code == 200


async def test_only_an_admin_key_may_ask_for_one(seb):
    grants = [{"operation": "produce", "topics": "**"}]
    made = await seb.client.post("/v1/api-keys", json={"name": "producer", "grants": grants})
    async with seb.client_with(made.json()["secret"]) as producer:
        assert (await producer.post("/v1/snapshots")).status_code == 403
