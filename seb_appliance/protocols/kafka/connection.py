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
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import NO_QUOTAS
from seb_appliance.errors import SebError, UnauthenticatedError
from seb_appliance.protocols.kafka.apis.connecting import take_token
from seb_appliance.protocols.kafka.requests import HANDLERS, Request, Standing
from seb_appliance.protocols.kafka.stalling import Stalling
from seb_appliance.protocols.kafka.wire.codec import APIS, Message, read_request, write_response
from seb_appliance.protocols.kafka.wire.framing import Framer
from seb_appliance.protocols.kafka.wire.long_arrays import has_long, prepared
from seb_appliance.protocols.kafka.wire.repeats import PRODUCE, Repeats
from seb_appliance.protocols.kafka.wire.types import BadMessageError, Frame, read_uvarint
from seb_appliance.protocols.sockets.connected import Connected, Stalled
from seb_appliance.protocols.sockets.connection import Listener, PacketConnection
from seb_appliance.tasks import in_slices

_log = logging.getLogger(__name__)

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
_BEFORE_KEY: Final = {SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE}

_NO_TOKEN: Final = bytes(4)  # an empty answer
_CLIENT_ID_CHARACTERS: Final = 255  # are kept; a member id begins with it
_HEAD: Final = struct.Struct(">hhih")  # API, version, correlation id, length of the client id
_PREPARED_HERE_S: Final = 0.001


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
        self._task: asyncio.Task[None] | None = None
        self._unsent: list[Reservation] = []
        self._repeats = Repeats()
        self.standing: Standing | None = None
        self.has_quotas = False  # of a changed API key the connection ends
        self.wants_token = False
        self.software = ""
        self._stalling = Stalling(self._heard_s)
        self.received = self.sent = 0

    def _lost(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._interrupt()
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
        if not self._is_clogged:
            for held in self._unsent:
                held.release()
            self._unsent.clear()

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
        return self._holding is not None or len(self._requests) >= limits.KAFKA_IN_FLIGHT_MAX

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
        request = self._read(packet)
        self._server.counted(request.api.name)
        if request.api.key == PRODUCE and request.body["acks"] != 0:
            self._stalling.took(self._heard_s)
        self._requests.append(request)
        meter = self._meter
        if meter is not None:
            meter.enter()
            meter.charge_in(len(packet))
            self._pause_in_debt()
        try:
            self._handle(request)
        except Exception:
            self.failed(request)
        if self._holding is None:
            self._reserved.release()

    def _read(self, frame: Frame) -> Request:
        """Raises BadMessageError."""
        key, version, correlation_id, length = _HEAD.unpack_from(frame)
        api = APIS.get(key)
        if api is None:
            raise BadMessageError(f"API {key} is not known here")
        if not self.has_key:
            if key not in _BEFORE_KEY:
                raise BadMessageError(f"{api.name} came before an API key")
        elif not self.holds_key:
            raise BadMessageError("the API key has changed or expired")
        if version not in api.versions:
            if key != API_VERSIONS:
                raise BadMessageError(f"{api.name} {version} is not known here")
            request = Request(self, api, 0, correlation_id, {})
            request.is_version_unknown = True
            return request
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
        return request

    def _take_token(self, frame: Frame) -> None:
        self.wants_token = False
        try:
            take_token(self, frame)
        except UnauthenticatedError as error:
            raise BadMessageError(error.detail) from error
        self.write(_NO_TOKEN)

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
        until_s = self.broker.clock.monotonic_s() + _PREPARED_HERE_S
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
        super().go_on()

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

    # --- the end ---

    def finish(self) -> None:
        self._finishing = True
        self._interrupt()
        super().finish()

    def _end_if_done(self) -> None:
        if self._finishing and not self._requests and not self._closing:
            self.close()

    def _is_idle(self, silent_s: float) -> bool:
        return silent_s >= limits.KAFKA_IDLE_S_MAX and not self._requests


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
