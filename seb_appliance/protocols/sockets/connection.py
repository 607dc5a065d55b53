"""A connection whose client sends packets, which are taken in their order.

It is read on only while packets can be taken. Memory for a packet is reserved as its bytes arrive.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from seb_appliance import limits
from seb_appliance.addresses import network_of
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.clock import Timer
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.connected import NUMBERS, Connected
from seb_appliance.protocols.sockets.framing import BadPacketError, Framer
from seb_appliance.protocols.sockets.writing import GatheredWrites

P = TypeVar("P")

# An unfinished packet of more is held in `pending`, and of unsent bytes more are in a share.
_HELD_FROM_BYTES: Final = 16 * limits.KIB
_RETRY_S: Final = 0.1  # while there is no room
_RETRY_WRITING_S: Final = 1.0
_TURN_S: Final = 0.002  # work between two turns of the event loop


class Listener(Protocol):
    """The port, which its connections tell what happens. `starving`: how many of them may wait for
    memory, each with what was read at once. `unsent`: bytes that clients have not taken."""

    broker: Broker
    starving: Shares
    unsent: Shares

    def opened(self, connection: Any) -> bool: ...

    def closed(self, connection: Any) -> None: ...

    def refused(self, connection: Any, why: str) -> None: ...

    def slowed(self, connection: Any) -> None: ...

    def took_all(self, connection: Any) -> None: ...

    def make_room(self, connection: Any) -> None: ...


class Codes(NamedTuple):
    """What a protocol calls these reasons to end a connection."""

    too_late: int = 0
    no_room: int = 0
    unauthorized: int = 0


class PacketConnection(asyncio.Protocol, Generic[P]):
    """What a protocol adds: `_take`, `_is_busy`, `_is_idle`, `_end_if_done`, and how it gets the
    API key."""

    transport: asyncio.Transport
    _codes: ClassVar = Codes()

    def __init__(self, port: Listener, framer: Framer[P]) -> None:
        self._port = port
        self._framer = framer
        self.broker = port.broker
        self.client_id = ""
        self._key: ApiKeyView | None = None
        self._until_us = 0
        self._scheduled = self._is_slow = self._closing = self._finishing = False
        self._reading = True
        self._heard_s = self.broker.clock.monotonic_s()
        self._unfinished_s: float | None = None  # since when a packet lacks its end
        self._starved_s: float | None = None  # since when there is no memory for it
        self._timer: Timer | None = None
        self._pause: Timer | None = None  # no packet is taken before
        self._unsent_room: Reservation | None = None  # while it has an API key
        self._writing_again: Timer | None = None  # there was no memory for what is to be written

    # --- the transport ---

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._writes = GatheredWrites(transport, self._written)
        # One less: a sender stops at the limit itself, and is told when it may go on.
        high = min(_HELD_FROM_BYTES // 2, socket_limits.UNSENT_BYTES_MAX - 1)
        transport.set_write_buffer_limits(high=high, low=0)
        self.number, self.since_us = next(NUMBERS), self.broker.clock.wall_us()
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if name else ""
        self._reserved = Reservation(self.broker.strangers, network_of(self.address))
        if not self._port.opened(self):
            self.end("there are too many connections")
        self._timer = self.broker.clock.call_later(socket_limits.CONNECT_S_MAX, self._check)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._closing = True
        for timer in (self._timer, self._pause, self._writing_again):
            if timer is not None:
                timer.cancel()
        self._reserved.release()
        if self._unsent_room is not None:
            self._unsent_room.release()
        self._starves_no_more()
        self._lost()
        self._port.closed(self)

    def _lost(self) -> None:
        """The connection is gone."""

    def pause_writing(self) -> None:
        """The client does not take at once what is written."""
        self._is_slow = True
        self._count_unsent()
        if self.has_key:
            self._port.slowed(self)

    def resume_writing(self) -> None:
        self._is_slow = False
        self._count_unsent()
        self._port.took_all(self)
        self._flushed()
        self._process()

    def _written(self) -> None:
        if self._is_slow:
            self._count_unsent()
        self._flushed()

    def _flushed(self) -> None:
        """The transport has all that was written, or there may be memory for more."""

    @property
    def _unsent_elsewhere_bytes(self) -> int:
        """Of what a slow client has not taken, those that are counted in another share."""
        return 0

    def _count_unsent(self) -> None:
        room = self._unsent_room
        if room is None:
            return
        size = self.transport.get_write_buffer_size() if self._is_slow else 0
        size = max(0, size - self._unsent_elsewhere_bytes)
        room.shrink_to(size)
        room.grow_anyway(size - room.held)

    def may_write(self, size_bytes: int) -> bool:
        """Whether the client takes so much more, and there is memory until it does."""
        if self._has_memory(size_bytes):
            return True
        if self._is_slow or self._closing:
            return False
        self._writes.flush()  # a client that reads takes it at once
        if self._has_memory(size_bytes):
            return True
        self._port.make_room(self)
        return False

    def _has_memory(self, size_bytes: int) -> bool:
        unsent_bytes = self._writes.unsent_bytes
        if unsent_bytes >= socket_limits.UNSENT_BYTES_MAX:
            return False
        room, wanted = self._unsent_room, unsent_bytes + size_bytes
        if room is None or wanted <= _HELD_FROM_BYTES:
            return True
        return self._port.unsent.has_room(room.owner, max(0, wanted - room.held))

    def write_later(self) -> None:
        """There is no memory for what is to be written: `_flushed` is called in a moment."""
        if self._writing_again is None and not self._closing:
            call_later = self.broker.clock.call_later
            self._writing_again = call_later(_RETRY_WRITING_S, self._write_again)

    def _write_again(self) -> None:
        self._writing_again = None
        self._flushed()

    @property
    def writes_later(self) -> bool:
        return self._writing_again is not None

    @property
    def _is_clogged(self) -> bool:
        """A slow client is sent nothing more for now; `resume_writing` follows."""
        return self._is_slow and not self._has_memory(0)

    def data_received(self, data: bytes) -> None:
        if not self._closing:
            self._framer.feed(data)
            self._process()

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._writes.write(data)

    # --- the API key ---

    @property
    def has_key(self) -> bool:
        return self._key is not None

    @property
    def key(self) -> ApiKeyView:
        assert self._key is not None
        return self._key

    def _accept(self, key: ApiKeyView) -> None:
        """From now on its memory counts for the API key."""
        self._key = key
        self._reserved.release()
        self._reserved = Reservation(self.broker.pending, key.api_key_id)
        if self._unsent_room is None:
            self._unsent_room = Reservation(self._port.unsent, key.api_key_id)

    @property
    def holds_key(self) -> bool:
        """Whether the API key is as it was when it came."""
        return self.broker.access.still_holds(self.key, self._until_us)

    # --- packets ---

    def _take(self, packet: P) -> None:
        """Once nobody needs its bytes, `_reserved` is released. Raises BadPacketError."""
        raise NotImplementedError

    @property
    def _is_busy(self) -> bool:
        """Whether something must be done before the next packet is taken; then `go_on` follows."""
        raise NotImplementedError

    @property
    def _must_wait(self) -> bool:
        return self._finishing or self._is_clogged or self._pause is not None or self._is_busy

    def go_on(self) -> None:
        """What packets had to wait for is done."""
        self._reserved.release()
        if self._framer.waiting_bytes and not self._closing:
            self._schedule()

    def _process(self) -> None:
        """Takes packets, for some milliseconds at a time."""
        clock = self.broker.clock
        began_s = now_s = clock.monotonic_s()
        try:
            while not (self._closing or self._scheduled or self._must_wait):
                packet = self._framer.next()
                if packet is None:
                    self._hold_rest(now_s)
                    break
                self._heard_s, self._unfinished_s = now_s, None
                self._take(packet)
                now_s = clock.monotonic_s()
                if now_s >= began_s + _TURN_S:
                    self._schedule()
        except BadPacketError as error:
            self.end(error.text, error.code)
        self._regulate()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        self._process()

    def _hold_rest(self, now_s: float) -> None:
        """Reserve memory for what has come of a packet. While there is none, nothing more is read.
        Raises BadPacketError if that takes too long."""
        waiting_bytes = self._framer.waiting_bytes
        if waiting_bytes and self._unfinished_s is None:
            self._unfinished_s = now_s
        more = waiting_bytes - self._reserved.held
        if waiting_bytes <= _HELD_FROM_BYTES or more <= 0 or self._reserved.try_grow(more):
            self._starves_no_more()
        elif self._may_starve(now_s):
            self._pause_for(_RETRY_S)
        else:
            raise BadPacketError("there is no memory for what it sends", self._codes.no_room)

    def _may_starve(self, now_s: float) -> bool:
        """Whether it may wait for memory: with an API key, if not too many do, and not for ever."""
        if self._starved_s is None:
            if not self.has_key or not self._port.starving.try_take(self.key.api_key_id, 1):
                return False
            self._starved_s = now_s
        return now_s - self._starved_s < socket_limits.NO_ROOM_S_MAX

    def _starves_no_more(self) -> None:
        if self._starved_s is not None:
            self._starved_s = None
            self._port.starving.give_back(self.key.api_key_id, 1)

    def _pause_for(self, seconds: float) -> None:
        self._pause = self.broker.clock.call_later(seconds, self._pause_is_over)

    def _pause_is_over(self) -> None:
        self._pause = None
        self._process()

    def _regulate(self) -> None:
        """Read on, or not: while something waits to be taken, or nothing can be."""
        wanted = not self._closing and not (
            self._framer.waiting_bytes and (self._scheduled or self._must_wait)
        )
        if wanted != self._reading and not self.transport.is_closing():
            self._reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    # --- the end ---

    def end(self, reason: str, code: int = 0) -> None:
        """Close. `code`: what the client is told, if its protocol has codes for it."""
        if not self._closing:
            self._port.refused(self, reason)
            self._tell_why(reason, code)
            self.close()

    def _tell_why(self, reason: str, code: int) -> None:
        """Most protocols have nothing that tells why."""

    def close(self) -> None:
        self._writes.flush()
        self._closing = True
        self.transport.close()
        self.broker.clock.call_later(socket_limits.CLOSE_S_MAX, self.transport.abort)

    def finish(self) -> None:
        """The appliance stops: take nothing more, and end once all that was taken is answered."""
        self._finishing = True
        self._regulate()
        self._end_if_done()

    def _end_if_done(self) -> None:
        """While it finishes."""
        raise NotImplementedError

    def _is_idle(self, silent_s: float) -> bool:
        """Whether nothing has come for too long."""
        raise NotImplementedError

    def _check(self) -> None:
        """Ends a connection that sends nothing, or only a part of a packet."""
        now_s, late = self.broker.clock.monotonic_s(), self._codes.too_late
        if self._unfinished_s is not None and self._must_wait:
            self._unfinished_s = now_s  # the rest is not read
        if not self.has_key:
            self.end("no API key has come", late)
        elif (since_s := self._unfinished_s) is not None and (
            now_s - since_s >= socket_limits.UNFINISHED_S_MAX
        ):
            self.end("the rest of a packet has not come", late)
        elif self._is_idle(now_s - self._heard_s):
            self.end("nothing has come for too long", late)
        elif not self.holds_key:
            self.end("the API key has changed or expired", self._codes.unauthorized)
        else:
            self._arm(socket_limits.UNFINISHED_S_MAX)

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.broker.clock.call_later(seconds, self._check)

    # --- what an operator asks ---

    def as_connected(
        self, protocol: str, *, subscriptions: int = 0, received: int, sent: int, waiting: int
    ) -> Connected:
        """As of `Connected`; it has an API key."""
        return Connected(
            self.number,
            protocol,
            self.client_id,
            self.key.api_key_id,
            self.address,
            self.since_us,
            subscriptions,
            received,
            sent,
            waiting,
        )
