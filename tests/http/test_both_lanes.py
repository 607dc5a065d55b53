"""The fast lane and the application answer alike, byte for byte but for times and request ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.both_lanes import BATCH, Both, Case, both_lanes
from tests.support.go_client import BOUNDARY, body_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON, NDJSON, SEB = (
    f"Content-Type: application/{kind}" for kind in ("json", "x-ndjson", "vnd.seb.batch")
)
TRACE = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MULTIPART, ACCEPT = (
    f"{name}: multipart/form-data{more}"
    for name, more in (("Content-Type", f"; boundary={BOUNDARY}"), ("Accept", ""))
)
GO: dict[str, Any] = {"path": "/records?topic-name=t", "headers": (MULTIPART,)}
GO_READ: dict[str, Any] = {"method": "GET", "headers": (ACCEPT,)}
COMMIT: dict[str, Any] = {"method": "PUT", "path": "/v1/groups/g/offsets"}
CASES = [
    Case("bytes", body=b"hello", taken=True),
    Case("nothing", taken=True),
    Case("text", headers=("Content-Type: text/plain; charset=utf-8",), body=b"x", taken=True),
    Case("a record key", headers=("Seb-Key: a%20b", "Seb-Header-n: 1"), body=b"x", taken=True),
    Case("a timestamp", headers=("Seb-Timestamp: 2026-01-01T00:00:00Z",), body=b"x", taken=True),
    Case("json", headers=(JSON,), body=b'{"records":[{"value":{"a":1}}]}', taken=True),
    Case("ndjson", headers=(NDJSON,), body=b'{"value":"a"}\n{"value":"b"}\n', taken=True),
    Case("a batch", headers=(SEB,), body=BATCH, taken=True),
    Case("keep-alive", headers=("Connection: keep-alive",), body=b"x", taken=True),
    Case("other headers", headers=("traceparent: 00-1", "User-Agent: x"), body=b"x", taken=True),
    Case("a trace", headers=(TRACE,), body=b"x", taken=True),
    Case("a trace beside a key", headers=(TRACE, "Seb-Key: a"), body=b"x", taken=True),
    Case("a trace of many", headers=(TRACE, NDJSON), body=b'{"value":1}\n{"value":2}'),
    Case("a trace beside a batch", headers=(TRACE, SEB), body=BATCH, taken=True),
    Case("close", headers=("Connection: close",), body=b"x"),
    Case("HTTP/1.0", version="HTTP/1.0", body=b"x"),
    Case("no host", host="", body=b"x"),
    Case("two hosts", headers=("Host: y",), body=b"x"),
    Case("a bad host", host="Host: a b/c", body=b"x"),
    Case("a space behind the host", host="Host: x ", body=b"x"),
    Case("a host and a port", host="Host: seb.example:51313", body=b"x", taken=True),
    Case("an address of IPv6", host="Host: [::1]:8080", body=b"x", taken=True),
    Case("an upgrade", headers=("Connection: Upgrade", "Upgrade: h2c"), body=b"x"),
    Case("a query", path="/v1/topics/t/records?a=b", body=b"x"),
    Case("an unknown seb header", headers=("Seb-Colour: red",), body=b"x"),
    Case("a header for one beside many", headers=(NDJSON, "Seb-Key: a"), body=b'{"value":1}'),
    Case("a bad key", headers=("Seb-Key: %zz",), body=b"x"),
    Case("two keys", headers=("Seb-Key: a", "Seb-Key: b"), body=b"x"),
    Case("a bad timestamp", headers=("Seb-Timestamp: now",), body=b"x"),
    Case("bad json", headers=(JSON,), body=b"{"),
    Case("a tombstone without a key", headers=(NDJSON,), body=b'{"value":null}'),
    Case("a bad batch", headers=(SEB,), body=BATCH[:-1]),
    Case("an unknown type", headers=("Content-Type: application/pdf",), body=b"x"),
    Case("zstd", headers=("Content-Encoding: br",), body=b"x"),
    Case("gzip that is none", headers=("Content-Encoding: gzip",), body=b"x"),
    Case("a short time-out", headers=("Seb-Timeout: 10s",), body=b"x"),
    Case("an idempotency key", headers=("Idempotency-Key: a",), body=b"x"),
    Case("a condition", headers=('If-Match: "9999"',), body=b"x"),
    Case("a new topic", path="/v1/topics/made/records", body=b"x"),
    Case("a bad name", path="/v1/topics/a..b/records", body=b"x"),
    Case("a long name", path=f"/v1/topics/{'a' * 200}/records", body=b"x"),
    Case("an escape", path="/v1/topics/%74/records", body=b"x"),
    Case("no api key", key="none", body=b"x"),
    Case("a wrong api key", key="wrong", body=b"x"),
    Case("a key that may not", key="consumer", body=b"x"),
    Case("a key with quotas", key="limited", body=b"x"),
    Case("two api keys", headers=("Authorization: Bearer x",), body=b"x"),
    Case("too long a record", body=b"x" * 5_000),
    Case("too long a request", headers=("Content-Length: 99999999",), sized=False),
    Case("a length that is none", headers=("Content-Length: x",), sized=False),
    Case("two lengths", headers=("Content-Length: 1",), body=b"xx"),
    Case("no length", sized=False),
    Case(
        "chunks",
        headers=("Transfer-Encoding: chunked",),
        sized=False,
        body=b"3\r\nabc\r\n0\r\n\r\n",
    ),
    Case("expect", headers=("Expect: 100-continue",), body=b"x"),
    Case("pipelined", body=b"x", raw=b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", answers=2),
    Case("nonsense behind", body=b"x", raw=b"\0nonsense\r\n\r\n"),
    Case("an unknown method", method="BREW"),
    Case("put", method="PUT", headers=("Content-Length: 0",)),
    Case("head", method="HEAD", headers=("Accept: application/json",)),
    Case("commit", body=b'{"offsets":{"t":1}}', taken=True, **COMMIT),
    Case("commit again", body=b'{"offsets":{"t":1},"metadata":{"t":"m"}}', taken=True, **COMMIT),
    Case("commit if", body=b'{"offsets":{"t":1},"expected":{"t":1}}', taken=True, **COMMIT),
    Case("commit if not", body=b'{"offsets":{"t":1},"expected":{"t":0}}', **COMMIT),
    Case("commit backward", body=b'{"offsets":{"t":0}}', **COMMIT),
    Case("commit beyond the end", body=b'{"offsets":{"t":9999}}', **COMMIT),
    Case("commit badly", body=b'{"offsets":{"t":-1}}', **COMMIT),
    Case("commit nothing", body=b'{"offsets":{}}', **COMMIT),
    Case("commit for no topic", body=b'{"offsets":{"missing":1}}', **COMMIT),
    Case("commit of a stranger", body=b'{"offsets":{"t":1},"generation":7}', **COMMIT),
    Case("commit without the right", body=b'{"offsets":{"t":1}}', key="producer", **COMMIT),
    Case("commit for a bad name", method="PUT", path="/v1/groups/a..b/offsets", body=b"{}"),
    Case("go: one", body=body_of([b"a"]), taken=True, **GO),
    Case("go: many", body=body_of([b"a", b"", b"bc"]), taken=True, **GO),
    Case(
        "go: a quoted boundary",
        path="/records?topic-name=t",
        headers=(f'content-type: multipart/form-data; boundary="{BOUNDARY}"',),
        body=body_of([b"a"]),
        taken=True,
    ),
    Case("go: sizes that are wrong", body=body_of([b"a"], [2]), **GO),
    Case("go: no multipart", body=b"a", **GO),
    Case("go: too long a record", body=body_of([b"x" * 5_000]), **GO),
    Case("go: no type", path="/records?topic-name=t", body=body_of([b"a"])),
    Case("go: a new topic", **GO | {"path": "/records?topic-name=go.made"}, body=body_of([b"a"])),
    Case("go: a bad name", **GO | {"path": "/records?topic-name=a/b"}, body=body_of([b"a"])),
    Case("go: a seb header", path=GO["path"], headers=(MULTIPART, "Seb-Key: a"), body=b"x"),
    Case("go: a key that may not", body=body_of([b"a"]), key="consumer", **GO),
    Case("go: a wrong api key", body=body_of([b"a"]), key="wrong", **GO),
    Case("go: a key with quotas", body=body_of([b"a"]), key="limited", **GO),
    Case("go: read", path="/records?topic-name=t&offset=1&max-records=3", taken=True, **GO_READ),
    Case(
        "go: read as its client asks",
        path="/records?max-bytes=9&max-records=10&offset=2&timeout=1s&topic-name=t",
        taken=True,
        **GO_READ,
    ),
    Case("go: read beyond", path="/records?topic-name=t&offset=9999&timeout=1ms", **GO_READ),
    Case(
        "go: read much",
        path="/records?topic-name=t&offset=0&max-records=5000",
        taken=True,
        **GO_READ,
    ),
    Case("go: no accept", method="GET", path="/records?topic-name=t&offset=0"),
    Case("go: two offsets", path="/records?offset=1&topic-name=t&offset=2", **GO_READ),
    Case("go: one record", path="/record?topic-name=t&offset=0", **GO_READ),
    Case("read", method="GET", taken=True),
    Case("read some", method="GET", path="/v1/topics/t/records?offset=1&max_records=2", taken=True),
    Case("read all lines", method="GET", headers=("Accept: application/x-ndjson",)),
    Case(
        "read some lines",
        method="GET",
        path="/v1/topics/t/records?max_records=3",
        headers=("Accept: application/x-ndjson",),
        taken=True,
    ),
    Case(
        "read rows", method="GET", path="/v1/topics/t/records?format=csv&max_bytes=1KiB", taken=True
    ),
    Case("read all rows", method="GET", path="/v1/topics/t/records?format=csv"),
    Case(
        "read with defaults",
        method="GET",
        path="/v1/topics/t/records?offset=earliest&wait=0&values=text",
        taken=True,
    ),
    Case(
        "read a batch with defaults",
        method="GET",
        path="/v1/topics/fixed/records?format=batch&values=text",
        taken=True,
    ),
    Case("read a batch", method="GET", path="/v1/topics/fixed/records?format=batch", taken=True),
    Case("read base64", method="GET", path="/v1/topics/t/records?values=base64", taken=True),
    Case("read the end", method="GET", path="/v1/topics/t/records?offset=latest", taken=True),
    Case("read much", method="GET", path="/v1/topics/t/records?max_records=100000"),
    Case("read one topic", method="GET", path="/v1/topics/t/records?topic_id=1", taken=True),
    Case(
        "read one topic on",
        method="GET",
        path="/v1/topics/t/records?offset=1&topic_id=1",
        taken=True,
    ),
    Case("read another topic", method="GET", path="/v1/topics/t/records?topic_id=9999"),
    Case("read another on", method="GET", path="/v1/topics/t/records?offset=1&topic_id=9999"),
    Case("read no topic", method="GET", path="/v1/topics/t/records?topic_id=x"),
    Case("follow", method="GET", path="/v1/topics/t/records?format=sse&max_records=1"),
    Case(
        "follow rather than read",
        method="GET",
        path="/v1/topics/t/records?until=0",
        headers=("Accept: application/json;q=0.5, text/event-stream",),
    ),
    Case("read beyond", method="GET", path="/v1/topics/t/records?offset=9999"),
    Case(
        "read until a time", method="GET", path="/v1/topics/t/records?until=@2020-01-01T00:00:00Z"
    ),
    Case("read nothing", method="GET", path="/v1/topics/missing/records"),
    Case("read badly", method="GET", path="/v1/topics/t/records?offset=x"),
    Case("read with a body", method="GET", headers=("Content-Length: 1",), body=b"x"),
    Case("read what is not there", method="GET", headers=("Accept: image/png",)),
    Case("read without the right", method="GET", key="producer"),
    Case("read with quotas", method="GET", key="limited"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    async with both_lanes(tmp_path_factory.mktemp("lanes")) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_both_lanes_give_the_same_answer(both: Both, case: Case) -> None:
    before = both.fast.server.plain_answers.answered
    for _ in range(3):  # a head is remembered from the first time on
        fast, slow = await both.answers(case)
        assert fast == slow
    assert (both.fast.server.plain_answers.answered - before == 3) == case.taken
    assert both.slow.server.plain_answers.answered == 0


@pytest.mark.parametrize("case", [c for c in CASES if len(c.body) < 1_000], ids=lambda c: c.name)
async def test_a_request_that_comes_in_two_pieces_is_answered_alike(both: Both, case: Case) -> None:
    length = min(len(case.request(keys)) for keys in both.keys.values())
    for cut in range(1, length, 7 if case.taken else 23):
        fast, slow = await both.answers(case, cut)
        assert fast == slow, cut


@pytest.mark.parametrize("case", [c for c in CASES if c.taken][:9:4], ids=lambda c: c.name)
async def test_a_request_cut_at_every_byte_is_answered_alike(both: Both, case: Case) -> None:
    length = min(len(case.request(keys)) for keys in both.keys.values())
    fast, slow = await both.answers(case, *range(1, length))
    assert fast == slow
    for cut in range(1, length):
        fast, slow = await both.answers(case, cut)
        assert fast == slow, cut
