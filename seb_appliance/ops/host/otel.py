"""Traces sent by OpenTelemetry (the extra `otel`), as OTLP over HTTP, in batches from a thread.

Nothing of it is imported unless the setting `otlp_endpoint` asks for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from seb_appliance import __version__
from seb_appliance.clock import Clock
from seb_appliance.errors import ConfigurationError
from seb_appliance.traces import Span

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor

_SEND_WITHIN_S: Final = 2.0  # a request; a stop waits for one at most


class OtelTraces:
    """`processor` gets the finished spans: must not block."""

    def __init__(self, processor: SpanProcessor, clock: Clock) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        about = {"service.name": "seb-appliance", "service.version": __version__}
        self._provider = TracerProvider(resource=Resource(about), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("seb_appliance", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._clock = clock

    @classmethod
    def to_collector(cls, endpoint: str, clock: Clock) -> OtelTraces:
        """Raises ConfigurationError for what is no URL, or where the extra is not installed."""
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"otlp_endpoint is {endpoint!r}, not a URL such as http://127.0.0.1:4318/v1/traces"
            )
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ConfigurationError(
                "otlp_endpoint needs OpenTelemetry: pip install 'seb-appliance[otel]', or "
                "remove the setting"
            ) from error
        exporter = OTLPSpanExporter(endpoint, timeout=_SEND_WITHIN_S)
        return cls(BatchSpanProcessor(exporter), clock)

    def now_us(self) -> int:
        return self._clock.wall_us()

    def add(self, span: Span, parent: str = "") -> None:
        context = self._propagator.extract({"traceparent": parent}) if parent else None
        self._add(span, context, is_first=True)

    def _add(self, span: Span, context: Context | None, *, is_first: bool) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        made = self._tracer.start_span(
            span.name,
            context,
            SpanKind.SERVER if is_first and context is not None else SpanKind.INTERNAL,
            span.attributes,
            start_time=span.began_us * 1000,
        )
        inside = set_span_in_context(made)
        for part in span.parts:
            self._add(part, inside, is_first=False)
        if span.failure:
            made.set_status(Status(StatusCode.ERROR, span.failure))
        made.end(span.ended_us * 1000)

    async def close(self) -> None:
        """Send what is left, unless the collector is away."""
        await asyncio.to_thread(self._provider.shutdown)
