"""The protocols of this appliance. What is not named here is not imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Final
from typing import Protocol as TypingProtocol

from seb_appliance.api.encoding.formats import register
from seb_appliance.api.encoding.problems import answer_exception
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.api.server.app import Protocol, openapi
from seb_appliance.api.server.options import ApiOptions, SecretBox
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import Journal
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
from seb_appliance.protocols.subscriptions import managing as subscriptions
from seb_appliance.protocols.subscriptions import page as subscription_page
from seb_appliance.protocols.subscriptions.running import Subscriptions
from seb_appliance.protocols.subscriptions.sending import Sender
from seb_appliance.settings import Settings
from seb_appliance.tasks import Supervisor
from seb_appliance.ui.app import Section

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
    made: list[Beside] = [
        Subscriptions(broker, box, Sender(settings.push_receivers), journal.bucket_id, os.urandom),
        StreamSubscriptions(
            broker,
            box,
            Sender(settings.push_receivers),
            journal.position.seq,
            os.urandom,
            Ed25519,
        ),
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
    return [inlet_page.section(options.secret_box), subscription_page.section(options)]


class Port(TypingProtocol):
    """A protocol with a port of its own."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def samples(self) -> Iterator[Sample]: ...


class Ports:
    """Those that are open. What the settings do not ask for is not imported."""

    def __init__(self) -> None:
        self._open: list[Port] = []

    async def start(self, settings: Settings, broker: Broker) -> None:
        """Raises ConfigurationError."""
        for make in (_syslog, _mqtt):
            port = make(settings, broker)
            if port is not None:
                await port.start()
                self._open.append(port)

    async def stop(self) -> None:
        """Take nothing more, and wait until what was taken is stored or refused."""
        for port in self._open:
            await port.stop()
        self._open.clear()

    def samples(self) -> Iterator[Sample]:
        """The metrics."""
        for port in self._open:
            yield from port.samples()


def _syslog(settings: Settings, broker: Broker) -> Port | None:
    if settings.syslog_listen is None:
        return None
    from seb_appliance.protocols.sockets.listening import tls_context
    from seb_appliance.protocols.syslog.listening import Syslog

    tls, certificate = None, settings.syslog_tls_certificate
    if certificate is not None and settings.syslog_tls_client_ca is not None:
        tls = tls_context(certificate, settings.syslog_tls_client_ca, "syslog_tls_certificate")
    address, topic = settings.syslog_address, settings.syslog_topic
    return Syslog(broker, address, topic, senders=settings.syslog_senders, tls=tls)


def _mqtt(settings: Settings, broker: Broker) -> Port | None:
    if settings.mqtt_port is None:
        return None
    from seb_appliance.protocols.mqtt.listening import Mqtt
    from seb_appliance.protocols.sockets.listening import tls_context

    tls, certificate = None, settings.mqtt_tls_certificate
    if certificate is not None:
        tls = tls_context(certificate, settings.mqtt_tls_client_ca, "mqtt_tls_certificate")
    return Mqtt(broker, (settings.host, settings.mqtt_port), settings.mqtt_topic, tls=tls)


@cache
def openapi_json() -> bytes:
    """The OpenAPI document of the API with these protocols."""
    return openapi(PROTOCOLS)
