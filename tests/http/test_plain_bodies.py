"""Bodies that are not in the API's envelope: `body=value`, `items` and `lines`, and the setting."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from seb_appliance import limits, zstd

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = "application/json"
NDJSON = "application/x-ndjson"


async def send(seb, topic, content, content_type=JSON, headers=None, **query):
    return await seb.client.post(
        f"/v1/topics/{topic}/records",
        content=content,
        params=query,
        headers={"Content-Type": content_type, **(headers or {})},
    )


async def records(seb, topic):
    answer = await seb.client.get(f"/v1/topics/{topic}/records")
    return answer.json()["records"] if answer.status_code == 200 else []


async def values(seb, topic):
    return [record["value"] for record in await records(seb, topic)]


@pytest.mark.parametrize(
    ("shape", "content_type", "body", "stored"),
    [
        ("value", JSON, b'{"a": 1}', ['{"a": 1}']),
        ("value", "multipart/form-data; boundary=x", b"--x--", ["--x--"]),
        ("value", "application/x-protobuf", b"\x0a\x01a", ["\n\x01a"]),
        (
            "items",
            JSON,
            b' [ {"a": 1.0} , "x", null , [2 ,3],{} ]',
            ['{"a": 1.0}', '"x"', "null", "[2 ,3]", "{}"],
        ),
        ("items", JSON, b'{"a":1}', ['{"a":1}']),
        ("items", NDJSON, b'{"a":1}\r\n\n [2]\n', ['{"a":1}', "[2]"]),
        ("items", "text/plain", b'{"a":1}\n{"b":2}', ['{"a":1}', '{"b":2}']),
        ("items", JSON, b'{"a":1}{"b":"}"} 3', ['{"a":1}', '{"b":"}"}', "3"]),
        ("items", JSON, b'{\n "a": 1\n}\n{\n "b": 2\n}\n', ['{\n "a": 1\n}', '{\n "b": 2\n}']),
        ("items", "application/json-seq", b'\x1e{"a":1}\n\x1e{"b":2}\n', ['{"a":1}', '{"b":2}']),
        ("lines", "text/plain", b"one\r\n\ntwo \nthree", ["one", "two ", "three"]),
        ("lines", "application/x-www-form-urlencoded", b"a=1\nb=2\n", ["a=1", "b=2"]),
    ],
)
async def test_a_body_is_stored_as_the_sender_wrote_it(
    seb, request, shape, content_type, body, stored
):
    topic = f"as-sent-{abs(hash(request.node.name))}"
    answer = await send(seb, topic, body, content_type, body=shape)
    assert answer.status_code == 201, answer.text
    assert answer.json()["count"] == len(stored)
    assert await values(seb, topic) == stored


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)],
)
async def test_a_compressed_body_is_inflated_first(seb, encoding, packed):
    headers = {"Content-Encoding": encoding}
    answer = await send(seb, encoding, packed(b"a\nb\n"), "text/plain", headers, body="lines")
    assert answer.status_code == 201, answer.text
    assert await values(seb, encoding) == ["a", "b"]


async def test_keys_timestamps_and_headers_come_from_where_the_request_says(seb):
    body = [
        {"user": {"id": "ä/1"}, "at": "2026-11-21T10:00:00Z"},
        {"user": {"id": 17.50}, "at": 1_700_000_000},
        {"user": {"id": {}}, "at": 1_700_000_000_123},
        {"user": [], "at": None},
    ]
    answer = await send(
        seb,
        "parts",
        json.dumps(body).encode(),
        headers={"X-Event": "push", "X-Other": "no"},
        body="items",
        key="/user/id",
        timestamp="/at",
        keep_headers="X-Event, x-absent",
    )
    assert answer.status_code == 201, answer.text
    found = await records(seb, "parts")
    assert [record["key"] for record in found] == ["ä/1", "17.5", None, None]
    assert [record["timestamp"][:23] for record in found[:3]] == [
        "2026-11-21T10:00:00.000",
        "2023-11-14T22:13:20.000",
        "2023-11-14T22:13:20.123",
    ]
    assert all(record["headers"] == {"x-event": "push"} for record in found)


async def test_a_pointer_escapes_and_counts_as_rfc_6901_says(seb):
    body = b'{"a/b":{"m~n":[{"":"found"}]}}'
    assert (await send(seb, "rfc", body, body="value", key="/a~1b/m~0n/0/")).status_code == 201
    assert (await send(seb, "rfc", body, body="value", key="/a~1b/m~0n/1")).status_code == 201
    assert [record["key"] for record in await records(seb, "rfc")] == ["found", None]


async def test_a_key_can_come_from_a_header(seb):
    headers = {"X-Shop": "eu"}
    answer = await send(
        seb, "shop", b"a\nb", "text/plain", headers, body="lines", key_header="X-Shop"
    )
    assert answer.status_code == 201
    assert [record["key"] for record in await records(seb, "shop")] == ["eu", "eu"]


async def test_the_topic_says_how_bodies_are_read_and_the_request_has_the_last_word(seb):
    assert (await seb.client.put("/v1/topics/logs", json={"body": "lines"})).status_code == 201
    for _ in range(2):  # the second one's head is known to the fast lane
        assert (await send(seb, "logs", b"one\ntwo", "text/plain")).json()["count"] == 2
    assert (await send(seb, "logs", b"one\ntwo", "text/plain", body="value")).json()["count"] == 1
    envelope = b'{"records":[{"value":"x"}]}'
    assert (await send(seb, "logs", envelope, body="envelope")).json()["count"] == 1
    await seb.client.patch("/v1/topics/logs", json={"body": None})
    assert (await send(seb, "logs", b"one\ntwo", "text/plain")).json()["count"] == 1
    assert await values(seb, "logs") == ["one", "two"] * 2 + ["one\ntwo", "x", "one\ntwo"]


async def test_an_object_that_is_no_envelope_is_told_the_request_that_works(seb):
    answer = await send(seb, "told", b'{"a":1}')
    assert answer.status_code == 400
    assert "?body=value" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "body", "status", "words"),
    [
        ({"body": "words"}, b"x", 400, "envelope, value, items, lines"),
        ({"key": "/a"}, b"x", 400, "needs body=value"),
        ({"body": "value", "key": "/a" * (limits.POINTER_TOKENS_MAX + 1)}, b"{}", 400, "at most"),
        ({"body": "value", "key": "a"}, b"{}", 400, "JSON Pointer"),
        ({"body": "value", "key": "/a", "key_header": "b"}, b"{}", 400, "not both"),
        ({"body": "value", "keep_headers": "Authorization"}, b"{}", 400, "cannot keep|can keep"),
        ({"body": "value", "key": "/a"}, b"{", 400, "Record 0"),
        ({"body": "value", "timestamp": "/a"}, b'{"a":"noon"}', 400, "Record 0"),
        ({"body": "value", "timestamp": "/a"}, b'{"a":"\xff"}', 400, "Record 0"),
        ({"body": "value", "key": "/a"}, b'{"a":"\\ud800"}', 400, "Record 0"),
        ({"body": "items"}, b'[{"a":1},', 400, "truncated"),
        ({"body": "items"}, b'{"a":1}\n{"a":', 400, "line 2"),
        ({"body": "items"}, b"[1e999]", 400, "Record 0"),
        ({"body": "items"}, b'"a" ' + b"9" * 5_000, 400, "Record 1"),
        ({"body": "items"}, b"\xff", 400, "UTF-8"),
        ({"body": "items"}, b"[NaN]", 400, "JSON"),
        ({"body": "items"}, b"NaN", 400, "NaN"),
        ({"body": "items"}, b"[]", 400, "no record"),
        ({"body": "lines"}, b"\n\r\n", 400, "no record"),
        ({"body": "lines"}, b"x\n" * (limits.RECORDS_PER_REQUEST_MAX + 1), 413, "10000"),
        ({"body": "items"}, b"[" + b"null," * 1_000_000 + b"1]", 413, "10000"),
        ({"body": "items"}, b"[" * 100_000, 400, "nested"),
        ({"body": "lines"}, b"x" * (2 * limits.MIB), 413, "bytes"),
    ],
)  # fmt: skip
async def test_a_bad_body_says_what_is_wrong_and_stores_nothing(seb, query, body, status, words):
    await seb.client.put("/v1/topics/bad", json={})
    answer = await send(seb, "bad", body, **query)
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert any(word in problem["detail"] for word in words.split("|")), problem
    assert problem["side_effects"] == "none"
    assert (await send(seb, "bad", b"good", body="value")).status_code == 201
    assert set(await values(seb, "bad")) == {"good"}


async def test_a_request_with_an_idempotency_key_is_stored_once_in_the_same_shape_only(seb):
    headers = {"Idempotency-Key": "delivery-1", "X-Event": "push"}
    query = {"body": "items", "keep_headers": "x-event"}
    first = await send(seb, "once", b"[1,2]", headers=headers, **query)
    again = await send(seb, "once", b"[1,2]", headers=headers, **query)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    other = await send(seb, "once", b"[1,2]", headers=headers, body="value")
    assert other.status_code == 422
    changed = {**headers, "X-Event": "pull"}
    assert (await send(seb, "once", b"[1,2]", headers=changed, **query)).status_code == 422
    assert await values(seb, "once") == ["1", "2"]
