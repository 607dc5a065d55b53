"""Results of a record are stored with its acknowledgement, or neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from seb_appliance.client import AsyncWorker
from seb_appliance.client.transacting import Transaction
from seb_appliance.client.working import Delivery
from tests.http.test_queues import end, produced, take
from tests.support.appliance import RunningAppliance, running_appliance


async def stored(seb: RunningAppliance, topic: str) -> list[Any]:
    answer = await seb.client.get(f"/v1/topics/{topic}/records")
    return [one["value"] for one in answer.json()["records"]] if answer.status_code == 200 else []


async def transact(
    seb: RunningAppliance, *taken: dict[str, Any], queue: str = "q", **headers: str
) -> httpx2.Response:
    ack = {"queue": queue, "deliveries": [one["delivery"] for one in taken]}
    produce = {"bills": [{"value": f"bill of {one['value']}"} for one in taken]}
    return await seb.client.post(
        "/v1/transactions", json={"produce": produce, "ack": ack}, headers=headers
    )


async def test_results_and_acknowledgements_are_stored_together(tmp_path: Path) -> None:
    bucket = f"file://{tmp_path / 'bucket'}"
    async with running_appliance(tmp_path / "data", bucket=bucket) as seb:
        await produced(seb, "a", "b", "c")
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        a, b, c = await take(seb)
        answer = await transact(seb, a, b, **{"Idempotency-Key": "once"})
        assert answer.status_code == 201, answer.text
        assert await stored(seb, "bills") == ["bill of a", "bill of b"]
        again = await transact(seb, a, b, **{"Idempotency-Key": "once"})
        assert (again.status_code, again.json()) == (201, answer.json())
        late = await transact(seb, b, c)
        assert (late.status_code, late.json()["code"]) == (409, "lease_ended")
        assert late.json()["results"] == ["settled", "ok"]
        assert len(await stored(seb, "bills")) == 2
        assert await end(seb, "ack", a, b, c) == ["settled", "settled", "ok"]
    async with running_appliance(tmp_path / "data", bucket=bucket) as seb:
        assert await take(seb) == []
        assert len(await stored(seb, "bills")) == 2


async def test_a_lost_lease_stores_nothing(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "data") as seb:
        await produced(seb, "a")
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        (first,) = await take(seb)
        await end(seb, "retry", first, delay_ms=0)
        (second,) = await take(seb, wait_ms=1_000)
        lost = await transact(seb, first)
        assert (lost.status_code, lost.json()["results"]) == (409, ["lease_ended"])
        assert await stored(seb, "bills") == []
        assert (await transact(seb, second)).status_code == 201
        assert (await transact(seb, second, queue="none")).status_code == 404
        empty = await seb.client.post("/v1/transactions", json={"ack": None})
        assert "produce, commit or ack" in empty.json()["detail"]


async def test_only_who_may_work_on_the_queue_acknowledges(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "data") as seb:
        await produced(seb, "a")
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})
        await seb.client.put("/v1/topics/bills", json={})
        (taken,) = await take(seb)
        for operation, status in (("consume", 201), ("work", 409), ("manage", 403)):
            grants = [{"operation": operation, "topics": "t"}, {"operation": "produce"}]
            key = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
            bearer = {"Authorization": f"Bearer {key.json()['secret']}"}
            assert (await transact(seb, taken, **bearer)).status_code == status, operation


async def test_a_worker_that_returns_a_transaction_has_it_stored_with_its_record(
    tmp_path: Path,
) -> None:
    async with running_appliance(tmp_path / "data") as seb:
        await produced(seb, "a", "b")
        await seb.client.put("/v1/queues/q", json={"topics": ["t"]})

        async def bill(delivery: Delivery) -> Transaction:
            results = worker.transaction()
            results.send("bills", b"bill of %b" % (delivery.value or b""), key=delivery.key)
            return results

        worker = AsyncWorker(seb.base_url, seb.admin_key, "q", bill, concurrency=1, follow=False)
        await worker.run()
        assert await stored(seb, "bills") == ["bill of a", "bill of b"]
        assert (await seb.client.get("/v1/queues/q")).json()["topics"][0]["acked"] == 2
