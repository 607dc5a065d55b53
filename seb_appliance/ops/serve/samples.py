"""The metrics of one appliance: those of its figures (broker/status.py), and two histograms."""

from __future__ import annotations

from collections.abc import Iterator

from seb_appliance.api.routes.manage.health import Sample, histogram
from seb_appliance.broker.status import measured
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.status import telemetry


def samples(
    appliance: Appliance, fast_lane_requests: int, application_requests: int
) -> Iterator[Sample]:
    """All of them. The fast lane and the application share the requests between them."""
    for metric, labels, value in measured(telemetry(appliance)):
        yield Sample(metric.name, metric.help, metric.kind, value, labels)
    text = "Requests answered by the fast lane, without the application."
    yield Sample("seb_fast_lane_requests_total", text, "counter", fast_lane_requests)
    text = "Requests answered by the application."
    yield Sample("seb_application_requests_total", text, "counter", application_requests)
    for kind, latencies in appliance.store.latencies.items():
        text = "How long requests to the bucket took."
        yield from histogram("seb_store_request_seconds", text, latencies, {"kind": kind})
    text = "How late the event loop was, asked once a second."
    yield from histogram("seb_loop_delay_seconds", text, appliance.loop_probe.delays)
