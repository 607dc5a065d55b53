"""Traces: which spans there are, what they hang from, and that nobody waits for a collector."""

from __future__ import annotations

import asyncio
import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from seb_appliance import setting_sources
from seb_appliance.clock import SystemClock
from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.host import otel
from seb_appliance.ops.host.otel import OtelTraces
from seb_appliance.ops.serve import assembly
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.servers.s3_server import free_port

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
NOT_SAMPLED = PARENT[:-2] + "00"
ENDPOINT = "http://127.0.0.1:9/v1/traces"
RECORDS = "/v1/topics/orders/records"
TIDY = {"tidier": "off", "tidy_bytes": "1KiB", "tidy_young": "0ms"}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the next appliance with an `otlp_endpoint` sends."""
    kept = InMemorySpanExporter()

    def to_memory(_endpoint: str, clock: SystemClock) -> OtelTraces:
        return OtelTraces(SimpleSpanProcessor(kept), clock)

    monkeypatch.setattr(assembly.OtelTraces, "to_collector", to_memory)
    return kept


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    spans = exporter.get_finished_spans()
    assert len(spans) == len({span.name for span in spans})
    return {span.name: span for span in spans}


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def test_a_traced_append_is_a_span_in_the_producers_trace(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async with running_appliance(tmp_path, otlp_endpoint=ENDPOINT, linger="20ms") as seb:
        answer = await seb.client.post(RECORDS, content=b"x", headers={"traceparent": PARENT})
    assert answer.status_code == 201
    spans = by_name(exporter)
    assert set(spans) == {"produce", "admission", "window", "PUT"}
    produce = spans.pop("produce")
    assert (f"{produce.context.trace_id:032x}", parent_of(produce)) == (TRACE_ID, 0xF067AA0BA902B7)
    assert produce.attributes == {"seb.topic": "orders", "seb.records": 1, "seb.offset": 0}
    assert all(parent_of(part) == produce.context.span_id for part in spans.values())
    parts = [spans[name] for name in ("admission", "window", "PUT")]
    ends = [produce.start_time, *(part.end_time for part in parts)]
    assert ends[:-1] == [part.start_time for part in parts]
    assert ends[-1] == produce.end_time
    assert ends == sorted(ends)
    window = spans["window"]
    assert window.end_time - window.start_time >= 15_000_000


async def test_a_traced_read_is_a_span(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    async with running_appliance(tmp_path, otlp_endpoint=ENDPOINT) as seb:
        await seb.client.post(RECORDS, content=b"x")
        await seb.client.get(f"{RECORDS}?offset=0", headers={"traceparent": PARENT})
    span = by_name(exporter)["consume"]
    assert span.attributes == {"seb.topic": "orders", "seb.next_offset": 1}


async def test_what_fails_is_a_span_with_the_code(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    headers = {"traceparent": PARENT, "if-match": '"7"'}
    async with running_appliance(tmp_path, otlp_endpoint=ENDPOINT) as seb:
        await seb.client.post(RECORDS, content=b"x")
        refused = await seb.client.post(RECORDS, content=b"x", headers=headers)
    assert refused.status_code == 412
    assert by_name(exporter)["produce"].status.description == "precondition_failed"


async def test_a_job_of_the_tidier_begins_a_trace(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async with running_appliance(tmp_path, otlp_endpoint=ENDPOINT, **TIDY) as seb:
        for _ in range(20):
            await seb.client.post(RECORDS, content=b"x" * 100)
        while not exporter.get_finished_spans():
            assert await seb.appliance.tidier.step()
    span = by_name(exporter)["tidy"]
    assert parent_of(span) is None
    assert span.attributes is not None
    assert str(span.attributes["seb.doing"]).startswith("merging entries")


@pytest.mark.parametrize("headers", [{}, {"traceparent": NOT_SAMPLED}, {"traceparent": "00-1"}])
async def test_what_nobody_traces_is_no_span(
    tmp_path: Path, exporter: InMemorySpanExporter, headers: dict[str, str]
) -> None:
    async with running_appliance(tmp_path, otlp_endpoint=ENDPOINT) as seb:
        await seb.client.post(RECORDS, content=b"x", headers=headers)
        await seb.client.get(f"{RECORDS}?offset=0", headers=headers)
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize(("endpoint", "answered"), [(ENDPOINT, 1), (None, 2)])
async def test_only_traced_requests_leave_the_fast_lane(
    tmp_path: Path, exporter: InMemorySpanExporter, endpoint: str | None, answered: int
) -> None:
    """And only where traces are sent."""
    flags = {} if endpoint is None else {"otlp_endpoint": endpoint}
    async with running_appliance(tmp_path, **flags) as seb:
        await seb.client.put("/v1/topics/orders")
        before = _answered(seb)
        await seb.client.post(RECORDS, content=b"x")
        await seb.client.post(RECORDS, content=b"x", headers={"traceparent": PARENT})
        assert _answered(seb) - before == answered


def _answered(seb: RunningAppliance) -> int:
    return seb.server.plain_answers.answered


# --- sending ---


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A small OTLP receiver: its URL, and the bodies that it was sent."""
    bodies: list[bytes] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
        server.shutdown()
        thread.join()


async def test_a_collector_gets_the_spans_at_the_latest_at_a_stop(tmp_path: Path) -> None:
    with collector() as (url, bodies):
        async with running_appliance(tmp_path, otlp_endpoint=url) as seb:
            await seb.client.post(RECORDS, content=b"x", headers={"traceparent": PARENT})
        received = ExportTraceServiceRequest.FromString(bodies[0])
    (resource,) = received.resource_spans
    named = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert named["service.name"] == "seb-appliance"
    (scope,) = resource.scope_spans
    assert {span.name for span in scope.spans} == {"produce", "admission", "window", "PUT"}


async def test_a_collector_that_is_away_holds_up_neither_producers_nor_a_stop(
    tmp_path: Path,
) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1/traces"
    began_s = time.monotonic()
    async with running_appliance(tmp_path, otlp_endpoint=url) as seb:
        sent = [
            seb.client.post(RECORDS, content=b"x", headers={"traceparent": PARENT})
            for _ in range(50)
        ]
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {201}
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://x"])
def test_what_is_no_url_is_refused_in_a_sentence(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="not a URL such as"):
        OtelTraces.to_collector(endpoint, SystemClock())


def test_without_the_extra_the_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"seb-appliance\[otel\]"):
        OtelTraces.to_collector(ENDPOINT, SystemClock())


def test_nothing_of_it_is_imported_unless_the_setting_asks() -> None:
    assert setting_sources.load(flags={}, environment={}).otlp_endpoint is None
    program = (
        "import sys, seb_appliance.ops.serve.process, seb_appliance.ops.host.otel;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert otel.__doc__
