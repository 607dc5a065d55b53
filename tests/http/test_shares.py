"""What all API keys use together: one key that takes all it can get stops nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from seb_appliance import limits
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.documented import check_documented

SMALL = {
    "TOPICS_MAX": 40,
    "GROUPS_MAX": 10,
    "COMMITTED_OFFSETS_BYTES_MAX": 64 * limits.KIB,
    "REMEMBERED_REQUESTS_MAX": 100,
    "PRODUCERS_MAX": 20,
    "TICKETS_MAX": 8,
    "FOLLOWERS_MAX": 8,
    "KEY_VIEWS_MAX": 8,
    "WAITING_READERS_MAX": 8,
    "AUDIT_KEPT": 30,
}
OPERATIONS = ("produce", "consume", "manage")


@pytest_asyncio.fixture
async def seb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningAppliance]:
    for name, value in SMALL.items():
        monkeypatch.setattr(limits, name, value)
    async with running_appliance(tmp_path) as running:
        running.client.event_hooks = {"response": [documented]}
        yield running


@pytest_asyncio.fixture
async def greedy(seb: RunningAppliance) -> AsyncIterator[httpx2.AsyncClient]:
    async with seb.client_with(await token(seb, "greedy")) as client:
        client.event_hooks = {"response": [documented]}
        yield client


@pytest_asyncio.fixture
async def other(seb: RunningAppliance) -> AsyncIterator[httpx2.AsyncClient]:
    async with seb.client_with(await token(seb, "other")) as client:
        assert (await client.put("/v1/topics/other")).status_code == 201
        assert (await produced(client, "other")).status_code == 201
        yield client


async def documented(response: httpx2.Response) -> None:
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        await check_documented(response)


async def token(seb: RunningAppliance, name: str) -> str:
    grants = [{"operation": operation} for operation in OPERATIONS]
    made = await seb.client.post("/v1/api-keys", json={"name": name, "grants": grants})
    assert made.status_code == 201, made.text
    key: str = made.json()["secret"]
    return key


async def produced(client: httpx2.AsyncClient, topic: str, **headers: str) -> httpx2.Response:
    return await client.post(f"/v1/topics/{topic}/records", content=b"x", headers=headers)


async def committed(
    client: httpx2.AsyncClient, group: str, metadata: str = "", offset: int = 0
) -> httpx2.Response:
    asked = {"offsets": {"other": offset}, "metadata": {"other": metadata}}
    return await client.put(f"/v1/groups/{group}/offsets", json=asked)


def refused(answer: httpx2.Response) -> bool:
    """The greedy key met its share."""
    if answer.is_success:
        return False
    assert (answer.status_code, answer.json()["code"]) == (429, "share_exceeded"), answer.text
    assert answer.json()["side_effects"] == "none"
    return True


async def test_a_retry_is_stored_once_though_another_key_repeats_more_than_can_be_remembered(
    greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    first = await produced(other, "other", **{"idempotency-key": "mine"})
    for number in range(150):
        await produced(greedy, "other", **{"idempotency-key": f"theirs-{number}"})
    again = await produced(other, "other", **{"idempotency-key": "mine"})
    assert again.json()["offset"] == first.json()["offset"]
    newest = await produced(greedy, "other", **{"idempotency-key": "theirs-149"})
    assert newest.json()["offset"] == 151


async def test_a_producer_stays_known_though_another_topic_gets_more_than_can_be_known(
    greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    def numbered(producer: str, seq: int) -> dict[str, str]:
        return {"producer-id": producer, "producer-epoch": "0", "producer-seq": str(seq)}

    await produced(other, "other", **numbered("mine", 0))
    for number in range(40):
        await produced(greedy, "greedy", **numbered(f"theirs-{number}", 0))
    assert (await produced(other, "other", **numbered("mine", 1))).status_code == 201


async def test_a_new_group_commits_though_another_key_made_all_the_groups_it_could(
    seb: RunningAppliance, greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    answers = [await committed(greedy, f"greedy-{number}") for number in range(12)]
    assert [refused(answer) for answer in answers] == [False] * 5 + [True] * 7
    assert (await committed(other, "other")).status_code == 200
    assert not refused(await committed(greedy, "greedy-1", offset=1))
    for number in range(4):  # operators have what is left
        assert (await committed(seb.client, f"operator-{number}")).status_code == 200


async def test_a_new_group_commits_though_another_key_fills_the_committed_offsets(
    greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    await committed(greedy, "greedy")
    metadata = "m" * limits.COMMIT_METADATA_CHARACTERS_MAX
    topics = [f"greedy.{number}" for number in range(15)]
    for topic in topics:
        await produced(greedy, topic)
    answers = [
        await greedy.put(
            "/v1/groups/greedy/offsets",
            json={"offsets": {topic: 0}, "metadata": {topic: metadata}},
        )
        for topic in topics
    ]
    assert [refused(answer) for answer in answers] == [False] * 7 + [True] * 8
    assert (await committed(other, "other", metadata)).status_code == 200


async def test_a_lease_is_taken_though_another_key_took_all_it_could(
    greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    asked = {"holder": "me", "ttl_ms": 60_000}
    answers = [await greedy.post(f"/v1/groups/greedy-{n}/lease", json=asked) for n in range(8)]
    assert [refused(answer) for answer in answers] == [False] * 5 + [True] * 3
    assert (await other.post("/v1/groups/other/lease", json=asked)).status_code == 200


async def test_a_topic_is_made_though_another_key_made_all_it_could(
    seb: RunningAppliance, greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    answers = [await greedy.put(f"/v1/topics/greedy.{number}") for number in range(25)]
    assert [refused(answer) for answer in answers] == [False] * 19 + [True] * 6  # 1 is the other's
    assert refused(await produced(greedy, "made.by.producing"))
    assert (await other.put("/v1/topics/other.more")).status_code == 201
    assert (await produced(other, "other.by.producing")).status_code == 201
    assert not refused(await greedy.delete("/v1/topics/greedy.0"))
    assert refused(await greedy.put("/v1/topics/greedy.again"))
    assert (await seb.client.put("/v1/topics/operators")).status_code == 201


async def test_shares_are_the_same_after_a_start_from_the_bucket_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 10)
    monkeypatch.setattr(limits, "GROUPS_MAX", 10)
    bucket = f"file:{tmp_path / 'bucket'}"
    async with running_appliance(tmp_path / "one", bucket=bucket) as seb:
        secret = await token(seb, "greedy")
        async with seb.client_with(secret) as greedy:
            await greedy.put("/v1/topics/other")
            for number in range(7):
                await greedy.put(f"/v1/topics/greedy.{number}")
                await committed(greedy, f"greedy-{number}")
    (tmp_path / "two").mkdir()
    shutil.copy(tmp_path / "one" / "admin.key", tmp_path / "two")
    async with (
        running_appliance(tmp_path / "two", bucket=bucket, take_over=True) as seb,
        seb.client_with(secret) as greedy,
    ):
        assert refused(await greedy.put("/v1/topics/greedy.more"))
        assert refused(await committed(greedy, "greedy-more"))
        found = (await seb.client.get("/v1/status")).json()["shares"]
        held = {share["name"]: (share["largest"], share["largest_held"]) for share in found}
        api_key_id = secret.split("_")[1]
        assert (held["topics"], held["groups"]) == ((api_key_id, 5), (api_key_id, 5))


async def test_a_ticket_is_given_though_another_key_took_all_it_could(
    greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    answers = [await greedy.post("/v1/tickets", json={"topics": "**"}) for _ in range(6)]
    assert [refused(answer) for answer in answers] == [False] * 4 + [True] * 2
    assert (await other.post("/v1/tickets", json={"topics": "**"})).status_code == 201


async def test_a_topic_is_followed_though_another_key_opened_all_streams_it_could(
    greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(
                greedy.stream("GET", "/v1/topics/other/records?format=sse")
            )
        assert refused(await greedy.get("/v1/topics/other/records?format=sse"))
        assert refused(await greedy.get("/v1/records?topics=**&format=json"))
        async with other.stream("GET", "/v1/topics/other/records?format=sse") as answer:
            assert answer.status_code == 200


async def test_a_reader_waits_though_another_key_waits_with_all_it_could(
    seb: RunningAppliance, greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    path = "/v1/topics/other/records?offset=latest&wait=60s"
    waiting = [asyncio.create_task(greedy.get(path)) for _ in range(6)]
    done, waiting_on = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 2:
        more, waiting_on = await asyncio.wait(waiting_on, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert all(refused(task.result()) for task in done)
    mine = asyncio.create_task(other.get(path))
    while seb.appliance.broker.waiting_readers < 5:
        await asyncio.sleep(0)
    await produced(other, "other")
    assert len((await mine).json()["records"]) == 1
    assert [len((await task).json()["records"]) for task in waiting_on] == [1] * 4


async def test_a_view_is_begun_though_another_key_pages_through_all_it_could(
    greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    answers = []
    for number in range(6):
        topic = f"keyed.{number}"
        await greedy.put(f"/v1/topics/{topic}", json={"key_index": "latest"})
        records = [{"key": key, "value": 1} for key in "ab"]
        await greedy.post(f"/v1/topics/{topic}/records", json={"records": records})
        path = f"/v1/topics/{topic}/records?view=latest&max_records=1&fresh=true"
        answers.append(await greedy.get(path))
    assert [refused(answer) for answer in answers] == [False] * 4 + [True] * 2
    assert (await other.get(path)).status_code == 200


async def test_the_audit_keeps_what_others_did_though_one_key_changes_things_all_the_time(
    seb: RunningAppliance, greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    for number in range(40):
        await greedy.patch("/v1/topics/other", json={"linger_ms": number + 1})
    found = (await seb.client.get("/v1/audit?limit=1000")).json()["audit"]
    assert len(found) <= 30
    assert [row["action"] for row in found].count("api_key_created") == 3  # the first admin's too
    assert "topic_created" in {row["action"] for row in found}
    assert found[0]["number"] == max(row["number"] for row in found)


async def test_what_is_shared_is_shown_in_the_status_and_as_metrics(
    seb: RunningAppliance, greedy: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    for _ in range(5):
        await greedy.post("/v1/tickets", json={"topics": "**"})
    await produced(greedy, "other", **{"idempotency-key": "k"})
    await produced(
        greedy, "other", **{"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
    )
    shares = (await seb.client.get("/v1/status")).json()["shares"]
    shown = {share.pop("name"): share for share in shares}
    keys = (await seb.client.get("/v1/api-keys")).json()["api_keys"]
    api_key_id = next(key["api_key_id"] for key in keys if key["name"] == "greedy")
    assert shown["tickets"] == {
        "limit": 8, "used": 4, "largest": api_key_id, "largest_held": 4, "refusals": 1,
        "forgets": False,
    }  # fmt: skip
    assert shown["requests"]["forgets"]
    assert (shown["requests"]["used"], shown["requests"]["largest"]) == (1, api_key_id)
    topic_id = (await seb.client.get("/v1/topics/other")).json()["topic_id"]
    assert shown["producers"]["largest"] == f"topic {topic_id}"
    metrics = (await seb.client.get("/metrics")).text
    assert 'seb_share_used{share="tickets"} 4\n' in metrics
    assert 'seb_share_limit{share="tickets"} 8\n' in metrics
    assert 'seb_share_refusals_total{share="tickets"} 1\n' in metrics
    assert api_key_id not in metrics
