"""One MQTT connection: packets in their order, acknowledged when the bucket has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.clock import Timer
from seb_appliance.errors import SebError, UnauthenticatedError
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt.codec import V5, Code, MqttError, Publish
from seb_appliance.protocols.mqtt.messages.reading import Logs
from seb_appliance.protocols.mqtt.messages.records import is_shared
from seb_appliance.protocols.mqtt.receiving.incoming import Incoming
from seb_appliance.protocols.mqtt.receiving.publishing import code_of
from seb_appliance.protocols.mqtt.sending.catching_up import CatchingUp
from seb_appliance.protocols.mqtt.sending.dispatching import Dispatcher
from seb_appliance.protocols.mqtt.sending.outgoing import Outgoing
from seb_appliance.protocols.mqtt.sending.retained import Retained, RetainedSender
from seb_appliance.protocols.mqtt.sending.sharing import SharedSubscriptions
from seb_appliance.protocols.mqtt.sessions import Client, Session, Sessions
from seb_appliance.protocols.mqtt.subscribing import resume, subscribe, unsubscribe
from seb_appliance.protocols.sockets.connected import NUMBERS
from seb_appliance.protocols.sockets.introduced import CERTIFICATE
from seb_appliance.protocols.sockets.writing import GatheredWrites

AT_ONCE: Final = 64  # packets between two turns of the event loop: about 1 ms
_GRACE: Final = 1.5  # times the keep-alive
_HELD_FROM_BYTES: Final = 16 * limits.KIB  # an unfinished packet of more is held in `pending`


class Server(Protocol):
    """The port, which its connections tell what happens."""

    broker: Broker
    logs: Logs
    counts: Counter[str]
    room: Shares
    dispatcher: Dispatcher
    retained: Retained
    sessions: Sessions
    shared: SharedSubscriptions

    def opened(self, connection: Connection) -> bool: ...

    def entered(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def refused(self, connection: Connection, why: str) -> None: ...

    def new_client_id(self) -> str: ...

    def displace(self, client: Client) -> None: ...

    def publish_will(self, will: Publish, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._broker = server.broker
        self._framer = codec.Framer()
        self._starting: asyncio.Task[None] | None = None  # something must be stored first
        self._has_left = False
        self._scheduled = False
        self._reading = True
        self._closing = False
        self._finishing = False
        self._heard_s = server.broker.clock.monotonic_s()
        self._unfinished_s: float | None = None  # since when a packet lacks its end
        self._timer: Timer | None = None
        self._will: Publish | None = None
        self.version = codec.V4
        self.client_id = ""
        self.key: ApiKeyView | None = None
        self.wants_origin = False  # it has a subscription with no local

    # --- the transport ---

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._writes = GatheredWrites(transport, self._pump)
        self.number, self.since_us = next(NUMBERS), self._broker.clock.wall_us()
        # One less: a sender stops at the limit itself, and is told when it may go on.
        transport.set_write_buffer_limits(high=limits.MQTT_UNSENT_BYTES_MAX - 1)
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if name else ""
        self._certificate: str | None = transport.get_extra_info(CERTIFICATE)
        self._reserved = Reservation(self._broker.pending, "")
        self._is_clogged = False
        if not self._server.opened(self):
            self.close()
        self._timer = self._broker.clock.call_later(limits.MQTT_CONNECT_S_MAX, self._check)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._reserved.release()
        if self._starting is not None:
            self._starting.cancel()
        if self.key is not None:
            self.leave()
        self._server.closed(self)
        if self._will is None or self.key is None:
            return
        if self.may_go_on:
            self._server.publish_will(self._will, self)

    @property
    def may_go_on(self) -> bool:
        """Whether its API key is as it was when it came."""
        assert self.key is not None
        return self._broker.access.still_holds(self.key, self._until_us)

    @property
    def has_left(self) -> bool:
        return self._has_left

    def leave(self) -> None:
        """Nothing more is stored or sent here; another connection may have the session."""
        if self._has_left:
            return
        self._has_left = True
        self.incoming.close()
        self.outgoing.close()
        self.retained.close()
        self._server.dispatcher.forget(self)
        self._server.shared.forget(self)
        self._server.sessions.leave(self.session, self._expiry_s)

    def pause_writing(self) -> None:
        self._is_clogged = True

    def resume_writing(self) -> None:
        self._is_clogged = False
        self._pump()
        self._process()

    def _pump(self) -> None:
        """There may be room for messages."""
        if self.key is not None:
            self.outgoing.pump()

    def data_received(self, data: bytes) -> None:
        if not self._closing:
            self._framer.feed(data)
            self._process()

    # --- packets ---

    def _process(self) -> None:
        """Takes packets, some at a time, unless something must be stored first."""
        try:
            for _ in range(AT_ONCE):
                if self._closing or self._must_wait:
                    break
                found = self._framer.next()
                self._heard(is_whole=found is not None)
                if found is None:
                    break
                self._take(*found)
            else:
                self._schedule()
        except MqttError as error:
            self.end(error.code, error.text)
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
            or self._starting is not None
            or (self.key is not None and self.incoming.must_wait)
        )

    def _heard(self, *, is_whole: bool) -> None:
        if is_whole:
            self._heard_s, self._unfinished_s = self._broker.clock.monotonic_s(), None
            self._reserved.release()
            return
        waiting_bytes = self._framer.waiting_bytes
        if waiting_bytes and self._unfinished_s is None:
            self._unfinished_s = self._broker.clock.monotonic_s()
        more = waiting_bytes - self._reserved.held
        if waiting_bytes > _HELD_FROM_BYTES and more > 0 and not self._reserved.try_grow(more):
            raise MqttError(Code.QUOTA, "there is no memory for a packet")

    def _regulate(self) -> None:
        """Read on, or not."""
        wanted = not (self._closing or self._must_wait or self._scheduled)
        if wanted != self._reading and not self.transport.is_closing():
            self._reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def _take(self, first: int, body: bytes) -> None:
        kind = codec.check_flags(first)
        if self.key is None:
            if kind != codec.CONNECT:
                raise MqttError(Code.PROTOCOL_ERROR, "the first packet is no CONNECT")
            self._connect(body)
        elif kind == codec.PUBLISH:
            self._check_key()
            self.incoming.publish(first & 15, body)
        elif kind in (codec.PUBACK, codec.PUBREC, codec.PUBCOMP, codec.PUBREL):
            self._acknowledged(kind, *codec.read_ack(kind, body, self.version))
        elif kind == codec.SUBSCRIBE:
            self._subscribe(body)
        elif kind == codec.UNSUBSCRIBE:
            self._unsubscribe(body)
        elif kind == codec.PINGREQ:
            self._ping(body)
        elif kind == codec.DISCONNECT:
            self._disconnect(body)
        else:
            raise MqttError(Code.PROTOCOL_ERROR, "a client does not send this packet here")

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._writes.write(data)

    @property
    def unsent_bytes(self) -> int:
        return self._writes.unsent_bytes

    # --- begin and end ---

    def _connect(self, body: bytes) -> None:
        try:
            asked = codec.read_connect(body)
            self.version = asked.version
            key = self._admitted(asked)
            client = key.api_key_id, self.client_id
            self._server.displace(client)
            ending = self._server.sessions.ending(client, clean_start=asked.clean_start)
            if ending is None:
                self._enter(asked, key)
            else:
                self._start(self._begin_anew(ending, asked, key), "the end of a session")
        except MqttError as error:
            self._refuse(error)

    def _refuse(self, error: MqttError) -> None:
        self.write(codec.write_connack(self.version, error.code, self._reason(error.text)))
        self._server.refused(self, error.text)
        self.close()

    def _start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Take no packet until it is done."""

        async def run() -> None:
            try:
                await work
            except SebError as error:
                self._starting = None
                self.end(code_of(error), f"{what} is not stored: {error.detail}")
            else:
                self._starting = None
                self.go_on()

        self._starting = asyncio.create_task(run(), name="mqtt")

    async def _begin_anew(
        self, ending: asyncio.Task[None], asked: codec.Connect, key: ApiKeyView
    ) -> None:
        await asyncio.shield(ending)
        try:
            self._enter(asked, key)
        except MqttError as error:
            self._refuse(error)

    def _enter(self, asked: codec.Connect, key: ApiKeyView) -> None:
        """Raises MqttError."""
        given, server = asked.properties, self._server
        wanted_s = given.get("session_expiry", 0)
        if self.version != V5 and not asked.clean_start:
            wanted_s = limits.MQTT_SESSION_EXPIRY_S_MAX
        self._expiry_s = min(wanted_s, limits.MQTT_SESSION_EXPIRY_S_MAX)
        client = key.api_key_id, self.client_id
        earlier = server.sessions.find(client)
        self.session = earlier or Session(client, self._expiry_s)
        if not server.room.try_take(key.api_key_id, 1):
            raise MqttError(Code.QUOTA, "there are too many MQTT connections")
        try:
            server.sessions.enter(self.session, self._expiry_s)
        except MqttError:
            server.room.give_back(key.api_key_id, 1)
            raise
        self._framer.largest = limits.MQTT_PACKET_BYTES_MAX
        self.outgoing = Outgoing(
            self,
            self._broker,
            key,
            given,
            self.session,
            server.sessions,
            server.counts,
        )
        catching_up = CatchingUp(self.session, self.outgoing, server.dispatcher, server.counts)
        self.retained = RetainedSender(
            server.retained, self.outgoing, self.client_id, server.counts
        )
        self.incoming.exactly_once = self.session.exactly_once
        self._reserved = Reservation(self._broker.pending, key.api_key_id)
        self.key, self._will = key, asked.will
        server.entered(self)
        self._keep_alive_s = min(asked.keep_alive_s or limits.MQTT_KEEP_ALIVE_S_MAX,
                                 limits.MQTT_KEEP_ALIVE_S_MAX)  # fmt: skip
        told = dict[str, object](
            receive_maximum=limits.MQTT_IN_FLIGHT_MAX,
            maximum_packet=limits.MQTT_PACKET_BYTES_MAX,
            topic_alias_maximum=limits.MQTT_ALIASES_MAX,
            user_properties=[("Seb-Durability", self._broker.durability)],
        )
        if self.version == V5 and wanted_s != self._expiry_s:
            told["session_expiry"] = self._expiry_s
        if not asked.client_id:
            told["assigned_client_id"] = self.client_id
        if self._keep_alive_s != asked.keep_alive_s:
            told["server_keep_alive"] = self._keep_alive_s
        present = earlier is not None
        self.write(codec.write_connack(self.version, Code.SUCCESS, told, session_present=present))
        self._arm()
        resume(self, self._server)
        catching_up.resume()

    def _admitted(self, asked: codec.Connect) -> ApiKeyView:
        """The API key of its password, or of its certificate. Raises MqttError."""
        if "auth_method" in asked.properties:
            raise MqttError(Code.BAD_AUTHENTICATION, "there is no enhanced authentication here")
        if len(asked.client_id.encode()) > limits.MQTT_CLIENT_ID_BYTES_MAX or (
            self.version != V5 and not (asked.client_id or asked.clean_start)
        ):
            raise MqttError(Code.BAD_CLIENT_ID, "the client id is too long, or must not be empty")
        access = self._broker.access
        try:
            if asked.password is not None:
                key = access.authenticate(asked.password.decode("ascii", "replace"))
            elif self._certificate is not None:
                key = access.vouched_for(self._certificate)
            else:
                raise MqttError(Code.NOT_AUTHORIZED, "the password must be an API key")
        except UnauthenticatedError as error:
            raise MqttError(Code.BAD_PASSWORD, error.detail) from error
        if self._broker.stopping:
            raise MqttError(Code.STOPPING, "the appliance is stopping")
        self._until_us = access.holds_until_us(key)
        server = self._server
        self.incoming = Incoming(
            self, self._broker, key, server.logs, server.retained, server.counts
        )
        if asked.will is not None:
            self.incoming.check(asked.will)
        self.client_id = asked.client_id or self._server.new_client_id()
        return key

    def _reason(self, text: str) -> dict[str, str]:
        return {"reason": text[:200]} if self.version == V5 else {}

    def end(self, code: int, reason: str) -> None:
        """Tell the client why, if its version can be told, and close."""
        if self._closing:
            return
        self._server.refused(self, reason)
        if self.version == V5 and self.key is not None:
            self.write(codec.write_disconnect(code, reason))
        self.close()

    def finish(self) -> None:
        """The appliance stops: take nothing more, and end once all that was taken is stored."""
        self._finishing = True
        self._regulate()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._finishing and not (self.key is not None and self.incoming.is_busy):
            self.end(Code.STOPPING, "the appliance is stopping")

    def close(self) -> None:
        self._writes.flush()
        self._closing = True
        self.transport.close()
        self._broker.clock.call_later(limits.MQTT_CLOSE_S_MAX, self.transport.abort)

    def _disconnect(self, body: bytes) -> None:
        code, given = codec.read_disconnect(body, self.version)
        expiry_s = min(given.get("session_expiry", self._expiry_s),
                       limits.MQTT_SESSION_EXPIRY_S_MAX)  # fmt: skip
        if expiry_s and not self._expiry_s:
            raise MqttError(Code.PROTOCOL_ERROR, "the session was to end with its connection")
        self._expiry_s = expiry_s
        if code != Code.DISCONNECT_WITH_WILL:
            self._will = None
        self.close()

    def _ping(self, body: bytes) -> None:
        if body:
            raise codec.malformed("a PINGREQ has a body")
        self._check_key()
        self.write(codec.packet(codec.PINGRESP, b""))

    def _check_key(self) -> None:
        if not self.may_go_on:
            raise MqttError(Code.NOT_AUTHORIZED, "the API key has changed or expired")

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = min(self._keep_alive_s * _GRACE, limits.MQTT_UNFINISHED_S_MAX)
        self._timer = self._broker.clock.call_later(seconds, self._check)

    def _check(self) -> None:
        """Ends a connection whose client sends nothing, or does not take what it is sent."""
        now_s = self._broker.clock.monotonic_s()
        if self.key is None:
            self.end(Code.KEEP_ALIVE, "no CONNECT has come")
            return
        began_s = self._unfinished_s
        if began_s is not None and now_s - began_s >= limits.MQTT_UNFINISHED_S_MAX:
            self.end(Code.KEEP_ALIVE, "the rest of a packet has not come")
        elif now_s - self._heard_s >= self._keep_alive_s * _GRACE and not self.incoming.is_busy:
            self.end(Code.KEEP_ALIVE, "nothing has come for too long")
        elif not self.may_go_on:
            self.end(Code.NOT_AUTHORIZED, "the API key has changed or expired")
        else:
            self._arm()

    # --- messages ---

    def go_on(self) -> None:
        """Something was stored that packets had to wait for."""
        self._heard_s = self._broker.clock.monotonic_s()
        if not self._closing:
            self._schedule()

    def done(self) -> None:
        """Something was stored."""
        self._end_if_done()

    def _acknowledged(self, kind: int, packet_id: int, code: int) -> None:
        if kind == codec.PUBREL:
            self.incoming.released(packet_id)
        else:
            self.outgoing.acknowledged(kind, packet_id, code)

    # --- subscriptions ---

    def _subscribe(self, body: bytes) -> None:
        packet_id, asked = codec.read_subscribe(body, self.version)
        self._check_key()
        if any(one.no_local and is_shared(one.topic_filter) for one in asked):
            raise MqttError(Code.PROTOCOL_ERROR, "no local makes no sense where clients share")
        codes = list[int]()
        for one in asked:
            try:
                codes.append(subscribe(self, self._server, one))
            except MqttError as error:
                codes.append(Code.UNSPECIFIED if self.version != V5 else error.code)
        self._kept(codec.write_suback(codec.SUBACK, packet_id, codes, self.version))

    def _kept(self, answer: bytes) -> None:
        """Answer once the session is stored, if it is kept."""
        if not self.session.is_kept:
            self.write(answer)
            return

        async def store() -> None:
            try:
                await self._server.sessions.store(self.session, self.incoming.publisher)
            except MqttError as error:
                self.end(error.code, error.text)
            self.write(answer)

        self._start(store(), "the session")

    def _unsubscribe(self, body: bytes) -> None:
        packet_id, filters = codec.read_unsubscribe(body, self.version)
        codes = [unsubscribe(self, self._server, one) for one in filters]
        self._kept(codec.write_suback(codec.UNSUBACK, packet_id, codes, self.version))
