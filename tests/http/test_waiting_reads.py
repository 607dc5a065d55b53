"""Reads that wait at a log's end, in the fast lane: no task and no scope, and the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.http.test_fastlane import consume, end_of, produce, turns
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.lanes import Lane

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def waiting(seb: RunningAppliance, topic: str, wait: str = "20s") -> Lane:
    """A connection whose read waits at the end of the topic, which is made if it is not there."""
    await seb.client.put(f"/v1/topics/{topic}", json={})
    end, before = await end_of(seb, topic), seb.appliance.broker.waiting_readers
    lane = Lane(seb)
    lane.protocol.data_received(consume(seb.admin_key, f"?offset={end}&wait={wait}", topic))
    assert seb.appliance.broker.waiting_readers == before + 1
    return lane


async def test_a_waiting_read_is_answered_with_the_next_record(seb: RunningAppliance) -> None:
    answered = seb.server.plain_answers.answered
    lane = await waiting(seb, "awaited")
    await seb.client.post("/v1/topics/awaited/records", content=b"news")
    said = await lane.answers(b"")
    assert said.startswith(b"HTTP/1.1 200")
    assert b"news" in said
    assert seb.server.plain_answers.answered == answered + 2  # the append, too
    assert seb.appliance.broker.waiting_readers == 0
    lane.leave()


async def test_a_wait_without_a_record_ends_with_an_empty_answer(seb: RunningAppliance) -> None:
    lane = await waiting(seb, "quiet", "20ms")
    said = await lane.answers(b"")
    assert said.startswith(b"HTTP/1.1 200")
    assert b"seb-next-offset: 0\r\n" in said
    assert b"content-length: 0\r\n" in said
    assert seb.appliance.broker.waiting_readers == 0
    lane.leave()


async def test_the_next_read_of_the_connection_is_answered_as_well(seb: RunningAppliance) -> None:
    lane = await waiting(seb, "again", "10ms")
    await lane.answers(b"")
    await seb.client.post("/v1/topics/again/records", content=b"more")
    said = await lane.answers(consume(seb.admin_key, "?offset=0&wait=20s", "again"), count=2)
    assert b"more" in said
    lane.leave()


async def test_another_change_of_the_topic_does_not_end_the_wait(seb: RunningAppliance) -> None:
    lane = await waiting(seb, "changed")
    await seb.client.patch("/v1/topics/changed", json={"linger": "20ms"})
    await turns()
    assert lane.said == b""
    assert seb.appliance.broker.waiting_readers == 1
    await seb.client.post("/v1/topics/changed/records", content=b"news")
    assert b"news" in await lane.answers(b"")
    lane.leave()


async def test_a_topic_deleted_meanwhile_is_not_found(seb: RunningAppliance) -> None:
    lane = await waiting(seb, "doomed")
    await seb.client.delete("/v1/topics/doomed")
    said = await lane.answers(b"")
    assert said.startswith(b"HTTP/1.1 404")
    assert b'"topic_not_found"' in said
    lane.leave()


async def test_a_reader_that_leaves_frees_its_place(seb: RunningAppliance) -> None:
    lane = await waiting(seb, "left")
    lane.leave()
    assert seb.appliance.broker.waiting_readers == 0
    await seb.client.post("/v1/topics/left/records", content=b"news")
    await turns()
    assert lane.said == b""


async def test_a_reader_that_leaves_when_it_has_been_woken_is_not_answered(
    seb: RunningAppliance,
) -> None:
    lane = await waiting(seb, "woken")
    broker: Any = seb.appliance.broker
    broker._waiting.wake([broker._catalog.topic("woken")])
    lane.leave()
    await turns()
    assert (lane.said, broker.waiting_readers) == (b"", 0)


async def test_what_arrives_behind_a_waiting_read_is_answered_after_it(
    seb: RunningAppliance,
) -> None:
    lane = await waiting(seb, "behind")
    lane.protocol.data_received(produce(seb.admin_key, b"own", "behind"))
    assert lane.paused
    await turns()
    assert await end_of(seb, "behind") == 0
    await seb.client.post("/v1/topics/behind/records", content=b"news")
    said = await lane.answers(b"", count=2)
    assert said.index(b"HTTP/1.1 200") < said.index(b"news") < said.index(b"HTTP/1.1 201")
    assert not lane.paused
    lane.leave()


async def test_bytes_that_are_not_at_hand_come_by_the_application(
    seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = await waiting(seb, "away")
    lane.protocol.data_received(consume(seb.admin_key, "?offset=0", "away"))
    broker, once = seb.appliance.broker, [None]
    at_once = broker.read_nowait
    monkeypatch.setattr(
        broker, "read_nowait", lambda *a, **more: once.pop() if once else at_once(*a, **more)
    )
    await seb.client.post("/v1/topics/away/records", content=b"news")
    said = await lane.answers(b"", count=2)
    assert (said.count(b"HTTP/1.1 200"), said.count(b"news")) == (2, 2)
    assert not lane.paused
    lane.leave()


async def test_a_stop_answers_those_who_wait_and_hangs_up(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as seb:
        lane = await waiting(seb, "t")
        lane.protocol.shutdown()
        assert not lane.closed
        seb.appliance.broker.stop_accepting()
        said = await lane.answers(b"")
        assert said.startswith(b"HTTP/1.1 200")
        assert b"connection: close\r\n" in said
        assert lane.closed
        lane.leave()
