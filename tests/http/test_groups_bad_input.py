"""What a client may get wrong about groups: each has its code, and nothing is stored."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio

from seb_appliance import limits

pytestmark = pytest.mark.asyncio(loop_scope="module")

OFFSETS = "/v1/groups/g/offsets"
RECORDS = "/v1/groups/g/topics/t/records"
RESET = "/v1/groups/g/reset"
LEASE = "/v1/groups/g/lease"
YEAR_MS = 365 * 24 * 3600 * 1000


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def ground(seb):
    """Topic t with ten records, group g at 5 of it; group held has a lease; topic old is gone."""
    await seb.client.post(
        "/v1/topics/t/records", json={"records": [{"value": str(n)} for n in range(10)]}
    )
    await seb.client.put(OFFSETS, json={"offsets": {"t": 5}})
    await seb.client.post("/v1/groups/held/lease", json={"holder": "a", "ttl_ms": 3_600_000})
    await seb.client.put("/v1/topics/old")
    await seb.client.delete("/v1/topics/old")


COMMITS = [
    ({"offsets": {}}, 400, "bad_json"),
    ({}, 400, "bad_json"),
    ([], 400, "bad_json"),
    ({"offsets": {"t": -1}}, 400, "bad_json"),
    ({"offsets": {"t": 2**53}}, 400, "bad_json"),
    ({"offsets": {"t": 6.5}}, 400, "bad_json"),
    ({"offsets": {"t": "6"}}, 400, "bad_json"),
    ({"offsets": {"t": None}}, 400, "bad_json"),
    ({"offsets": {"t": True}}, 400, "bad_json"),
    ({"offsets": {"t": 6}, "more": 1}, 400, "bad_json"),
    ({"offsets": {"t": 4}}, 409, "commit_backward"),
    ({"offsets": {"t": 11}}, 400, "commit_beyond_end"),
    ({"offsets": {"t": 2**53 - 1}, "allow_backward": True}, 400, "commit_beyond_end"),
    ({"offsets": {"none": 0}}, 404, "topic_not_found"),
    ({"offsets": {"old": 0}}, 404, "topic_not_found"),
    ({"offsets": {"t": 6, "none": 0}}, 404, "topic_not_found"),
    ({"offsets": {"": 0}}, 400, "bad_name"),
    ({"offsets": {"a..b": 0}}, 400, "bad_name"),
    ({"offsets": {"x" * 129: 0}}, 400, "bad_name"),
    ({"offsets": {"t\0": 0}}, 400, "bad_name"),
    ({"offsets": {"t": 6}, "expected": {"t": 4}}, 409, "offset_conflict"),
    ({"offsets": {"t": 6}, "expected": {"t": None}}, 409, "offset_conflict"),
    ({"offsets": {"t": 6}, "expected": {"t": -1}}, 400, "bad_json"),
    ({"offsets": {"t": 6}, "expected": {"u": 5}}, 400, "bad_request"),
    ({"offsets": {"t": 6}, "topic_ids": {"t": 999}}, 409, "offset_conflict"),
    ({"offsets": {"t": 6}, "topic_ids": {"u": 1}}, 400, "bad_request"),
    ({"offsets": {"t": 6}, "topic_ids": {"u" * 100_000: 1}}, 400, "bad_request"),
    ({"offsets": {"t": 6}, "metadata": {"u": ""}}, 400, "bad_request"),
    ({"offsets": {"t": 6}, "metadata": {"t": "x" * 4097}}, 400, "bad_json"),
    ({"offsets": {"t": 6}, "generation": 0}, 400, "bad_json"),
    ({"offsets": {"t": 6}, "generation": -1}, 400, "bad_json"),
    ({"offsets": {"t": 6}, "generation": 2**53}, 400, "bad_json"),
    ({"offsets": {"t": 6}, "generation": 1}, 409, "stale_generation"),
    ({"offsets": {"t": 6}, "allow_backward": None}, 400, "bad_json"),
    ({"offsets": {f"t{n}": 0 for n in range(10_001)}}, 400, "bad_json"),
]
RESETS = [
    ({}, 400, "bad_request"),
    ({"to": "latest", "shift": 1}, 400, "bad_request"),
    ({"to": None, "shift": None}, 400, "bad_request"),
    ({"to": "sideways"}, 400, "bad_parameter"),
    ({"to": "-0"}, 400, "bad_parameter"),
    ({"to": "@yesterday"}, 400, "bad_parameter"),
    ({"to": -1}, 400, "bad_json"),
    ({"to": 2**53}, 400, "bad_json"),
    ({"to": True}, 400, "bad_json"),
    ({"shift": 2**53}, 400, "bad_json"),
    ({"shift": "1"}, 400, "bad_json"),
    ({"to": "latest", "topics": ["none"]}, 404, "topic_not_found"),
    ({"to": "latest", "topics": ["old"]}, 404, "topic_not_found"),
    ({"to": "latest", "topics": [""]}, 400, "bad_name"),
    ({"to": "latest", "topics": [".a"]}, 400, "bad_name"),
    ({"to": "latest", "topics": ["a."]}, 400, "bad_name"),
    ({"to": "latest", "topics": ["#"]}, 400, "bad_name"),
    ({"to": "latest", "topics": ["***"]}, 400, "bad_parameter"),
    ({"to": "latest", "topics": ["a**"]}, 400, "bad_parameter"),
    ({"to": "latest", "topics": [".".join("*" * 10_000)]}, 400, "bad_parameter"),
    ({"to": "latest", "topics": ["t"] * 1001}, 400, "bad_json"),
    ({"to": "latest", "topics": "t"}, 400, "bad_json"),
    ({"to": "latest", "dry_run": "yes"}, 400, "bad_json"),
    ({"to": "latest", "until": 4}, 400, "bad_json"),
]
LEASES = [
    ({"holder": "a"}, 400, "bad_json"),
    ({"ttl_ms": 30_000}, 400, "bad_json"),
    ({"holder": "a", "ttl_ms": 0}, 400, "bad_json"),
    ({"holder": "a", "ttl_ms": -1}, 400, "bad_json"),
    ({"holder": "a", "ttl_ms": YEAR_MS}, 400, "bad_json"),
    ({"holder": "a", "ttl_ms": "30s"}, 400, "bad_json"),
    ({"holder": "a", "ttl_ms": 1000.5}, 400, "bad_json"),
    ({"holder": "", "ttl_ms": 30_000}, 400, "bad_json"),
    ({"holder": "x" * 129, "ttl_ms": 30_000}, 400, "bad_json"),
    ({"holder": "a", "ttl_ms": 30_000, "generation": 1}, 400, "bad_json"),
]
RAW_BODIES = [
    (b"", "bad_json"),
    (b"{", "bad_json"),
    (b"\xff", "bad_json"),
    (b'{"offsets": {"t": 6}', "bad_json"),
    (b'{"offsets": {"t": 6}} x', "bad_json"),
    (b'{"offsets": {"t": 6}, "metadata": {"t": "\\ud800"}}', "bad_json"),
    (b'{"offsets": {"t": 6}, "metadata": {"t": "\xff"}}', "bad_json"),
    (b"[" * 100_000, "bad_json"),
]
REQUESTS = [
    ("GET", "/v1/groups/none", 404, "group_not_found"),
    ("DELETE", "/v1/groups/none", 404, "group_not_found"),
    ("GET", "/v1/groups/none/topics/none/records", 404, "topic_not_found"),
    ("GET", "/v1/groups/a..b", 400, "bad_name"),
    ("GET", "/v1/groups/%00", 400, "bad_name"),
    ("GET", "/v1/groups/" + "x" * 129, 400, "bad_name"),
    ("PUT", "/v1/groups/a%2fb/offsets", 400, "bad_name"),
    ("GET", "/v1/groups//topics/t/records", 400, "bad_name"),
    ("GET", "/v1/groups/g/topics/a..b/records", 400, "bad_name"),
    ("GET", "/v1/groups/g/topics/%ff/records", 400, "bad_name"),
    ("GET", "/v1/groups?limit=0", 400, "bad_parameter"),
    ("GET", "/v1/groups?limit=501", 400, "bad_parameter"),
    ("GET", "/v1/groups?limit=x", 400, "bad_parameter"),
    ("GET", "/v1/groups?after=.", 400, "bad_name"),
    ("GET", "/v1/groups?pattern=x", 400, "bad_parameter"),
    ("GET", "/v1/groups/g?x=1", 400, "bad_parameter"),
    ("GET", f"{RECORDS}?offset=3", 400, "bad_parameter"),
    ("GET", f"{RECORDS}?default=5", 400, "bad_parameter"),
    ("GET", f"{RECORDS}?default=", 400, "bad_parameter"),
    ("GET", f"{RECORDS}?wait=61s", 400, "bad_parameter"),
    ("GET", f"{RECORDS}?format=batch&values=json", 400, "bad_parameter"),
    ("DELETE", LEASE, 400, "bad_parameter"),
    ("DELETE", f"{LEASE}?generation=0", 400, "bad_parameter"),
    ("DELETE", f"{LEASE}?generation=x", 400, "bad_parameter"),
    ("DELETE", f"{LEASE}?generation=9007199254740992", 400, "bad_parameter"),
    ("DELETE", f"{LEASE}?generation=1", 409, "stale_generation"),
    ("DELETE", "/v1/groups/held/lease?generation=1", 409, "stale_generation"),
    ("POST", OFFSETS, 405, "method_not_allowed"),
    ("GET", LEASE, 405, "method_not_allowed"),
    ("POST", RECORDS, 405, "method_not_allowed"),
    ("GET", "/v1/groups/g/", 404, "not_found"),
    ("GET", "/v1/groups/g/topics", 404, "not_found"),
]


async def check_refused(seb, request, status, code):
    """Send it; it is refused with this, and neither the journal nor the group has moved."""
    seq = seb.appliance.journal.position.seq
    before = (await seb.client.get("/v1/groups/g")).json()["topics"][0]["committed_offset"]
    answer = await request
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text[:500]
    assert answer.json()["side_effects"] == "none"
    assert len(answer.content) < 2_000
    after = (await seb.client.get("/v1/groups/g")).json()["topics"][0]["committed_offset"]
    assert (seb.appliance.journal.position.seq, after) == (seq, before)
    assert seb.appliance.broker.pending.used == 0


def name(value):
    return json.dumps(value)[:60] if isinstance(value, dict | list) else None


@pytest.mark.parametrize(("body", "status", "code"), COMMITS, ids=name)
async def test_a_commit_that_cannot_be_is_refused(seb, body, status, code):
    await check_refused(seb, seb.client.put(OFFSETS, json=body), status, code)


@pytest.mark.parametrize(("body", "code"), RAW_BODIES)
async def test_a_body_that_is_no_commit_is_refused(seb, body, code):
    headers = {"content-type": "application/json"}
    await check_refused(seb, seb.client.put(OFFSETS, content=body, headers=headers), 400, code)


@pytest.mark.parametrize(("body", "status", "code"), RESETS, ids=name)
async def test_a_reset_that_cannot_be_is_refused(seb, body, status, code):
    await check_refused(seb, seb.client.post(RESET, json=body), status, code)


@pytest.mark.parametrize("body", [{"to": 0}, {"shift": 1}, {"to": 0, "topics": ["t.*"]}], ids=name)
async def test_a_reset_of_no_group_is_refused(seb, body):
    request = seb.client.post("/v1/groups/none/reset", json=body)
    await check_refused(seb, request, 404, "group_not_found")


@pytest.mark.parametrize(("body", "status", "code"), LEASES, ids=name)
async def test_a_lease_that_cannot_be_is_refused(seb, body, status, code):
    await check_refused(seb, seb.client.post(LEASE, json=body), status, code)


@pytest.mark.parametrize(("method", "url", "status", "code"), REQUESTS)
async def test_a_request_that_cannot_be_is_refused(seb, method, url, status, code):
    await check_refused(seb, seb.client.request(method, url), status, code)


async def test_a_commit_without_the_lease_that_is_alive_is_refused(seb):
    body = {"offsets": {"t": 6}}
    request = seb.client.put("/v1/groups/held/offsets", json=body)
    await check_refused(seb, request, 409, "stale_generation")


async def test_a_lease_that_is_somebody_elses_is_refused(seb):
    body = {"holder": "b", "ttl_ms": 1000}
    await check_refused(seb, seb.client.post("/v1/groups/held/lease", json=body), 409, "lease_held")


async def test_a_body_over_its_limit_is_refused(seb):
    body = b" " * (limits.COMMIT_BYTES_MAX + 1)
    headers = {"content-type": "application/json"}
    request = seb.client.put(OFFSETS, content=body, headers=headers)
    await check_refused(seb, request, 413, "request_too_large")


@pytest.mark.parametrize("header", ["Idempotency-Key", "If-Match", "Producer-Id"])
async def test_a_promise_that_a_commit_does_not_give_is_refused(seb, header):
    request = seb.client.put(OFFSETS, json={"offsets": {"t": 6}}, headers={header: "1"})
    await check_refused(seb, request, 400, "bad_parameter")


async def test_another_media_type_is_refused(seb):
    headers = {"content-type": "text/plain"}
    request = seb.client.put(OFFSETS, content=b'{"offsets":{"t":6}}', headers=headers)
    await check_refused(seb, request, 415, "unsupported_media_type")
