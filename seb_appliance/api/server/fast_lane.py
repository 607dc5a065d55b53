"""The fast lane: a connection that answers plain requests itself and passes on all others.

A request is plain when its head is a usual one (plain_requests.py) and no other request follows it
at once. Every other request goes to the application unchanged, also one that will be refused: so
the rules of the API stand in one place. Answers keep the order of the requests: while one is under
way, later bytes are held and the client is not read from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from seb_appliance.api.server.http_protocol import (
    EMPTY_LINE,
    NO_UPGRADES,
    SebHttpProtocol,
    Upgrade,
)
from seb_appliance.api.server.plain_answers import PlainAnswers
from seb_appliance.api.server.plain_requests import (
    PlainCommit,
    PlainConsume,
    PlainProduce,
    PlainWork,
)
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.read.waiting import Waiter
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.errors import SebError
from seb_appliance.formats.columns import Bytes


@dataclass(slots=True)
class _Arriving:
    """A plain request whose body is incomplete."""

    plain: PlainProduce | PlainCommit | PlainWork
    reservation: Reservation
    missing: int
    parts: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _AtEnd:
    """A read (`data`: its bytes) that waits for a record until `give_up_s` on the loop's clock."""

    plain: PlainConsume
    data: bytes
    give_up_s: float
    waiter: Waiter


class FastLaneProtocol(SebHttpProtocol):
    """A connection is free, or gathers a body (`_arriving`), or is busy with an answer of this lane
    (`_busy`), or is in the application's lane."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        answers: PlainAnswers,
        strangers: Shares,
        upgrades: Mapping[bytes, Upgrade] = NO_UPGRADES,
    ) -> None:
        super().__init__(
            config, server_state, app_state, _loop, strangers=strangers, upgrades=upgrades
        )
        self._answers = answers
        self._arriving: _Arriving | None = None
        self._busy = False
        self._waiting: PlainProduce | PlainCommit | PlainWork | None = None  # for the bucket
        self._commit: Commit | None = None  # that waits
        self._at_end: _AtEnd | None = None
        self._sending: Reservation | None = None  # of an answer
        self._is_draining = False  # the client takes an answer slowly
        self._held = b""  # what arrived behind the request that is being answered
        self._closing = False  # once the answer under way is out
        self._idle: asyncio.TimerHandle | None = None
        self._active_s = 0.0  # on the loop's clock: the last answer of this lane

    # --- what the transport says ---

    def data_received(self, data: bytes) -> None:
        if self._busy:
            self._held += data
            self.transport.pause_reading()
            self._hold(len(self._held))
        elif self._arriving is not None:
            self._gather(self._arriving, data)
        elif self._phase or not self._is_free:
            super().data_received(data)
        else:
            self._begin(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting = None
        if self._at_end is not None:
            self._at_end.waiter.leave()
            self._at_end = None
        self._forget_arriving()
        self._release()
        if self._idle is not None:
            self._idle.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_draining:
            self._written()

    def _on_late(self) -> None:
        if self._arriving is None:
            super()._on_late()
        else:
            self._deadline = None
            self._refuse_late()
            self._forget_arriving()

    def shutdown(self) -> None:
        """uvicorn stops: an answer under way is the last one."""
        self._closing = True
        if not self._busy:
            super().shutdown()

    @property
    def waited_for(self) -> tuple[int, float] | None:
        """See `Holding`."""
        if self._busy:
            return None
        idle = self._idle is not None and not self._phase and self._is_free
        return super().waited_for or ((2, self._active_s) if idle else None)

    @property
    def _is_free(self) -> bool:
        """Whether the application has no request of this connection."""
        return not (self._is_answering or self._unparsed or self._is_over)

    # --- from the first byte to the broker ---

    def _begin(self, data: bytes) -> None:
        end = data.find(EMPTY_LINE) + len(EMPTY_LINE)
        plain = self._answers.find(data[:end]) if end >= len(EMPTY_LINE) else None
        missing = end + plain.content_length - len(data) if plain is not None else -1
        if plain is None or missing < 0:  # more than one request at a time is not plain
            super().data_received(data)
        elif isinstance(plain, PlainConsume):
            self._consume(plain, data)
        elif missing == 0:
            self._write(plain, data, end)
        elif reservation := self._answers.reserve(plain, plain.content_length - missing):
            self._unset_keepalive_if_required()
            self._arriving = _Arriving(plain, reservation, missing, [data])
            self._begin_body()
        else:
            super().data_received(data)

    def _gather(self, arriving: _Arriving, data: bytes) -> None:
        arriving.parts.append(data)
        arriving.missing -= len(data)
        self._body_bytes += len(data)
        if arriving.missing > 0 and arriving.reservation.try_grow(len(data)):
            return
        self._forget_arriving()
        whole = b"".join(arriving.parts)
        if arriving.missing == 0 and self._answers.still_holds(arriving.plain):
            self._write(arriving.plain, whole, len(whole) - arriving.plain.content_length)
        else:
            super().data_received(whole)

    def _forget_arriving(self) -> None:
        if self._arriving is not None:
            self._arriving.reservation.release()
            self._arriving = None
            self._end_body()

    def _write(
        self, plain: PlainProduce | PlainCommit | PlainWork, data: bytes, body_at: int
    ) -> None:
        if isinstance(plain, PlainProduce):
            admitted = self._answers.produce(plain, data, body_at, self)
        elif isinstance(plain, PlainWork):
            if plain.verb == "take":
                self._take_records(plain, data, body_at)
                return
            admitted = self._answers.ack(plain, data[body_at:], self)
        else:
            self._commit = self._answers.commit(plain, data[body_at:], self)
            admitted = self._commit is not None
        if not admitted:
            super().data_received(data)
            return
        self._waiting = plain
        self._take()

    def _take_records(self, plain: PlainWork, data: bytes, body_at: int) -> None:
        dates, close = self.server_state.default_headers, self._closing
        answer = self._answers.taken(plain, data[body_at:], dates, close=close)
        if answer is None:
            super().data_received(data)
        else:
            self._take()
            self._send(*answer)

    def _consume(self, plain: PlainConsume, data: bytes) -> None:
        dates = self.server_state.default_headers
        answer = self._answers.consumed(plain, dates, close=self._closing)
        if answer is not None:
            self._take()
            self._send(*answer)
            return
        give_up_s = self.loop.time() + plain.wanted.wait_ms / 1000
        if self._wait_at_end(plain, data, give_up_s):
            self._take()
        else:
            super().data_received(data)

    def _wait_at_end(self, plain: PlainConsume, data: bytes, give_up_s: float) -> bool:
        left_s = give_up_s - self.loop.time()
        waiter = self._answers.wait_at_end(plain, left_s, self._read_on)
        if waiter is not None:
            self._at_end = _AtEnd(plain, data, give_up_s, waiter)
        return waiter is not None

    def _read_on(self) -> None:
        """A record came, the time is over, the topic is gone, or the server stops."""
        at_end, self._at_end = self._at_end, None
        if at_end is None:
            return
        if not self._answers.still_holds(at_end.plain):
            self._pass_on(at_end.data)
            return
        waits = at_end.give_up_s > self.loop.time()
        dates = self.server_state.default_headers
        answer = self._answers.consumed(at_end.plain, dates, close=self._closing, waits=waits)
        if answer is not None:
            self._send(*answer)
        elif not self._wait_at_end(at_end.plain, at_end.data, at_end.give_up_s):
            self._pass_on(at_end.data)

    def _pass_on(self, data: bytes) -> None:
        """To the application, after all."""
        self._busy = False
        held, self._held = self._held, b""
        if held:
            self._hold(0)
            self.transport.resume_reading()
        super().data_received(data + held)
        if self._closing:
            super().shutdown()

    def _send(self, parts: list[Bytes], reservation: Reservation) -> None:
        self._sending = reservation
        self.transport.writelines(parts)
        self._written()

    def _take(self) -> None:
        """The request is answered here."""
        self._busy = True
        if self._deadline is not None:
            self._disarm()
        self._unset_keepalive_if_required()

    # --- from the broker to the last byte ---

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        """See `acknowledgement.AckCallback`."""
        plain, self._waiting = self._waiting, None
        if plain is None:  # the client left
            return
        dates, close = self.server_state.default_headers, self._closing
        if isinstance(plain, PlainProduce):
            answer = self._answers.produced(plain, admitted, window_s, put_s, dates, close=close)
        elif isinstance(plain, PlainWork):
            answer = self._answers.acknowledged(admitted, dates, close=close)
        else:
            assert self._commit is not None
            answer = self._answers.committed(self._commit, admitted, dates, close=close)
        failpoints = self._answers.failpoints
        if failpoints.armed("K11"):
            self.transport.write(answer[: (answer.find(EMPTY_LINE) + len(answer)) // 2])
        failpoints.reach("K11")
        self.transport.write(answer)
        self._written()

    def failed(self, error: SebError) -> None:
        """See `acknowledgement.AckCallback`."""
        plain, self._waiting = self._waiting, None
        if plain is None:
            return
        dates = self.server_state.default_headers
        self.transport.write(self._answers.refused(plain, error, dates, close=self._closing))
        self._written()

    def _written(self) -> None:
        """The next request begins once the client has taken the answer."""
        self._is_draining = self.flow.write_paused
        if not self._is_draining:
            self._release()
            self._answered()

    def _release(self) -> None:
        if self._sending is not None:
            self._sending.release()
            self._sending = None

    def _answered(self) -> None:
        if self._closing:
            self.transport.close()
            return
        self._active_s = self.loop.time()
        if self._idle is None:
            self._idle = self.loop.call_later(self.timeout_keep_alive, self._on_idle)
        if self._held:
            self.loop.call_soon(self._begin_held)  # not from here: there may be thousands
        else:
            self._busy = False

    def _begin_held(self) -> None:
        self._busy = False
        if not self.transport.is_closing():
            data, self._held = self._held, b""
            self._hold(0)
            self.transport.resume_reading()
            self._begin(data)

    def _on_idle(self) -> None:
        """One timer per connection, not per request: it checks when the last answer was."""
        self._idle = None
        taken = self._busy or self._phase or not self._is_free
        if taken or self.timeout_keep_alive_task is not None:
            return  # the lane that has the connection sets a timer of its own
        left_s = self._active_s + self.timeout_keep_alive - self.loop.time()
        if left_s <= 0:
            self.transport.close()
        else:
            self._idle = self.loop.call_later(left_s, self._on_idle)
