"""What operators see of Kafka clients: members of groups, and producers that are stalled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka import stalling
from tests.support.kafka_client import serving, to
from tests.support.kafka_member import Client, connected
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka"), linger="100ms") as both:
        for topic in ("orders", "payments"):
            assert (await both[0].client.put(f"/v1/topics/{topic}")).is_success
        yield both


def client(running, client_id: str):
    return connected(running[1].port, running[0].admin_key, client_id)


async def shown(running, path: str) -> Any:
    answer = await running[0].client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_group_shows_its_members_and_what_is_assigned_to_them(running):
    async with client(running, "billing") as member:
        assigned = {"payments": [0], "orders": [2, 0]}
        member_id = await member.join("shown", ["payments", "orders"], assigned)
        found = (await shown(running, "/v1/groups/shown"))["membership"]
        assert found.pop("members") == [
            {
                "member_id": member_id,
                "instance_id": None,
                "client": "billing",
                "address": "127.0.0.1",
                "subscribed": ["orders", "payments"],
                "assigned": ["orders", "orders.kafka-2", "payments"],
            }
        ]
        stable = {"protocol": "Kafka", "state": "Stable", "generation": 1, "assignor": "range"}
        assert found == stable


async def test_a_group_that_has_members_and_no_offset_is_listed_until_they_leave(running):
    async with client(running, "c") as member:
        static_id = await member.join("listed", ["orders"], {"orders": [0]}, instance_id="one")
        assert await running[0].client.put("/v1/groups/a/offsets", json={"offsets": {"orders": 0}})
        groups = {g["group"]: g for g in (await shown(running, "/v1/groups"))["groups"]}
        assert (groups["a"]["member_count"], groups["listed"]["member_count"]) == (0, 1)
        assert groups["listed"]["topic_count"] == 0
        page = await shown(running, "/v1/groups?limit=1&after=a")
        assert ([g["group"] for g in page["groups"]], page["next_after"]) == (["listed"], "listed")
        leaving = [{"member_id": static_id, "group_instance_id": "one"}]
        await member.call("LeaveGroup", 3, group_id="listed", members=leaving)
    assert (await running[0].client.get("/v1/groups/listed")).status_code == 404
    assert "listed" not in {g["group"] for g in (await shown(running, "/v1/groups"))["groups"]}


async def test_topics_that_an_api_key_may_not_see_are_left_out_of_a_membership(running):
    grant = {"operation": "consume", "topics": "orders"}
    made_key = await running[0].client.post("/v1/api-keys", json={"name": "k", "grants": [grant]})
    async with client(running, "c") as member:
        await member.join("partly", ["orders", "payments"], {"orders": [0], "payments": [0]})
        async with running[0].client_with(made_key.json()["secret"]) as other:
            answer = await other.get("/v1/groups/partly")
    (seen,) = answer.json()["membership"]["members"]
    assert seen["subscribed"] == ["orders"]
    assert seen["assigned"] == ["orders"]


@pytest.mark.parametrize("assignment", [b"", b"\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\xff" * 40])
async def test_an_assignment_of_another_kind_is_null(running, assignment):
    async with client(running, "c") as member:
        group = f"odd-{assignment.hex()}"[:60]
        await member.join(group, ["orders"], {}, assignment=assignment)
        (seen,) = (await shown(running, f"/v1/groups/{group}"))["membership"]["members"]
        assert (seen["subscribed"], seen["assigned"]) == (["orders"], None)


async def test_an_assignment_has_so_many_topics_or_is_not_shown(running):
    most = kafka_limits.ASSIGNED_SHOWN_MAX // 2  # each has one partition
    for count in (most, most + 1):
        async with client(running, "c") as member:
            await member.join(f"many-{count}", ["orders"], {f"t{n}": [0] for n in range(count)})
            (seen,) = (await shown(running, f"/v1/groups/many-{count}"))["membership"]["members"]
            assert (seen["assigned"] is None) is (count > most)


async def produce_in_turns(producer: Client, in_flight: int) -> None:
    """As a client that may have so many requests unanswered, and has more to send."""
    batch = made(Sent(b"v"))
    while True:
        for _ in range(in_flight):
            producer.send("Produce", 8, **to("orders", batch))
        for _ in range(in_flight):
            await producer.answer()


async def test_a_producer_that_waits_for_the_window_at_its_limit_is_named(running, monkeypatch):
    monkeypatch.setattr(stalling, "INTERVAL_S", 1.0)
    async with client(running, "slow") as producer, asyncio.timeout(60):
        producing = asyncio.create_task(produce_in_turns(producer, 3))
        while (await kafka_port(running))["stalled"] == 0:
            await asyncio.sleep(0)
        (found,) = (await shown(running, "/v1/connections?filter=slow"))["connections"]
        stalled = found["stalled"]
        assert (stalled["topic"], stalled["in_flight"]) == ("orders", 3)
        assert 10 < stalled["window_ms"] < 1_000
        samples = {one.name: one.value for one in running[1].samples()}
        assert samples["seb_kafka_stalled_producers"] == 1
        producing.cancel()
    while (await kafka_port(running))["stalled"]:
        await asyncio.sleep(0)


async def kafka_port(running) -> Any:
    ports = (await shown(running, "/v1/status"))["ports"]
    return next(port for port in ports if port["protocol"] == "Kafka")
