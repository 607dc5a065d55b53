"""Line ends and NUL in whatever is said to us come out of no header that we answer with: in both
lanes, in records that were stored, in the streams' headers, in the Go broker's API and on pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.raw_http import RawConnection
from tests.ui.pages import PASSWORD, add_user

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The last one becomes CR LF where only the low bytes of its characters are taken.
ENDS = ("\r\n", "\r", "\n", "\0", "\u2028", "\x85", "\u010d\u010a")
EVIL = "x{end}evil: 1{end}{end}HTTP/1.1 200 OK{end}evil: 2{end}{end}"
# Such a value is let in as far as a header goes.
QUIET = quote(EVIL.format(end="\r\n")) + EVIL.format(end="\u010d\u010a") + "\x85evil: 1\u2028"
ECHOED = ("Host", "Origin", "Accept", "Content-Type", "Content-Encoding", "Idempotency-Key",
          "Range", "Seb-Key", "Seb-Header-a", "Seb-Timeout", "If-Match", "If-None-Match",
          "Stream-Seq", "Stream-TTL", "Stream-Expires-At", "Stream-Forked-From", "Producer-Id",
          "Producer-Epoch", "Producer-Seq", "Traceparent", "Tracestate", "User-Agent",
          "Cookie", "Referer", "Ce-Id",
          "X-Forwarded-Proto", "X-Forwarded-For", "HX-Target", "Access-Control-Request-Method",
          "Access-Control-Request-Headers", "Authorization")  # fmt: skip
ASKED = (
    ("GET", "/v1/topics/t/records?offset=0"),
    ("POST", "/v1/topics/t/records"),
    ("PUT", "/v1/groups/g/offsets"),
    ("PUT", "/v1/stream/of/lines"),
    ("POST", "/v1/stream/of/text"),
    ("GET", "/v1/stream/of/text"),
    ("POST", "/records?topic-name=t"),
    ("GET", "/records?topic-name=t&offset=0"),
    ("OPTIONS", "/v1/topics"),
    ("GET", "/ui"),
    ("POST", "/ui/login"),
)
PATHS = (
    "/v1/topics/{evil}", "/v1/topics/{evil}/records", "/v1/topics/t/records?offset={evil}",
    "/v1/topics/t/records?{evil}=1", "/v1/stream/{evil}", "/v1/stream/of/text?offset={evil}",
    "/v1/stream/of/text?offset=-1&live=long-poll&cursor={evil}", "/records?topic-name={evil}",
    "/topic?{evil}",
    "/v1/groups/{evil}", "/v1/records?topics={evil}", "/v1/api-keys/{evil}", "/{evil}",
    "/ui/{evil}", "/ui/login?next=/ui/{evil}", "/ui/topics/{evil}",
    "/ui/topics/t/download?offset={evil}",
    "/ui/audit?who={evil}", "/schema/{evil}", "/ui/static/{evil}",
)  # fmt: skip


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[True, False], ids=["fast lane", "without it"]
)
async def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningAppliance]:
    """An appliance that was told evil in all that it stores and gives back."""
    data: Path = tmp_path_factory.mktemp("seb")
    async with running_appliance(data, fast_lane=request.param, cors_origins="*") as seb:
        await add_user(seb, "admin", "admin")
        evil = [EVIL.format(end=end) for end in ENDS]
        records = [{"key": one, "value": one, "headers": {one: one, "a": one}} for one in evil]
        sent = await seb.client.post("/v1/topics/t/records", json={"records": records})
        assert sent.status_code == 201, sent.text
        text = {"content-type": "text/plain"}
        made = await seb.client.put("/v1/stream/of/text", headers=text, content=evil[0].encode())
        assert made.status_code == 201
        yield seb


async def answered(seb: RunningAppliance, lines: list[bytes], body: bytes = b"") -> bytes:
    """All that comes back until the connection is closed."""
    key = b"Authorization: Bearer " + seb.admin_key.encode()
    named = {line.partition(b":")[0].lower() for line in lines[1:]}
    more = [b"Host: x", key, b"Connection: close"]
    lines += [line for line in more if line.partition(b":")[0].lower() not in named]
    lines.append(b"Content-Length: %d" % len(body))
    connection = await RawConnection.open(seb.port)
    try:
        async with asyncio.timeout(20):
            await connection.send(b"\r\n".join([*lines, b"", b""]) + body)
            return await connection.reader.read()
    finally:
        await connection.close()


def check(answer: bytes, asked: bytes) -> None:
    """One answer, with lines of ours alone in its head, whatever its body holds."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first.startswith(b"HTTP/1.1 "), (asked, first)
    headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
    assert not any(name.startswith((b"evil", b"http")) for name in headers), (asked, lines)
    for line in lines:
        assert not set(b"\r\n\0") & set(line), (asked, line)
    if b"content-length" in headers:
        assert len(body) == int(headers[b"content-length"]), (asked, body)


@pytest.mark.parametrize("name", ECHOED)
async def test_no_header_of_a_request_ends_a_line_of_the_answer(
    told: RunningAppliance, name: str
) -> None:
    for method, path in ASKED:
        first, header = f"{method} {path} HTTP/1.1".encode(), f"{name}: {QUIET}".encode()
        check(await answered(told, [first, header]), first + b" " + header)
    for end in ("\r", "\n", "\0"):
        header = f"{name}: x{end}evil: 1".encode()
        check(await answered(told, [b"PUT /v1/stream/of/lines HTTP/1.1", header]), header)


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_or_query_ends_a_line_of_the_answer(
    told: RunningAppliance, path: str
) -> None:
    for method in ("GET", "PUT"):
        for end in ("\r\n", "\0", "\u010d\u010a"):
            first = f"{method} {path.format(evil=quote(EVIL.format(end=end), safe=''))} HTTP/1.1"
            check(await answered(told, [first.encode()]), first.encode())


async def test_nothing_that_was_stored_ends_a_line_of_an_answer(told: RunningAppliance) -> None:
    for offset in range(len(ENDS)):
        first = f"GET /v1/topics/t/records/{offset} HTTP/1.1".encode()
        answer = await answered(told, [first, b"Accept: application/octet-stream"])
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nseb-key: x%" in answer
        check(answer, first)
        for path in (
            f"/v1/topics/t/records?offset={offset}",
            f"/record?topic-name=t&offset={offset}",
        ):
            first = f"GET {path}offset={offset} HTTP/1.1".encode()
            check(await answered(told, [first]), first)


async def test_no_way_back_ends_a_line_of_the_answer(told: RunningAppliance) -> None:
    for end in ENDS:
        way_back = quote("/ui/" + EVIL.format(end=end), safe="")
        form = f"name=admin&password={quote(PASSWORD)}&next={way_back}".encode()
        lines = [b"POST /ui/login HTTP/1.1", b"Host: x", b"Origin: http://x"]
        lines.append(b"Content-Type: application/x-www-form-urlencoded")
        answer = await answered(told, lines, form)
        assert answer.startswith(b"HTTP/1.1 400 " if end == "\0" else b"HTTP/1.1 303 ")
        check(answer, form)
