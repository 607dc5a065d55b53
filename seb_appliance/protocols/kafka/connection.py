"""One Kafka connection: requests are taken and answered in their order.

As in Kafka, a request that cannot be answered yet holds up those behind it. Only Produce does not:
its records are admitted at once, and wait for the bucket together with those of later requests.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine, Generator, Iterator
from typing import Any, Final, Protocol

from seb_appliance import limits
from seb_appliance.broker.append.quotas import Meter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import NO_QUOTAS, ApiKeyView
from seb_appliance.clock import Timer
from seb_appliance.errors import SebError, UnauthenticatedError
from seb_appliance.protocols.kafka.apis.connecting import take_token
from seb_appliance.protocols.kafka.requests import HANDLERS, Request, Standing
from seb_appliance.protocols.kafka.stalling import Stalling
from seb_appliance.protocols.kafka.wire.codec import APIS, Message, read_request, write_response
from seb_appliance.protocols.kafka.wire.framing import Framer
from seb_appliance.protocols.kafka.wire.long_arrays import has_long, prepared
from seb_appliance.protocols.kafka.wire.repeats import PRODUCE, Repeats
from seb_appliance.protocols.kafka.wire.types import BadMessageError, Frame, read_uvarint
from seb_appliance.protocols.sockets.connected import NUMBERS, Stalled
from seb_appliance.protocols.sockets.writing import GatheredWrites
from seb_appliance.tasks import in_slices

_log = logging.getLogger(__name__)

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
_BEFORE_KEY: Final = {SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE}

_NO_TOKEN: Final = bytes(4)  # an empty answer
_CLIENT_ID_CHARACTERS: Final = 255  # are kept; a member id begins with it
_HEAD: Final = struct.Struct(">hhih")  # API, version, correlation id, length of the client id
_HELD_FROM_BYTES: Final = 16 * limits.KIB  # an unfinished request of more is held in `pending`
_TURN_S: Final = 0.002  # work between two turns of the event loop


class Port(Protocol):
    """The port, which its connections tell what happens."""

    broker: Broker

    def opened(self, connection: Connection) -> bool: ...

    def entered(self, key: ApiKeyView) -> bool: ...

    def closed(self, connection: Connection) -> None: ...

    def refused(self, connection: Connection, why: str) -> None: ...

    def counted(self, api: str) -> None: ...


class Connection(asyncio.Protocol):
    """`wants_token`: the next request is a bare SASL token, as SaslHandshake 0 has it."""

    def __init__(self, server: Port) -> None:
        self._server = server
        self.broker = server.broker
        self._framer = Framer()
        self._requests: deque[Request] = deque()  # that are not answered, or behind such a one
        self._holding: Request | None = None  # no request is taken before it is answered
        self._task: asyncio.Task[None] | None = None
        self._scheduled = self._is_clogged = self._closing = self._finishing = False
        self._reading = True
        self._pause: Timer | None = None  # until a quota allows more
        self._timer: Timer | None = None
        self._heard_s = server.broker.clock.monotonic_s()
        self._unsent: list[Reservation] = []
        self._repeats = Repeats()
        self.standing: Standing | None = None
        self._key: ApiKeyView | None = None
        self.has_quotas = False  # of a changed API key the connection ends
        self.wants_token = False
        self.client_id = ""
        self.software = ""
        self._stalling = Stalling(self._heard_s)
        self.received = self.sent = 0

    # --- the transport ---

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._writes = GatheredWrites(transport, self._flushed)
        transport.set_write_buffer_limits(high=limits.KAFKA_UNSENT_BYTES_MAX)
        self.number, self.since_us = next(NUMBERS), self.broker.clock.wall_us()
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if name else ""
        self._reserved = Reservation(self.broker.pending, "")
        if not self._server.opened(self):
            self.end("there are too many Kafka connections")
        self._timer = self.broker.clock.call_later(limits.KAFKA_CONNECT_S_MAX, self._check)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._closing = True
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
        waiting = self._holding
        if waiting is not None and waiting.interrupt is not None:
            waiting.interrupt()
        if self.standing is not None:
            self.standing.leave()
        self._reserved.release()
        for held in (*self._unsent, *(one.acquired for one in self._requests)):
            if held is not None:
                held.release()
        self._unsent.clear()
        self._requests.clear()
        self._server.closed(self)

    def pause_writing(self) -> None:
        self._is_clogged = True

    def resume_writing(self) -> None:
        self._is_clogged = False
        self._flushed()
        self._process()

    def _flushed(self) -> None:
        if not self._is_clogged:
            for held in self._unsent:
                held.release()
            self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        if not self._closing:
            self._framer.feed(data)
            self._process()

    # --- the caller ---

    @property
    def key(self) -> ApiKeyView:
        assert self._key is not None
        return self._key

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""
        return len(self._requests)

    def stalled_at(self, now_s: float) -> Stalled | None:
        """Of its producer; None if it is not stalled."""
        return self._stalling.at(now_s)

    @property
    def holds_key(self) -> bool:
        """Whether the API key is as it was when it came."""
        return self.broker.access.still_holds(self.key, self._until_us)

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def authenticate(self, token: str) -> None:
        """Take the API key of the token; also again, as clients may before it expires. Raises
        UnauthenticatedError."""
        access = self.broker.access
        key = access.authenticate(token)
        if self._key is None:
            if not self._server.entered(key):
                raise UnauthenticatedError("There are too many Kafka connections of this API key.")
            self._framer.is_trusted = True
            self._reserved.release()
            self._reserved = Reservation(self.broker.pending, key.api_key_id)
        elif key.api_key_id != self._key.api_key_id:
            raise UnauthenticatedError("The connection began with another API key.")
        self._key, self._until_us = key, access.holds_until_us(key)
        self.has_quotas = key.quotas != NO_QUOTAS

    @property
    def _meter(self) -> Meter | None:
        return self.broker.access.meters.of(self.key) if self.has_quotas else None

    # --- requests ---

    def _process(self) -> None:
        """Takes requests, for some milliseconds at a time."""
        clock = self.broker.clock
        now_s = clock.monotonic_s()
        try:
            while not (self._must_wait or self._closing or self._scheduled or self._is_in_debt()):
                frame = self._framer.next()
                if frame is None:
                    self._reserve()
                    break
                self._heard_s = now_s
                self._take(frame)
                if self._holding is None:
                    self._reserved.release()
                if clock.monotonic_s() >= now_s + _TURN_S:
                    self._schedule()
        except BadMessageError as error:
            self.end(str(error))
        self._regulate()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        self._process()

    @property
    def _must_wait(self) -> bool:
        return (
            self._finishing
            or self._is_clogged
            or self._holding is not None
            or self._pause is not None
            or len(self._requests) >= limits.KAFKA_IN_FLIGHT_MAX
        )

    def _reserve(self) -> None:
        """Memory for what has come of a request. Raises BadMessageError."""
        waiting_bytes = self._framer.waiting_bytes
        more = waiting_bytes - self._reserved.held
        if waiting_bytes > _HELD_FROM_BYTES and more > 0 and not self._reserved.try_grow(more):
            raise BadMessageError("there is no memory for a request")

    def _regulate(self) -> None:
        """Read on, or not: while something waits to be taken, or nothing can be."""
        wanted = not self._closing and not (
            self._framer.waiting_bytes and (self._must_wait or self._scheduled)
        )
        if wanted != self._reading and not self.transport.is_closing():
            self._reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def _take(self, frame: Frame) -> None:
        self.received += 1
        if self.wants_token:
            self._take_token(frame)
            return
        key, version, correlation_id, length = _HEAD.unpack_from(frame)
        api = APIS.get(key)
        if api is None:
            raise BadMessageError(f"API {key} is not known here")
        if self._key is None:
            if key not in _BEFORE_KEY:
                raise BadMessageError(f"{api.name} came before an API key")
        elif not self.holds_key:
            raise BadMessageError("the API key has changed or expired")
        if version not in api.versions:
            if key != API_VERSIONS:
                raise BadMessageError(f"{api.name} {version} is not known here")
            request = Request(self, api, 0, correlation_id, {})
            request.is_version_unknown = True
        else:
            body = self._repeats.find(key, frame)
            request = Request(self, api, version, correlation_id, body or {})
            request.is_repeated = body is not None
            if body is None:
                at = _HEAD.size + max(0, length)
                if length >= 0:
                    self.client_id = frame[_HEAD.size : at].decode("utf-8", "replace")
                    self.client_id = self.client_id[:_CLIENT_ID_CHARACTERS]
                if api.is_flexible(version):
                    at = _skip_tags(frame, at)
                request.body = read_request(key, version, frame, at)
                self._repeats.keep(key, version, frame, at, request.body)
        self._server.counted(api.name)
        if key == PRODUCE and request.body["acks"] != 0:
            self._stalling.took(self._heard_s)
        self._requests.append(request)
        meter = self._meter
        if meter is not None:
            meter.enter()
            meter.charge_in(len(frame))
        try:
            self._handle(request)
        except Exception:
            self.failed(request)

    def _take_token(self, frame: Frame) -> None:
        self.wants_token = False
        try:
            take_token(self, frame)
        except UnauthenticatedError as error:
            raise BadMessageError(error.detail) from error
        self._writes.write(_NO_TOKEN)

    def _handle(self, request: Request) -> None:
        outcome = HANDLERS[request.api.key](self._server, request)
        if isinstance(outcome, dict):
            self._prepare(request, outcome)
        elif outcome is not None:
            self._holding = request
            self.run(request, outcome)
        elif not request.is_answered and request.api.key != PRODUCE:
            self._holding = request

    def _prepare(self, request: Request, message: Message) -> None:
        """Answer with a message that may be long: at once if it turns out to be short."""
        if not has_long(message):
            request.answer(message)
            return
        steps = prepared(request.api, request.version, message)
        until_s = self.broker.clock.monotonic_s() + _TURN_S / 2
        try:
            while self.broker.clock.monotonic_s() < until_s:
                next(steps)
        except StopIteration as end:
            request.answer(end.value)
            return
        self._holding = request
        self.run(request, self._prepared(request, steps))

    async def _prepared(self, request: Request, steps: Generator[int, None, Message]) -> Message:
        """The long message; its memory is that of answers. Raises SebError if there is none."""
        found = list[Message]()

        def sizes() -> Iterator[int]:
            found.append((yield from steps))

        held = request.acquired = Reservation(self.broker.reading, self.key.api_key_id)
        async for size_bytes in in_slices(sizes()):
            held.grow(size_bytes)
        return found[0]

    def run(self, request: Request, outcome: Coroutine[Any, Any, Message]) -> None:
        """Answer the request with what comes of it."""
        self._task = asyncio.create_task(self._run(request, outcome), name="kafka")
        # A task that is cancelled before its first step does not begin the outcome.
        self._task.add_done_callback(lambda _: outcome.close())

    async def _run(self, request: Request, outcome: Coroutine[Any, Any, Message]) -> None:
        try:
            message = await outcome
            if has_long(message):
                message = await self._prepared(
                    request, prepared(request.api, request.version, message)
                )
        except SebError as error:
            self.end(error.detail)
            return
        except Exception:
            self.failed(request)
            return
        request.answer(message)

    def failed(self, request: Request) -> None:
        """By a fault of ours."""
        _log.exception("%s of %s failed", request.api.name, self.address)
        self.end(f"{request.api.name} failed")

    def hold(self, request: Request) -> None:
        """Take no request before this one is admitted: `go_on` is called."""
        self._holding = request

    def go_on(self) -> None:
        self._holding = None
        self._reserved.release()
        if self._framer.waiting_bytes and not self._closing:
            self._schedule()

    # --- answers ---

    def answered(self, request: Request) -> None:
        """Sends what is answered up to the first request that is not."""
        requests = self._requests
        if request is self._holding:
            self.go_on()
        was_full = len(requests) >= limits.KAFKA_IN_FLIGHT_MAX
        while requests and requests[0].is_answered:
            self._send(requests.popleft())
        if was_full and not self._closing:
            self._schedule()
        self._end_if_done()

    def _send(self, request: Request) -> None:
        if request.acquired is not None:
            self._unsent.append(request.acquired)
        if self._closing or request.message is None:
            return
        if request.api.key == PRODUCE:
            self._note_produced(request)
        meter = self._meter
        data = request.message
        if not isinstance(data, bytes):
            if meter is not None and meter.wait_s > 0:
                data["throttle_time_ms"] = int(meter.wait_s * 1000) + 1
            try:
                data = bytes(
                    write_response(request.api.key, request.version, request.correlation_id, data)
                )
            except Exception:
                self.failed(request)
                return
        request.message = None
        self.sent += 1
        if meter is not None:
            meter.charge_out(len(data))
        self._writes.write(data)

    def _note_produced(self, request: Request) -> None:
        now_s = self.broker.clock.monotonic_s()
        topics = request.body["topic_data"]
        self._stalling.answered(now_s, topics[0]["name"] if topics else "", request.stored)

    def _is_in_debt(self) -> bool:
        """Of a quota of the API key: what exceeds it makes the client wait, not fail."""
        meter = self._meter
        if meter is None or meter.wait_s == 0 or not self._framer.waiting_bytes:
            return False
        self._pause = self.broker.clock.call_later(meter.wait_s, self._unpause)
        return True

    def _unpause(self) -> None:
        self._pause = None
        self._schedule()

    # --- the end ---

    def end(self, reason: str) -> None:
        """Close, without an answer: the protocol has none that tells why."""
        if not self._closing:
            self._server.refused(self, reason)
            self.close()

    def finish(self) -> None:
        """The appliance stops: take nothing more, and end once all that was taken is answered."""
        self._finishing = True
        waiting = self._holding
        if waiting is not None and waiting.interrupt is not None:
            waiting.interrupt()
        self._regulate()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._finishing and not self._requests and not self._closing:
            self.close()

    def close(self) -> None:
        self._writes.flush()
        self._closing = True
        self.transport.close()
        self.broker.clock.call_later(limits.KAFKA_CLOSE_S_MAX, self.transport.abort)

    def _check(self) -> None:
        """Ends a connection that sends nothing, or only a part of a request."""
        idle_s = self.broker.clock.monotonic_s() - self._heard_s
        if self._key is None:
            self.end("no API key has come")
        elif self._framer.waiting_bytes and idle_s >= limits.KAFKA_UNFINISHED_S_MAX:
            if self._must_wait:
                self._heard_s = self.broker.clock.monotonic_s()
                self._arm()
            else:
                self.end("the rest of a request has not come")
        elif idle_s >= limits.KAFKA_IDLE_S_MAX and not self._requests:
            self.end("nothing has come for too long")
        else:
            self._arm()

    def _arm(self) -> None:
        self._timer = self.broker.clock.call_later(limits.KAFKA_UNFINISHED_S_MAX, self._check)


def _skip_tags(frame: Frame, at: int) -> int:
    """The tagged fields of a header; there are none that we need."""
    try:
        count, at = read_uvarint(frame, at)
        for _ in range(frame.count(count, at)):
            _, at = read_uvarint(frame, at)
            length, at = read_uvarint(frame, at)
            at += length
    except IndexError as error:
        raise BadMessageError("a header ends too early") from error
    return at
