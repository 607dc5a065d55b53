"""Work queues over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seb_appliance import limits
from tests.support.appliance import RunningAppliance, hold_creates, running_appliance


async def produced(seb: RunningAppliance, *values: str, topic: str = "t") -> None:
    body = {"records": [{"value": value, "key": "k"} for value in values]}
    assert (await seb.client.post(f"/v1/topics/{topic}/records", json=body)).status_code == 201


async def take(seb: RunningAppliance, **asked: Any) -> list[dict[str, Any]]:
    answer = await seb.client.post("/v1/queues/q/take", json=asked)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["records"]
    return found


async def end(seb: RunningAppliance, verb: str, *taken: dict[str, Any], **more: Any) -> list[str]:
    body = {"deliveries": [one["delivery"] for one in taken], **more}
    answer = await seb.client.post(f"/v1/queues/q/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    results: list[str] = answer.json()["results"]
    return results


async def test_others_have_turns_while_patterns_are_compared_with_grants(tmp_path: Path):
    async with running_appliance(tmp_path / "data") as seb:
        grants = [{"operation": o, "topics": "m.**"} for o in ("manage", "consume")]
        made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
        longest_s = 0.0

        async def watch() -> None:
            nonlocal longest_s
            loop = asyncio.get_running_loop()
            while True:
                before_s = loop.time()
                await asyncio.sleep(0)
                longest_s = max(longest_s, loop.time() - before_s)

        async with seb.client_with(made.json()["secret"]) as client:
            await client.get("/v1/queues")
            watching = asyncio.create_task(watch())
            wild = ".".join(["m", *["**"] * 38])
            began_s = asyncio.get_running_loop().time()
            for i in range(3):
                body = {"topics": [f"{wild}.{i}.{j}" for j in range(limits.QUEUE_PATTERNS_MAX)]}
                answer = await client.put("/v1/queues/q", json=body)
                assert answer.status_code in (200, 201), answer.text
            took_s = asyncio.get_running_loop().time() - began_s
            watching.cancel()
        assert longest_s < took_s / 6, "half of a request, if a grant were compared in one step"


async def test_a_queue_hands_records_out_and_keeps_what_was_acknowledged(tmp_path: Path):
    bucket = f"file://{tmp_path / 'bucket'}"
    async with running_appliance(tmp_path / "data", bucket=bucket) as seb:
        await produced(seb, "a", "b", "c")
        settings = {"topics": ["t"], "dead_letter": "dead"}
        assert (await seb.client.put("/v1/queues/q", json=settings)).status_code == 201
        assert (await seb.client.put("/v1/queues/q", json=settings)).status_code == 200
        a, b, c = await take(seb)
        assert [one["value"] for one in (a, b, c)] == ["a", "b", "c"]
        assert {one["attempt"] for one in (a, b, c)} == {1}
        assert (a["topic"], a["offset"], a["key"]) == ("t", 0, "k")
        assert await end(seb, "ack", a) == ["ok"]
        assert await end(seb, "extend", a, b, lease_ms=60_000) == ["settled", "ok"]
        assert await end(seb, "reject", b, reason="no use") == ["ok"]
        assert await end(seb, "retry", c, delay_ms=0) == ["ok"]
        dead = (await seb.client.get("/v1/topics/dead/records")).json()["records"]
        assert [one["value"] for one in dead] == ["b"]
        assert dead[0]["headers"]["seb-dead-reason"] == "no use"
    async with running_appliance(tmp_path / "data", bucket=bucket) as seb:
        (again,) = await take(seb, wait_ms=1_000)
        assert (again["value"], again["attempt"]) == ("c", 2)
        assert await end(seb, "ack", c, again) == ["lease_ended", "ok"]
        view = (await seb.client.get("/v1/queues/q")).json()
        (topic,) = view["topics"]
        assert (topic["waiting"], topic["acked"], topic["rejected"]) == (0, 2, 1)


async def test_a_machine_that_burnt_comes_back_with_every_acknowledgement(tmp_path: Path):
    bucket = f"file://{tmp_path / 'bucket'}"
    async with running_appliance(tmp_path / "one", bucket=bucket) as seb:
        await produced(seb, "a", "b", "c")
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        taken = await take(seb)
        await end(seb, "ack", taken[1])
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "admin.key").write_text(seb.admin_key)
    async with running_appliance(tmp_path / "two", bucket=bucket, take_over=True) as seb:
        assert [one["value"] for one in await take(seb)] == ["a", "c"]


async def test_a_take_waits_for_the_next_record(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        await seb.client.put("/v1/topics/t", json={})
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        waiting = asyncio.create_task(take(seb, wait_ms=20_000))
        while (await seb.client.get("/v1/queues/q")).json()["waiting_takers"] == 0:
            await asyncio.sleep(0)
        await produced(seb, "a")
        assert [one["value"] for one in await waiting] == ["a"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("q/take", {"max": limits.DELIVERIES_PER_REQUEST_MAX + 1}, "bad_json"),
        ("q/ack", {"deliveries": ["x"] * (limits.DELIVERIES_PER_REQUEST_MAX + 1)}, "bad_json"),
        ("q/ack", {"deliveries": []}, "bad_json"),
        (
            "q/reject",
            {"deliveries": ["x"], "reason": "r" * (limits.QUEUE_REASON_CHARACTERS_MAX + 1)},
            "bad_json",
        ),
        ("q/extend", {"deliveries": ["x"]}, "bad_json"),
        ("none/take", {}, "queue_not_found"),
    ],
)
async def test_a_bad_request_is_told_why(tmp_path: Path, path: str, body: Any, code: str):
    async with running_appliance(tmp_path) as seb:
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        answer = await seb.client.post(f"/v1/queues/{path}", json=body)
        assert answer.json()["code"] == code


async def test_bad_settings_are_refused(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        for settings, code in (
            ({"topics": []}, "bad_json"),
            ({"topics": ["a b"]}, "bad_parameter"),
            ({"topics": ["**"], "dead_letter": "dead"}, "bad_request"),
            ({"topics": ["t"], "retry": {"min_ms": 9, "max_ms": 8}}, "bad_request"),
            ({"topics": ["t"], "colour": "red"}, "bad_json"),
        ):
            answer = await seb.client.put("/v1/queues/q", json=settings)
            assert answer.json()["code"] == code, settings
        assert (await seb.client.get("/v1/queues")).json() == {"queues": []}


async def test_a_queue_is_listed_and_deleted(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        await produced(seb, "a")
        for name in ("b", "a"):
            await seb.client.put(f"/v1/queues/{name}", json={"topics": ["t"]})
        listed = (await seb.client.get("/v1/queues")).json()["queues"]
        assert [one["queue"] for one in listed] == ["a", "b"]
        assert listed[0]["settings"]["lease_ms"] == 30_000
        assert (await seb.client.delete("/v1/queues/a")).status_code == 204
        assert (await seb.client.get("/v1/queues/a")).json()["code"] == "queue_not_found"


async def test_a_queue_stays_idle_for_those_who_look_at_it_or_may_not_work_on_it(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        await produced(seb, "a")
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        grants = [{"operation": "work", "topics": "u"}]
        key = (await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})).json()
        async with seb.client_with(key["secret"]) as client:
            assert (await client.post("/v1/queues/q/take", json={})).status_code == 404
            assert (await client.get("/v1/queues")).json()["queues"] == []
        assert len((await seb.client.get("/v1/queues")).json()["queues"]) == 1
        assert (await seb.client.get("/v1/queues/q")).json()["topics"][0]["waiting"] == 1
        queues = seb.appliance.broker.queues
        assert queues.live() == []
        assert len(await take(seb)) == 1
        assert len(queues.live()) == 1


async def test_a_key_that_may_not_read_every_topic_makes_no_queue_of_them(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        grants = [{"operation": one, "topics": "a.*"} for one in ("manage", "consume")]
        key = (await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})).json()
        async with seb.client_with(key["secret"]) as client:
            for pattern, status in (("a.*", 201), ("a.b", 200), ("a.**", 403), ("*.b", 403)):
                answer = await client.put("/v1/queues/q", json={"topics": [pattern]})
                assert answer.status_code == status, pattern
            dead = {"topics": ["a.b"], "dead_letter": "a.dead"}
            assert (await client.put("/v1/queues/q", json=dead)).status_code == 403


@pytest.mark.parametrize(("granted", "more"), [("a.*.**", "a.**"), ("-.**", "**"), ("*.*", "**.*")])
async def test_a_key_that_may_read_most_of_what_a_pattern_matches_makes_no_queue_of_it(
    tmp_path: Path, granted: str, more: str
):
    async with running_appliance(tmp_path) as seb:
        key = await key_for(seb, granted, "manage", "consume")
        async with seb.client_with(key["secret"]) as client:
            for pattern, status in ((more, 403), (granted, 201)):
                answer = await client.put("/v1/queues/q", json={"topics": [pattern]})
                assert answer.status_code == status, pattern


async def test_a_standby_hands_nothing_out(tmp_path: Path):
    bucket = f"file://{tmp_path / 'bucket'}"
    async with running_appliance(tmp_path / "one", bucket=bucket) as seb:
        await produced(seb, "a")
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "admin.key").write_text(seb.admin_key)
        async with running_appliance(tmp_path / "two", bucket=bucket, standby=True) as standby:
            answer = await standby.client.post("/v1/queues/q/take", json={})
            assert answer.json()["code"] == "standby"
            view = (await standby.client.get("/v1/queues/q")).json()
            assert view["topics"][0]["waiting"] == 1
        assert [one["value"] for one in await take(seb)] == ["a"]


async def key_for(seb: RunningAppliance, topics: str, *operations: str) -> dict[str, Any]:
    grants = [{"operation": one, "topics": topics} for one in operations]
    made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
    found: dict[str, Any] = made.json()
    return found


@pytest.mark.parametrize("change", ["a topic joins", "the key is revoked"])
async def test_a_take_that_waits_looks_at_its_grants_again(tmp_path: Path, change: str):
    """It was let in by the topics of then."""
    async with running_appliance(tmp_path / "data") as seb:
        joins = change == "a topic joins"
        await seb.client.put("/v1/topics/own.a")
        await seb.client.put("/v1/queues/q", json={"topics": ["own.*"]})
        key = await key_for(seb, "own.a" if joins else "own.*", "work")
        async with seb.client_with(key["secret"]) as worker:
            asked = worker.post("/v1/queues/q/take", json={"wait_ms": 60_000})
            taking = asyncio.create_task(asked)
            while not (await seb.client.get("/v1/queues/q")).json()["waiting_takers"]:
                assert not taking.done()
            if not joins:
                await seb.client.delete(f"/v1/api-keys/{key['api_key_id']}")
            await produced(seb, "secret", topic="own.b")
            answer = await taking
        assert answer.status_code == (404 if joins else 401)
        assert "secret" not in answer.text
        (again,) = await take(seb, wait_ms=30_000)
        assert (again["value"], again["attempt"]) == ("secret", 1)


async def test_a_queue_without_a_topic_yet_is_for_those_who_may_use_what_it_will_read(
    tmp_path: Path,
):
    operations = ("manage", "consume", "work", "produce")
    async with running_appliance(tmp_path / "data") as seb:
        own = await key_for(seb, "own.**", *operations)
        others = await key_for(seb, "their.**", *operations)
        async with seb.client_with(own["secret"]) as a, seb.client_with(others["secret"]) as b:
            wanted = {"topics": ["own.new", "own.*.eu"]}
            assert (await a.put("/v1/queues/q", json=wanted)).status_code == 201
            theirs = {"topics": ["their.new"]}
            url = {"url": "https://example.com/", **theirs}
            for answer in (
                await b.get("/v1/queues/q"),
                await b.put("/v1/queues/q", json=theirs),
                await b.delete("/v1/queues/q"),
                await b.post("/v1/queues/q/take", json={}),
                await b.put("/v1/subscriptions/q", json=url),
            ):
                assert (answer.status_code, answer.json()["code"]) == (404, "queue_not_found")
            assert (await b.get("/v1/queues")).json()["queues"] == []
            assert (await a.get("/v1/queues/q")).json()["settings"]["topics"] == wanted["topics"]
            assert (await a.post("/v1/queues/q/take", json={})).json() == {"records": []}


async def test_a_queue_that_others_made_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with running_appliance(tmp_path / "data") as seb:
        own = await key_for(seb, "own.**", "manage", "consume")
        others = await key_for(seb, "their.**", "manage", "consume")
        put = seb.appliance.broker.queues.put

        async def noted(*args: Any) -> bool:
            go_on.set()
            return await put(*args)

        async with seb.client_with(own["secret"]) as a, seb.client_with(others["secret"]) as b:
            arrived, go_on = hold_creates(seb, monkeypatch)
            ours = asyncio.create_task(a.put("/v1/queues/q", json={"topics": ["own.a"]}))
            await arrived.wait()  # it is not stored yet
            monkeypatch.setattr(seb.appliance.broker.queues, "put", noted)
            theirs = await b.put("/v1/queues/q", json={"topics": ["their.a"]})
            assert ((await ours).status_code, theirs.status_code) == (201, 404)
            settings = (await a.get("/v1/queues/q")).json()["settings"]
            assert settings["topics"] == ["own.a"]


async def test_a_queue_that_an_operator_makes_twice_at_once_is_made_once(tmp_path: Path):
    """As when a client repeats the request because an answer does not come."""
    async with running_appliance(tmp_path / "data") as seb:
        settings = {"topics": ["t"]}
        put = (seb.client.put("/v1/queues/q", json=settings) for _ in range(2))
        assert sorted(answer.status_code for answer in await asyncio.gather(*put)) == [200, 201]
