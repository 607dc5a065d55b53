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


@dataclass(frozen=True, slots=True)
class PlainProduce:
    """An append without conditions. `headers`: those that shape a single record; `boundary`: of a
    multipart body; `protocol`: whose request it is, if not the API's own."""

    key: ApiKeyView
    until_us: int
    topic: str
    kind: BodyKind
    headers: dict[bytes, bytes]
    content_length: int
    boundary: bytes = b""
    protocol: PlainProtocol | None = None

    def with_boundary(self, boundary: bytes) -> PlainProduce:
        """The same with another boundary."""
        return replace(self, boundary=boundary)


@dataclass(frozen=True, slots=True)
class PlainConsume:
    """A read; `chosen` is the media type of the answer."""

    key: ApiKeyView
    until_us: int
    topic: str
    wanted: ReadRequest
    chosen: str
    shape: ValueShape
    content_length: int = 0
    protocol: PlainProtocol | None = None

    def starting_at(self, offset: int) -> PlainConsume:
        """The same from another offset."""
        wanted = replace(self.wanted, start=From(offset=offset))
        return replace(self, wanted=wanted)


@dataclass(frozen=True, slots=True)
class PlainCommit:
    """A commit of offsets, for a group that the key may commit for."""

    key: ApiKeyView
    until_us: int
    group: str
    content_length: int


PlainHead = PlainProduce | PlainConsume | PlainCommit


class PlainProtocol:
    """The plain requests of a protocol. A head that one of `varying` matches is remembered without
    its first group: an offset, or a boundary."""

    varying: Sequence[re.Pattern[bytes]] = ()

    def owns(self, url: bytes) -> bool:
        raise NotImplementedError

    def token_of(self, authorization: bytes | None) -> str:
        return token_of(authorization)

    def read(
        self,
        access: Access,
        key: ApiKeyView,
        method: bytes,
        url: bytes,
        headers: dict[bytes, bytes],
        max_bytes: int,
    ) -> PlainHead | None:
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


class ParsedHead:
    """What the parser says of a head, by the same rules as for every other request."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.method = b""
        self._begun = 0
        self._complete = False

    @classmethod
    def of(cls, head: bytes) -> ParsedHead | None:
        """None when it is not the whole head of one HTTP/1.1 request that keeps its connection."""
        parsed = cls()
        parser = httptools.HttpRequestParser(parsed)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        hosts = [value for name, value in parsed.headers if name == b"host"]
        if (
            not parsed._complete
            or parsed._begun != 1
            or len(hosts) != 1
            or not _PLAIN_HOST.fullmatch(hosts[0])
            or any(map(is_overlong_length, parsed.headers))
            or parser.get_http_version() != "1.1"
        ):
            return None
        parsed.method = parser.get_method()
        return parsed

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._complete = True


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
            return known.starting_at(int(varying[1]))
        if isinstance(known, PlainProduce):
            return known.with_boundary(varying[1])
        known = self._read(head)
        if isinstance(known, PlainProduce):
            self._note(around, known)
        if isinstance(known, PlainConsume) and known.wanted.until is None:  # else both must agree
            self._note(around, known)
        return known

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
        request = ParsedHead.of(head)
        if request is None:
            return None
        if len(head) > limits.HTTP_HEADER_BYTES_MAX:
            return None
        try:
            headers = read_headers(request.headers)
            if self._not_plain & headers.keys() or any(
                name.startswith(self._prefixes) for name in headers
            ):
                return None
            if headers.get(b"connection", b"").lower() not in (
                b"",
                b"keep-alive",
            ):
                return None
            protocol = next((one for one in self._protocols if one.owns(request.url)), None)
            read_token = token_of if protocol is None else protocol.token_of
            key = self._access.authenticate(read_token(headers.get(b"authorization")))
            if key.quotas != NO_QUOTAS:
                return None
            if protocol is not None:
                most = self._max_request_bytes
                return protocol.read(self._access, key, request.method, request.url, headers, most)
            return self._of(key, request.method, request.url, headers)
        except SebError:
            return None

    def _of(
        self, key: ApiKeyView, method: bytes, url: bytes, headers: dict[bytes, bytes]
    ) -> PlainHead | None:
        records = _RECORDS_URL.fullmatch(url)
        if records is None:
            offsets = _OFFSETS_URL.fullmatch(url)
            if offsets is not None and method == b"PUT":
                return self._commit(key, check_group_name(offsets[1].decode()), headers)
            return None
        topic = check_topic_name(records[1].decode())
        if method == b"POST" and records[2] is None:
            return self._produce(key, topic, headers)
        if method == b"GET":
            return self._consume(key, topic, headers, records[2] or b"")
        return None

    def _commit(
        self, key: ApiKeyView, group: str, headers: dict[bytes, bytes]
    ) -> PlainCommit | None:
        length = headers.get(b"content-length", b"0")
        if length == b"0" or int(length) > self._max_request_bytes:
            return None
        self._access.authorize(key, "consume", group=group)
        check_json_type(b"{}", headers)
        return PlainCommit(key, self._access.holds_until_us(key), group, int(length))

    def _produce(
        self, key: ApiKeyView, topic: str, headers: dict[bytes, bytes]
    ) -> PlainProduce | None:
        length = headers.get(b"content-length", b"")
        if not length or int(length) > self._max_request_bytes:
            return None
        self._access.authorize(key, "produce", topic)
        kind = body_kind(headers.get(b"content-type"))
        shaping = {name: value for name, value in headers.items() if name.startswith(b"seb-")}
        if kind != "batch" and (parent := traceparent(headers)) is not None:
            shaping[TRACEPARENT] = parent
        if shaping and kind != "single":
            return None
        until_us = self._access.holds_until_us(key)
        return PlainProduce(key, until_us, topic, kind, shaping, int(length))

    def _consume(
        self, key: ApiKeyView, topic: str, headers: dict[bytes, bytes], query_string: bytes
    ) -> PlainConsume | None:
        if headers.get(b"content-length", b"0") != b"0":
            return None
        self._access.authorize(key, "consume", topic)
        sent = Call(key, headers, read_query(query_string, READ_QUERY), address="")
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
            return None  # many milliseconds of encoding: not without letting others run in between
        until_us = self._access.holds_until_us(key)
        return PlainConsume(key, until_us, topic, wanted, chosen, value_shape(call.query))
