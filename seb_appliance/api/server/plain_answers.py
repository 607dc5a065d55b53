"""Answers to plain requests, without an ASGI scope, a task or a future.

Whatever is going to be refused is passed on untouched to the application, which says why; so the
rules of the API stand in one place, and both lanes call the same functions for what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.api.encoding.answers import (
    DEFAULT_HEADERS,
    JSON,
    REQUEST_ID_HEADER,
    VERSION_HEADER,
    Headers,
    header_lines,
    produced_body,
    produced_timing,
    status_line,
    with_defaults,
)
from seb_appliance.api.encoding.problems import problem_body, problem_headers
from seb_appliance.api.encoding.record_bodies import parse_batches, parse_single
from seb_appliance.api.encoding.record_json import parse_json, parse_ndjson
from seb_appliance.api.encoding.trace_context import keep_traceparent
from seb_appliance.api.routes.groups.offsets import commit_of, committed_body, parse_offsets
from seb_appliance.api.routes.records.reading import consumed_headers, encode
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.api.server.plain_requests import (
    PlainCommit,
    PlainConsume,
    PlainHead,
    PlainHeads,
    PlainProduce,
    PlainProtocol,
)
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.access.grants import grants_admin
from seb_appliance.broker.append.acknowledgement import AckCallback
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.read.waiting import Waiter
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import ApiKeyView, NewBatches, NewRecords, ReadResult
from seb_appliance.errors import SebError
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Produced
from seb_appliance.formats.operations import CommittedOffset

# More work than this is not done on the event loop: the application has threads for it.
BODY_BYTES_MAX: Final = 64 * limits.KIB
_CLOSE: Final = b"connection: close\r\n"


class PlainAnswers:
    """One for all connections. `answered`: requests that took this way."""

    def __init__(
        self, broker: Broker, options: ApiOptions, protocols: Sequence[PlainProtocol] = ()
    ) -> None:
        self.answered = 0
        self.failpoints = options.failpoints
        self._broker = broker
        self._heads = PlainHeads(
            broker,
            min(options.max_request_bytes, BODY_BYTES_MAX),
            protocols,
            traced=options.traces is not None,
        )
        self._max_request_bytes = options.max_request_bytes
        self._new_request_id = options.new_request_id
        self._new_boundary = options.new_boundary
        self._dates: Headers = []
        self._before_timing = b""
        defaults = header_lines(DEFAULT_HEADERS)
        self._after_length = b"\r\n%b%b: " % (defaults, REQUEST_ID_HEADER)
        self._end = b"\r\n%b\r\n" % header_lines([VERSION_HEADER])
        self._end_close = b"\r\n%b%b\r\n" % (header_lines([VERSION_HEADER]), _CLOSE)

    def find(self, head: bytes) -> PlainHead | None:
        """See `PlainHeads.find`."""
        return self._heads.find(head)

    def still_holds(self, plain: PlainHead) -> bool:
        """Whether the API key is as it was when the head came."""
        return self._broker.access.still_holds(plain.key, plain.until_us)

    def reserve(self, plain: PlainHead, size_bytes: int) -> Reservation | None:
        """For the part of a body that is there; None when there is no room for all of it."""
        owner, pending = plain.key.api_key_id, self._broker.pending
        has_room = pending.has_room(owner, plain.content_length)
        return _reserve(pending, owner, size_bytes) if has_room else None

    # --- produce ---

    def produce(self, plain: PlainProduce, data: bytes, body_at: int, on_done: AckCallback) -> bool:
        """Whether the records of `data[body_at:]` are admitted; `on_done` hears of them. If not,
        nothing happened."""
        self.failpoints.reach("K1")
        try:
            records = self._parse(plain, data, body_at)
        except SebError:
            return False
        if records is None:
            return False
        size_bytes = len(data) - body_at
        return self._broker.appends.append_nowait(
            plain.key, plain.topic, records, size_bytes, on_done
        )

    def _parse(
        self, plain: PlainProduce, data: bytes, body_at: int
    ) -> bytes | NewRecords | NewBatches | None:
        if plain.kind == "batch":  # these bytes go into the entry: none of them is copied here
            return parse_batches(memoryview(data)[body_at:], self._max_request_bytes)
        body = data[body_at:]
        if plain.protocol is not None:
            return plain.protocol.records_of(self._broker, plain, body)
        if self._broker.topics.body_of(plain.topic) != "envelope":
            return None
        if plain.kind == "single":
            if not plain.headers:
                return body
            return keep_traceparent(parse_single(body, plain.headers), plain.headers)
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
        """The whole answer. `dates`: the headers that the server gives every answer."""
        self.answered += 1
        if plain.protocol is not None:
            timing = produced_timing(window_s, put_s)
            status, headers, body = plain.protocol.produced(self._broker.durability, append, timing)
            headers.append((b"content-length", str(len(body)).encode()))
            return self._head(status, headers, dates, self._new_request_id(), close=close) + body
        if dates is not self._dates:
            self._dates = dates
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

    # --- commit ---

    def commit(self, plain: PlainCommit, body: bytes, on_done: AckCallback) -> Commit | None:
        """What is admitted; `on_done` hears of it. If None, nothing happened."""
        try:
            asked = parse_offsets(body)
            commit = commit_of(plain.group, asked)
            if not self._may_commit(plain.key, commit):
                return None
            by = Actor.of_key(plain.key)
            if not self._broker.groups.commit_nowait(by, commit, on_done):
                return None
        except SebError:
            return None
        self._broker.access.last_used.note(plain.key.api_key_id)
        return commit

    def _may_commit(self, key: ApiKeyView, commit: Commit) -> bool:
        """False where the application has to look at more of the group, too."""
        return all(
            self._broker.may(key, "consume", topic, commit.group) for topic in commit.offsets
        ) and self._broker.groups.stands_on_one_of(commit.group, commit.offsets)

    def committed(
        self, commit: Commit, stored: Sequence[CommittedOffset], dates: Headers, *, close: bool
    ) -> bytes:
        """The whole answer."""
        self.answered += 1
        body = committed_body(commit, stored)
        headers = [(b"content-type", JSON), (b"content-length", str(len(body)).encode())]
        return self._head(200, headers, dates, self._new_request_id(), close=close) + body

    # --- consume ---

    def consumed(
        self, plain: PlainConsume, dates: Headers, *, close: bool, waits: bool = True
    ) -> tuple[list[Bytes], Reservation] | None:
        """The parts of the whole answer, and what holds their bytes until they are sent; None when
        there is something to wait for (unless it no longer `waits`), or to refuse. Does no I/O."""
        try:
            result = self._broker.read_nowait(plain.topic, plain.wanted, waits=waits)
        except SebError:
            return None
        if result is None:
            return None
        status, headers, parts = self._read_answer(plain, result)
        length = sum(map(len, parts))
        reservation = _reserve(self._broker.reading, plain.key.api_key_id, length)
        if reservation is None:
            return None
        self.answered += 1
        self._broker.access.last_used.note(plain.key.api_key_id)
        headers.append((b"content-length", str(length).encode()))
        parts.insert(0, self._head(status, headers, dates, self._new_request_id(), close=close))
        return parts, reservation

    def _read_answer(
        self, plain: PlainConsume, result: ReadResult
    ) -> tuple[int, Headers, list[Bytes]]:
        if plain.protocol is not None:
            return plain.protocol.consumed(result, plain.wanted, self._new_boundary())
        parts = list(encode(result, plain.chosen, plain.shape))
        return 200, consumed_headers(result, plain.chosen), parts

    def wait_at_end(
        self, plain: PlainConsume, seconds: float, woken: Callable[[], None]
    ) -> Waiter | None:
        """Wait for the record that it asks for, if there is none yet, and then call `woken`."""
        offset = plain.wanted.start.offset
        if offset is None or seconds <= 0:  # other places have moved by then
            return None
        try:
            owner = plain.key.api_key_id
            return self._broker.wait_at_end(plain.topic, offset, seconds, owner, woken)
        except SebError:
            return None

    def refused(self, plain: PlainHead, error: SebError, dates: Headers, *, close: bool) -> bytes:
        """The whole answer to what was admitted and came to nothing."""
        self.answered += 1
        request_id = self._new_request_id()
        to_admin = grants_admin(plain.key.grants)
        body, headers = problem_body(error, request_id, to_admin=to_admin), problem_headers(error)
        if isinstance(plain, PlainProduce) and plain.protocol is not None:
            headers, body = plain.protocol.refused(error, body, to_admin=to_admin)
        headers.append((b"content-length", str(len(body)).encode()))
        return self._head(error.status, headers, dates, request_id, close=close) + body

    def _head(
        self, status: int, headers: Headers, dates: Headers, request_id: str, *, close: bool
    ) -> bytes:
        lines = header_lines([*dates, *with_defaults(headers, request_id.encode())])
        return b"".join((status_line(status), lines, _CLOSE if close else b"", b"\r\n"))


def _reserve(shares: Shares, owner: str, size_bytes: int) -> Reservation | None:
    try:
        return shares.reserve(owner, size_bytes)
    except SebError:
        return None
