"""Plain requests: heads that are parsed once and remembered, and their answers.

A client sends the same head (request line and headers) many times; only the body differs. So a head
that is known costs one look-up. The heads of a reader differ only in the offset, so a read is
remembered without it. An entry is valid for one API key in one state (`Access.still_holds`). A head
that fails is not remembered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from seb_appliance import limits
from seb_appliance.api.encoding.answers import (
    DEFAULT_HEADERS,
    JSON,
    REQUEST_ID_HEADER,
    VERSION_HEADER,
    Headers,
    content_length,
    header_lines,
    json_line,
    produced_body,
    produced_timing,
    status_line,
    with_defaults,
)
from seb_appliance.api.encoding.formats import BODY_FORMATS
from seb_appliance.api.encoding.problems import problem_body, problem_headers
from seb_appliance.api.encoding.record_bodies import parse_batches, parse_single, takes_long
from seb_appliance.api.encoding.record_json import parse_json, parse_ndjson
from seb_appliance.api.encoding.trace_context import TRACEPARENT, keep_traceparent
from seb_appliance.api.routes.groups.offsets import commit_of, committed_body, parse_offsets
from seb_appliance.api.routes.queues.work import (
    TAKEN_HEADERS,
    ResultsOut,
    parse_deliveries,
    parse_take,
    taken_parts,
)
from seb_appliance.api.routes.records.reading import consumed_headers, encode
from seb_appliance.api.server.auth import token_of
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.api.server.plain_requests import (
    ParsedHead,
    PlainCommit,
    PlainConsume,
    PlainHead,
    PlainProduce,
    PlainProtocol,
    PlainWork,
    read_head,
)
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.access.grants import grants_admin
from seb_appliance.broker.append.acknowledgement import AckCallback
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.queues.views import Result
from seb_appliance.broker.read.waiting import Waiter
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import NO_QUOTAS, From, NewBatches, NewRecords
from seb_appliance.errors import SebError
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Produced
from seb_appliance.formats.operations import CommittedOffset

# Larger bodies go to the application, which parses them outside the event loop.
BODY_BYTES_MAX: Final = 64 * limits.KIB
_ENCODED_BYTES_MAX: Final = 2 * limits.FETCH_BYTES_DEFAULT  # of an answer that is made at once
_CLOSE: Final = b"connection: close\r\n"


_TAKEN_MAX: Final = 100  # more are encoded in steps
_TOPICS_CHECKED_MAX: Final = 100  # of a queue, for each request
HEADS_KEPT: Final = 8_192  # in each of two generations
HEAD_BYTES_MAX: Final = 1 * limits.KIB  # a longer one is not kept: at most 16 MiB in all
# So many digits are an offset in any case, and `offset` comes first and once (else the head fails).
_FROM_OFFSET: Final = re.compile(
    rb"GET /v1/topics/[A-Za-z0-9_.-]{1,128}/records\?offset=([0-9]{1,15})(?=[ &])"
)
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
        b"seb-deliver-at",
        b"seb-delay",
        b"idempotency-key",
        b"producer-id",
        b"producer-epoch",
        b"producer-seq",
        b"producer-checksum",
        b"if-match",
        b"if-unmodified-since",
    }
)


FixedHeaders = tuple[tuple[bytes, bytes], ...]
_JSON_HEADERS: Final[FixedHeaders] = ((b"content-type", JSON),)

Remembered = bytes | tuple[bytes, bytes]  # a head, or what is around its offset or boundary


class PlainAnswers:
    """The broker's side of the fast lane, one for all connections, without an ASGI scope, a task or
    a future. `answered`: requests that took this way. Methods that refuse change nothing."""

    def __init__(
        self, broker: Broker, options: ApiOptions, protocols: Sequence[PlainProtocol] = ()
    ) -> None:
        self.answered = 0
        self.failpoints = options.failpoints
        self._broker = broker
        self._plain_bytes = min(options.max_request_bytes, BODY_BYTES_MAX)
        self._protocols = protocols
        self._varying = (_FROM_OFFSET, *(p for one in protocols for p in one.varying))
        self._prefixes = tuple(one.header_prefix for one in BODY_FORMATS)
        self._not_plain = _NOT_PLAIN | {TRACEPARENT} if options.traces is not None else _NOT_PLAIN
        self._young: dict[Remembered, PlainHead] = {}  # seen since the last generation ended
        self._old: dict[Remembered, PlainHead] = {}
        self._max_request_bytes = options.max_request_bytes
        self._new_request_id = options.new_request_id
        self._new_boundary = options.new_boundary
        self._dates: Headers = []
        self._around_length: dict[FixedHeaders, tuple[bytes, bytes]] = {}
        self._before_timing = b""
        defaults = header_lines(DEFAULT_HEADERS)
        self._after_length = b"\r\n%b%b: " % (defaults, REQUEST_ID_HEADER)
        self._end = b"\r\n%b\r\n" % header_lines([VERSION_HEADER])
        self._end_close = b"\r\n%b%b\r\n" % (header_lines([VERSION_HEADER]), _CLOSE)

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
        if known is not None and self._broker.access.still_holds(known.key, known.until_us):
            return known
        known = self._old.get(head)
        if known is not None and self._broker.access.still_holds(known.key, known.until_us):
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
                or (request.length or 0) > self._plain_bytes
            ):
                return None
            protocol = next((one for one in self._protocols if one.owns(request.url)), None)
            read_token = token_of if protocol is None else protocol.token_of
            key = self._broker.access.authenticate(
                read_token(request.headers.get(b"authorization"))
            )
            if key.quotas != NO_QUOTAS:
                return None
            request.access, request.key = self._broker.access, key
            request.until_us = self._broker.access.holds_until_us(key)
            return read_head(request) if protocol is None else protocol.read(request)
        except SebError:
            return None

    def still_holds(self, plain: PlainHead) -> bool:
        """Whether the API key is unchanged since the head came."""
        return self._broker.access.still_holds(plain.key, plain.until_us)

    def reserve(self, plain: PlainHead, size_bytes: int) -> Reservation | None:
        """Memory for the part of a body that has come; None if the whole has no room."""
        owner, pending = plain.key.api_key_id, self._broker.pending
        has_room = pending.has_room(owner, plain.content_length)
        return _reserve(pending, owner, size_bytes) if has_room else None

    def produce(self, plain: PlainProduce, data: bytes, body_at: int, on_done: AckCallback) -> bool:
        """Whether the records of `data[body_at:]` are admitted; then `on_done` is called."""
        self.failpoints.reach("K1")
        try:
            records = self._parse(plain, data, body_at)
        except SebError:
            return False
        return records is not None and self._broker.appends.append_nowait(
            plain.key, plain.topic, records, len(data) - body_at, on_done
        )

    def _parse(
        self, plain: PlainProduce, data: bytes, body_at: int
    ) -> bytes | NewRecords | NewBatches | None:
        if plain.kind == "batch":  # not copied: these bytes go into the entry
            batches = memoryview(data)[body_at:]
            if takes_long(batches):
                return None
            return parse_batches(batches, self._max_request_bytes)
        body = data[body_at:]
        if plain.protocol is not None:
            return plain.protocol.records_of(self._broker, plain, body)
        if self._broker.topics.body_of(plain.topic) != "envelope":
            return None
        if plain.kind == "single":
            headers = plain.headers
            return keep_traceparent(parse_single(body, headers), headers) if headers else body
        return parse_json(body) if plain.kind == "json" else parse_ndjson(body)

    def produced(
        self,
        plain: PlainProduce,
        append: Produced,
        window_s: float,
        put_s: float,
        dates: Headers,
        *,
        close: bool,
    ) -> bytes:
        """The answer. `dates`: the headers that the server gives every answer."""
        if plain.protocol is not None:
            timing = produced_timing(window_s, put_s)
            status, headers, body = plain.protocol.produced(self._broker.durability, append, timing)
            return self._answer(status, headers, body, dates, close=close)
        self.answered += 1
        if not self._is_of_now(dates) or not self._before_timing:
            named = [(b"content-type", JSON), (b"seb-durability", self._broker.durability.encode())]
            lines = header_lines([*dates, *named])
            self._before_timing = b"%b%bserver-timing: " % (status_line(201), lines)
        body = produced_body(
            plain.topic, append.topic_id, append.offset, append.count, append.timestamp_us
        )
        return b"".join(
            (
                self._before_timing,
                produced_timing(window_s, put_s),
                b"\r\ncontent-length: %d" % len(body),
                self._after_length,
                self._new_request_id().encode(),
                self._end_close if close else self._end,
                body,
            )
        )

    def commit(self, plain: PlainCommit, body: bytes, on_done: AckCallback) -> Commit | None:
        """The commit that is admitted; then `on_done` is called. None also where the application
        has to look at more of the group."""
        may, groups = self._broker.may, self._broker.groups
        try:
            commit = commit_of(plain.group, parse_offsets(body))
            if (
                not all(may(plain.key, "consume", topic, plain.group) for topic in commit.offsets)
                or not groups.stands_on_one_of(plain.group, commit.offsets)
                or not groups.commit_nowait(Actor.of_key(plain.key), commit, on_done)
            ):
                return None
        except SebError:
            return None
        self._broker.access.last_used.note(plain.key.api_key_id)
        return commit

    def committed(
        self, commit: Commit, stored: Sequence[CommittedOffset], dates: Headers, *, close: bool
    ) -> bytes:
        body = committed_body(commit, stored)
        return self._fixed_head(_JSON_HEADERS, len(body), dates, close=close) + body

    def _may_work(self, plain: PlainWork) -> bool:
        queues, may = self._broker.queues, self._broker.may
        topics = queues.read_by(plain.queue)
        if topics is None or len(topics) > _TOPICS_CHECKED_MAX:
            return False
        return all(may(plain.key, "work", topic.name, plain.queue) for topic in topics)

    def ack(self, plain: PlainWork, body: bytes, on_done: AckCallback) -> bool:
        """Whether deliveries are acknowledged; then `on_done` gets the results."""
        try:
            tokens = parse_deliveries(body).deliveries
            owner, queues = plain.key.api_key_id, self._broker.queues
            return self._may_work(plain) and queues.ack_nowait(plain.queue, tokens, owner, on_done)
        except SebError:
            return False

    def acknowledged(self, results: list[Result], dates: Headers, *, close: bool) -> bytes:
        body = json_line(ResultsOut(results))
        return self._fixed_head(_JSON_HEADERS, len(body), dates, close=close) + body

    def taken(
        self, plain: PlainWork, body: bytes, dates: Headers, *, close: bool
    ) -> tuple[list[Bytes], Reservation] | None:
        """As `consumed`, of a queue."""
        try:
            asked = parse_take(body)
            if asked.max > _TAKEN_MAX or not self._may_work(plain):
                return None
            taken = self._broker.queues.take_nowait(
                plain.queue, asked.max, BODY_BYTES_MAX, asked.lease_ms
            )
        except SebError:
            return None
        if not taken:
            return None
        parts = _at_once(taken_parts(self._broker, plain.queue, taken, asked.values))
        length = 0 if parts is None else sum(map(len, parts))
        reservation = None if parts is None else self._room_for(plain, length)
        if parts is None or reservation is None:
            self._broker.queues.undo(plain.queue, taken)
            return None
        parts.insert(0, self._fixed_head(TAKEN_HEADERS, length, dates, close=close))
        return parts, reservation

    def consumed(
        self, plain: PlainConsume, dates: Headers, *, close: bool, waits: bool = True
    ) -> tuple[list[Bytes], Reservation] | None:
        """The parts of the answer, and the memory that they hold until they are sent; None when
        there is a reason to wait (unless it no longer `waits`), or to refuse. Does no I/O."""
        try:
            result = self._broker.read_nowait(plain.topic, plain.wanted, waits=waits)
        except SebError:
            return None
        if result is None:
            return None
        if plain.protocol is not None:
            boundary = self._new_boundary()
            status, headers, parts = plain.protocol.consumed(result, plain.wanted, boundary)
        else:
            status, headers = 200, consumed_headers(result, plain.chosen)
            encoded = encode(result, plain.chosen, plain.shape)
            made = encoded if isinstance(encoded, list) else _at_once(encoded)
            if made is None:
                return None
            parts = made
        return self._sent(plain, status, headers, parts, dates, close=close)

    def _sent(
        self,
        plain: PlainHead,
        status: int,
        headers: Headers,
        parts: list[Bytes],
        dates: Headers,
        *,
        close: bool,
    ) -> tuple[list[Bytes], Reservation] | None:
        """With the head before `parts`; None if there is no room for them."""
        length = sum(map(len, parts))
        reservation = self._room_for(plain, length)
        if reservation is None:
            return None
        request_id = self._new_request_id()
        parts.insert(0, self._head(status, headers, length, dates, request_id, close=close))
        return parts, reservation

    def _room_for(self, plain: PlainHead, length: int) -> Reservation | None:
        """For an answer of so many bytes; the API key is used then."""
        reservation = _reserve(self._broker.reading, plain.key.api_key_id, length)
        if reservation is not None:
            self._broker.access.last_used.note(plain.key.api_key_id)
        return reservation

    def wait_at_end(
        self, plain: PlainConsume, seconds: float, woken: Callable[[], None]
    ) -> Waiter | None:
        """Wait for the record at its offset, if there is none yet, and then call `woken`."""
        offset = plain.wanted.start.offset
        if offset is None or seconds <= 0:  # a start such as latest moves meanwhile
            return None
        try:
            owner = plain.key.api_key_id
            return self._broker.wait_at_end(plain.topic, offset, seconds, owner, woken)
        except SebError:
            return None

    def refused(self, plain: PlainHead, error: SebError, dates: Headers, *, close: bool) -> bytes:
        """The answer to a request that was admitted and failed."""
        request_id = self._new_request_id()
        to_admin = grants_admin(plain.key.grants)
        body, headers = problem_body(error, request_id, to_admin=to_admin), problem_headers(error)
        if plain.protocol is not None:
            headers, body = plain.protocol.refused(error, body, to_admin=to_admin)
        head = self._head(error.status, headers, len(body), dates, request_id, close=close)
        return head + body

    def _answer(
        self, status: int, headers: Headers, body: bytes, dates: Headers, *, close: bool
    ) -> bytes:
        request_id = self._new_request_id()
        return self._head(status, headers, len(body), dates, request_id, close=close) + body

    def _head(
        self,
        status: int,
        headers: Headers,
        length: int,
        dates: Headers,
        request_id: str,
        *,
        close: bool,
    ) -> bytes:
        self.answered += 1
        headers += content_length(status, length)
        lines = header_lines([*dates, *with_defaults(headers, request_id.encode())])
        return b"".join((status_line(status), lines, _CLOSE if close else b"", b"\r\n"))

    def _is_of_now(self, dates: Headers) -> bool:
        """Whether what was made before has these dates; otherwise it is dropped."""
        if dates is self._dates:
            return True
        self._dates, self._before_timing, self._around_length = dates, b"", {}
        return False

    def _fixed_head(
        self, headers: FixedHeaders, length: int, dates: Headers, *, close: bool
    ) -> bytes:
        """As `_head` of a 200 with `headers`, which are one of a few constants: what is the same
        for a second is made once."""
        self.answered += 1
        around = self._around_length.get(headers) if self._is_of_now(dates) else None
        if around is None:
            around = self._around_length[headers] = _around_length(headers, dates)
        end = self._end_close if close else self._end
        request_id = self._new_request_id().encode()
        return b"%b%d%b%b%b" % (around[0], length, around[1], request_id, end)


def _at_once(parts: Iterable[Bytes]) -> list[Bytes] | None:
    """None if there is much more than what was asked for: a large record, or characters with
    escapes. It takes long, so others must have a turn in between."""
    made, size_bytes = list[Bytes](), 0
    for part in parts:
        size_bytes += len(part)
        if size_bytes > _ENCODED_BYTES_MAX:
            return None
        made.append(part)
    return made


def _around_length(headers: FixedHeaders, dates: Headers) -> tuple[bytes, bytes]:
    """The head of an answer 200 up to the value of Content-Length, and from there up to the id of
    the request."""
    with_rest = with_defaults(list(headers), b"")
    defaults = with_rest[len(headers) : -2]  # without the id and the version
    before = header_lines([*dates, *headers])
    after = b"\r\n%b%b: " % (header_lines(defaults), REQUEST_ID_HEADER)
    return b"%b%bcontent-length: " % (status_line(200), before), after


def _reserve(shares: Shares, owner: str, size_bytes: int) -> Reservation | None:
    try:
        return shares.reserve(owner, size_bytes)
    except SebError:
        return None
