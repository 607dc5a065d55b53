"""The protocols of this appliance. What is not named here is not imported."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from seb_appliance.api.encoding.formats import register
from seb_appliance.api.encoding.problems import answer_exception
from seb_appliance.api.server.app import Protocol, openapi
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.protocols import arrow, cloud_events
from seb_appliance.protocols.durable_streams import reading, writing
from seb_appliance.protocols.durable_streams.wire import PREFIX, answer_error
from seb_appliance.protocols.go import routes as go
from seb_appliance.protocols.iceberg import catalog as iceberg
from seb_appliance.protocols.iceberg import wire as iceberg_wire
from seb_appliance.protocols.inlets import managing as inlets
from seb_appliance.protocols.inlets import page as inlet_page
from seb_appliance.protocols.inlets import reporting as inlet_reports
from seb_appliance.protocols.inlets.delivering import deliveries
from seb_appliance.protocols.push import confluent, loki, otlp, splunk
from seb_appliance.settings import Settings
from seb_appliance.ui.app import Section

if TYPE_CHECKING:
    from seb_appliance.protocols.syslog.listening import Syslog

register(*cloud_events.FORMATS, *arrow.FORMATS)
_PUSHES: Final = (otlp.OTLP, loki.LOKI, splunk.EVENTS, splunk.RAW, confluent.CONFLUENT)
PROTOCOLS: Final = (
    Protocol(
        routes=inlets.ROUTES,
        answer_error=answer_exception,
        begin=inlet_reports.begin,
        samples=inlet_reports.samples,
    ),
    *(one.protocol() for one in _PUSHES),
    *map(deliveries, _PUSHES),
    Protocol(routes=go.ROUTES, answer_error=go.answer_in_text, plain=go.GoPlain()),
    Protocol(
        routes=[*writing.ROUTES, *reading.ROUTES],
        answer_error=answer_error,
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
    return [inlet_page.section(options.secret_box)]


async def open_syslog(settings: Settings, broker: Broker) -> Syslog | None:
    """None unless the settings ask for it. Raises ConfigurationError."""
    if settings.syslog_listen is None:
        return None
    from seb_appliance.protocols.syslog.listening import Syslog, tls_context

    tls = None
    if settings.syslog_tls_certificate is not None and settings.syslog_tls_client_ca is not None:
        tls = tls_context(settings.syslog_tls_certificate, settings.syslog_tls_client_ca)
    address, topic = settings.syslog_address, settings.syslog_topic
    syslog = Syslog(broker, address, topic, senders=settings.syslog_senders, tls=tls)
    await syslog.start()
    return syslog


@functools.cache
def openapi_json() -> bytes:
    """The OpenAPI document of the API with these protocols."""
    return openapi(PROTOCOLS)
