"""Look-ups by record key: the newest record of one, which there are, the history of one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seb_appliance.client import (
    ApplianceError,
    AsyncConsumer,
    AsyncProducer,
    BadRecordError,
    Consumer,
    UnreadableAnswerError,
)
from tests.client.test_consuming import consumer, fill
from tests.support.appliance import running_appliance
from tests.support.unreliable import answer, between, unreliable

STRANGE = b"a\xff\x00" + b"k" * 60_000  # no text, and too long for a URL


async def test_the_newest_record_of_a_key_and_all_its_records(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await running.client.put("/v1/topics/t", json={"key_index": "history"})
        async with AsyncProducer(running.base_url, running.admin_key) as producer:
            for i in range(1_500):
                await producer.send("t", i, key=STRANGE, headers={"h": b"\xfe"})
            await producer.send("t", None, key="gone")
        async with consumer(running, "elsewhere") as reading:
            found = await reading.latest("t", STRANGE, fresh=True)
            assert (found.offset, found.text(), found.key) == (1_499, "1499", STRANGE)
            assert (found.topic, found.headers) == ("t", {"h": b"\xfe"})
            assert await reading.latest("t", "never") is None
            assert await reading.latest("t", "gone") is None
            (tombstone,) = [record async for record in reading.history("t", "gone")]
            assert (tombstone.offset, tombstone.value) == (1_500, None)
            history = [record.offset async for record in reading.history("t", STRANGE)]
            assert history == list(range(1_499, -1, -1))
            some = [record.offset async for record in reading.history("t", STRANGE, before=3)]
            assert some == [2, 1, 0]


async def test_keys_are_listed_by_prefix_and_range_over_all_pages(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await running.client.put("/v1/topics/t", json={"key_index": "latest"})
        names = [f"a{i:05}".encode() for i in range(2_500)]
        others = [b"", b"a\xff", b"a\xff\xff", "ä".encode()]
        async with AsyncProducer(running.base_url, running.admin_key) as producer:
            for i, name in enumerate([*names, *others]):
                await producer.send("t", i, key=name)
        async with consumer(running, "t") as reading:
            listed = [row async for row in reading.keys("t", fresh=True)]
            assert [row.key for row in listed] == sorted([*names, *others])
            newest = await reading.latest("t", "a00007")
            assert (listed[8].offset, listed[8].timestamp_us) == (7, newest.timestamp_us)
            keys = [row.key async for row in reading.keys("t", prefix=b"a0", after="a02497")]
            assert keys == names[2_498:]
            assert [row.key async for row in reading.keys("t", prefix=b"a\xff")] == others[1:3]
        assert await asyncio.to_thread(in_a_thread, running.base_url, running.admin_key) == names


def in_a_thread(url: str, key: str) -> list[bytes]:
    with Consumer(url, key, "t") as reading:
        assert reading.latest("t", "a00007").text() == "7"
        assert reading.latest("t", "never") is None
        reading.keys("t")  # nothing is asked for
        return [row.key for row in reading.keys("t", prefix="a0")]


async def test_what_cannot_be_answered_is_told(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, consumer(running, "t") as reading:
        await fill(running, "t", range(1), key="k")
        with pytest.raises(ApplianceError, match="key_index_off"):
            await reading.latest("t", "k")
        with pytest.raises(ApplianceError, match="topic_not_found"):
            await anext(reading.keys("missing"))
        with pytest.raises(BadRecordError, match="key"):
            await reading.latest("t", 7)
        with pytest.raises(BadRecordError, match="prefix"):
            await anext(reading.keys("t", prefix=None))


async def test_a_look_up_is_asked_again_when_it_gets_lost(tmp_path: Path) -> None:
    fates = ["lose_request", "lose_answer"]
    async with (
        running_appliance(tmp_path) as running,
        unreliable(running.port, lambda: fates.pop() if fates else "pass", b"POST") as way,
    ):
        await running.client.put("/v1/topics/t", json={"key_index": "latest"})
        await fill(running, "t", range(3), key="k")
        async with AsyncConsumer(way.url, running.admin_key, "t") as reading:
            assert (await reading.latest("t", "k", fresh=True)).text() == "2"
    assert not fates


async def test_an_answer_of_another_version_is_not_taken_for_one() -> None:
    async def strange(_: bytes) -> bytes:
        return answer(200, b'{"record":7}', "Seb-Version: 99.0")

    async with between(strange) as way, AsyncConsumer(way.url, "seb_x", "t") as reading:
        with pytest.raises(UnreadableAnswerError):
            await reading.latest("t", "k")
