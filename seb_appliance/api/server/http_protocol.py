"""uvicorn's HTTP protocol with the limits that it lacks, given to uvicorn as `http=`.

It limits the size and time of request headers, the time of bodies, the slowest rate of bodies and
answers, and the number of connections. A refusal before the application is a problem document too.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, cast

import httptools
from litestar.types import HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from seb_appliance import limits
from seb_appliance.addresses import network_of
from seb_appliance.api.encoding.answers import (
    header_lines,
    new_request_id,
    status_line,
    with_defaults,
)
from seb_appliance.api.encoding.problems import problem_body, problem_headers
from seb_appliance.api.server.transports import (
    Flow,
    LingeringTransport,
    send_at_once,
    unsent_bytes,
)
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.errors import (
    BadRequestError,
    HeadersTooLargeError,
    OverloadedError,
    RequestTimeoutError,
    SebError,
    TransferCodingError,
)

# Connections closed at a time when the limit is reached: a look at all 8,000 takes milliseconds.
AT_ONCE: Final = 64


class Holding(Protocol):
    """A connection. `waited_for`: what we wait for from its client, and since when on the loop's
    clock; the smallest is closed first. None while the client waits for us."""

    @property
    def waited_for(self) -> tuple[int, float] | None: ...

    def cut(self) -> None:
        """Abort it: no request is under way."""


def make_room(connections: Iterable[Holding]) -> None:
    """Cut up to AT_ONCE connections that we wait for, the longest wait first, so that many half
    requests keep nobody out: a new client sends its head at once."""
    ranked = [(rank, number, one) for number, one in enumerate(connections)
              if (rank := one.waited_for) is not None]  # fmt: skip
    for _, _, slow in heapq.nsmallest(AT_ONCE, ranked):
        slow.cut()


EMPTY_LINE: Final = b"\r\n\r\n"  # at the end of a head; the parser accepts no other one
_PIECE_BYTES: Final = 2 * limits.KIB  # of heads and chunks: parsed in less than a millisecond
_PIECES_AT_ONCE: Final = 4  # between two turns of the event loop
_BYTES_PER_HEADER: Final = 4  # colon, space, line end: an empty header is not free
_LENGTH_DIGITS_MAX: Final = 20
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_ALLOWED_S: Final = {"headers": limits.HTTP_HEADERS_S_MAX, "body": limits.HTTP_BODY_S_MAX}


# Takes a connection over whose client asks for WebSocket. It is given the transport, and what the
# client asked, also as bytes of HTTP/1.1. Returns the transport's new protocol, which is given what
# the client has sent since.
Upgrade: TypeAlias = Callable[[asyncio.Transport, HTTPScope, bytes], asyncio.Protocol]
NO_UPGRADES: Final[Mapping[bytes, Upgrade]] = MappingProxyType({})


class _CallbackRefusal(Exception):  # noqa: N818 - not an error of its own: it ends the parsing
    """Leaves a parser callback; the parser raises its own error then."""


class SebHttpProtocol(HttpToolsProtocol):
    """One connection. A request arrives in its headers or its body, or there is none. The hot path
    sets no timer, because its request is complete in one piece."""

    transport: LingeringTransport

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        strangers: Shares,
        upgrades: Mapping[bytes, Upgrade] = NO_UPGRADES,
    ) -> None:
        """`strangers`: memory for what comes behind a request, by network. `upgrades`: by path."""
        super().__init__(config, server_state, app_state, _loop)
        self._strangers = strangers
        self._behind: Reservation | None = None
        self._upgrades = upgrades
        self._phase = ""  # "", "headers", "body"
        self._header_bytes = 0  # of the headers that are complete
        self._partial_bytes = 0  # received while in the headers
        self._refusal: SebError | None = None
        self._refused = False
        self._unparsed = b""
        self._parses_soon = False
        self._body_left = 0  # of a body whose length was announced
        self._reads_on = False  # in a head that was dealt with: see _upgraded
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_since_s = 0.0  # for what the deadline is for
        self._body_bytes = 0  # since the last check of the rate
        self._pace: asyncio.TimerHandle | None = None  # while an answer is not taken
        self._unsent_bytes = 0  # at the last check

    # --- what the transport says ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        lingering = LingeringTransport(
            transport,
            self.loop,
            lambda: self._phase == "body" or bool(self._unparsed),
            self._watch_answer,
        )
        super().connection_made(lingering)
        self.flow = Flow(lingering, lambda: bool(self._unparsed))
        send_at_once(transport)
        transport.set_write_buffer_limits(high=limits.HTTP_UNSENT_BYTES)
        if len(self.connections) > limits.CONNECTIONS_MAX:
            make_room(cast("set[Holding]", self.connections) - {self})
        if len(self.connections) > limits.CONNECTIONS_MAX:
            self._refuse(OverloadedError(f"{limits.CONNECTIONS_MAX} connections are already open."))
            return
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_lingering:
            return
        self._unset_keepalive_if_required()
        self._unparsed += data
        if not self._parses_soon:
            self._parse_on()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unparsed and not self._parses_soon:
            self._unset_keepalive_if_required()
            self._parse_on()

    def _parse_on(self) -> None:
        """Parse what has come, a few pieces at a time, and a request once the one before it is
        answered: a request of 30 bytes takes 2 KB of memory."""
        self._parses_soon = False
        data, at = self._unparsed, 0
        was_held = self.flow.read_paused
        for _ in range(_PIECES_AT_ONCE):
            if at < len(data) and not (self._is_over or self._is_later):
                at = self._parse(data, at, self._piece_end(data, at))
        self._unparsed = b"" if self._is_over else data[at:]
        if self._is_over:
            return
        self._hold(len(self._unparsed) if self._is_later else 0)
        if self._unparsed:
            self.flow.pause_reading()
            if not self._is_later:
                self._parses_soon = True
                self.loop.call_soon(self._parse_on)
        elif was_held and not (self._is_answering and len(self.cycle.body) > HIGH_WATER_LIMIT):
            self.flow.resume_reading()
        if self._deadline is None and (self._phase or not self._is_answering):
            self._arm()  # also behind an empty line, which begins no request

    def _hold(self, waiting_bytes: int) -> None:
        """Reserve memory for what waits behind the request being answered, or cut it off."""
        wanted = waiting_bytes if waiting_bytes > limits.HTTP_BEHIND_BYTES else 0
        if self._behind is None:
            if not wanted:
                return
            address = str(self.client[0]) if self.client else ""
            self._behind = Reservation(self._strangers, network_of(address))
        self._behind.shrink_to(wanted)
        more = wanted - self._behind.held
        if more and not self._behind.try_grow(more):
            self.transport.abort()

    @property
    def _is_over(self) -> bool:
        """Whether nothing more is parsed here: refused, given over, or closing."""
        return self._refused or self.parser is None or self.transport.is_closing()

    @property
    def _is_later(self) -> bool:
        """Whether what comes is of a request behind the one that is being answered."""
        return bool(self.pipeline) or (self._phase != "body" and self._is_answering)

    def _piece_end(self, data: bytes, at: int) -> int:
        """At most one head, or the rest of a body."""
        if self._phase == "body":
            return at + (self._body_left if self._body_left > 0 else _PIECE_BYTES)
        head = data.find(EMPTY_LINE, at, at + _PIECE_BYTES)
        return at + _PIECE_BYTES if head < 0 else head + len(EMPTY_LINE)

    def _parse(self, data: bytes, at: int, end: int) -> int:
        """Where to parse on."""
        piece, was_in_headers = data[at:end], self._phase == "headers"
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offered:
            return self._upgraded(data, at + offered.args[0])
        except httptools.HttpParserError:
            self._refuse(self._refusal or BadRequestError("This is not valid HTTP/1.1."))
            return end
        if self._phase == "headers" and was_in_headers:
            self._partial_bytes += len(piece)
            if self._partial_bytes > limits.HTTP_HEADER_BYTES_MAX:
                self._refuse(_headers_too_large())
        if self._phase == "body":
            self._body_bytes += len(piece)
        return end

    def _upgraded(self, data: bytes, at: int) -> int:
        """An upgrade is offered, not demanded: unless it is one of ours, the request is answered
        over HTTP/1.1. But this parser takes all that follows, also the body, for the protocol that
        is offered, so another one reads it."""
        if self.parser.get_method() == b"CONNECT":
            return len(data)
        if self._upgrade is not None:
            self._give_over(self._upgrade, data[at:])
            return len(data)
        framing = [one for one in self.headers if one[0] in _FRAMING]
        self.parser = httptools.HttpRequestParser(self)
        self._reads_on = True  # its head was dealt with
        lines = [b"%b: %b\r\n" % one for one in framing]
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines))
        return at

    def _should_upgrade(self) -> bool:
        return self._upgrade is not None

    @property
    def _upgrade(self) -> Upgrade | None:
        if self._get_upgrade() != b"websocket" or self._is_answering:
            return None
        return self._upgrades.get(self.url.partition(b"?")[0])

    def _give_over(self, upgrade: Upgrade, rest: bytes) -> None:
        """Another protocol has the connection from now on."""
        lines = [b"%b: %b\r\n" % header for header in self.headers]
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (self.parser.get_method(), self.url, b"".join(lines))
        self.connection_lost(ConnectionAbortedError())  # the transport stays open
        transport = self.transport.inner
        protocol = upgrade(transport, cast("HTTPScope", self.scope), head)
        transport.set_protocol(protocol)
        protocol.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase, self._unparsed = "", b""
        self._hold(0)
        self._disarm()
        self._unset_pace()
        self.transport.unset_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_answer()

    def resume_writing(self) -> None:
        self._unset_pace()
        super().resume_writing()

    # --- what the parser says ---

    def on_message_begin(self) -> None:
        if self._reads_on:
            return
        super().on_message_begin()
        self._phase = "headers"
        self._header_bytes = 0
        self._partial_bytes = 0

    def on_url(self, url: bytes) -> None:
        if self._reads_on:
            return
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reads_on:
            return
        if self._phase == "headers":  # else a trailer, which no proxy has looked at
            super().on_header(name, value)
        self._count(len(name) + len(value) + _BYTES_PER_HEADER)

    def on_headers_complete(self) -> None:
        if self._reads_on:
            self._reads_on = False
            return
        self._disarm()
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse_from_callback(BadRequestError(f"This is HTTP/{version}; send HTTP/1.1."))
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            self._refuse_from_callback(
                BadRequestError(f"A request must have one Host header, not {hosts}.")
            )
        if any(map(is_overlong_length, self.headers)):
            self._refuse_from_callback(BadRequestError("Content-Length is padded."))
        codings = b",".join(value for name, value in self.headers if name == b"transfer-encoding")
        if codings and codings.strip().lower() != b"chunked":
            self._refuse_from_callback(
                TransferCodingError("The only supported Transfer-Encoding is chunked.")
            )
        super().on_headers_complete()
        self._phase = "body"
        lengths = (int(value) for name, value in self.headers if name == b"content-length")
        self._body_left = next(lengths, 0)

    def on_body(self, body: bytes) -> None:
        self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            return  # not yet: _parse reads on
        self._phase = ""
        self._disarm()
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > limits.HTTP_HEADER_BYTES_MAX:
            self._refuse_from_callback(_headers_too_large())

    def _refuse_from_callback(self, error: SebError) -> None:
        self._refusal = error
        raise _CallbackRefusal

    def _unsupported_upgrade_warning(self) -> None:
        """uvicorn would log a line for each upgrade that is offered and not taken."""

    # --- making room for others ---

    @property
    def waited_for(self) -> tuple[int, float] | None:
        """See `Holding`: 0 for a head, 1 for a body, 2 for the next request."""
        if self.transport.is_closing():
            return None
        if self._deadline is not None:
            rank = (int(self._phase == "body"), self._waits_since_s)
            return None if self._is_later else rank
        if self.timeout_keep_alive_task is not None:
            return 2, self.timeout_keep_alive_task.when() - self.timeout_keep_alive
        return None

    def cut(self) -> None:
        self.connections.discard(self)  # at once: the next one counts again
        self.transport.abort()

    # --- refusing ---

    @property
    def _is_answering(self) -> bool:
        """Whether the application has a request of this connection."""
        return self.cycle is not None and not self.cycle.response_complete

    def _on_late(self) -> None:
        """The headers, or the body, did not arrive in time."""
        self._deadline = None
        answering = self._is_answering
        if not self._phase:
            self.transport.close()  # connected and sent nothing
        elif self._is_later:
            self._arm()  # an earlier answer is under way
        elif self._phase == "body" and (not answering or self.cycle.response_started):
            self.transport.abort()  # it was answered before its body was complete
        else:
            self._refuse_late()

    def _refuse_late(self) -> None:
        allowed_s = _ALLOWED_S[self._phase]
        why = f"took more than {allowed_s} s"
        if self._left_s > 0:
            why = f"came slower than {limits.HTTP_BODY_BYTES_PER_S_MIN} bytes/s"
        self._refuse(RequestTimeoutError(f"The {self._phase} of the request {why}."))

    def _refuse(self, error: SebError) -> None:
        """Answer without the application and hang up; an answer under way is only completed."""
        self._refused = True
        self._disarm()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self._phase != "body" or cycle.response_started:
                cycle.keep_alive = False
                return
            cycle.disconnected = True  # its handler ends, and its answer is not sent
            cycle.message_event.set()
        self.transport.write(refusal_bytes(error))
        self.transport.linger()

    def _begin_body(self) -> None:
        """A body begins to arrive that the parser does not get."""
        self._phase = "body"
        self._arm()

    def _end_body(self) -> None:
        self._phase = ""
        self._disarm()

    # --- time and rate of requests and answers ---

    def _arm(self) -> None:
        """Wait for the rest of the headers or the body."""
        self._disarm()
        self._waits_since_s = self.loop.time()
        self._body_bytes = 0
        self._look_again()

    def _look_again(self) -> None:
        left_s = self._left_s
        if self._phase == "body":
            left_s = min(left_s, limits.HTTP_PACE_S)
        self._deadline = self.loop.call_later(left_s, self._on_deadline)

    def _on_deadline(self) -> None:
        came, self._body_bytes = self._body_bytes, 0
        wanted = limits.HTTP_BODY_BYTES_PER_S_MIN * limits.HTTP_PACE_S
        moves = self._phase == "body" and (came >= wanted or self.flow.read_paused)
        if moves and self._left_s > 0:
            self._look_again()
        else:
            self._on_late()

    @property
    def _left_s(self) -> float:
        allowed_s = _ALLOWED_S[self._phase or "headers"]
        return self._waits_since_s + allowed_s - self.loop.time()

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch_answer(self) -> None:
        self._unset_pace()
        self._unsent_bytes = unsent_bytes(self.transport)
        self._pace = self.loop.call_later(limits.HTTP_PACE_S, self._on_pace)

    def _on_pace(self) -> None:
        taken = self._unsent_bytes - unsent_bytes(self.transport)
        if taken < limits.HTTP_ANSWER_BYTES_PER_S_MIN * limits.HTTP_PACE_S:
            self.transport.abort()
        else:
            self._watch_answer()

    def _unset_pace(self) -> None:
        if self._pace is not None:
            self._pace.cancel()
            self._pace = None


def is_overlong_length(header: tuple[bytes, bytes]) -> bool:
    """Whether it is a Content-Length with more digits than a uint64: the parser accepts leading
    zeros, and Python limits the digits of a number."""
    return header[0] == b"content-length" and len(header[1]) > _LENGTH_DIGITS_MAX


def _headers_too_large() -> HeadersTooLargeError:
    return HeadersTooLargeError(
        f"The request line and headers have more than {limits.HTTP_HEADER_BYTES_MAX} bytes.",
        max_header_bytes=limits.HTTP_HEADER_BYTES_MAX,
    )


def refusal_bytes(error: SebError) -> bytes:
    """A whole HTTP/1.1 answer that ends the connection."""
    request_id = new_request_id()
    body = problem_body(error, request_id)
    headers = [header for header in problem_headers(error) if header[0] != b"connection"]
    lines = header_lines(
        [
            *with_defaults(headers, request_id.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
    )
    return b"".join((status_line(error.status), lines, b"\r\n", body))
