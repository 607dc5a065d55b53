"""PUT requests to an S3 store, sent by the event loop itself.

Every producer waits for the PUT of its window. boto3 uses some 2 ms of the interpreter for one, in
a thread that needs the interpreter's lock some twenty times; beside a busy event loop it waits for
the lock up to 5 ms each time (docs/PERFORMANCE.md). Here the loop writes the request and reads the
answer. Addresses, credentials, signatures and the meaning of an error are botocore's, as for all
other requests. Imports botocore: import this late.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote, urlsplit

import httptools
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.exceptions import ClientError
from botocore.httpsession import get_cert_path
from botocore.model import StructureShape
from botocore.parsers import create_parser
from crc32c import crc32c

from seb_appliance import __version__, limits
from seb_appliance.failpoints import Failpoints
from seb_appliance.storage.stores.s3_options import SLOWEST_BYTES_PER_S, S3Options
from seb_appliance.storage.stores.s3_signing import SIGNING_TIME, GivenTimeAuth

# What is written at once: a TLS connection encrypts this much in well under a millisecond.
_PIECE_BYTES: Final = 256 * limits.KIB
# Hashed by a thread beyond this: changing threads takes longer than hashing less does.
_THREAD_BYTES: Final = 128 * limits.KIB
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_NO_MEMBERS: Final = StructureShape("PutObjectOutput", {"type": "structure", "members": {}})
_PAYLOAD_HASH: Final = "seb-payload-hash"
_CRC32C: Final = "x-amz-checksum-crc32c"

# Headers that the store checks, and what is signed of the body.
_Digests: TypeAlias = tuple[dict[str, str], str]


class _PutAuth(GivenTimeAuth):
    """Signs with a hash of the body that is known already."""

    def payload(self, request: AWSRequest) -> str:
        hashed: str = request.context[_PAYLOAD_HASH]
        return hashed


def puts_like(
    client: Any,
    options: S3Options,
    *,
    base: str,
    failpoints: Failpoints,
    signing_time: Callable[[], str],
    on_answer: Callable[[Mapping[str, str]], None],
) -> S3Puts | None:
    """PUTs as the S3 client would send them. `base`: the prefix of our keys.

    None where only boto3 can: through a proxy, without credentials, and with a session for each
    bucket (S3 Express).
    """
    credentials = client._request_signer._credentials  # noqa: SLF001 - as its own requests
    if not credentials or options.bucket.endswith("--x-s3"):
        return None
    where = {"Bucket": options.bucket, "Key": f"{base}-"}
    address = client.generate_presigned_url("put_object", Params=where)
    base_url = address.partition("?")[0].removesuffix("-")
    session = client._endpoint.http_session.unbounded  # noqa: SLF001 - the only way to it
    if session._proxy_config.proxy_url_for(base_url):  # noqa: SLF001 - as its own requests
        return None
    return S3Puts(
        options,
        base_url=base_url,
        region=client.meta.region_name,
        credentials=credentials,
        ca_file=get_cert_path(session._verify),  # noqa: SLF001 - as its own requests
        failpoints=failpoints,
        signing_time=signing_time,
        on_answer=on_answer,
    )


class S3Puts:
    """Sends PUTs below one address, each connection one at a time, and keeps idle connections.

    `base_url`: of our keys, as botocore escapes it. `ca_file`: of the certificates that are
    trusted. `signing_time` and `on_answer`: as in `connect`. For one event loop.
    """

    def __init__(
        self,
        options: S3Options,
        *,
        base_url: str,
        region: str,
        credentials: Credentials,
        ca_file: str | None,
        failpoints: Failpoints,
        signing_time: Callable[[], str],
        on_answer: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._options = options
        self._base_url = base_url
        self._region = region
        self._credentials = credentials
        self._failpoints = failpoints
        self._signing_time = signing_time
        self._on_answer = on_answer
        url = urlsplit(base_url)
        assert url.hostname, base_url
        default_port = 443 if url.scheme == "https" else 80
        self._port = url.port or default_port
        self._hostname = url.hostname
        # As botocore signs it: without the port that goes without saying.
        self._host = url.netloc.removesuffix(f":{default_port}")
        self._path = url.path
        self._tls = ssl.create_default_context(cafile=ca_file) if url.scheme == "https" else None
        self._sends_crc32c = options.checksums == "when_supported" or options.endpoint_url is None
        self._checks_crc32c = False  # whether the last answer repeated it, as only such stores do
        self._prepared: dict[int, tuple[bytes, _Digests]] = {}  # with its body an id is not reused
        self._idle: list[_Connection] = []
        self._closed = False

    def prepare(self, body: bytes) -> None:
        """Compute the digests of `body`, in any thread, and keep both until it is sent."""
        self._prepared[id(body)] = body, self._digests(body)

    async def send(self, key: str, body: bytes, *, create_only: bool) -> dict[str, Any]:
        """The answer as botocore parses it, with status and headers in `ResponseMetadata`.

        Raises botocore's ClientError for an answer that is an error, else an OSError (TimeoutError
        is one), ValueError or EOFError: then it is unknown whether the object was stored.
        """
        if prepared := self._prepared.pop(id(body), None):
            digests, payload = prepared[1]
        elif len(body) > _THREAD_BYTES:
            digests, payload = await asyncio.to_thread(self._digests, body)
        else:
            digests, payload = self._digests(body)
        credentials = self._credentials
        if isinstance(credentials, RefreshableCredentials) and credentials.refresh_needed():
            frozen = await asyncio.to_thread(credentials.get_frozen_credentials)
        else:
            frozen = credentials.get_frozen_credentials()
        connection = await self._connection()
        try:
            headers = {"Content-Length": str(len(body)), **digests}
            if create_only:
                headers["If-None-Match"] = "*"
            head = self._head(key, headers, payload, frozen)
            async with asyncio.timeout(
                self._options.read_timeout_s + len(body) / SLOWEST_BYTES_PER_S
            ):
                answer = await connection.request(head, self._pieces(body))
        except BaseException:
            connection.close()
            raise
        if answer.reusable and not connection.lost and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        self._on_answer(answer.headers)
        parsed = answer.parsed()
        self._checks_crc32c = _CRC32C in digests and answer.headers.get(_CRC32C) == digests[_CRC32C]
        return parsed

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # in which the event loop closes their sockets

    def _digests(self, body: bytes) -> _Digests:
        """A CRC-32C takes a tenth of the time of an MD5. Over TLS, as with botocore, no hash of the
        body is signed."""
        headers = {}
        if self._sends_crc32c:
            headers[_CRC32C] = base64.b64encode(crc32c(body).to_bytes(4, "big")).decode()
        if not self._checks_crc32c:
            md5 = hashlib.md5(body, usedforsecurity=False).digest()
            headers["Content-MD5"] = base64.b64encode(md5).decode()
        return headers, _UNSIGNED if self._tls else hashlib.sha256(body).hexdigest()

    def _head(
        self, key: str, headers: Mapping[str, str], payload: str, credentials: ReadOnlyCredentials
    ) -> bytes:
        key = quote(key, safe="/~")
        request = AWSRequest("PUT", self._base_url + key, headers=dict(headers))
        request.context[_PAYLOAD_HASH] = payload
        request.context[SIGNING_TIME] = self._signing_time()
        _PutAuth(credentials, "s3", self._region).add_auth(request)
        lines = [f"PUT {self._path}{key} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        return "\r\n".join([*lines, f"User-Agent: seb-appliance/{__version__}", "", ""]).encode()

    def _pieces(self, body: bytes) -> Iterator[memoryview]:
        """Failpoint K5 is reached when the first piece was sent, half of the body if it kills."""
        half = self._failpoints.armed("K5")
        step = max(1, len(body) // 2 if half else _PIECE_BYTES)
        view = memoryview(body)
        yield view[:step]
        self._failpoints.reach("K5")
        for start in range(step, len(body), step):
            yield view[start : start + step]

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                return connection
        async with asyncio.timeout(self._options.connect_timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, self._hostname, self._port, ssl=self._tls
            )
        return connection


class _Answer:
    """What was received of an answer. `bytes`: all of it, with its head."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.bytes = 0
        self.reusable = False

    @property
    def has_length(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def parsed(self) -> dict[str, Any]:
        if self.status >= 300:
            raw = {"status_code": self.status, "headers": self.headers, "body": bytes(self.body)}
            raise ClientError(create_parser("rest-xml").parse(raw, _NO_MEMBERS), "PutObject")
        return {"ResponseMetadata": {"HTTPStatusCode": self.status, "HTTPHeaders": self.headers}}


class _Connection(asyncio.Protocol):
    """One connection to the store."""

    def __init__(self) -> None:
        self.lost = False
        self._answer = _Answer()
        # While a request is under way.
        self._answered: asyncio.Future[_Answer] | None = None
        self._writable = asyncio.Event()
        self._parser = httptools.HttpResponseParser(self)

    async def request(self, head: bytes, pieces: Iterator[memoryview]) -> _Answer:
        """Sends each piece once the one before is with the kernel. Raises as `S3Puts.send`."""
        answered: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._answered = answered
        self._transport.write(head)
        whole = False
        for piece in pieces:
            if answered.done():
                break
            self._transport.write(piece)
            await self._writable.wait()
        else:
            whole = not self._transport.get_write_buffer_size()
        answer: _Answer = await answered
        if not whole:  # refused before it was read
            answer.reusable = False
            if answer.status < 300:
                raise ValueError("the store answered before it had the whole object")
        self._answered = None
        self._parser = httptools.HttpResponseParser(self)
        return answer

    def close(self) -> None:
        self._answered = None
        self.lost = True
        self._transport.abort()

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(1)  # asyncio's TLS would pause for ever at 0
        kernel = transport.get_extra_info("socket")
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._answer.bytes += len(data)
        unasked = self._answered is None or self._answered.done()
        if unasked or self._answer.bytes > limits.STORE_ANSWER_BYTES_MAX:
            self._fail("the store answers more than it was asked")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the store does not speak HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if exc is None and self._answer.status and not self._answer.has_length:
            self._end(None)  # the body ends with the connection
        else:
            self._end(exc or EOFError("the store closed the connection"))

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._answered is None or self._answered.done():  # a second answer to one request
            self._fail("the store answers more than it was asked")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._answer.body += body

    def on_message_complete(self) -> None:
        if self._answer.status < 200:  # "Continue", which nobody asked for
            self._answer.headers.clear()
            return
        self._answer.reusable = self._parser.should_keep_alive()
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._answered is None or self._answered.done():
            return
        self._writable.set()
        if error is None:
            self._answered.set_result(self._answer)
            self._answer = _Answer()  # what follows is no part of it
        else:
            self._answered.set_exception(error)

    def _fail(self, detail: str) -> None:
        self._end(ValueError(detail))
        self.lost = True
        self._transport.abort()
