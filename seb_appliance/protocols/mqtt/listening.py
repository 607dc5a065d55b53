"""The MQTT port: connections by client id, wills, metrics."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.status import PortStatus
from seb_appliance.clock import Timer
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Publish
from seb_appliance.protocols.mqtt.connection import Connection
from seb_appliance.protocols.mqtt.messages.reading import Logs
from seb_appliance.protocols.mqtt.messages.routes import Route, Routes
from seb_appliance.protocols.mqtt.receiving.incoming import Incoming
from seb_appliance.protocols.mqtt.sending.dispatching import Dispatcher
from seb_appliance.protocols.mqtt.sending.retained import Retained
from seb_appliance.protocols.mqtt.sending.sharing import SharedSubscriptions
from seb_appliance.protocols.mqtt.sessions import Client, Sessions
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.connected import Connected
from seb_appliance.protocols.sockets.port import Port
from seb_appliance.protocols.sockets.proxy_protocol import ByProxy, Trusted

_log = logging.getLogger(__name__)
_OUTCOMES: Final = ("stored", "refused", "failed")
_DELIVERIES: Final = ("sent", "delayed", "dropped")


class Mqtt(Port[Connection]):
    """Messages become records of `topic`, or of the topic of a route. Client ids are apart for each
    API key."""

    _ended_by_operator = Code.ADMINISTRATIVE

    def __init__(
        self,
        broker: Broker,
        address: tuple[Sequence[str], int] | None,
        topic: str,
        *,
        routes: Sequence[Route] = (),
        tls: ssl.SSLContext | None = None,
        trusted: Trusted | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`address`: hosts and a port; None: there is none. `trusted`: proxies that
        pass connections on to it with a PROXY header. Raises ConfigurationError."""
        retained, sessions = f"{topic}-retained", f"{topic}-sessions"
        waiting = "MQTT connections that wait for memory"
        super().__init__(
            broker,
            "MQTT",
            address,
            tls,
            room=broker.shares.declare(
                "mqtt_connections", limits.MQTT_CONNECTIONS_MAX, "MQTT connections"
            ),
            starving=broker.shares.declare("mqtt_starving", socket_limits.STARVING_MAX, waiting),
            unsent=broker.shares.declare(
                "mqtt_unsent", socket_limits.ALL_UNSENT_BYTES_MAX, "bytes not taken by MQTT clients"
            ),
        )
        self.logs = Logs(broker, Routes(topic, routes, (retained, sessions)))
        self.counts: Counter[str] = Counter()
        self.dispatcher = Dispatcher(self.logs, self.counts)
        self.retained = Retained(broker, retained)
        self.sessions = Sessions(broker, self.logs, sessions)
        self.shared = SharedSubscriptions(self.logs, self.sessions, self.counts)
        self._trusted = trusted
        self._random_bytes = random_bytes
        self._by_client: dict[tuple[str, str], Connection] = {}
        self.wills = broker.shares.declare(
            "mqtt_wills", mqtt_limits.WILLS_BYTES_MAX, "bytes of MQTT wills"
        )
        self._storing: set[asyncio.Task[None]] = set()  # of wills
        self._delayed = dict[Client, tuple[Publish, Connection, Timer]]()

    async def start(self) -> None:
        """Raises ConfigurationError if the port cannot be used."""
        await self.logs.start()
        await self.retained.start()
        await self.sessions.start()
        self.shared.start()
        if self._address is not None:
            await self._listen(self._accepted)

    def _accepted(self) -> asyncio.Protocol:
        if self._trusted is None:
            return self.connection()
        return ByProxy(self.connection, self._trusted, self.broker.clock)

    def connection(self) -> Connection:
        """A new one, as the protocol of a transport."""
        return Connection(self)

    async def stop(self) -> None:
        """Take nothing more; wait until what was taken is stored and acknowledged, or refused."""
        self._stop_listening()
        for client in tuple(self._delayed):
            self.will_is_due(client)
        await self._finish()
        await asyncio.gather(*self._storing, return_exceptions=True)
        await self.shared.stop()
        await self.retained.stop()
        await self.sessions.stop()
        self.logs.stop()

    def samples(self) -> Iterator[Sample]:
        """The metrics."""
        text, count = "Open MQTT connections.", self._connections.open
        yield Sample("seb_mqtt_connections", text, "gauge", count)
        text, count = "MQTT subscriptions.", self.dispatcher.count
        yield Sample("seb_mqtt_subscriptions", text, "gauge", count)
        text, count = "MQTT sessions that outlive their connections.", self.sessions.count
        yield Sample("seb_mqtt_sessions", text, "gauge", count)
        text, count = "Groups of MQTT clients that share a subscription.", self.shared.count
        yield Sample("seb_mqtt_shares", text, "gauge", count)
        text, count = "Retained MQTT messages.", self.retained.count
        yield Sample("seb_mqtt_retained", text, "gauge", count)
        text = "Messages that arrived by MQTT, by what became of them."
        for outcome in _OUTCOMES:
            count, labels = self.counts[outcome], {"outcome": outcome}
            yield Sample("seb_mqtt_messages_total", text, "counter", count, labels)
        text = "Messages to MQTT subscribers, by what became of them."
        for outcome in _DELIVERIES:
            count, labels = self.counts[outcome], {"outcome": outcome}
            yield Sample("seb_mqtt_deliveries_total", text, "counter", count, labels)
        text = "MQTT connections that were refused or ended by the appliance."
        yield Sample("seb_mqtt_refusals_total", text, "counter", self.refusals)

    # --- what an operator asks ---

    @property
    def status(self) -> PortStatus:
        return PortStatus("MQTT", len(self._all))

    def connected(self) -> Iterator[Connected]:
        """Those that have an API key, and then sessions whose clients are away."""
        for one in list(self._all):
            if one.has_key and not one.has_left:
                yield one.connected()
        for kept in self.sessions.all():
            if kept.until_us is not None:
                api_key_id, client_id = kept.client
                yield Connected(
                    kept.number,
                    protocol="MQTT",
                    client=client_id,
                    api_key_id=api_key_id,
                    address="",
                    since_us=None,
                    subscriptions=len(kept.subscriptions) + len(kept.shared),
                    received=0,
                    sent=0,
                    waiting=len(kept.sent),
                    until_us=kept.until_us,
                )

    def disconnect(self, number: int) -> bool:
        """Of a connection the will is sent, and the session stays, if it is kept."""
        if super().disconnect(number):
            return True
        for kept in self.sessions.all():
            if kept.number == number and kept.until_us is not None:
                self.sessions.end(kept)
                return True
        return False

    # --- what connections tell ---

    def entered(self, connection: Connection) -> None:
        """It has an API key and a client id: an older one with the same is ended."""
        self.displace(connection.session.client)
        client = connection.session.client
        self._by_client[client] = connection
        if client in self._delayed:
            _, earlier, timer = self._delayed[client]
            if earlier.session is not connection.session:
                self.will_is_due(client)
            else:
                timer.cancel()
                del self._delayed[client]
                earlier.forget_will()

    def displace(self, client: Client) -> None:
        """A newer connection has this client id."""
        older = self._by_client.get(client)
        if older is not None:
            older.end("another connection has this client id", Code.TAKEN_OVER)
            older.leave()

    def closed(self, connection: Connection) -> None:
        if connection.has_key:
            client = connection.session.client
            if self._by_client.get(client) is connection:
                del self._by_client[client]
        super().closed(connection)

    def new_client_id(self) -> str:
        return "seb-" + base64.b32encode(self._random_bytes(10)).decode().lower()

    def publish_will(self, will: Publish, connection: Connection) -> None:
        """Now, or after its delay, if its session lives so long and its client does not return."""
        session = connection.session
        delay_s = min(will.properties.get("will_delay", 0), session.expiry_s)
        if not delay_s or session.is_over:
            self._publish_now(will, connection)
        elif session.client not in self._by_client and not self._is_stopping:
            timer = self.broker.clock.call_later(delay_s, lambda: self.will_is_due(session.client))
            self._delayed[session.client] = will, connection, timer
        else:
            connection.forget_will()

    def will_is_due(self, client: Client) -> None:
        will, connection, timer = self._delayed.pop(client)
        timer.cancel()
        if connection.holds_key:
            self._publish_now(will, connection)
        else:
            connection.forget_will()

    def _publish_now(self, will: Publish, connection: Connection) -> None:
        task = asyncio.create_task(self._store_will(will, connection.incoming), name="mqtt will")
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)
        task.add_done_callback(lambda _: connection.forget_will())

    async def _store_will(self, will: Publish, incoming: Incoming) -> None:
        try:
            size_bytes = len(will.payload) + len(will.topic)
            await incoming.store(incoming.records(will), size_bytes)
            self.counts["stored"] += 1
        except MqttError as error:
            self.counts["failed"] += 1
            _log.warning("a will for %r is not stored: %s", will.topic, error.text)
