"""The protocols of this appliance. What is not named here is not imported."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Final
from typing import Protocol as TypingProtocol

from seb_appliance import limits
from seb_appliance.api.encoding.formats import register
from seb_appliance.api.encoding.problems import answer_exception
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.api.server.app import Protocol, openapi
from seb_appliance.api.server.http_protocol import Upgrade
from seb_appliance.api.server.options import ApiOptions, SecretBox
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import Journal
from seb_appliance.clock import Clock
from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.host.ed25519 import Ed25519
from seb_appliance.protocols import arrow, cloud_events
from seb_appliance.protocols.durable_streams import reading, subscribing, writing
from seb_appliance.protocols.durable_streams.delivering import StreamSubscriptions
from seb_appliance.protocols.durable_streams.wire import PREFIX, answer_error
from seb_appliance.protocols.go import routes as go
from seb_appliance.protocols.iceberg import catalog as iceberg
from seb_appliance.protocols.iceberg import wire as iceberg_wire
from seb_appliance.protocols.inlets import managing as inlets
from seb_appliance.protocols.inlets import page as inlet_page
from seb_appliance.protocols.inlets import reporting as inlet_reports
from seb_appliance.protocols.inlets.delivering import deliveries
from seb_appliance.protocols.push import confluent, loki, otlp, splunk
from seb_appliance.protocols.sockets import managing
from seb_appliance.protocols.sockets import page as connections_page
from seb_appliance.protocols.sockets.connected import AllConnections, Source
from seb_appliance.protocols.subscriptions import managing as subscriptions
from seb_appliance.protocols.subscriptions import page as subscription_page
from seb_appliance.protocols.subscriptions.running import Subscriptions
from seb_appliance.protocols.subscriptions.sending import Sender
from seb_appliance.settings import Settings
from seb_appliance.tasks import Supervisor
from seb_appliance.ui.app import Section

if TYPE_CHECKING:
    from seb_appliance.protocols.sockets.listening import Tls

_log = logging.getLogger(__name__)
register(*cloud_events.FORMATS, *arrow.FORMATS)
_PUSHES: Final = (otlp.OTLP, loki.LOKI, splunk.EVENTS, splunk.RAW, confluent.CONFLUENT)


class Beside(TypingProtocol):
    """What a protocol runs beside the API, at an appliance that writes. `stop` may be called twice,
    and without `start`."""

    def start(self, supervisor: Supervisor) -> None: ...

    async def stop(self) -> None: ...

    def samples(self) -> Iterator[Sample]: ...


def beside(
    broker: Broker, box: SecretBox, settings: Settings, journal: Journal
) -> dict[type, Beside]:
    """All of it, by class."""
    lookups = broker.shares.declare(
        "push_lookups", limits.PUSH_LOOKUPS_MAX, "names that are being resolved"
    )
    receivers = settings.push_receivers
    made: list[Beside] = [
        Subscriptions(broker, box, Sender(receivers, lookups), journal.bucket_id, os.urandom),
        StreamSubscriptions(
            broker,
            box,
            Sender(receivers, lookups),
            journal.position.seq,
            os.urandom,
            Ed25519,
        ),
        AllConnections(),
    ]
    return {type(one): one for one in made}


PROTOCOLS: Final = (
    Protocol(
        routes=inlets.ROUTES,
        answer_error=answer_exception,
        begin=inlet_reports.begin,
        samples=inlet_reports.samples,
    ),
    Protocol(
        routes=subscriptions.ROUTES,
        answer_error=answer_exception,
        samples=lambda _broker, options: options.beside[Subscriptions].samples(),
    ),
    Protocol(routes=managing.ROUTES, answer_error=answer_exception),
    *(one.protocol() for one in _PUSHES),
    *map(deliveries, _PUSHES),
    Protocol(routes=go.ROUTES, answer_error=go.answer_in_text, plain=go.GoPlain()),
    Protocol(
        routes=[*subscribing.ROUTES, *writing.ROUTES, *reading.ROUTES],
        answer_error=answer_error,
        samples=lambda _broker, options: options.beside[StreamSubscriptions].samples(),
        plain=writing.StreamPlain(),
        path_prefix=PREFIX,
    ),
    Protocol(
        routes=iceberg.ROUTES,
        answer_error=iceberg_wire.answer_error,
        path_prefix=iceberg_wire.PREFIX,
    ),
)


def table_store(settings: Settings) -> dict[str, str]:
    """How readers of tables reach the bucket, as properties of Iceberg's REST protocol."""
    if settings.address.kind != "s3":
        return {}
    region, endpoint = settings.s3_region, settings.s3_endpoint
    if endpoint is not None:
        region = region or "us-east-1"
    store = {} if region is None else {"s3.region": region, "client.region": region}
    if endpoint is not None:
        store |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
    return store


def sections(options: ApiOptions) -> list[Section]:
    """The pages of these protocols."""
    return [
        inlet_page.section(options.secret_box),
        subscription_page.section(options),
        connections_page.section(options),
    ]


class Port(TypingProtocol):
    """A protocol with a port of its own."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def samples(self) -> Iterator[Sample]: ...


class Ports:
    """Those that are open. What the settings do not ask for is not imported. `upgrades`: paths of
    the HTTP port that WebSocket carries them on."""

    def __init__(self) -> None:
        self._open: list[Port] = []
        self._tls: list[Tls] = []
        self.upgrades: dict[bytes, Upgrade] = {}
        self._looking: asyncio.Task[None] | None = None
        self.renewals: Counter[str] = Counter()

    async def start(
        self, settings: Settings, broker: Broker, running: Mapping[type, Beside]
    ) -> None:
        """Raises ConfigurationError."""
        for make in (_syslog, _mqtt, _kafka):
            port = make(settings, broker, self)
            if port is not None:
                await port.start()
                self._open.append(port)
                connections = running[AllConnections]
                if isinstance(port, Source) and isinstance(connections, AllConnections):
                    connections.add(port)
        if self._tls:
            self._looking = asyncio.create_task(self._renew(broker.clock), name="certificates")

    def with_tls(self, certificate: Path, client_ca: Path | None, setting: str) -> SSLContext:
        from seb_appliance.protocols.sockets.listening import Tls

        self._tls.append(Tls(certificate, client_ca, setting))
        return self._tls[-1].context

    async def _renew(self, clock: Clock) -> None:
        while True:
            await clock.sleep(limits.CERTIFICATE_LOOK_S)
            for tls in self._tls:
                try:
                    is_new = await asyncio.to_thread(tls.renew)
                except ConfigurationError as error:
                    self.renewals["failed"] += 1
                    _log.warning("a certificate is not renewed: %s", error)
                else:
                    self.renewals["loaded"] += is_new

    async def stop(self) -> None:
        """Take nothing more, and wait until what was taken is stored or refused."""
        if self._looking is not None:
            self._looking.cancel()
        for port in self._open:
            await port.stop()
        self._open.clear()

    def samples(self) -> Iterator[Sample]:
        """The metrics."""
        for port in self._open:
            yield from port.samples()
        text = "Certificates whose files have changed, by whether they could be loaded."
        for outcome in ("loaded", "failed") if self._tls else ():
            count, labels = self.renewals[outcome], {"outcome": outcome}
            yield Sample("seb_certificates_total", text, "counter", count, labels)


def _syslog(settings: Settings, broker: Broker, ports: Ports) -> Port | None:
    if settings.syslog_listen is None:
        return None
    from seb_appliance.protocols.syslog.listening import Syslog

    tls, certificate = None, settings.syslog_tls_certificate
    if certificate is not None and settings.syslog_tls_client_ca is not None:
        tls = ports.with_tls(certificate, settings.syslog_tls_client_ca, "syslog_tls_certificate")
    address, topic = settings.syslog_address, settings.syslog_topic
    return Syslog(broker, address, topic, senders=settings.syslog_senders, tls=tls)


def _mqtt(settings: Settings, broker: Broker, ports: Ports) -> Port | None:
    if settings.mqtt_port is None and not settings.mqtt_websocket:
        return None
    from seb_appliance.protocols.mqtt.listening import Mqtt
    from seb_appliance.protocols.mqtt.messages.routes import parse
    from seb_appliance.protocols.sockets.proxy_protocol import Trusted

    tls, certificate = None, settings.mqtt_tls_certificate
    if certificate is not None:
        tls = ports.with_tls(certificate, settings.mqtt_tls_client_ca, "mqtt_tls_certificate")
    address = None if settings.mqtt_port is None else (settings.mqtt_hosts, settings.mqtt_port)
    trusted, said = None, settings.mqtt_proxy_protocol
    if said != "off":
        trusted = Trusted(settings.proxies, with_certificate=said == "certificate")
    routes = parse(settings.mqtt_routes)
    mqtt = Mqtt(broker, address, settings.mqtt_topic, routes=routes, tls=tls, trusted=trusted)
    if settings.mqtt_websocket:
        from seb_appliance.protocols.sockets.websocket import carrying

        header = settings.mqtt_certificate_header
        ports.upgrades[b"/mqtt"] = carrying(mqtt.connection, "mqtt", settings.proxies, header)
    return mqtt


def _kafka(settings: Settings, broker: Broker, ports: Ports) -> Port | None:
    if settings.kafka_port is None:
        return None
    from seb_appliance.protocols.kafka.listening import Kafka

    tls, certificate = None, settings.kafka_tls_certificate
    if certificate is not None:
        tls = ports.with_tls(certificate, settings.kafka_tls_client_ca, "kafka_tls_certificate")
    return Kafka(
        broker,
        (settings.kafka_hosts, settings.kafka_port),
        advertised=settings.kafka_advertised,
        partitions=settings.kafka_partitions,
        tls=tls,
        rebalance_delay_s=settings.kafka_rebalance_delay_ms / 1_000,
        stop_s=settings.shutdown_grace_ms / 2_000,  # the rest is for the bucket
    )


@cache
def openapi_json() -> bytes:
    """The OpenAPI document of the API with these protocols."""
    return openapi(PROTOCOLS)
