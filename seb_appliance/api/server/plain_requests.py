"""Plain requests: their heads are parsed once and remembered.

A client sends the same head (request line and headers) many times; only the body differs. So a head
that is known costs one look-up. The heads of a reader differ only in the offset, so a read is
remembered without it. An entry is valid for one API key in one state (`Access.still_holds`). A head
that fails is not remembered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import httptools

from seb_appliance import limits
from seb_appliance.api.encoding.answers import BATCH, LIVE, Headers
from seb_appliance.api.encoding.formats import BODY_FORMATS
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
    NO_QUOTAS,
    ApiKeyView,
    From,
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


PlainHead = PlainProduce | PlainConsume | PlainCommit


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


HEADS_KEPT: Final = 8_192  # in each of two generations
HEAD_BYTES_MAX: Final = 1 * limits.KIB  # a longer one is not kept: at most 16 MiB in all
_RECORDS_URL: Final = re.compile(rb"/v1/topics/([A-Za-z0-9_.-]{1,128})/records(?:\?(.*))?")
# So many digits are an offset in any case, and `offset` comes first and once (else the head fails).
_FROM_OFFSET: Final = re.compile(
    rb"GET /v1/topics/[A-Za-z0-9_.-]{1,128}/records\?offset=([0-9]{1,15})(?=[ &])"
)
_OFFSETS_URL: Final = re.compile(rb"/v1/groups/([A-Za-z0-9_.-]{1,128})/offsets")
# Whoever sends one of these gets the whole application.
_NOT_PLAIN: Final = frozenset(
    {
        b"transfer-encoding",
        b"content-encoding",
        b"expect",
        b"upgrade",
        b"origin",
        b"sec-fetch-site",
        b"seb-timeout",
        b"idempotency-key",
        b"producer-id",
        b"producer-epoch",
        b"producer-seq",
        b"producer-checksum",
        b"if-match",
        b"if-unmodified-since",
    }
)


Remembered = bytes | tuple[bytes, bytes]  # a head, or what is around its offset or boundary


class PlainHeads:
    """`max_request_bytes`: bodies that say they are longer are not plain. `traced`: nor are
    requests that somebody traces."""

    def __init__(
        self,
        broker: Broker,
        max_request_bytes: int,
        protocols: Sequence[PlainProtocol] = (),
        *,
        traced: bool = False,
    ) -> None:
        self._protocols = protocols
        self._varying = (_FROM_OFFSET, *(p for one in protocols for p in one.varying))
        self._prefixes = tuple(one.header_prefix for one in BODY_FORMATS)
        self._not_plain = _NOT_PLAIN | {TRACEPARENT} if traced else _NOT_PLAIN
        self._broker = broker
        self._access = broker.access
        self._max_request_bytes = max_request_bytes
        self._young: dict[Remembered, PlainHead] = {}  # seen since the last generation ended
        self._old: dict[Remembered, PlainHead] = {}

    def find(self, head: bytes) -> PlainHead | None:
        """What `head` (to its empty line, included) asks for; None when it is not plain, or will
        be refused: the application says why."""
        known = self._remembered(head)
        if known is not None:  # most heads: before any pattern is tried
            return known
        for pattern in self._varying:
            varying = pattern.match(head)
            if varying is not None:
                break
        else:
            return self._note(head, self._read(head))
        begin, end = varying.span(1)
        around = (head[:begin], head[end:])
        known = self._remembered(around)
        if isinstance(known, PlainConsume):
            start = From(offset=int(varying[1]))
            return replace(known, wanted=replace(known.wanted, start=start))
        if isinstance(known, PlainProduce):
            return replace(known, boundary=varying[1])
        known = self._read(head)
        if isinstance(known, PlainConsume) and known.wanted.until is not None:
            return known  # start and end must agree
        return self._note(around, known)

    def _remembered(self, head: Remembered) -> PlainHead | None:
        known = self._young.get(head)
        if known is not None and self._access.still_holds(known.key, known.until_us):
            return known
        known = self._old.get(head)
        if known is not None and self._access.still_holds(known.key, known.until_us):
            return self._note(head, known)
        return None

    def _note(self, head: Remembered, known: PlainHead | None) -> PlainHead | None:
        size_bytes = len(head) if isinstance(head, bytes) else sum(map(len, head))
        if known is not None and size_bytes <= HEAD_BYTES_MAX:
            if len(self._young) >= HEADS_KEPT:
                self._old, self._young = self._young, {}
            self._young[head] = known
        return known

    def _read(self, head: bytes) -> PlainHead | None:
        if len(head) > limits.HTTP_HEADER_BYTES_MAX:
            return None
        try:
            request = ParsedHead.of(head)
            if (
                request is None
                or self._not_plain & request.headers.keys()
                or any(name.startswith(self._prefixes) for name in request.headers)
                or request.headers.get(b"connection", b"").lower() not in (b"", b"keep-alive")
                or (request.length or 0) > self._max_request_bytes
            ):
                return None
            protocol = next((one for one in self._protocols if one.owns(request.url)), None)
            read_token = token_of if protocol is None else protocol.token_of
            key = self._access.authenticate(read_token(request.headers.get(b"authorization")))
            if key.quotas != NO_QUOTAS:
                return None
            request.access, request.key = self._access, key
            request.until_us = self._access.holds_until_us(key)
            return _of_api(request) if protocol is None else protocol.read(request)
        except SebError:
            return None


def _of_api(head: ParsedHead) -> PlainHead | None:
    records, offsets = _RECORDS_URL.fullmatch(head.url), _OFFSETS_URL.fullmatch(head.url)
    if offsets is not None and head.method == b"PUT":
        return _commit(head, check_group_name(offsets[1].decode()))
    if records is None:
        return None
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
