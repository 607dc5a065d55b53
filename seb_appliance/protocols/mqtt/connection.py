"""One MQTT connection: packets in their order, acknowledged when the bucket has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import SebError, UnauthenticatedError
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
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
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.connected import Connected
from seb_appliance.protocols.sockets.connection import Codes, Listener, PacketConnection
from seb_appliance.protocols.sockets.introduced import CERTIFICATE
from seb_appliance.tasks import in_slices

T = TypeVar("T")
_GRACE: Final = 1.5  # times the keep-alive


class Server(Listener, Protocol):
    logs: Logs
    counts: Counter[str]
    room: Shares
    dispatcher: Dispatcher
    retained: Retained
    sessions: Sessions
    shared: SharedSubscriptions
    wills: Shares

    def entered(self, connection: Connection) -> None: ...

    def new_client_id(self) -> str: ...

    def displace(self, client: Client) -> None: ...

    def publish_will(self, will: Publish, connection: Connection) -> None: ...


class Connection(PacketConnection[tuple[int, bytes]]):
    _codes = Codes(Code.KEEP_ALIVE, Code.QUOTA, Code.NOT_AUTHORIZED)
    _framer: codec.Framer

    def __init__(self, server: Server) -> None:
        super().__init__(server, codec.Framer())
        self._server = server
        self._starting: asyncio.Task[None] | None = None  # something must be stored first
        self._has_left = False
        self._will: Publish | None = None
        self.version = codec.V4
        self.wants_origin = False  # it has a subscription with no local

    # --- the transport ---

    def connection_made(self, transport: Any) -> None:
        self._certificate: str | None = transport.get_extra_info(CERTIFICATE)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._will is not None and self.holds_key:
            self._server.publish_will(self._will, self)
        else:
            self.forget_will()

    def _lost(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        if self.has_key:
            self.leave()

    def forget_will(self) -> None:
        """It is stored, or never will be."""
        if self._will is not None:
            self._will = None
            self._will_room.release()

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

    def _flushed(self) -> None:
        if self.has_key:
            self.outgoing.pump()

    def connected(self) -> Connected:
        session = self.session
        return self.as_connected(
            "MQTT 5" if self.version == V5 else "MQTT 3.1.1",
            subscriptions=len(session.subscriptions) + len(session.shared),
            received=self.incoming.received,
            sent=self.outgoing.sent,
            waiting=self.outgoing.waiting,
        )

    # --- packets ---

    @property
    def _is_busy(self) -> bool:
        return self._starting is not None or (self.has_key and self.incoming.must_wait)

    def _take(self, packet: tuple[int, bytes]) -> None:
        self._reserved.release()
        first, body = packet
        kind = codec.check_flags(first)
        if not self.has_key:
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
                self.end(f"{what} is not stored: {error.detail}", code_of(error))
            else:
                self._starting = None
                self.go_on()

        self._starting = asyncio.create_task(run(), name="mqtt")

    async def _begin_anew(
        self, ending: asyncio.Task[None], asked: codec.Connect, key: ApiKeyView
    ) -> None:
        client, server = (key.api_key_id, self.client_id), self._server
        waits_for: asyncio.Task[None] | None = ending
        while waits_for is not None:
            await asyncio.shield(waits_for)
            server.displace(client)  # another connection of this client may have waited, too
            waits_for = server.sessions.ending(client, clean_start=asked.clean_start)
        try:
            self._enter(asked, key)
        except MqttError as error:
            self._refuse(error)

    def _enter(self, asked: codec.Connect, key: ApiKeyView) -> None:
        """Raises MqttError."""
        given, server = asked.properties, self._server
        wanted_s = given.get("session_expiry", 0)
        if self.version != V5 and not asked.clean_start:
            wanted_s = mqtt_limits.SESSION_EXPIRY_S_MAX
        self._expiry_s = min(wanted_s, mqtt_limits.SESSION_EXPIRY_S_MAX)
        client = key.api_key_id, self.client_id
        earlier = server.sessions.find(client)
        self.session = earlier or Session(client, self._expiry_s)
        with Reservation(server.wills, key.api_key_id) as held:
            if not held.try_grow(asked.will_bytes):
                raise MqttError(Code.QUOTA, "there is no memory for the will")
            if not server.room.try_take(key.api_key_id, 1):
                raise MqttError(Code.QUOTA, "there are too many MQTT connections")
            try:
                server.sessions.enter(self.session, self._expiry_s)
            except MqttError:
                server.room.give_back(key.api_key_id, 1)
                raise
            self._will, self._will_room = asked.will, held.handed_over()
        self._framer.largest = mqtt_limits.PACKET_BYTES_MAX
        self.outgoing = Outgoing(
            self,
            self.broker,
            key,
            given,
            self.session,
            server.sessions,
            server.counts,
        )
        catching_up = CatchingUp(self.session, self.outgoing, server.dispatcher, server.counts)
        self.retained = RetainedSender(server.retained, self.outgoing, client, server.counts)
        self.incoming.exactly_once = self.session.exactly_once
        self._accept(key)
        server.entered(self)
        self._keep_alive_s = min(asked.keep_alive_s or mqtt_limits.KEEP_ALIVE_S_MAX,
                                 mqtt_limits.KEEP_ALIVE_S_MAX)  # fmt: skip
        self.incoming.publisher.patience_ms = self._keep_alive_s * 1000
        told = dict[str, object](
            receive_maximum=mqtt_limits.IN_FLIGHT_MAX,
            maximum_packet=mqtt_limits.PACKET_BYTES_MAX,
            topic_alias_maximum=mqtt_limits.ALIASES_MAX,
            user_properties=[("Seb-Durability", self.broker.durability)],
        )
        if self.version == V5 and wanted_s != self._expiry_s:
            told["session_expiry"] = self._expiry_s
        if not asked.client_id:
            told["assigned_client_id"] = self.client_id
        if self._keep_alive_s != asked.keep_alive_s:
            told["server_keep_alive"] = self._keep_alive_s
        present = earlier is not None
        self.write(codec.write_connack(self.version, Code.SUCCESS, told, session_present=present))
        self._arm(socket_limits.UNFINISHED_S_MAX)
        resume(self, self._server)
        catching_up.resume()

    def _admitted(self, asked: codec.Connect) -> ApiKeyView:
        """The API key of its password, or of its certificate. Raises MqttError."""
        if "auth_method" in asked.properties:
            raise MqttError(Code.BAD_AUTHENTICATION, "there is no enhanced authentication here")
        if len(asked.client_id.encode()) > mqtt_limits.CLIENT_ID_BYTES_MAX or (
            self.version != V5 and not (asked.client_id or asked.clean_start)
        ):
            raise MqttError(Code.BAD_CLIENT_ID, "the client id is too long, or must not be empty")
        access = self.broker.access
        try:
            if asked.password is not None:
                key = access.authenticate(asked.password.decode("ascii", "replace"))
            elif self._certificate is not None:
                key = access.vouched_for(self._certificate)
            else:
                raise MqttError(Code.NOT_AUTHORIZED, "the password must be an API key")
        except UnauthenticatedError as error:
            raise MqttError(Code.BAD_PASSWORD, error.detail) from error
        if self.broker.stopping:
            raise MqttError(Code.STOPPING, "the appliance is stopping")
        self._until_us = access.holds_until_us(key)
        server = self._server
        self.incoming = Incoming(
            self, self.broker, key, server.logs, server.retained, server.counts
        )
        if asked.will is not None:
            self.incoming.check(asked.will)
        self.client_id = asked.client_id or self._server.new_client_id()
        return key

    def _reason(self, text: str) -> dict[str, str]:
        return {"reason": text[:200]} if self.version == V5 else {}

    def _tell_why(self, reason: str, code: int) -> None:
        if self.version == V5 and self.has_key:
            self.write(codec.write_disconnect(code, reason))

    def _end_if_done(self) -> None:
        if self._finishing and not (self.has_key and self.incoming.is_busy):
            self.end("the appliance is stopping", Code.STOPPING)

    def _disconnect(self, body: bytes) -> None:
        code, given = codec.read_disconnect(body, self.version)
        expiry_s = min(given.get("session_expiry", self._expiry_s),
                       mqtt_limits.SESSION_EXPIRY_S_MAX)  # fmt: skip
        if expiry_s and not self._expiry_s:
            raise MqttError(Code.PROTOCOL_ERROR, "the session was to end with its connection")
        self._expiry_s = expiry_s
        if code != Code.DISCONNECT_WITH_WILL:
            self.forget_will()
        self.close()

    def _ping(self, body: bytes) -> None:
        if body:
            raise codec.malformed("a PINGREQ has a body")
        self._check_key()
        self.broker.look_for_newer_writer()  # a client that only subscribes asks nothing else
        self.write(codec.packet(codec.PINGRESP, b""))

    def _check_key(self) -> None:
        if not self.holds_key:
            raise MqttError(Code.NOT_AUTHORIZED, "the API key has changed or expired")

    def _is_idle(self, silent_s: float) -> bool:
        return silent_s >= self._keep_alive_s * _GRACE and not self.incoming.is_busy

    def _arm(self, seconds: float) -> None:
        super()._arm(min(self._keep_alive_s * _GRACE, seconds))

    # --- messages ---

    def go_on(self) -> None:
        self._heard_s = self.broker.clock.monotonic_s()
        super().go_on()

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
        self._change(codec.SUBACK, packet_id, self._subscribed, asked)

    async def _subscribed(self, asked: codec.Subscription) -> int:
        """The code."""
        try:
            return await subscribe(self, self._server, asked)
        except MqttError as error:
            return Code.UNSPECIFIED if self.version != V5 else error.code

    def _unsubscribe(self, body: bytes) -> None:
        packet_id, filters = codec.read_unsubscribe(body, self.version)
        self._change(codec.UNSUBACK, packet_id, self._unsubscribed, filters)

    async def _unsubscribed(self, topic_filter: str) -> int:
        return unsubscribe(self, self._server, topic_filter)

    def _change(
        self, kind: int, packet_id: int, change: Callable[[T], Awaitable[int]], filters: Sequence[T]
    ) -> None:
        """Answer with the codes that `change` returns; once the session is stored, if it is kept.
        A filter takes up to a millisecond, or pauses itself."""

        async def store() -> None:
            codes = list[int]()
            async for one in in_slices(filters):
                if self._has_left:
                    return
                codes.append(await change(one))
            if self.session.is_kept:
                try:
                    await self._server.sessions.store(self.session, self.incoming.publisher)
                except MqttError as error:
                    self.end(error.text, error.code)
            self.write(codec.write_suback(kind, packet_id, codes, self.version))

        self._start(store(), "the session")
