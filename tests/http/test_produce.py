"""Producing over HTTP: every body that a record can come in."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json

import pytest

from seb_appliance import limits, zstd
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW_US = 1_700_000_000_000_000


def make_batch(values, keys=None, headers=None, timestamp_us=NOW_US, **options) -> bytes:
    columns = Columns(
        int64s([timestamp_us + i for i in range(len(values))]),
        BinaryColumn.of(values),
        None if keys is None else BinaryColumn.of(keys),
        None if headers is None else BinaryColumn.of(headers),
    )
    return batch.encode(columns, base_offset=0, created_us=0, **options)


async def read(seb, topic, **query):
    answer = await seb.client.get(f"/v1/topics/{topic}/records", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["records"]


async def test_a_plain_body_is_one_record(seb):
    answer = await seb.client.post("/v1/topics/plain/records", content=b"hello")
    assert answer.status_code == 201
    made = answer.json()
    assert (made["topic"], made["offset"], made["count"], made["last_offset"]) == ("plain", 0, 1, 0)
    assert made["timestamp"].endswith("Z")
    assert answer.headers["seb-durability"] == "memory"
    assert "window;dur=" in answer.headers["server-timing"]
    [record] = await read(seb, "plain")
    assert record == {
        "offset": 0,
        "timestamp": made["timestamp"],
        "key": None,
        "value": "hello",
        "headers": {},
    }


@pytest.mark.parametrize(
    "content_type",
    [
        "application/octet-stream",
        "text/plain; charset=latin-1",
        "image/png",
        "application/x-www-form-urlencoded",
        "APPLICATION/OCTET-STREAM",
    ],
)
async def test_these_media_types_make_the_body_one_record(seb, content_type):
    answer = await seb.client.post(
        "/v1/topics/families/records",
        content=b'{"not": "looked into"}',
        headers={"content-type": content_type},
    )
    assert answer.status_code == 201
    [record] = await read(seb, "families", offset="-1")
    assert record["value"] == '{"not": "looked into"}'


async def test_an_empty_body_is_an_empty_record_and_no_tombstone(seb):
    await seb.client.post("/v1/topics/empty/records", content=b"")
    [record] = await read(seb, "empty")
    assert record["value"] == ""


async def test_headers_give_key_timestamp_and_record_headers(seb):
    answer = await seb.client.post(
        "/v1/topics/headed/records",
        content=b"v",
        headers={
            "seb-key": "caf%C3%A9%00",
            "seb-timestamp": "2026-01-02T03:04:05.678901+01:00",
            "seb-header-source": "check out%25",
            "seb-header-Raw": "%ff",
        },
    )
    assert answer.status_code == 201
    assert answer.json()["timestamp"] == "2026-01-02T02:04:05.678901Z"
    [record] = await read(seb, "headed")
    assert record["key"] == "café\0"
    assert record["timestamp"] == "2026-01-02T02:04:05.678901Z"
    assert record["headers"] == {"source": "check out%"}
    assert record["headers_base64"] == {"raw": "/w=="}


async def test_json_values_keep_their_bytes_and_strings_their_text(seb):
    body = b"""{"records": [
        {"value": {"b": 1.50, "a": [1 , 2]}},
        {"value": "caf\\u00e9 \\"x\\""},
        {"value": 12345678901234567890123},
        {"value": true, "key": "k", "headers": {"h": "v"}},
        {"value_base64": "/wA=", "key_base64": "/w=="},
        {"value": null, "key": "k"}
    ]}"""
    answer = await seb.client.post(
        "/v1/topics/json/records", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 201
    assert answer.json()["count"] == 6
    assert answer.json()["last_offset"] == 5
    records = await read(seb, "json")
    assert [record["value"] for record in records] == [
        '{"b": 1.50, "a": [1 , 2]}',
        'café "x"',
        "12345678901234567890123",
        "true",
        None,
        None,
    ]
    assert records[3]["key"] == "k"
    assert records[3]["headers"] == {"h": "v"}
    assert (records[4]["value_base64"], records[4]["key_base64"]) == ("/wA=", "/w==")
    assert "value_base64" not in records[5]


async def test_timestamps_are_the_clients_where_given(seb):
    answer = await seb.client.post(
        "/v1/topics/stamped/records",
        json={
            "records": [
                {"value": 1, "timestamp": "1970-01-01T00:00:00Z"},
                {"value": 2},
                {"value": 3, "timestamp": None},
            ]
        },
    )
    assert answer.status_code == 201
    first, second, third = await read(seb, "stamped")
    assert first["timestamp"] == "1970-01-01T00:00:00.000000Z"
    assert second["timestamp"] == third["timestamp"] > "2026"


@pytest.mark.parametrize(
    "content_type", ["application/x-ndjson", "application/ndjson", "application/jsonl"]
)
async def test_ndjson_is_one_record_per_line(seb, content_type):
    topic = "lines." + content_type.rpartition("/")[2]
    answer = await seb.client.post(
        f"/v1/topics/{topic}/records",
        content=b'{"value":"a"}\r\n\n{"value":{"n":1},"key":"k"}\n{"value":null,"key":"k"}',
        headers={"content-type": content_type},
    )
    assert answer.status_code == 201, answer.text
    records = await read(seb, topic)
    assert [record["value"] for record in records] == ["a", '{"n":1}', None]


async def test_record_batches_are_stored_as_they_came(seb):
    first = make_batch([b"a", None, b"c"], keys=[None, b"k", b"c"], headers=[b"", b"\x80", b""])
    second = make_batch([b"x" * 1000] * 5, zstd_level=3)
    answer = await seb.client.post(
        "/v1/topics/batches/records",
        content=first + second,
        headers={"content-type": "application/vnd.seb.batch"},
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["count"] == 8
    fetched = await seb.client.get("/v1/topics/batches/records?format=batch")
    stored = [(at, header) for at, header in batch.walk(fetched.content)]
    assert [header.base_offset for _, header in stored] == [0, 3]
    body_at = stored[1][0] + batch.HEADER_BYTES
    assert fetched.content[body_at:] == second[batch.HEADER_BYTES :]
    records = await read(seb, "batches")
    assert [record["value"] for record in records[:3]] == ["a", None, "c"]


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("zstd", zstd.compress),
        ("identity", bytes),
        ("gzip", lambda body: gzip.compress(body[:7]) + gzip.compress(body[7:])),
        ("zstd", lambda body: zstd.compress(body[:7]) + zstd.compress(body[7:])),
    ],
    ids=["gzip", "zstd", "identity", "two gzip members", "two zstd frames"],
)
async def test_bodies_may_be_compressed(seb, encoding, encode):
    body = json.dumps({"records": [{"value": "x" * 200_000}]}).encode()
    answer = await seb.client.post(
        "/v1/topics/packed/records",
        content=encode(body),
        headers={"content-type": "application/json", "content-encoding": encoding},
    )
    assert answer.status_code == 201, answer.text
    [record] = await read(seb, "packed", offset="-1")
    assert record["value"] == "x" * 200_000


async def test_a_chunked_body_needs_no_content_length(seb):
    async def chunks():
        for _ in range(10):
            yield b"y" * 50_000

    answer = await seb.client.post("/v1/topics/chunked/records", content=chunks())
    assert answer.status_code == 201
    assert len((await read(seb, "chunked"))[0]["value"]) == 500_000


async def test_all_records_of_a_request_or_none(seb):
    await seb.client.put("/v1/topics/small", json={"max_record_bytes": 10})
    answer = await seb.client.post(
        "/v1/topics/small/records", json={"records": [{"value": "ok"}, {"value": "x" * 11}]}
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "record_too_large")
    assert await read(seb, "small") == []


async def test_offsets_follow_each_other_whoever_writes(seb):
    answers = await asyncio.gather(
        *(seb.client.post("/v1/topics/many/records", content=b"%d" % i) for i in range(50))
    )
    assert sorted(answer.json()["offset"] for answer in answers) == list(range(50))
    records = await read(seb, "many")
    for i, answer in enumerate(answers):
        assert records[answer.json()["offset"]]["value"] == str(i)


async def test_a_missing_topic_is_made_only_by_who_may_manage_it(seb):
    made = await seb.client.post(
        "/v1/api-keys",
        json={"name": "p", "grants": [{"operation": "produce", "topics": "**"}]},
    )
    async with seb.client_with(made.json()["secret"]) as producer:
        answer = await producer.post("/v1/topics/not.there/records", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")


async def test_what_is_refused_before_the_body_holds_no_budget(seb):
    budget = seb.appliance.broker.pending
    limit, budget.limit = budget.limit, 10
    try:
        answer = await seb.client.post("/v1/topics/full/records", content=b"x" * 100)
    finally:
        budget.limit = limit
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert answer.json()["side_effects"] == "none"
    assert budget.used == 0


async def test_every_reservation_is_given_back(seb):
    for content, headers in (
        (b"{", {"content-type": "application/json"}),
        (b"x", {"content-encoding": "gzip"}),
        (b"x" * (limits.REQUEST_BYTES_MAX + 1), {}),
        (b"ok", {}),
        (zstd.compress(b"x" * (limits.REQUEST_BYTES_MAX + 1)), {"content-encoding": "zstd"}),
    ):
        await seb.client.post("/v1/topics/returned/records", content=content, headers=headers)
    assert seb.appliance.broker.pending.used == 0


async def test_base64_is_the_way_for_bytes(seb):
    value = bytes(range(256))
    await seb.client.post(
        "/v1/topics/bytes/records",
        json={"records": [{"value_base64": base64.b64encode(value).decode()}]},
    )
    answer = await seb.client.get(
        "/v1/topics/bytes/records/0", headers={"accept": "application/octet-stream"}
    )
    assert answer.content == value


async def test_a_request_has_so_many_batches_and_no_more(seb):
    one, most = make_batch([b""]), limits.BATCHES_PER_REQUEST_MAX
    headers = {"Content-Type": "application/vnd.seb.batch"}
    path = "/v1/topics/batches/records"
    answer = await seb.client.post(path, content=one * (most + 1), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")
    answer = await seb.client.post(path, content=one * most, headers=headers)
    assert answer.json()["count"] == most
