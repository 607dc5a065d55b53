"""Plain requests: usual ones of one record type and one API key, as the fast lane reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httptools

from seb_appliance import limits
from seb_appliance.api.encoding.answers import BATCH, LIVE, Headers
from seb_appliance.api.encoding.parameters import read_headers, read_query
from seb_appliance.api.encoding.problems import problem_headers
from seb_appliance.api.encoding.record_bodies import BodyKind, body_kind
from seb_appliance.api.encoding.record_encoding import ValueShape
from seb_appliance.api.encoding.trace_context import TRACEPARENT, traceparent
from seb_appliance.api.routes.records.reading import (
    READ_QUERY,
    answer_type,
    is_whole,
    read_request,
    value_shape,
)
from seb_appliance.api.server.auth import Call, token_of
from seb_appliance.api.server.bodies import check_json_type
from seb_appliance.api.server.http_protocol import is_overlong_length
from seb_appliance.broker.access.access import Access
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.topics.names import check_group_name, check_topic_name
from seb_appliance.broker.values import (
    ApiKeyView,
    NewRecords,
    ReadRequest,
    ReadResult,
)
from seb_appliance.errors import SebError
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Produced

# The application refuses some hosts; what is surely one is taken here.
_PLAIN_HOST: Final = re.compile(rb"[A-Za-z0-9._-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    """`until_us`: as of `Access.holds_until_us`; `protocol`: None for the API's own requests."""

    key: ApiKeyView
    until_us: int
    content_length: int = 0
    protocol: PlainProtocol | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainProduce(_Plain):
    """An append without conditions. `headers`: those that shape a single record; `boundary`: of a
    multipart body."""

    topic: str
    kind: BodyKind = "single"
    headers: dict[bytes, bytes]
    boundary: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainConsume(_Plain):
    """A read; `chosen` is the media type of the answer."""

    topic: str
    wanted: ReadRequest
    chosen: str
    shape: ValueShape = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCommit(_Plain):
    """A commit of offsets for a group that the key may commit for."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWork(_Plain):
    """`take` or `ack` of a queue whose deliveries the key may end."""

    queue: str
    verb: str


PlainHead = PlainProduce | PlainConsume | PlainCommit | PlainWork


class ParsedHead:
    """A request's head, parsed by the same rules as any other request. `length`: None without a
    Content-Length; `access`, `key` and `until_us` are set once the key is known."""

    access: Access
    key: ApiKeyView
    until_us: int

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.method = b""
        self._lines: list[tuple[bytes, bytes]] = []
        self._begun = 0
        self._complete = False

    @classmethod
    def of(cls, head: bytes) -> ParsedHead | None:
        """None unless it is the whole head of one HTTP/1.1 request that keeps its connection.
        Raises BadRequestError."""
        parsed = cls()
        parser = httptools.HttpRequestParser(parsed)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        hosts = [value for name, value in parsed._lines if name == b"host"]
        if (
            not parsed._complete
            or parsed._begun != 1
            or len(hosts) != 1
            or not _PLAIN_HOST.fullmatch(hosts[0])
            or any(map(is_overlong_length, parsed._lines))
            or parser.get_http_version() != "1.1"
        ):
            return None
        parsed.method = parser.get_method()
        parsed.headers = read_headers(parsed._lines)
        return parsed

    @property
    def length(self) -> int | None:
        length = self.headers.get(b"content-length")
        return None if length is None else int(length)

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._lines.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._complete = True


class PlainProtocol:
    """The plain requests of a protocol. A head that one of `varying` matches is remembered without
    the pattern's first group, which is an offset or a boundary."""

    varying: Sequence[re.Pattern[bytes]] = ()

    def owns(self, url: bytes) -> bool:
        raise NotImplementedError

    def token_of(self, authorization: bytes | None) -> str:
        return token_of(authorization)

    def read(self, head: ParsedHead) -> PlainHead | None:
        """None if the request is not plain. Raises what its route raises."""
        raise NotImplementedError

    def records_of(
        self, broker: Broker, plain: PlainProduce, body: bytes
    ) -> bytes | NewRecords | None:
        """None if the request is not plain after all. Raises what its route raises."""
        raise NotImplementedError

    def produced(
        self, durability: str, append: Produced, timing: bytes
    ) -> tuple[int, Headers, bytes]:
        raise NotImplementedError

    def consumed(
        self, result: ReadResult, wanted: ReadRequest, boundary: str
    ) -> tuple[int, Headers, list[Bytes]]:
        raise NotImplementedError

    def refused(self, error: SebError, problem: bytes, *, to_admin: bool) -> tuple[Headers, bytes]:  # noqa: ARG002
        """`problem`: the problem document."""
        return problem_headers(error), problem


_RECORDS_URL: Final = re.compile(rb"/v1/topics/([A-Za-z0-9_.-]{1,128})/records(?:\?(.*))?")
_OFFSETS_URL: Final = re.compile(rb"/v1/groups/([A-Za-z0-9_.-]{1,128})/offsets")
_QUEUE_URL: Final = re.compile(rb"/v1/queues/([A-Za-z0-9_.-]{1,128})/(take|ack)")


def read_head(head: ParsedHead) -> PlainHead | None:
    records, offsets = _RECORDS_URL.fullmatch(head.url), _OFFSETS_URL.fullmatch(head.url)
    if offsets is not None and head.method == b"PUT":
        return _commit(head, check_group_name(offsets[1].decode()))
    if records is None:
        work = _QUEUE_URL.fullmatch(head.url) if head.method == b"POST" else None
        return None if work is None else _work(head, work[1].decode(), work[2].decode())
    topic = check_topic_name(records[1].decode())
    if head.method == b"POST" and records[2] is None:
        return _produce(head, topic)
    return _consume(head, topic, records[2] or b"") if head.method == b"GET" else None


def _commit(head: ParsedHead, group: str) -> PlainCommit | None:
    if not head.length:
        return None
    head.access.authorize(head.key, "consume", group=group)
    check_json_type(b"{}", head.headers)
    return PlainCommit(
        key=head.key, until_us=head.until_us, content_length=head.length, group=group
    )


def _work(head: ParsedHead, queue: str, verb: str) -> PlainWork | None:
    if not head.length:
        return None
    head.access.authorize(head.key, "work", group=check_topic_name(queue, "queue"))
    check_json_type(b"{}", head.headers)
    return PlainWork(
        key=head.key,
        until_us=head.until_us,
        content_length=head.length,
        queue=queue,
        verb=verb,
    )


def _produce(head: ParsedHead, topic: str) -> PlainProduce | None:
    if head.length is None:
        return None
    head.access.authorize(head.key, "produce", topic)
    kind = body_kind(head.headers.get(b"content-type"))
    shaping = {name: value for name, value in head.headers.items() if name.startswith(b"seb-")}
    if kind != "batch" and (parent := traceparent(head.headers)) is not None:
        shaping[TRACEPARENT] = parent
    if shaping and kind != "single":
        return None
    return PlainProduce(
        key=head.key,
        until_us=head.until_us,
        content_length=head.length,
        topic=topic,
        kind=kind,
        headers=shaping,
    )


def _consume(head: ParsedHead, topic: str, query_string: bytes) -> PlainConsume | None:
    if head.length:
        return None
    head.access.authorize(head.key, "consume", topic)
    sent = Call(head.key, head.headers, read_query(query_string, READ_QUERY), address="")
    call = sent.without_defaults()
    chosen = answer_type(call)
    if chosen == LIVE or is_whole(call, chosen):
        return None
    wanted = read_request(call)
    large = (
        wanted.max_records > limits.FETCH_RECORDS_DEFAULT
        or wanted.max_bytes > limits.FETCH_BYTES_DEFAULT
    )
    if large and chosen != BATCH.decode():
        return None  # encoding takes many milliseconds, and must let others run in between
    return PlainConsume(
        key=head.key,
        until_us=head.until_us,
        topic=topic,
        wanted=wanted,
        chosen=chosen,
        shape=value_shape(call.query),
    )
