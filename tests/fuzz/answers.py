"""Targets: what servers answer that we ask: the object store, receivers of pushed records and
webhooks, and the appliance itself, as its Python client reads it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from io import BytesIO
from typing import Any, Final, cast

import httptools
from botocore.awsrequest import AWSResponse

from seb_appliance import limits
from seb_appliance.client.failures import refusal
from seb_appliance.client.records import UnreadableAnswerError, decode_batches, decode_lines
from seb_appliance.errors import CorruptObjectError, StoreError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.protocols.durable_streams.delivering import is_done
from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.delivering import retry_after_s
from seb_appliance.protocols.subscriptions.sending import Answered, DeliveryError, _read
from seb_appliance.storage.stores import s3_puts
from seb_appliance.storage.stores.s3_options import S3Options
from seb_appliance.storage.stores.s3_requests import S3Requests
from tests.fuzz.formats import NUMBERS, SENT
from tests.fuzz.sockets import pieces
from tests.fuzz.target import Target
from tests.unit.formats.samples import recrc

_NOW_US: Final = 1_800_000_000_000_000


# --- the object store ---


class _Session:
    """Answers each request of boto3 with these bytes. The first line has the status and headers."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 200, dict[str, str](), b""

    def say(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\n\n")
        first, *lines = head.decode("latin-1").split("\n")
        self.status = int(first) if first.isdecimal() and len(first) == 3 else 200
        if self.status < 200 or self.status in (204, 304):  # urllib3 reads no body then
            self.body = b""
        self.headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }

    def send(self, request: Any) -> AWSResponse:
        raw = BytesIO(self.body)
        raw.stream = lambda **_: iter([raw.read()])  # type: ignore[attr-defined]
        return AWSResponse(request.url, self.status, self.headers, raw)

    def close(self) -> None: ...


@cache
def _store() -> tuple[S3Requests, _Session]:
    options = S3Options("bucket", "", "http://127.0.0.1:1", "us-east-1", "id", "secret")
    requests = S3Requests(
        options, base="seb/", connections=1, failpoints=NO_FAILPOINTS, wall_s=lambda: 1.8e9
    )
    session = _Session()
    requests._client._endpoint.http_session = session
    return requests, session


def check_s3_answers(data: bytes) -> None:
    """The first byte chooses the request."""
    store, session = _store()
    session.say(data[1:])
    asks: tuple[Callable[[], object], ...] = (
        partial(store.list_after, "claims/", "claims/a", 1_000),
        partial(store.get, "a", lambda _size: None),
        partial(store.get_range, "a", 2, 3),
        partial(store.head, "a"),
        partial(store.delete, "a"),
        store.lifecycle_warning,
        store.versioning_warning,
        partial(store.put, "a", b"x", create_only=True),
    )
    asks[data[0] % len(asks) if data else 0]()


class _Wire:
    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


async def _put(parts: Iterator[bytes] | list[bytes]) -> tuple[object, ...]:
    """What is made of an answer to a PUT; the store then closes the connection."""
    connection = s3_puts._Connection()
    connection._transport = cast("Any", _Wire())
    answered = connection._answered = asyncio.get_running_loop().create_future()
    for part in parts:
        if not connection.lost:
            connection.data_received(part)
    if not connection.lost:
        connection.connection_lost(None)
    if answered.exception() is not None:
        return ("no answer",)
    answer = answered.result()
    return answer.status, answer.headers, bytes(answer.body)


def _ran(work: Any) -> Any:
    """Of a coroutine that waits for nothing."""
    return _loop().run_until_complete(work)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def check_s3_puts(data: bytes) -> None:
    whole, in_pieces = _ran(_put([data])), _ran(_put(pieces(data)))
    # More than an answer is seen only while the answer is awaited.
    assert in_pieces == whole or "no answer" in whole
    if "no answer" in in_pieces:
        return
    answer = s3_puts._Answer()
    answer.status, answer.headers, answer.body = in_pieces[0], in_pieces[1], bytearray(in_pieces[2])
    store, _ = _store()
    store._note_date(answer.headers)
    with store._meaning("a"):
        answer.parsed()


# --- receivers of pushed records ---


async def _answered(parts: Iterator[bytes] | list[bytes]) -> tuple[Answered, bool] | None:
    reader = asyncio.StreamReader(limit=push_limits.ANSWER_HEAD_BYTES_MAX)
    for part in parts:
        reader.feed_data(part)
    reader.feed_eof()
    answered = Answered()
    try:
        return answered, await _read(reader, answered)
    except (OSError, httptools.HttpParserError, DeliveryError):
        return None


def check_receivers(data: bytes) -> None:
    found = _ran(_answered([data]))
    assert _ran(_answered(pieces(data))) == found
    if found is None:
        return
    answered = found[0]
    assert (
        len(answered.body) <= push_limits.ANSWER_BODY_BYTES_MAX + push_limits.ANSWER_HEAD_BYTES_MAX
    )
    rest_s = retry_after_s(answered.headers, _NOW_US)
    assert rest_s is None or 0 <= rest_s <= push_limits.RETRY_AFTER_S_MAX
    is_done(bytes(answered.body))


def check_retry_after(data: bytes) -> None:
    """Of a receiver, and the Date of a store."""
    text = data.decode("latin-1")
    rest_s = retry_after_s({"retry-after": text}, _NOW_US)
    assert rest_s is None or 0 <= rest_s <= push_limits.RETRY_AFTER_S_MAX
    store, _ = _store()
    store._note_date({"date": text})
    assert store.date_ahead_s is None or math.isfinite(store.date_ahead_s)
    store._signing_offset_s = store._store_offset_s()
    store._signing_time()
    store._signing_offset_s = 0.0


def check_webhook_answers(data: bytes) -> None:
    assert is_done(data) in (True, False)


# --- the appliance ---


def _batches(data: bytes) -> None:
    for record in decode_batches("t", data, 0, limits.OFFSET_MAX):
        assert 0 <= record.offset < limits.OFFSET_MAX


def check_client_batches(data: bytes) -> None:
    for body in (data, recrc(bytearray(data))):
        with contextlib.suppress(UnreadableAnswerError):
            _batches(body)
    _batches(data)


def check_client_lines(data: bytes) -> None:
    decode_lines("t", data)


def check_client_failures(data: bytes) -> None:
    """A status, a Retry-After and a body of an error."""
    said, _, body = data.partition(b"\n")
    headers = {"seb-version": "1", "retry-after": said.decode("latin-1")}
    error = refusal("http://seb", 429, headers, body)
    assert math.isfinite(error.retry_after_s)
    assert isinstance(error.code, str)


_LISTING: Final = (
    b"<?xml version='1.0'?><ListBucketResult><IsTruncated>true</IsTruncated><KeyCount>2</KeyCount>"
    b"<Contents><Key>seb/claims/b</Key><Size>3</Size><LastModified>2026-01-01T00:00:00.000Z"
    b"</LastModified></Contents><Contents><Key>seb/claims/c%2F</Key><Size>4</Size></Contents>"
    b"<EncodingType>url</EncodingType></ListBucketResult>"
)
_ERROR: Final = (
    b"<Error><Code>RequestTimeTooSkewed</Code><Message>no</Message><Resource>/a</Resource></Error>"
)
_LIFECYCLE: Final = (
    b"<LifecycleConfiguration><Rule><ID>x</ID><Status>Enabled</Status><Filter><And><Prefix>seb/"
    b"</Prefix></And></Filter><Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>"
)
_DATE: Final = b"Date: Tue, 01 Jan 2030 00:00:00 GMT"
_STORE: Final = tuple(
    bytes((number,)) + said
    for number, said in (
        (0, b"200\n" + _DATE + b"\n\n" + _LISTING),
        (1, b'200\nContent-Length: 5\nETag: "a"\nx-amz-checksum-crc32: AAAAAA==\n\nhello'),
        (1, b"404\n\n<Error><Code>NoSuchKey</Code></Error>"),
        (2, b"206\nContent-Length: 3\nContent-Range: bytes 2-4/9\n\nabc"),
        (2, b"416\n\n<Error><Code>InvalidRange</Code></Error>"),
        (3, b"200\nContent-Length: 7\n" + _DATE + b"\n\n"),
        (4, b"204\n\n"),
        (5, b"200\n\n" + _LIFECYCLE),
        (6, b"200\n\n<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"),
        (7, b'200\nETag: "a"\n' + _DATE + b"\n\n"),
        (7, b"403\n" + _DATE + b"\nx-amz-bucket-region: eu-west-1\n\n" + _ERROR),
        (7, b"412\n\n<Error><Code>PreconditionFailed</Code></Error>"),
    )
)
_XML: Final = (
    b"<Key>", b"</Key>", b"<Size>", b"<IsTruncated>false</IsTruncated>", b"<!DOCTYPE l [", b"]>",
    b'<!ENTITY e "x">', b"&e;", b"&#0;", b"<![CDATA[", b"Content-Length: ", b"Date: ", b"%00", b"%",
    b"<LastModified>", b"9" * 400, b"Content-Range: bytes ", b"ETag: ",
)  # fmt: skip
_PUTS: Final = (
    b'HTTP/1.1 200 OK\r\nETag: "a"\r\n' + _DATE + b"\r\nContent-Length: 0\r\n\r\n",
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 412 No\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2e\r\n<Error><Code>PreconditionFailed</Code></Error>\r\n0\r\n\r\n"
    ),
    b"HTTP/1.0 503 Slow\r\n\r\n" + _ERROR,
)
_RECEIVED: Final = (
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 429 No\r\nRetry-After: 120\r\nContent-Length: 4\r\n\r\nwait",
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{"done":true}\r\n0\r\n\r\n',
    (
        b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 503 No\r\nRetry-After: Tue, 01 Jan 2030 "
        b"00:00:00 GMT\r\n\r\nuntil the end"
    ),
)
_HTTP: Final = (
    b"HTTP/1.1 ", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n", b"0\r\n\r\n",
    b"Retry-After: ", b"Connection: close\r\n", b"Date: ", b"100", b"101", b"999",
)  # fmt: skip
_LINE: Final = (
    b'{"offset":7,"timestamp":"2026-01-01T00:00:00.000001Z","key_base64":"aw==","value_base64":null,'
    b'"headers_base64":{"n":"AA=="}}\n'
)

TARGETS: Final = (
    Target(
        "s3_answers",
        check_s3_answers,
        _STORE,
        _XML,
        (StoreError, CorruptObjectError),
        is_slow=True,
    ),
    Target("s3_puts", check_s3_puts, _PUTS, (*_HTTP, *_XML), (StoreError,)),
    Target("receivers", check_receivers, _RECEIVED, _HTTP),
    Target(
        "retry_after",
        check_retry_after,
        (b"120", b"Tue, 01 Jan 2030 00:00:00 GMT", b"1 Jan 0001 00:00:00 -0000"),
        (b"Jan ", b" GMT", b" +9999", b"-", b":", b"Fri, ", b"9999"),
    ),
    Target(
        "webhook_answers", check_webhook_answers, (b'{"done":true}', b"[]"), (b'"done"', b"[" * 999)
    ),
    Target("client_batches", check_client_batches, SENT, NUMBERS, (UnreadableAnswerError,)),
    Target(
        "client_lines",
        check_client_lines,
        (_LINE, _LINE * 2),
        (b'"offset":', b'"timestamp":', b"0001-01-01T00:00:00+23:59", b"[" * 999, b"\\ud800"),
        (UnreadableAnswerError,),
    ),
    Target(
        "client_failures",
        check_client_failures,
        (
            b'5\n{"code":"overloaded","detail":"no","retryable":true,"side_effects":"none"}',
            b"\n<html>",
        ),
        (b'"code":', b"[" * 999, b"null"),
    ),
)
