"""A reader is told when its topic was deleted and another one was made under its name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seb_appliance.client import AsyncConsumer, TopicReplacedError
from tests.client.test_consuming import fill, passed_on, texts
from tests.support.appliance import running_appliance
from tests.support.unreliable import between


@pytest.mark.parametrize("options", [{}, {"view": "latest"}, {"group": "g"}, {"offset": "-1"}])
async def test_a_reader_whose_topic_was_made_anew_is_told(tmp_path: Path, options: dict) -> None:
    """It would go on in the middle of the new one, without what comes before."""
    async with asyncio.timeout(20), running_appliance(tmp_path) as running:

        async def make(values: range) -> None:
            await running.client.put("/v1/topics/t", json={"key_index": "latest"})
            await fill(running, "t", values, key="k")

        await make(range(3))
        hold = asyncio.Event()

        async def forward(request: bytes) -> bytes:
            if b"offset=3" in request.split(b" ")[1]:
                await hold.wait()
            return await passed_on(running, request)

        async with (
            between(forward) as way,
            AsyncConsumer(way.url, running.admin_key, "t", **options) as reading,
        ):
            await reading.next_batch()
            await running.client.delete("/v1/topics/t")
            await make(range(10, 20))
            hold.set()
            with pytest.raises(TopicReplacedError) as failure:
                await read_on(reading)
        assert failure.value.code == "topic_replaced"
        assert failure.value.problem["topic"] == "t"


async def read_on(reading: AsyncConsumer) -> None:
    async for _ in reading.batches():
        pass


async def test_a_topic_made_anew_under_a_pattern_is_read_from_its_beginning(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "a.b", range(3))
        hold = asyncio.Event()

        async def forward(request: bytes) -> bytes:
            if b"offset=3" in request.split(b" ")[1]:
                await hold.wait()
            return await passed_on(running, request)

        async with (
            between(forward) as way,
            AsyncConsumer(way.url, running.admin_key, "a.*", refresh_s=0.01) as reading,
        ):
            assert await texts(reading, 3) == ["0", "1", "2"]
            await running.client.delete("/v1/topics/a.b")
            await fill(running, "a.b", range(10, 20))
            hold.set()
            assert await texts(reading, 10) == [str(i) for i in range(10, 20)]
