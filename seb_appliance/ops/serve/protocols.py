"""The protocols of this appliance. What is not named here is not imported."""

from __future__ import annotations

import functools
from typing import Final

from seb_appliance.api.encoding.formats import register
from seb_appliance.api.encoding.problems import answer_exception
from seb_appliance.api.server.app import Protocol, openapi
from seb_appliance.protocols import arrow, cloud_events
from seb_appliance.protocols.durable_streams import reading, writing
from seb_appliance.protocols.durable_streams.wire import PREFIX, answer_error
from seb_appliance.protocols.go import routes as go
from seb_appliance.protocols.inlets import managing as inlets
from seb_appliance.protocols.inlets import reporting as inlet_reports
from seb_appliance.protocols.inlets.delivering import deliveries
from seb_appliance.protocols.push import confluent, loki, otlp, splunk

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
)


@functools.cache
def openapi_json() -> bytes:
    """The OpenAPI document of the API with these protocols."""
    return openapi(PROTOCOLS)
