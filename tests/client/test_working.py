"""Workers of a queue."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.client import ApplianceError, AsyncWorker, Reject, RetryLater, Worker
from seb_appliance.client.working import Delivery
from tests.support.appliance import RunningAppliance, running_appliance


async def filled(seb: RunningAppliance, *values: str) -> None:
    await seb.client.put("/v1/topics/t", json={})
    settings = {"topics": ["t"], "dead_letter": "dead", "max_deliveries": 3}
    await seb.client.put("/v1/queues/q", json=settings)
    records = [{"value": value, "key": "k", "headers": {"h": "x"}} for value in values]
    if records:
        await seb.client.post("/v1/topics/t/records", json={"records": records})


async def topic_of(seb: RunningAppliance) -> dict[str, Any]:
    view = (await seb.client.get("/v1/queues/q")).json()
    return view["topics"][0] | {"in_flight": view["in_flight"]}


async def test_a_handler_acknowledges_retries_and_rejects(tmp_path: Path):
    seen: list[tuple[bytes | None, int]] = []
    async with running_appliance(tmp_path) as seb:
        await filled(seb, "good", "later", "bad")

        async def handle(delivery: Delivery) -> None:
            seen.append((delivery.value, delivery.attempt))
            assert (delivery.key, delivery.headers) == (b"k", {"h": b"x"})
            if delivery.value == b"bad":
                raise Reject("no use")
            if delivery.value == b"later" and delivery.attempt == 1:
                raise RetryLater(0)
            if delivery.attempt == 2:
                worker.stop()

        worker = AsyncWorker(seb.base_url, seb.admin_key, "q", handle)
        await worker.run()
        assert sorted(seen) == [(b"bad", 1), (b"good", 1), (b"later", 1), (b"later", 2)]
        topic = await topic_of(seb)
        assert (topic["acked"], topic["rejected"], topic["in_flight"]) == (2, 1, 0)
        (dead,) = (await seb.client.get("/v1/topics/dead/records")).json()["records"]
        assert dead["headers"]["seb-dead-reason"] == "no use"


async def test_no_more_handlers_run_at_a_time_than_allowed_and_all_end_before_it_stops(
    tmp_path: Path,
):
    running, most, ended = 0, 0, 0
    async with running_appliance(tmp_path) as seb:
        await filled(seb, *map(str, range(10)))

        async def handle(_: Delivery) -> None:
            nonlocal running, most, ended
            running += 1
            most = max(most, running)
            if most == 3:
                worker.stop()
            await asyncio.sleep(0.01)
            running -= 1
            ended += 1

        worker = AsyncWorker(seb.base_url, seb.admin_key, "q", handle, concurrency=3)
        await worker.run()
        assert (most, running) == (3, 0)
        assert (await topic_of(seb))["acked"] == ended == 3


async def test_a_handler_that_fails_gets_its_record_again(tmp_path: Path):
    seen = 0
    async with running_appliance(tmp_path) as seb:
        await filled(seb, "a")
        body = {"topics": ["t"], "retry": {"min_ms": 0, "max_ms": 0}}
        await seb.client.put("/v1/queues/q", json=body)
        loud = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: loud.append(context))

        async def handle(delivery: Delivery) -> None:
            nonlocal seen
            seen += 1
            if delivery.attempt == 1:
                raise ZeroDivisionError
            worker.stop()

        worker = AsyncWorker(seb.base_url, seb.admin_key, "q", handle)
        await worker.run()
        assert seen == 2
        assert [type(context["exception"]) for context in loud] == [ZeroDivisionError]


async def test_a_worker_in_threads_stops_from_another_thread(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        await filled(seb, "a", "b")
        seen = threading.Semaphore(0)
        worker = Worker(seb.base_url, seb.admin_key, "q", lambda _: seen.release())
        running = asyncio.create_task(asyncio.to_thread(worker.run))
        for _ in range(2):
            await asyncio.to_thread(seen.acquire)
        worker.stop()
        await running
        assert (await topic_of(seb))["acked"] == 2


async def test_a_worker_of_no_queue_is_told(tmp_path: Path):
    async def handle(_: Delivery) -> None: ...

    async with running_appliance(tmp_path) as seb:
        with pytest.raises(ApplianceError, match="queue_not_found"):
            await AsyncWorker(seb.base_url, seb.admin_key, "none", handle).run()
