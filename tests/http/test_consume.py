"""Consuming over HTTP: where a read begins and ends, what it looks like, waiting."""

from __future__ import annotations

import asyncio
import json

import pytest
import pytest_asyncio

from seb_appliance.formats import batch

pytestmark = pytest.mark.asyncio(loop_scope="module")

BASE = "/v1/topics/log/records"
TIMES = [f"2026-01-01T00:00:{second:02}Z" for second in range(10)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def log(seb):
    """Ten records, values 0 to 9, a second apart."""
    await seb.client.put("/v1/topics/log")
    await seb.client.put("/v1/topics/idle")
    for i in range(0, 10, 5):
        records = [{"value": n, "timestamp": TIMES[n]} for n in range(i, i + 5)]
        answer = await seb.client.post(BASE, json={"records": records})
        assert answer.status_code == 201


async def values(seb, query):
    answer = await seb.client.get(f"{BASE}?{query}")
    assert answer.status_code == 200, answer.text
    return [int(record["value"]) for record in answer.json()["records"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", range(10)),
        ("offset=earliest", range(10)),
        ("offset=4", range(4, 10)),
        ("offset=10", []),
        ("offset=latest", []),
        ("offset=-1", [9]),
        ("offset=-3", [7, 8, 9]),
        ("offset=-99", range(10)),
        ("offset=@2026-01-01T00:00:03.5Z", range(4, 10)),
        ("offset=@2026-01-01T01:00:03%2B01:00", range(3, 10)),
        ("offset=@1990-01-01T00:00:00Z", range(10)),
        ("offset=@2090-01-01T00:00:00Z", []),
        ("offset=2&until=6", range(2, 6)),
        ("offset=2&until=2", []),
        ("offset=2&until=@2026-01-01T00:00:04Z", range(2, 4)),
        ("max_records=3", range(3)),
        ("offset=3&max_records=4", range(3, 7)),
        ("max_bytes=1", [0]),
        ("max_bytes=3B", range(3)),
        ("max_bytes=1KiB", range(10)),
    ],
)
async def test_a_range_is_from_offset_up_to_before_until(seb, query, expected):
    assert await values(seb, query) == list(expected)


async def test_the_answer_says_where_to_go_on(seb):
    answer = await seb.client.get(f"{BASE}?max_records=4")
    body = answer.json()
    assert (body["next_offset"], body["log_start_offset"], body["log_end_offset"]) == (4, 0, 10)
    assert answer.headers["seb-next-offset"] == "4"
    assert answer.headers["seb-log-end-offset"] == "10"
    assert answer.headers["cache-control"] == "no-store"


async def test_ndjson_has_one_record_per_line(seb):
    for how in ({"params": {"format": "ndjson"}}, {"headers": {"accept": "application/x-ndjson"}}):
        answer = await seb.client.get(BASE, **how)
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = answer.text.splitlines()
        assert [json.loads(line)["offset"] for line in lines] == list(range(10))
        assert answer.headers["seb-next-offset"] == "10"


async def test_batches_are_the_stored_bytes_and_may_hold_more_than_was_asked_for(seb):
    answer = await seb.client.get(
        f"{BASE}?offset=3&max_records=1", headers={"accept": "application/vnd.seb.batch"}
    )
    assert answer.headers["content-type"] == "application/vnd.seb.batch"
    assert answer.headers["seb-next-offset"] == "4"
    [(_, header)] = batch.walk(answer.content)
    assert (header.base_offset, header.last_offset) == (0, 4)


async def test_a_batch_answer_at_the_log_end_is_empty(seb):
    answer = await seb.client.get(f"{BASE}?offset=latest&format=batch")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", "application/json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("application/x-ndjson;q=0.5, application/json;q=0.1", "application/x-ndjson"),
        ("application/*;q=0.1, application/json;q=0", "application/x-ndjson"),
    ],
)
async def test_accept_is_negotiated(seb, accept, chosen):
    answer = await seb.client.get(BASE, headers={"accept": accept})
    assert answer.headers["content-type"] == chosen


async def test_values_have_one_stable_shape_when_asked_for(seb):
    bodies = [b'{"a": 1}', b"plain", b"\xff", b"null", b'"text"', b"[1,\n2]"]
    for body in bodies:
        await seb.client.post("/v1/topics/shapes/records", content=body)
    url = "/v1/topics/shapes/records"
    text = (await seb.client.get(f"{url}?values=text")).json()["records"]
    assert [r["value"] for r in text] == ['{"a": 1}', "plain", None, "null", '"text"', "[1,\n2]"]
    assert [r.get("value_base64") for r in text] == [None, None, "/w==", None, None, None]
    parsed = (await seb.client.get(f"{url}?values=json")).json()["records"]
    assert [r["value"] for r in parsed] == [{"a": 1}, None, None, None, "text", [1, 2]]
    assert [r.get("value_base64") for r in parsed] == [
        None,
        "cGxhaW4=",
        "/w==",
        "bnVsbA==",
        None,
        None,
    ]
    lines = (await seb.client.get(f"{url}?values=json&format=ndjson")).text.splitlines()
    assert len(lines) == len(bodies)
    base64 = (await seb.client.get(f"{url}?values=base64")).json()["records"]
    assert [r["value"] for r in base64] == [None] * len(bodies)
    assert all("value_base64" in r for r in base64)


# --- one record ---


async def test_one_record_as_json(seb):
    answer = await seb.client.get(f"{BASE}/7")
    assert answer.json()["value"] == "7"
    assert (await seb.client.get(f"{BASE}/-1")).json()["offset"] == 9
    assert (await seb.client.get(f"{BASE}/-10")).json()["offset"] == 0


@pytest.mark.parametrize("offset", ["10", "11", "9007199254740991", "-11"])
async def test_a_record_that_is_not_there_is_not_found(seb, offset):
    answer = await seb.client.get(f"{BASE}/{offset}")
    assert (answer.status_code, answer.json()["code"]) == (404, "record_not_found")


async def test_one_record_raw_with_its_metadata_in_headers(seb):
    await seb.client.post(
        "/v1/topics/raw/records",
        content=b"\x00\xff",
        headers={"seb-key": "a%20b%ff", "seb-header-x-y": "1%0a2", "seb-timestamp": TIMES[3]},
    )
    raw = {"accept": "application/octet-stream"}
    answer = await seb.client.get("/v1/topics/raw/records/0", headers=raw)
    assert answer.content == b"\x00\xff"
    assert answer.headers["seb-offset"] == "0"
    assert answer.headers["seb-key"] == "a%20b%FF"
    assert answer.headers["seb-header-x-y"] == "1%0A2"
    assert answer.headers["seb-timestamp"] == "2026-01-01T00:00:03.000000Z"
    assert answer.headers["cache-control"] == "private, no-cache"
    again = await seb.client.get(
        "/v1/topics/raw/records/0", headers={**raw, "if-none-match": answer.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    other = await seb.client.get(
        "/v1/topics/raw/records/0", headers={**raw, "if-none-match": '"x"'}
    )
    assert other.status_code == 200


async def test_a_raw_tombstone_says_that_it_is_one(seb):
    await seb.client.post(
        "/v1/topics/gone/records", json={"records": [{"value": None, "key": "k"}]}
    )
    answer = await seb.client.get(
        "/v1/topics/gone/records/0", headers={"accept": "application/octet-stream"}
    )
    assert (answer.content, answer.headers["seb-tombstone"]) == (b"", "true")


async def test_a_record_key_too_long_for_headers_is_not_acceptable_raw(seb):
    await seb.client.post(
        "/v1/topics/longkey/records", json={"records": [{"value": 1, "key": "k" * 20_000}]}
    )
    raw = {"accept": "application/octet-stream"}
    answer = await seb.client.get("/v1/topics/longkey/records/0", headers=raw)
    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
    assert (await seb.client.get("/v1/topics/longkey/records/0")).status_code == 200


# --- waiting ---


async def waiting_readers(seb, count):
    while seb.appliance.broker.waiting_readers != count:
        await asyncio.sleep(0)


async def test_a_waiting_reader_gets_the_next_record(seb):
    await seb.client.put("/v1/topics/awaited")
    url = "/v1/topics/awaited/records"
    reading = asyncio.create_task(seb.client.get(f"{url}?offset=latest&wait=20s"))
    await waiting_readers(seb, 1)
    await seb.client.post(url, content=b"news")
    assert [record["value"] for record in (await reading).json()["records"]] == ["news"]


async def test_a_wait_that_ends_without_a_record_is_an_empty_answer(seb):
    answer = await seb.client.get("/v1/topics/idle/records?wait=1ms")
    assert (answer.status_code, answer.json()["records"]) == (200, [])


async def test_deleting_the_topic_ends_the_wait_with_404(seb):
    await seb.client.put("/v1/topics/doomed")
    reading = asyncio.create_task(seb.client.get("/v1/topics/doomed/records?wait=20s"))
    await waiting_readers(seb, 1)
    await seb.client.delete("/v1/topics/doomed")
    assert (await reading).json()["code"] == "topic_not_found"


async def test_a_reader_that_leaves_frees_its_place(seb):
    reading = asyncio.create_task(seb.client.get("/v1/topics/idle/records?wait=20s"))
    await waiting_readers(seb, 1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    async with asyncio.timeout(60):
        await waiting_readers(seb, 0)
    assert seb.appliance.broker.reading.used == 0


async def test_a_full_reading_budget_is_overloaded(seb):
    budget = seb.appliance.broker.reading
    limit, budget.limit = budget.limit, 10
    try:
        answer = await seb.client.get(BASE)
    finally:
        budget.limit = limit
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert budget.used == 0


async def test_a_large_answer_arrives_whole(seb):
    for _ in range(4):
        await seb.client.post("/v1/topics/large/records", content=b"z" * 1_000_000)
    answer = await seb.client.get("/v1/topics/large/records?max_bytes=16MiB&format=batch")
    assert sum(header.count for _, header in batch.walk(answer.content)) == 4
    answer = await seb.client.get("/v1/topics/large/records?max_bytes=16MiB")
    assert [len(record["value"]) for record in answer.json()["records"]] == [1_000_000] * 4
    assert seb.appliance.broker.reading.used == 0


async def test_head_is_get_without_the_body(seb):
    got, headed = await seb.client.get(BASE), await seb.client.head(BASE)
    assert headed.content == b""
    for name in ("content-type", "content-length", "seb-next-offset"):
        assert headed.headers[name] == got.headers[name]
    assert (await seb.client.head("/v1/topics/nobody/records")).status_code == 404
