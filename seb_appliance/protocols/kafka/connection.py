"""One Kafka connection: requests are taken and answered in their order.

As in Kafka, a request that cannot be answered yet holds up those behind it. Only Produce does not:
its records are admitted at once, and wait for the bucket together with those of later requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, Final, Protocol

from seb_appliance import limits
from seb_appliance.broker.append.quotas import Meter
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import NO_QUOTAS
from seb_appliance.errors import SebError, UnauthenticatedError
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.apis.connecting import take_token
from seb_appliance.protocols.kafka.reading import HEAD, RequestReader
from seb_appliance.protocols.kafka.requests import HANDLERS, Request, Standing
from seb_appliance.protocols.kafka.stalling import Stalling
from seb_appliance.protocols.kafka.wire.codec import APIS, Message, write_response
from seb_appliance.protocols.kafka.wire.framing import Framer
from seb_appliance.protocols.kafka.wire.long_arrays import has_long, prepared
from seb_appliance.protocols.kafka.wire.repeats import PRODUCE
from seb_appliance.protocols.kafka.wire.types import BadMessageError, Frame
from seb_appliance.protocols.sockets.connected import Connected, Stalled
from seb_appliance.protocols.sockets.connection import Listener, PacketConnection
from seb_appliance.tasks import Steps, in_slices

_log = logging.getLogger(__name__)

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
_BEFORE_KEY: Final = {SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE}

_NO_TOKEN: Final = bytes(4)  # an empty answer
_HELD_FROM_BYTES: Final = 80 * limits.KIB  # of an answer; most records that are in memory have less
_ELEMENT_BYTES: Final = 400  # of memory, in an array of a request
_ELEMENTS_FREE: Final = 256  # of them count for nobody
_AT_ONCE_S: Final = 0.001  # of what may take long, before it is done in slices


class Server(Listener, Protocol):
    room: Shares

    def counted(self, api: str) -> None: ...


class Connection(PacketConnection[Frame]):
    """`wants_token`: the next request is a bare SASL token, as SaslHandshake 0 has it."""

    _framer: Framer

    def __init__(self, server: Server) -> None:
        super().__init__(server, Framer())
        self._server = server
        self._requests: deque[Request] = deque()  # that are not answered, or behind such a one
        self._holding: Request | None = None  # no request is taken before it is answered
        self._tasks = set[asyncio.Task[None]]()
        self._unsent: list[Reservation] = []
        self._reader = RequestReader()
        self.standing: Standing | None = None
        self.has_quotas = False  # of a changed API key the connection ends
        self.wants_token = False
        self.software = ""
        self._stalling = Stalling(self._heard_s)
        self.received = self.sent = 0

    def _lost(self) -> None:
        self._interrupt()
        for task in self._tasks:
            task.cancel()
        if self.standing is not None:
            self.standing.leave()
        for held in (*self._unsent, *(one.acquired for one in self._requests)):
            if held is not None:
                held.release()
        self._unsent.clear()
        self._requests.clear()

    def _interrupt(self) -> None:
        """What holds up other requests is to end its wait."""
        waiting = self._holding
        if waiting is not None and waiting.interrupt is not None:
            waiting.interrupt()

    def _flushed(self) -> None:
        if not self._is_slow:
            for held in self._unsent:
                held.release()
            self._unsent.clear()

    @property
    def _unsent_elsewhere_bytes(self) -> int:
        return sum(one.held for one in self._unsent)

    # --- the caller ---

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""
        return len(self._requests)

    def stalled_at(self, now_s: float) -> Stalled | None:
        """Of its producer; None if it is not stalled."""
        return self._stalling.at(now_s)

    def connected(self) -> Connected:
        return self.as_connected(
            f"Kafka ({self.software})" if self.software else "Kafka",
            received=self.received,
            sent=self.sent,
            waiting=self.waiting,
        )._replace(stalled=self.stalled_at(self.broker.clock.monotonic_s()))

    def authenticate(self, token: str) -> None:
        """Take the API key of the token; also again, as clients may before it expires. Raises
        UnauthenticatedError."""
        access = self.broker.access
        key = access.authenticate(token)
        if not self.has_key:
            if not self._server.room.try_take(key.api_key_id, 1):
                raise UnauthenticatedError("There are too many Kafka connections of this API key.")
            self._framer.is_trusted = True
        elif key.api_key_id != self.key.api_key_id:
            raise UnauthenticatedError("The connection began with another API key.")
        self._accept(key)
        self._until_us = access.holds_until_us(key)
        self.has_quotas = key.quotas != NO_QUOTAS

    @property
    def _meter(self) -> Meter | None:
        return self.broker.access.meters.of(self.key) if self.has_quotas else None

    # --- requests ---

    def _process(self) -> None:
        self._pause_in_debt()
        super()._process()

    @property
    def _is_busy(self) -> bool:
        return self._holding is not None or len(self._requests) >= kafka_limits.IN_FLIGHT_MAX

    def _pause_in_debt(self) -> None:
        """Of a quota of the API key: what exceeds it makes the client wait, not fail."""
        meter = self._meter
        if (
            meter is not None
            and meter.wait_s
            and self._pause is None
            and self._framer.waiting_bytes
        ):
            self._pause_for(meter.wait_s)

    def _take(self, packet: Frame) -> None:
        self.received += 1
        if self.wants_token:
            self._take_token(packet)
            return
        key, version, correlation_id, length = HEAD.unpack_from(packet)
        api = APIS.get(key)
        if api is None:
            raise BadMessageError(f"API {key} is not known here")
        if not self.has_key:
            if key not in _BEFORE_KEY:
                raise BadMessageError(f"{api.name} came before an API key")
        elif not self.holds_key:
            raise BadMessageError("the API key has changed or expired")
        is_known = version in api.versions
        if not is_known and key != API_VERSIONS:
            raise BadMessageError(f"{api.name} {version} is not known here")
        request = Request(self, api, version if is_known else 0, correlation_id, {})
        request.is_version_unknown = not is_known
        self._server.counted(api.name)
        self._requests.append(request)
        meter = self._meter
        if meter is not None:
            meter.enter()
            meter.charge_in(len(packet))
            self._pause_in_debt()
        steps: Iterable[object] = ()
        if is_known and not self._reader.knows(request, packet):
            steps = self._reader.read(request, packet, length)
        if self._at_once(steps):
            self._handle(request)
        else:
            self._holding = request
            self._start(self._read_on(request, packet, steps))
        if self._holding is None:
            self._reserved.release()

    async def _read_on(self, request: Request, packet: Frame, steps: Iterable[object]) -> None:
        """In slices; then it is as if the request came now. What is read takes many times the
        memory of its bytes."""
        try:
            async for _ in in_slices(steps):
                elements = packet.elements - _ELEMENTS_FREE
                more = elements * _ELEMENT_BYTES - self._reserved.held
                if more > 0 and not self._reserved.try_grow(more):
                    self.end("there is no memory for what it sends")
                    return
        except BadMessageError as error:
            self.end(error.text)
            return
        self._holding = None
        self._handle(request)
        if self._holding is None:
            self.go_on()

    def _at_once(self, steps: Iterable[object]) -> bool:
        """Take them; False: it takes long, and some are left."""
        clock = self.broker.clock
        until_s = clock.monotonic_s() + _AT_ONCE_S
        return all(clock.monotonic_s() < until_s for _ in steps)

    def _take_token(self, frame: Frame) -> None:
        self.wants_token = False
        try:
            take_token(self, frame)
        except UnauthenticatedError as error:
            raise BadMessageError(error.detail) from error
        self.write(_NO_TOKEN)

    def _handle(self, request: Request) -> None:
        if request.api.key == PRODUCE and request.body["acks"] != 0:
            self._stalling.took(self._heard_s)
        try:
            self._begin(request)
        except Exception:
            self.failed(request)

    def _begin(self, request: Request) -> None:
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
        steps = Steps(prepared(request.api, request.version, message))
        if self._at_once(steps):
            request.answer(steps.result)
            return
        self._holding = request
        self.run(request, self._prepared(request, steps))

    async def _prepared(self, request: Request, steps: Steps[int, Message]) -> Message:
        """The long message; its memory is that of answers, unless the request has acquired it.
        Raises SebError if there is none."""
        held = None
        if request.acquired is None:
            held = request.acquired = Reservation(self.broker.reading, self.key.api_key_id)
        async for size_bytes in in_slices(steps):
            if held is not None:
                held.grow(size_bytes)
        return steps.result

    def run(self, request: Request, outcome: Coroutine[Any, Any, Message | None]) -> None:
        """Answer the request with what comes of it."""
        # A task that is cancelled before its first step does not begin the outcome.
        self._start(self._run(request, outcome)).add_done_callback(lambda _: outcome.close())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the connection."""
        task = asyncio.create_task(work, name="kafka")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, request: Request, outcome: Coroutine[Any, Any, Message | None]) -> None:
        try:
            message = await outcome
            if message is None:  # it is answered later, or was
                return
            if has_long(message):
                steps = Steps(prepared(request.api, request.version, message))
                message = await self._prepared(request, steps)
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
        super().go_on()

    # --- answers ---

    def answered(self, request: Request) -> None:
        """Sends what is answered up to the first request that is not."""
        requests = self._requests
        if request is self._holding:
            self.go_on()
        was_full = len(requests) >= kafka_limits.IN_FLIGHT_MAX
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
        message = request.message
        data: bytes | bytearray
        if isinstance(message, bytes):
            data = message
        else:
            if meter is not None and meter.wait_s > 0:
                message["throttle_time_ms"] = int(meter.wait_s * 1000) + 1
            try:
                data = write_response(
                    request.api.key, request.version, request.correlation_id, message
                )
            except Exception:
                self.failed(request)
                return
        known_bytes = 0 if request.acquired is None else request.acquired.held
        if len(data) - known_bytes > _HELD_FROM_BYTES and not self._holds(len(data) - known_bytes):
            return
        request.message = None
        self.sent += 1
        if meter is not None:
            meter.charge_out(len(data))
        self._writes.write(data)

    def _holds(self, size_bytes: int) -> bool:
        """Whether there is memory for an answer until the client takes it. If not, this ends."""
        held = Reservation(self.broker.reading, self.key.api_key_id)
        try:
            held.grow(size_bytes)
        except SebError as error:
            self.end(error.detail)
            return False
        self._unsent.append(held)
        return True

    def _note_produced(self, request: Request) -> None:
        now_s = self.broker.clock.monotonic_s()
        topics = request.body["topic_data"]
        self._stalling.answered(now_s, topics[0]["name"] if topics else "", request.stored)

    # --- the end ---

    def finish(self) -> None:
        self._finishing = True
        self._interrupt()
        super().finish()

    def _end_if_done(self) -> None:
        if self._finishing and not self._requests and not self._closing:
            self.close()

    def _check(self) -> None:
        silent_s = self.broker.clock.monotonic_s() - self._heard_s
        if silent_s >= kafka_limits.REPEATS_KEPT_S and not self._requests:
            self._reader.forget()
        super()._check()

    def _is_idle(self, silent_s: float) -> bool:
        return silent_s >= kafka_limits.IDLE_S_MAX and not self._requests
