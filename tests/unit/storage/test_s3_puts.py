"""PUTs that the event loop sends, against servers that behave as some do, by asyncio and uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from seb_appliance.errors import StoreClockSkewError, StoreDeniedError, StoreUncertainError
from seb_appliance.storage.stores.s3 import S3Store
from seb_appliance.storage.stores.s3_options import S3Options

STORED = b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 0\r\n\r\n"
BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"
DENIED = b"<Error><Code>AccessDenied</Code></Error>"
REFUSED = b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%s" % (len(DENIED), DENIED)


@dataclass
class Server:
    """Answers the n-th request with the n-th of `answers`; the last one is for all after it.

    `leaves`: it closes each connection after its answer, without having said so. `early`: it
    answers the head and never reads the body.
    """

    answers: list[bytes]
    leaves: bool = False
    early: bool = False
    tls: ssl.SSLContext | None = None
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    serving: list[asyncio.Future[None]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.serving.append(done)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.heads.append(head)
                if not self.early:
                    self.bodies.append(await reader.readexactly(length))
                answer = self.answers[min(len(self.heads), len(self.answers)) - 1]
                writer.write(answer)
                await writer.drain()
                if self.early:
                    await self.left.wait()
                if self.leaves or self.early:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        self.left.set()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        done.set_result(None)

    async def running(self, work: Callable[[S3Store], Awaitable[None]], **options: Any) -> None:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.tls)
        async with server:
            scheme = "https" if self.tls else "http"
            url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            store = S3Store(S3Options("bucket", "", url, "us-east-1", "id", "secret", **options))
            try:
                await work(store)
            finally:
                await store.close()
                self.left.set()
                async with asyncio.timeout(10):
                    await asyncio.gather(*self.serving)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def run(work: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


Run = Callable[[Any], None]


def test_puts_one_after_the_other_use_one_connection(run: Run) -> None:
    server = Server([STORED])

    async def work(store: S3Store) -> None:
        for number in range(3):
            await store.create(f"journal/{number}", b"%d" % number)

    run(server.running(work))
    assert server.connections == 1
    assert server.bodies == [b"0", b"1", b"2"]
    assert all(b"If-None-Match: *\r\n" in head for head in server.heads)


@pytest.mark.parametrize(
    "date", [b"Mon, 01 Jan 99999999999 00:00:00 GMT", b"Fri, 31 Dec 9999 23:59:59 -0100", b"soon"]
)
def test_an_impossible_date_changes_neither_an_answer_nor_later_requests(
    run: Run, date: bytes
) -> None:
    body = b"<Error><Code>RequestTimeTooSkewed</Code></Error>"
    lines = b"Date: %b\r\nContent-Length: %d\r\n\r\n%b"
    stored = b"HTTP/1.1 200 OK\r\nETag: x\r\n" + lines % (date, 0, b"")
    skewed = b"HTTP/1.1 403 No\r\n" + lines % (date, len(body), body)
    server = Server([stored, skewed, STORED])

    async def work(store: S3Store) -> None:
        await store.create("journal/1", b"1")
        with pytest.raises(StoreClockSkewError):
            await store.create("journal/2", b"2")
        await store.create("journal/2", b"2")

    run(server.running(work))


def test_of_two_answers_to_one_request_the_first_counts(run: Run) -> None:
    server = Server([BUSY + STORED, STORED])

    async def work(store: S3Store) -> None:
        with pytest.raises(StoreUncertainError, match="503"):
            await store.create("journal/1", b"1")
        await store.create("journal/1", b"1")

    run(server.running(work))
    assert server.connections == 2


def test_a_connection_that_the_store_has_closed_is_not_used_again(run: Run) -> None:
    server = Server([STORED], leaves=True)

    async def work(store: S3Store) -> None:
        await store.create("journal/1", b"1")
        await server.left.wait()
        await asyncio.sleep(0)
        while not store._requests._puts._idle[0].lost:  # type: ignore[union-attr]
            await asyncio.sleep(0)
        await store.create("journal/2", b"2")

    run(server.running(work))
    assert server.bodies == [b"1", b"2"]
    assert server.connections == 2


def test_a_second_answer_to_one_put_is_not_taken_for_that_of_the_next(run: Run) -> None:
    server = Server([STORED + STORED, BUSY])

    async def work(store: S3Store) -> None:
        await store.create("journal/1", b"1")
        with pytest.raises(StoreUncertainError):
            await store.create("journal/2", b"2")

    run(server.running(work))
    assert server.connections == 2


def test_a_refusal_that_comes_before_the_body_was_read_ends_the_put(run: Run) -> None:
    server = Server([REFUSED], early=True)

    async def work(store: S3Store) -> None:
        with pytest.raises(StoreDeniedError):
            await store.create("journal/1", bytes(32 << 20))

    run(server.running(work))


def test_an_object_that_the_store_has_not_read_is_not_stored(run: Run) -> None:
    server = Server([STORED], early=True)

    async def work(store: S3Store) -> None:
        with pytest.raises(StoreUncertainError, match="before it had the whole object"):
            await store.create("journal/1", bytes(32 << 20))

    run(server.running(work))


def test_an_answer_may_end_with_its_connection(run: Run) -> None:
    server = Server([b"HTTP/1.0 200 OK\r\nETag: x\r\n\r\n"], leaves=True)

    async def work(store: S3Store) -> None:
        await store.create("journal/1", b"1")

    run(server.running(work))


def test_an_answer_that_is_not_http_is_uncertain(run: Run) -> None:
    server = Server([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])

    async def work(store: S3Store) -> None:
        with pytest.raises(StoreUncertainError, match="does not speak HTTP"):
            await store.create("journal/1", b"1")

    run(server.running(work))


def test_a_put_that_is_cancelled_leaves_no_connection_with_half_of_it(run: Run) -> None:
    server = Server([b"", STORED])

    async def work(store: S3Store) -> None:
        put = asyncio.create_task(store.create("journal/1", b"1"))
        while not server.bodies:
            await asyncio.sleep(0)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        await store.create("journal/2", b"2")

    run(server.running(work))
    assert server.connections == 2


def test_a_private_authority_is_trusted_if_it_is_named_and_no_other(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = tmp_path / "ca.pem"
    tls = self_signed(pem)
    body = bytes(range(256)) * 8192

    async def refused(store: S3Store) -> None:
        with pytest.raises(StoreUncertainError, match="CERTIFICATE_VERIFY_FAILED"):
            await store.create("journal/1", body)

    run(Server([STORED], tls=tls).running(refused))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(pem))
    server = Server([STORED], tls=tls)

    async def stored(store: S3Store) -> None:
        await store.create("journal/1", body)

    run(server.running(stored))
    assert server.bodies == [body]
    assert b"X-Amz-Content-SHA256: UNSIGNED-PAYLOAD\r\n" in server.heads[0]
    assert b"Content-MD5: " in server.heads[0]


def test_an_md5_is_sent_until_the_store_says_that_it_checked_a_crc32c(run: Run) -> None:
    body = b"123456789"
    md5 = b"Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==\r\n"
    crc = b"x-amz-checksum-crc32c: 4waSgw==\r\n"  # 0xE3069283: RFC 3720, B.4, of these digits
    checked = STORED.replace(b"ETag", crc + b"ETag")
    other = checked.replace(b"4waSgw", b"AAAAAA")
    server = Server([STORED, checked, STORED, other, BUSY, STORED])

    async def puts(store: S3Store) -> None:
        for n in range(4):
            await store.create(f"journal/{n}", body)
        with pytest.raises(StoreUncertainError):
            await store.create("journal/4", body)
        store.prepare(body)
        await store.create("journal/4", body)

    run(server.running(puts, checksums="when_supported"))
    assert [md5 in head for head in server.heads] == [True, True, False, True, True, True]
    assert all(crc in head for head in server.heads)
    assert all(b";x-amz-checksum-crc32c;" in head for head in server.heads)


def test_a_store_that_may_not_know_crc32c_is_sent_none(run: Run) -> None:
    server = Server([STORED])

    async def put(store: S3Store) -> None:
        await store.create("journal/1", b"1")

    run(server.running(put))
    assert b"crc32c" not in server.heads[0]


async def test_through_a_proxy_boto3_sends_the_put(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([STORED])

    options = S3Options("bucket", "", "http://store.invalid", "us-east-1", "id", "secret")
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        store = S3Store(options)
        await store.create("journal/1", b"1")
        await store.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*server.serving)
    assert server.heads[0].startswith(b"PUT http://store.invalid/bucket/journal/1 HTTP/1.1\r\n")


def self_signed(pem: Path) -> ssl.SSLContext:
    """For 127.0.0.1; the certificate is written to `pem`, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
