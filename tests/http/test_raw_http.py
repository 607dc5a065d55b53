"""The HTTP protocol itself, byte by byte: limits, deadlines, and nonsense."""

from __future__ import annotations

import asyncio
import http.client
import socket

import pytest

from seb_appliance import limits
from seb_appliance.api.server import http_protocol, transports
from seb_appliance.api.server.http_protocol import SebHttpProtocol
from tests.support.raw_http import RawConnection, exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch):
    monkeypatch.setattr(transports, "_LINGER_S", 0.2)


def produce_head(seb, *lines: bytes) -> bytes:
    head = b"POST /v1/topics/raw/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
    return b"\r\n".join([head + seb.admin_key.encode(), *lines, b"", b""])


async def good(seb):
    """The process lives, and takes the next good request."""
    answer = await exchange(seb.port, produce_head(seb, b"Content-Length: 2") + b"ok")
    assert answer.status == 201
    assert seb.appliance.broker.pending.used == 0


REFUSED = {
    "a header of 4 MB": (GET + b"X: " + b"x" * 4_000_000 + b"\r\n\r\n", 431),
    "a header of 20 KB": (GET + b"X: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    "a URL of 20 KB": (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
    "1,000 headers": (GET + b"".join(b"X-%d: aaaaaaaaaaa\r\n" % i for i in range(1000)), 431),
    "10,000 empty headers": (GET + b"a:\r\n" * 10_000 + b"\r\n", 431),
    "an endless header": (GET + b"X: " + b"x" * 300_000, 431),
    "length and chunks": (
        GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a coding other than chunked": (GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "a coding that is none": (GET + b"Transfer-Encoding: identity\r\n\r\n", 501),
    "two lengths": (GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
    "a negative length": (GET + b"Content-Length: -1\r\n\r\n", 400),
    "a length in words": (GET + b"Content-Length: many\r\n\r\n", 400),
    "a length of 30 digits": (GET + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "a length of 5,000 digits": (GET + b"Content-Length: " + b"0" * 5_000 + b"1\r\n\r\n", 400),
    "no Host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (GET + b"Host: y\r\n\r\n", 400),
    "NUL in a header": (GET + b"X: a\0b\r\n\r\n", 400),
    "NUL in a name": (GET + b"X\0: a\r\n\r\n", 400),
    "bare LF": (b"GET /healthz HTTP/1.1\nHost: x\n\n", 400),
    "a folded header": (GET + b"X: a\r\n b\r\n\r\n", 400),
    "space before the colon": (GET + b"X : a\r\n\r\n", 400),
    "CONNECT": (b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n", 400),
    "PRI": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "an unknown method": (b"BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), 400),
    "HTTP/3.7": (b"GET /healthz HTTP/3.7\r\nHost: x\r\n\r\n", 400),
    "no version": (b"GET /healthz\r\n\r\n", 400),
    "bytes beyond ASCII in the path": (b"GET /v1/topics/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", 400),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_not_http_or_too_large_is_refused(seb, data, status):
    answer = await exchange(seb.port, data)
    assert answer.status == status
    codes = {431: "headers_too_large", 501: "transfer_coding_unsupported"}
    assert answer.code == codes.get(status, "bad_request")
    assert answer.closed
    assert answer.problem["side_effects"] == "none"
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["seb-request-id"] in answer.problem["instance"]
    await good(seb)


async def test_an_answer_that_has_no_body_has_no_length(seb):
    """RFC 9110, section 8.6; a stream takes the fast lane."""
    about = f"Host: x\r\nAuthorization: Bearer {seb.admin_key}\r\n".encode()
    stream = b"%b /v1/stream/s HTTP/1.1\r\n" + about + b"Content-Type: text/plain\r\n"
    made = await exchange(seb.port, stream % b"PUT" + b"Content-Length: 0\r\n\r\n")
    assert (made.status, made.headers["content-length"]) == (201, "0")
    connection = await RawConnection.open(seb.port)
    tag = ""
    for status, request in (
        (204, stream % b"POST" + b"Content-Length: 1\r\n\r\nx"),
        (200, b"GET /v1/stream/s HTTP/1.1\r\n" + about + b"\r\n"),
        (304, b"GET /v1/stream/s HTTP/1.1\r\n" + about + b"If-None-Match: %b\r\n\r\n"),
        (204, stream % b"DELETE" + b"\r\n"),
    ):
        await connection.send(request % tag.encode() if status == 304 else request)
        answer = await connection.answer()
        tag = answer.headers.get("etag", tag)
        assert answer.status == status
        assert ("content-length" in answer.headers) is (status == 200)
        assert "transfer-encoding" not in answer.headers
    await connection.close()


async def test_trace_is_not_allowed(seb):
    answer = await exchange(seb.port, b"TRACE /healthz HTTP/1.1\r\nHost: x\r\nCookie: s\r\n\r\n")
    assert (answer.status, answer.code) == (405, "method_not_allowed")


async def test_a_bad_host_is_refused(seb):
    answer = await exchange(seb.port, b"GET /healthz HTTP/1.1\r\nHost: a b/c\r\n\r\n")
    assert answer.status == 400


@pytest.mark.parametrize(
    "chunks",
    [
        b"FFFFFFFFFFFFFFFF\r\nx",
        b"FFFFFFFFFFFFFFFFFF\r\nx",
        b"-1\r\nx",
        b"x\r\nx",
        b"\r\n",
        b"1\r\nxx",
    ],
)
async def test_bad_chunks_are_refused(seb, chunks):
    head = produce_head(seb, b"Transfer-Encoding: chunked")
    connection = await RawConnection.open(seb.port)
    await connection.send(head + chunks)
    if chunks.startswith(b"FFFFFFFFFFFFFFFF\r"):
        await connection.send(b"")  # an honest prefix of an endless chunk: the client leaves
        connection.writer.write_eof()
        assert await connection.ended()
    else:
        answer = await connection.answer()
        assert (answer.status, answer.code) == (400, "bad_request")
    await connection.close()
    await good(seb)


async def test_long_chunk_extensions_do_no_harm(seb):
    head = produce_head(seb, b"Transfer-Encoding: chunked")
    body = b"5;" + b"e" * 1_000_000 + b"\r\nhello\r\n0\r\n\r\n"
    answer = await exchange(seb.port, head + body)
    assert answer.status in (201, 400)
    await good(seb)


async def test_a_client_that_leaves_in_its_body_frees_what_it_held(seb):
    connection = await RawConnection.open(seb.port)
    await connection.send(produce_head(seb, b"Content-Length: 1000000") + b"x" * 1000)
    async with asyncio.timeout(60):
        while seb.appliance.broker.pending.used != 1_000:  # what came, not what was announced
            await asyncio.sleep(0)
        await connection.close()
        while seb.appliance.broker.pending.used:
            await asyncio.sleep(0)
    await good(seb)


async def test_expect_100_continue_is_answered_before_the_body(seb):
    connection = await RawConnection.open(seb.port)
    await connection.send(
        produce_head(seb, b"Expect: 100-continue", b"Content-Length: 5", b"Seb-Key: a")
    )
    assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await connection.send(b"hello")
    assert (await connection.answer()).status == 201
    await connection.close()


async def test_a_refusal_comes_instead_of_100_continue(seb):
    answer = await exchange(
        seb.port, produce_head(seb, b"Expect: 100-continue", b"Content-Length: 99999999")
    )
    assert (answer.status, answer.closed) == (413, True)


async def test_an_upload_that_is_too_large_still_gets_its_answer(seb):
    """The client sends on; without lingering the kernel would reset the connection, and a plain
    client would see that instead of the answer."""

    def upload() -> int:
        client = http.client.HTTPConnection("127.0.0.1", seb.port, timeout=60)
        body = b"x" * (2 * limits.REQUEST_BYTES_MAX)
        headers = {"Authorization": f"Bearer {seb.admin_key}"}
        try:
            client.request("POST", "/v1/topics/raw/records", body, headers)
            return client.getresponse().status
        finally:
            client.close()

    assert await asyncio.to_thread(upload) == 413


# --- deadlines ---


@pytest.mark.parametrize(
    ("start", "phase"),
    [
        (b"GET /hea", "headers"),
        (GET + b"X-Slow: ", "headers"),
        (b"POST /v1/topics/raw/records HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n", "headers"),
    ],
)
async def test_headers_that_do_not_end_time_out(seb, monkeypatch, start, phase):
    monkeypatch.setitem(http_protocol._ALLOWED_S, phase, 0.05)
    answer = await exchange(seb.port, start)
    assert (answer.status, answer.code, answer.closed) == (408, "request_timeout", True)
    assert answer.problem["retryable"] is True


async def test_a_body_that_trickles_times_out_and_frees_its_reservation(seb, monkeypatch):
    monkeypatch.setitem(http_protocol._ALLOWED_S, "body", 0.1)
    monkeypatch.setattr(transports, "_LINGER_S", 30)  # hanging up is not what frees it
    connection = await RawConnection.open(seb.port)
    await connection.send(produce_head(seb, b"Content-Length: 1000"))

    async def trickle():
        while True:
            await connection.send(b"x")
            await asyncio.sleep(0.01)

    trickling = asyncio.create_task(trickle())
    answer = await connection.answer()
    trickling.cancel()
    assert (answer.status, answer.code) == (408, "request_timeout")
    async with asyncio.timeout(60):
        while seb.appliance.broker.pending.used:
            await asyncio.sleep(0)
    await connection.close()
    await good(seb)


async def test_a_connection_that_never_speaks_is_closed_without_a_word(seb, monkeypatch):
    monkeypatch.setitem(http_protocol._ALLOWED_S, "headers", 0.05)
    connection = await RawConnection.open(seb.port)
    assert await connection.ended()
    await connection.close()


async def test_a_long_poll_is_no_slow_request(seb, monkeypatch):
    await good(seb)
    # Long enough for a busy machine to send a head in.
    monkeypatch.setitem(http_protocol._ALLOWED_S, "headers", 0.9)
    monkeypatch.setitem(http_protocol._ALLOWED_S, "body", 0.9)
    head = b"GET /v1/topics/raw/records?offset=latest&wait=1s HTTP/1.1\r\nHost: x\r\n"
    answer = await exchange(
        seb.port, head + b"Authorization: Bearer " + seb.admin_key.encode() + b"\r\n\r\n"
    )
    assert answer.status == 200


async def test_a_reader_that_takes_nothing_is_cut_off(seb, monkeypatch):
    monkeypatch.setattr(limits, "HTTP_PACE_S", 0.1)
    for _ in range(8):
        await seb.client.post("/v1/topics/stalled/records", content=b"z" * 1_000_000)
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(stalled, ("127.0.0.1", seb.port))
    head = b"GET /v1/topics/stalled/records?max_bytes=16MiB HTTP/1.1\r\nHost: x\r\n"
    await loop.sock_sendall(
        stalled, head + b"Authorization: Bearer " + seb.admin_key.encode() + b"\r\n\r\n"
    )
    async with asyncio.timeout(60):
        while not seb.appliance.broker.reading.used:
            await asyncio.sleep(0)
        while seb.appliance.broker.reading.used:
            await asyncio.sleep(0)
    stalled.close()
    await good(seb)


# --- connections ---


async def test_connections_over_the_cap_are_told_so(seb, monkeypatch):
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 0)
    answer = await exchange(seb.port, GET + b"\r\n")
    assert (answer.status, answer.code) == (503, "overloaded")
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_connection_is_kept_and_requests_may_be_pipelined(seb):
    connection = await RawConnection.open(seb.port)
    one = produce_head(seb, b"Content-Length: 1")
    await connection.send(one + b"a" + one + b"b" + GET + b"\r\n")
    offsets = []
    for _ in range(2):
        answer = await connection.answer()
        offsets.append(answer.problem["offset"])
    assert offsets[1] == offsets[0] + 1
    assert (await connection.answer()).status == 200
    await connection.close()


async def test_a_request_is_parsed_once_the_one_before_is_answered(seb, monkeypatch):
    """A crowd of them took hundreds of times its bytes, from a client without an API key."""
    waiting = []
    complete = SebHttpProtocol.on_headers_complete

    def noted(protocol: SebHttpProtocol) -> None:
        complete(protocol)
        waiting.append(len(protocol.pipeline))

    monkeypatch.setattr(SebHttpProtocol, "on_headers_complete", noted)
    connection = await RawConnection.open(seb.port)
    chunked = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    await connection.send((chunked + b"3\r\nabc\r\n0\r\n\r\n" + GET + b"\r\n") * 500)
    answers = [(await connection.answer()).status for _ in range(1_000)]
    assert answers == [405, 200] * 500
    assert len(waiting) == 1_000
    assert max(waiting) <= http_protocol._PIECE_BYTES // len(GET)
    await connection.close()


async def test_a_body_that_comes_in_tiny_chunks_is_whole(seb):
    body = b"".join(b"%d" % (i % 10) for i in range(100_000))
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = produce_head(seb, b"Transfer-Encoding: chunked")
    connection = await RawConnection.open(seb.port)
    await connection.send(head + chunks + GET + b"\r\n")
    at = (await connection.answer()).problem["offset"]
    assert (await connection.answer()).status == 200
    await connection.close()
    read = await seb.client.get(f"/v1/topics/raw/records?offset={at}")
    assert read.json()["records"][0]["value"] == body.decode()


async def test_a_trailer_is_not_a_header(seb):
    """A proxy that checks headers, and sets them, passes trailers on as they are."""
    head = b"POST /v1/topics/raw/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    key = b"Authorization: Bearer " + seb.admin_key.encode()
    for upgrade in (b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"):
        sent = head + upgrade + b"\r\n1\r\nx\r\n0\r\n" + key + b"\r\nX-End: 1\r\n\r\n"
        assert (await exchange(seb.port, sent)).status == 401
    many = head + b"\r\n1\r\nx\r\n0\r\n" + b"a: b\r\n" * 5_000 + b"\r\n"
    assert (await exchange(seb.port, many)).status in {401, 431}
    await good(seb)


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_empty_lines_keep_no_connection_open(seb, monkeypatch, fast_lane):
    """They begin no request, and are no reason to wait for one any longer."""
    monkeypatch.setitem(http_protocol._ALLOWED_S, "headers", 0.05)
    first = produce_head(seb, b"Content-Length: 1") + b"x" if fast_lane else GET + b"\r\n"
    connection = await RawConnection.open(seb.port)
    await connection.send(first)
    assert (await connection.answer()).status in {200, 201}
    await connection.send(b"\r\n")
    async with asyncio.timeout(30):
        assert await connection.ended()
    await connection.close()


async def test_nonsense_after_a_request_does_not_spoil_its_answer(seb):
    connection = await RawConnection.open(seb.port)
    await connection.send(produce_head(seb, b"Content-Length: 1") + b"a" + b"\0nonsense\r\n\r\n")
    assert (await connection.answer()).status == 201
    assert (await connection.answer()).status == 400
    assert await connection.ended()
    await connection.close()


async def test_an_upgrade_that_is_offered_is_not_taken(seb, caplog):
    head = GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"
    answer = await exchange(seb.port, head)
    assert answer.status == 200
    assert not caplog.records


UPGRADE = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: x")


@pytest.mark.parametrize("piece_bytes", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"Content-Length: 5", b"hello"),
        (b"Transfer-Encoding: chunked", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
    ],
)
async def test_a_request_that_offers_an_upgrade_keeps_its_body(seb, framing, body, piece_bytes):
    """As Java's HTTP client and `curl --http2` do over plain HTTP."""
    connection = await RawConnection.open(seb.port)
    offering = produce_head(seb, *UPGRADE, framing) + body
    data = offering + GET + b"\r\n".join([*UPGRADE, b"", b""]) + offering + GET + b"\r\n"
    for start in range(0, len(data), piece_bytes):
        await connection.send(data[start : start + piece_bytes])
    answers = [await connection.answer() for _ in range(4)]
    assert [answer.status for answer in answers] == [201, 200, 201, 200]
    await connection.close()
    for answer in (answers[0], answers[2]):
        at = answer.problem["offset"]
        read = await seb.client.get(f"/v1/topics/raw/records?offset={at}&until={at + 1}")
        assert [record["value"] for record in read.json()["records"]] == ["hello"]


async def test_http_1_0_needs_no_host(seb):
    answer = await exchange(seb.port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answer.status == 200


async def test_head_over_the_wire_has_no_body(seb):
    connection = await RawConnection.open(seb.port)
    await connection.send(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n")
    assert int((await connection.answer(head=True)).headers["content-length"]) > 0
    assert (await connection.answer()).status == 200
    await connection.close()


async def test_answers_are_sent_at_once(seb):
    connection = await RawConnection.open(seb.port)
    await connection.send(GET + b"\r\n")
    await connection.answer()
    [protocol] = [
        found
        for found in seb.server.server_state.connections
        if isinstance(found, SebHttpProtocol)
        and found.client == connection.writer.get_extra_info("sockname")
    ]
    served = protocol.transport.get_extra_info("socket")
    assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await connection.close()
