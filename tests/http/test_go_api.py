"""The Go broker's API, asked as its clients ask."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.go_client import ACCEPT, add, body_of, content_type, get, parts_of, records_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDS = [b"first-record-data", b"", "wørld".encode(), b"\r\n--", bytes(range(256))]


async def key_of(seb: RunningAppliance, *operations: str) -> str:
    grants = [{"operation": operation, "topics": "**"} for operation in operations]
    made = await seb.client.post("/v1/api-keys", json={"name": "go", "grants": grants})
    secret: str = made.json()["secret"]
    return secret


async def test_records_come_out_as_they_went_in_under_their_offsets(seb):
    assert await add(seb.client, "go.in-out", RECORDS) == [0, 1, 2, 3, 4]
    assert await add(seb.client, "go.in-out", [b"more"]) == [5]
    assert await get(seb.client, "go.in-out", 0) == [*RECORDS, b"more"]
    assert await get(seb.client, "go.in-out", 4, max_records=1) == [RECORDS[4]]
    for offset, record in enumerate(RECORDS):
        params = {"topic-name": "go.in-out", "offset": offset}
        answer = await seb.client.get("/record", params=params)
        assert (answer.status_code, answer.content) == (200, record)


async def test_both_apis_see_the_same_records(seb):
    await add(seb.client, "go.both", [b"from go"])
    await seb.client.post("/v1/topics/go.both/records", content=b"from ours")
    assert await get(seb.client, "go.both", 0) == [b"from go", b"from ours"]
    listed = (await seb.client.get("/v1/topics/go.both/records")).json()["records"]
    assert [record["value"] for record in listed] == ["from go", "from ours"]


async def test_ten_records_come_unless_more_are_asked_for(seb):
    await add(seb.client, "go.many", [b"%d" % i for i in range(30)])
    assert len(await get(seb.client, "go.many", 0)) == 10
    assert len(await get(seb.client, "go.many", 0, max_records=0)) == 10
    assert len(await get(seb.client, "go.many", 0, max_records=2**64 - 1)) == 30
    assert await get(seb.client, "go.many", 28, max_records=99) == [b"28", b"29"]


async def test_max_bytes_is_soft_and_zero_is_no_limit(seb):
    await add(seb.client, "go.bytes", [b"x" * 1_000] * 10)
    assert len(await get(seb.client, "go.bytes", 0, max_bytes=2_500)) == 2
    assert len(await get(seb.client, "go.bytes", 0, max_bytes=1)) == 1
    assert len(await get(seb.client, "go.bytes", 0, max_bytes=0)) == 10


async def test_offset_0_of_a_topic_that_is_not_there_yet_waits_for_its_first_record(seb):
    reading = asyncio.create_task(get(seb.client, "go.coming", 0, timeout="20s"))
    while not seb.appliance.broker.waiting_readers:
        await asyncio.sleep(0)
    await add(seb.client, "go.coming", [b"there"])
    assert await reading == [b"there"]


async def test_an_offset_beyond_the_log_end_is_waited_for(seb):
    await add(seb.client, "go.beyond", [b"0"])
    reading = asyncio.create_task(get(seb.client, "go.beyond", 3, timeout="1m0.5s"))
    for record in (b"1", b"2", b"3"):
        while not seb.appliance.broker.waiting_readers:
            await asyncio.sleep(0)
        await add(seb.client, "go.beyond", [record])
    assert await reading == [b"3"]


@pytest.mark.parametrize("offset", [1, 7, 2**53, 2**64 - 1])
async def test_nothing_in_time_is_206_and_an_empty_multipart(seb, offset):
    await add(seb.client, f"go.late-{offset}", [b"0"])
    for timeout in ("0", "1ns", "20ms"):
        params = {"topic-name": f"go.late-{offset}", "offset": offset, "timeout": timeout}
        answer = await seb.client.get("/records", params=params, headers=ACCEPT)
        assert answer.status_code == 206
        assert parts_of(answer) == {}


async def test_one_record_beyond_the_end_is_not_found(seb):
    await add(seb.client, "go.one", [b"0"])
    for offset in (1, 2**63, 2**64 - 1):
        params = {"topic-name": "go.one", "offset": offset}
        assert (await seb.client.get("/record", params=params)).status_code == 404
    params = {"topic-name": "go.missing", "offset": 0}
    answer = await seb.client.get("/record", params=params)
    assert (answer.status_code, answer.text) == (404, "topic not found")


async def test_a_topic_tells_where_it_ends_and_when_it_was_written(seb):
    async def told() -> dict[str, object]:
        answer = await seb.client.get("/topic", params={"topic-name": "go.topic"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        found: dict[str, object] = answer.json()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found["latest_commit_at"])
        return found

    made = await told()
    assert made["next_offset"] == 0
    await add(seb.client, "go.topic", [b"a", b"b", b"c"])
    written = await told()
    assert written["next_offset"] == 3
    assert str(written["latest_commit_at"]) > str(made["latest_commit_at"])


async def test_the_word_bearer_may_be_left_out(seb):
    async with seb.client_with(None) as nobody:
        for authorization, status in (
            (seb.admin_key, 201),
            (f"Bearer {seb.admin_key}", 201),
            (f"bearer {seb.admin_key}", 201),
            (f"Token {seb.admin_key}", 401),
            ("Bearer", 401),
            ("Bearer seb_wrong", 401),
            ("", 401),
            (None, 401),
        ):
            headers = {} if authorization is None else {"authorization": authorization}
            answer = await nobody.post(
                "/records?topic-name=go.bearer",
                content=body_of([b"x"]),
                headers=content_type() | headers,
            )
            assert answer.status_code == status, authorization
            if status == 401:
                assert answer.text == "invalid auth"


async def test_a_key_needs_its_grants_and_makes_topics_only_where_it_may(seb):
    await add(seb.client, "go.granted", [b"0"])
    async with seb.client_with(await key_of(seb, "produce")) as producer:
        assert await add(producer, "go.granted", [b"1"]) == [1]
        for path in (
            "/records?topic-name=go.granted&offset=0",
            "/record?topic-name=go.granted&offset=0",
        ):
            assert (await producer.get(path, headers=ACCEPT)).status_code == 403
        answer = await producer.post(
            "/records?topic-name=go.not-made", content=body_of([b"x"]), headers=content_type()
        )
        assert (answer.status_code, answer.text) == (404, "topic not found")
    async with seb.client_with(await key_of(seb, "consume")) as consumer:
        assert await get(consumer, "go.granted", 0) == [b"0", b"1"]
        for path in ("/records?offset=0&", "/topic?"):
            answer = await consumer.get(f"{path}topic-name=go.not-made", headers=ACCEPT)
            assert (answer.status_code, answer.text) == (404, "topic not found")
        answer = await consumer.post(
            "/records?topic-name=go.granted", content=body_of([b"x"]), headers=content_type()
        )
        assert answer.status_code == 403
    async with seb.client_with(await key_of(seb, "consume", "manage")) as maker:
        assert await get(maker, "go.made", 0, timeout="1ms") == []
        assert (await seb.client.get("/v1/topics/go.made")).status_code == 200


async def test_trimmed_records_are_gone(seb):
    await add(seb.client, "go.trimmed", [b"0", b"1"])
    await seb.client.post("/v1/topics/go.trimmed/trim", json={"before": 1})
    for path in ("/records", "/record"):
        params = {"topic-name": "go.trimmed", "offset": 0}
        answer = await seb.client.get(path, params=params, headers=ACCEPT)
        assert (answer.status_code, "the log of" in answer.text) == (410, True), path


async def test_a_head_is_answered_as_its_get_without_a_body(seb):
    await add(seb.client, "go.head", [b"0"])
    answer = await seb.client.head("/records?topic-name=go.head&offset=0", headers=ACCEPT)
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_record_beyond_ten_mebibytes_goes_in_and_comes_out(tmp_path: Path):
    async with running_appliance(tmp_path, max_record_bytes="15MiB") as seb:
        large = os.urandom(11 * 2**20)
        assert await add(seb.client, "large", [b"small", large, b"behind"]) == [0, 1, 2]
        assert await get(seb.client, "large", 0, max_records=3) == [b"small", large, b"behind"]
        one = await seb.client.get("/record?topic-name=large&offset=1")
        assert one.content == large
        assert seb.appliance.broker.reading.used == 0
        assert seb.appliance.broker.pending.used == 0


async def test_without_auto_create_no_topic_comes_into_being(tmp_path: Path):
    async with running_appliance(tmp_path, auto_create_topics=False) as seb:
        for path in ("/records?offset=0&", "/topic?"):
            answer = await seb.client.get(f"{path}topic-name=t", headers=ACCEPT)
            assert (answer.status_code, answer.text) == (404, "topic not found")
        answer = await seb.client.post(
            "/records?topic-name=t", content=body_of([b"x"]), headers=content_type()
        )
        assert answer.status_code == 404
        assert (await seb.client.get("/v1/topics")).json()["topics"] == []


async def test_a_waiting_reader_that_leaves_leaves_nothing_behind(seb):
    await add(seb.client, "go.left", [b"0"])
    reading = asyncio.create_task(get(seb.client, "go.left", 5, timeout="60s"))
    while not seb.appliance.broker.waiting_readers:
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    while seb.appliance.broker.waiting_readers:
        await asyncio.sleep(0)


async def test_the_boundary_of_an_answer_is_never_the_same(seb):
    await add(seb.client, "go.boundary", [b"0"])
    path = "/records?topic-name=go.boundary&offset=0"
    answers = [await seb.client.get(path, headers=ACCEPT) for _ in range(3)]
    assert len({answer.headers["content-type"] for answer in answers}) == 3
    assert [records_of(answer) for answer in answers] == [[b"0"]] * 3
