"""What a client may get wrong about retries and transactions: its code, and nothing stored."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio

from seb_appliance import limits
from tests.http.bad_input import JSON, RECORDS, nothing_happens, refused
from tests.support.raw_http import exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/transactions"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gone(seb):
    """A topic that was deleted, before it is watched that nothing happens."""
    await seb.client.put("/v1/topics/gone")
    await seb.client.delete("/v1/topics/gone")
    return "gone"


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _nothing_happens(seb):
    async with nothing_happens(seb):
        yield


def producer(name="p", epoch="0", seq="0"):
    return {"producer-id": name, "producer-epoch": epoch, "producer-seq": seq}


def without(name):
    return {header: text for header, text in producer().items() if header != name}


BAD_NUMBERS = ["", "-1", "+1", "1.0", "0x1", "abc", "1 2", str(2**53), str(2**64), "9" * 400]
BAD_HEADERS = [
    *(without(name) for name in producer()),
    *({"producer-seq": "0", "producer-id": "p"},),
    *(producer(epoch=number) for number in BAD_NUMBERS),
    *(producer(seq=number) for number in BAD_NUMBERS),
    producer(name=""),
    producer(name="x" * 129),
    producer(name="a b"),
    {**producer(), "idempotency-key": "k"},
    {"idempotency-key": ""},
    {"idempotency-key": "x" * 256},
    {"idempotency-key": "x" * 10_000},
    {"idempotency-key": "a b"},
    {"if-match": "0"},
    {"if-match": "*"},
    {"if-match": 'W/"0"'},
    {"if-match": '"0", "1"'},
    {"if-match": '""'},
    {"if-match": '"-1"'},
    {"if-match": '"9007199254740992"'},
    {"if-match": ""},
    {"if-unmodified-since": "Sat, 21 Nov 2026 10:00:00 GMT"},
]


@pytest.mark.parametrize("headers", BAD_HEADERS, ids=lambda headers: str(headers)[:70])
async def test_bad_headers_are_bad_parameters(seb, headers):
    await refused(seb, "POST", RECORDS, 400, "bad_parameter", headers=headers, content=b"x")


@pytest.mark.parametrize("number", [*BAD_NUMBERS, "latest", '"0"'])
async def test_a_bad_expected_offset(seb, number):
    query = {"expected_offset": number}
    await refused(seb, "POST", RECORDS, 400, "bad_parameter", params=query, content=b"x")


async def test_two_expected_positions(seb):
    await refused(
        seb,
        "POST",
        RECORDS + "?expected_offset=0",
        400,
        "bad_parameter",
        headers={"if-match": '"0"'},
    )


@pytest.mark.parametrize("value", [b"a\x00b", b"a\x07b", b"caf\xc3\xa9", b"\xff", b"a\tb"])
async def test_control_characters_and_bytes_in_an_idempotency_key(seb, value):
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (
        RECORDS.encode(),
        seb.admin_key.encode(),
    )
    rest = b"Idempotency-Key: %s\r\nContent-Length: 1\r\n\r\nx" % value
    answer = await exchange(seb.port, head + rest)
    assert answer.status == 400
    assert answer.code in {"bad_parameter", "bad_request"}


@pytest.mark.parametrize("name", [b"Idempotency-Key", b"Producer-Seq", b"If-Match"])
async def test_a_header_that_is_sent_twice(seb, name):
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (
        RECORDS.encode(),
        seb.admin_key.encode(),
    )
    rest = b"%s: 0\r\n%s: 0\r\nContent-Length: 1\r\n\r\nx" % (name, name)
    answer = await exchange(seb.port, head + rest)
    assert (answer.status, answer.code) == (400, "bad_parameter")


@pytest.mark.parametrize(
    "headers", [{"idempotency-key": "k"}, {"if-match": '"0"'}, producer()], ids=str
)
async def test_routes_that_promise_nothing_refuse_to_be_asked(seb, headers):
    for method, path in (("PUT", "/v1/topics/new"), ("PUT", "/v1/groups/g/offsets")):
        await refused(seb, method, path, 400, "bad_parameter", headers=headers, json={})


async def test_an_unknown_producer_that_does_not_begin_at_0(seb):
    told = await refused(
        seb, "POST", RECORDS, 409, "sequence_gap", headers=producer(seq="3"), content=b"x"
    )
    assert (told["expected"], told["received"]) == (0, 3)


# --- transactions ---

RECORD = [{"value": "x"}]
COMMIT = {"group": "g", "offsets": {"target": 0}}
TRANSACTIONS = [
    (None, 400, "bad_request"),
    ({}, 400, "bad_request"),
    ({"produce": {}}, 400, "bad_request"),
    ({"commit": None}, 400, "bad_request"),
    ({"produce": {}, "commit": None}, 400, "bad_request"),
    ([], 400, "bad_json"),
    ("x", 400, "bad_json"),
    ({"produce": None}, 400, "bad_json"),
    ({"produce": []}, 400, "bad_json"),
    ({"produce": {"target": []}}, 400, "bad_json"),
    ({"produce": {"target": RECORD, "other": []}}, 400, "bad_json"),
    ({"produce": {"target": {"records": RECORD}}}, 400, "bad_json"),
    ({"produce": {"target": [{}]}}, 400, "bad_json"),
    ({"produce": {"{0.real}}": [{}]}}, 400, "bad_json"),
    ({"produce": {"target": [{"value": None}]}}, 400, "bad_json"),
    ({"produce": {"target": [{"value": "x", "offset": 1}]}}, 400, "bad_json"),
    ({"produce": {"": RECORD}}, 400, "bad_name"),
    ({"produce": {"a..b": RECORD}}, 400, "bad_name"),
    ({"produce": {"x" * 129: RECORD}}, 400, "bad_name"),
    ({"produce": {"a\0": RECORD}}, 400, "bad_name"),
    ({"produce": {"target": RECORD}, "more": 1}, 400, "bad_json"),
    ({"produce": {f"t{n}": RECORD for n in range(101)}}, 400, "bad_json"),
    ({"produce": {"target": RECORD * 10_001}}, 413, "request_too_large"),
    ({"produce": {f"t{n}": RECORD * 101 for n in range(100)}}, 413, "request_too_large"),
    ({"produce": {"target": [{"value": "x" * (1 << 20)}, {"value": "x" * ((1 << 20) + 1)}]}},
     413, "record_too_large"),
    ({"produce": {"target": [{"value": "x", "timestamp": "2040-01-01T00:00:00Z"}]}},
     400, "bad_parameter"),
    ({"commit": {}}, 400, "bad_json"),
    ({"commit": {"group": "g"}}, 400, "bad_json"),
    ({"commit": {"group": "g", "offsets": {}}}, 400, "bad_json"),
    ({"commit": {**COMMIT, "group": "a..b"}}, 400, "bad_name"),
    ({"commit": {**COMMIT, "group": ""}}, 400, "bad_name"),
    ({"commit": {**COMMIT, "offsets": {"target": -1}}}, 400, "bad_json"),
    ({"commit": {**COMMIT, "offsets": {"target": 2**53}}}, 400, "bad_json"),
    ({"commit": {**COMMIT, "offsets": {"target": 1}}}, 400, "commit_beyond_end"),
    ({"commit": {**COMMIT, "offsets": {"none": 0}}}, 404, "topic_not_found"),
    ({"commit": {**COMMIT, "allow_backward": True}}, 400, "bad_json"),
    ({"commit": {**COMMIT, "generation": 1}}, 409, "stale_generation"),
    ({"commit": {**COMMIT, "generation": 0}}, 400, "bad_json"),
    ({"commit": {**COMMIT, "expected": {"target": 4}}}, 409, "offset_conflict"),
    ({"commit": {**COMMIT, "expected": {"other": 4}}}, 400, "bad_request"),
    ({"commit": {**COMMIT, "topic_ids": {"target": 999}}}, 409, "offset_conflict"),
    ({"commit": {**COMMIT, "metadata": {"target": "x" * 4097}}}, 400, "bad_json"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "status", "code"), TRANSACTIONS, ids=lambda o: str(o)[:60])
async def test_a_bad_transaction(seb, asked, status, code):
    content = b"" if asked is None else json.dumps(asked).encode()
    await refused(seb, "POST", PATH, status, code, content=content, headers=JSON)
    if isinstance(asked, dict) and "commit" in asked and status != 404:
        # Good records beside it make it no better.
        both = json.dumps({**asked, "produce": {"new": RECORD}}).encode()
        if asked["commit"] is not None:
            await refused(seb, "POST", PATH, status, code, content=both, headers=JSON)


async def test_a_topic_that_is_named_twice_loses_no_record(seb):
    body = b'{"produce": {"target": [{"value": 1}], "target": [{"value": 2}]}}'
    await refused(seb, "POST", PATH, 400, "bad_json", content=body, headers=JSON)


async def test_a_commit_of_too_many_bytes(seb):
    body = b'{"commit": %s{}}' % (b" " * limits.COMMIT_BYTES_MAX)
    await refused(seb, "POST", PATH, 400, "bad_json", content=body, headers=JSON)
    body = b'{"commit": {%s}}' % (b" " * limits.COMMIT_BYTES_MAX)
    await refused(seb, "POST", PATH, 413, "request_too_large", content=body, headers=JSON)


async def test_a_commit_to_a_deleted_topic(seb, gone):
    asked = {"produce": {"target": RECORD}, "commit": {"group": "g", "offsets": {gone: 0}}}
    await refused(seb, "POST", PATH, 404, "topic_not_found", json=asked)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        b'{"produce": ' + b"[" * 100_000,
        b'{"produce": {"target": [{"value": \xff}]}}',
    ],
)
async def test_a_body_that_is_no_json(seb, body):
    await refused(seb, "POST", PATH, 400, "bad_json", content=body, headers=JSON)


async def test_a_transaction_of_another_media_type(seb):
    await refused(
        seb, "POST", PATH, 415, "unsupported_media_type", content=b"{}",
        headers={"content-type": "application/x-ndjson"},
    )  # fmt: skip


@pytest.mark.parametrize(
    "headers", [producer(), {"if-match": '"0"'}, {"seb-key": "k"}, {"idempotency-key": ""}], ids=str
)
async def test_headers_that_a_transaction_does_not_take(seb, headers):
    asked = {"produce": {"target": RECORD}}
    await refused(seb, "POST", PATH, 400, "bad_parameter", json=asked, headers=headers)
    await refused(seb, "POST", PATH + "?expected_offset=0", 400, "bad_parameter", json=asked)
