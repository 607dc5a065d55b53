"""Delayed records over HTTP, and from the client."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seb_appliance.client.producing import AsyncProducer
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from tests.support.appliance import RunningAppliance, running_appliance

RECORDS = "/v1/topics/t/records"


def at(seconds: float) -> str:
    """A time so many seconds from now."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.isoformat()


async def with_queue(seb: RunningAppliance) -> None:
    assert (await seb.client.put("/v1/topics/t", json={})).status_code == 201
    assert (await seb.client.put("/v1/queues/q", json={"topics": ["t"]})).status_code == 201


async def taken(seb: RunningAppliance, wait_ms: int = 0) -> list[str]:
    answer = await seb.client.post("/v1/queues/q/take", json={"wait_ms": wait_ms})
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()["records"]]


async def read(seb: RunningAppliance) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = (await seb.client.get(RECORDS)).json()["records"]
    return records


async def test_readers_get_a_delayed_record_at_once_and_a_queue_when_it_is_due(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        await with_queue(seb)
        body = {"records": [{"value": "later", "delay_ms": 700}, {"value": "now"}]}
        began_s = time.monotonic()
        assert (await seb.client.post(RECORDS, json=body)).status_code == 201
        later, now = await read(seb)
        assert (later["value"], now["value"]) == ("later", "now")
        told_us = int(later["headers"]["seb-deliver-at-us"])
        assert abs(told_us / 1e6 - time.time() - 0.7) < 0.7
        assert "seb-deliver-at-us" not in now["headers"]
        assert await taken(seb) == ["now"]
        assert await taken(seb, wait_ms=5_000) == ["later"]
        assert 0.69 < time.monotonic() - began_s < 1.7


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Seb-Delay": "1h"}, b"x"),
        ({"Seb-Deliver-At": at(3600)}, b"x"),
        ({"Seb-Delay": "1h", "content-type": "application/x-ndjson"}, b'{"value":"x"}\n'),
        (
            {"content-type": "application/json"},
            msgspec.json.encode({"records": [{"value": "x", "deliver_at": at(3600)}]}),
        ),
        (
            {
                "ce-specversion": "1.0",
                "ce-id": "1",
                "ce-source": "s",
                "ce-type": "t",
                "ce-deliverat": at(3600).replace("+", "%2B"),
            },
            b"x",
        ),
    ],
    ids=["duration", "time", "all records of a body", "one record", "CloudEvents"],
)
async def test_each_form_of_a_request_can_delay(
    headers: dict[str, str], body: bytes, tmp_path: Path
):
    async with running_appliance(tmp_path) as seb:
        await with_queue(seb)
        answer = await seb.client.post(RECORDS, content=body, headers=headers)
        assert answer.status_code == 201, answer.text
        (record,) = await read(seb)
        assert abs(int(record["headers"]["seb-deliver-at-us"]) / 1e6 - time.time() - 3600) < 900
        assert await taken(seb) == []


def record_batch(*due_us: int | None) -> bytes:
    headers = [
        msgspec.msgpack.encode({"seb-deliver-at-us": str(us).encode()}) if us else b""
        for us in due_us
    ]
    columns = Columns(
        int64s([1] * len(due_us)),
        BinaryColumn.of([b"%d" % i for i in range(len(due_us))]),
        None,
        BinaryColumn.of(headers),
    )
    return batch.encode(columns, base_offset=0, created_us=1, zstd_level=None)


async def test_records_of_batches_are_delayed_if_the_request_says_so(tmp_path: Path):
    later_us = int((time.time() + 3600) * 1e6)
    sent = {"content-type": "application/vnd.seb.batch"}
    two = record_batch(None, later_us) + record_batch(later_us, 1)
    async with running_appliance(tmp_path) as seb:
        await with_queue(seb)
        told = sent | {"Seb-Deliver-At": "records"}
        assert (await seb.client.post(RECORDS, content=two, headers=told)).status_code == 201
        assert await taken(seb) == ["0", "1"]
        # A copy of the same records, as a mirror makes it, is not delayed.
        assert (await seb.client.post(RECORDS, content=two, headers=sent)).status_code == 201
        assert await taken(seb) == ["0", "1", "0", "1"]


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({"Seb-Delay": "9000h"}, b"x", "must be at most"),
        ({"Seb-Delay": "5"}, b"x", "needs a unit"),
        ({"Seb-Deliver-At": "tomorrow"}, b"x", "is not a time"),
        ({"Seb-Deliver-At": at(1), "Seb-Delay": "1s"}, b"x", "Say once"),
        ({"Seb-Deliver-At": at(367 * 86_400)}, b"x", "366 days"),
        (
            {"Seb-Delay": "1s", "content-type": "application/json"},
            b'{"records":[{"value":"x","delay_ms":1}]}',
            "Say once",
        ),
        (
            {"content-type": "application/json"},
            b'{"records":[{"value":"x","delay_ms":1,"deliver_at":"2026-11-21T10:00:00Z"}]}',
            "both deliver_at and delay_ms",
        ),
        (
            {"Seb-Delay": "1s", "content-type": "application/vnd.seb.batch"},
            record_batch(1),
            "Seb-Deliver-At: records",
        ),
        (
            {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t"}
            | {"ce-deliverat": "soon"},
            b"x",
            "deliverat",
        ),
    ],
)
async def test_a_delay_that_cannot_be_is_refused_and_stores_nothing(
    headers: dict[str, str], body: bytes, said: str, tmp_path: Path
):
    async with running_appliance(tmp_path) as seb:
        await with_queue(seb)
        answer = await seb.client.post(RECORDS, content=body, headers=headers)
        assert (answer.status_code, said in answer.json()["detail"]) == (400, True), answer.text
        assert await read(seb) == []
        assert (await seb.client.post(RECORDS, content=b"good")).status_code == 201


async def test_a_batch_with_a_due_time_that_is_no_number_is_refused(tmp_path: Path):
    packed = msgspec.msgpack.encode({"seb-deliver-at-us": b"soon"})
    columns = Columns(int64s([1]), BinaryColumn.of([b"x"]), None, BinaryColumn.of([packed]))
    body = batch.encode(columns, base_offset=0, created_us=1, zstd_level=None)
    told = {"content-type": "application/vnd.seb.batch", "Seb-Deliver-At": "records"}
    async with running_appliance(tmp_path) as seb:
        await with_queue(seb)
        answer = await seb.client.post(RECORDS, content=body, headers=told)
        assert answer.json()["code"] == "bad_parameter"
        assert "Record 0" in answer.json()["detail"]


async def test_a_transaction_can_delay_what_it_produces(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        await with_queue(seb)
        body = {"produce": {"t": [{"value": "later", "delay_ms": 60_000}, {"value": "now"}]}}
        assert (await seb.client.post("/v1/transactions", json=body)).status_code == 201
        assert await taken(seb) == ["now"]


async def test_a_machine_that_burnt_brings_the_delays_back(tmp_path: Path):
    bucket = f"file://{tmp_path / 'bucket'}"
    async with running_appliance(tmp_path / "one", bucket=bucket) as seb:
        await with_queue(seb)
        body = {"records": [{"value": "later", "delay_ms": 60_000}, {"value": "now"}]}
        assert (await seb.client.post(RECORDS, json=body)).status_code == 201
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "admin.key").write_text(seb.admin_key)
    async with running_appliance(tmp_path / "two", bucket=bucket, take_over=True) as seb:
        assert await taken(seb) == ["now"]


async def test_the_client_delays_some_records_of_a_batch(tmp_path: Path):
    async with running_appliance(tmp_path) as seb:
        await with_queue(seb)
        async with AsyncProducer(seb.base_url, seb.admin_key) as producer:
            await producer.send("t", "a", delay=datetime.timedelta(minutes=5))
            await producer.send("t", "b")
            moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
            await producer.send("t", "c", delay=moment)
            async with producer.transaction() as transaction:
                transaction.send("t", "d", delay=moment)
        found = {record["value"]: record["headers"] for record in await read(seb)}
        assert sorted(name for name in found if "seb-deliver-at-us" in found[name]) == [*"acd"]
        assert await taken(seb) == ["b"]
