"""The first page: how the appliance is, and how it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.status import StandbyStatus, Telemetry
from seb_appliance.broker.topics.catalog import Totals
from seb_appliance.errors import BadRequestError
from seb_appliance.ui.charts import Chart, chart
from seb_appliance.ui.history import Sample
from seb_appliance.ui.options import Figure
from seb_appliance.ui.page_context import AnyRequest, Desk
from seb_appliance.ui.units import count, rate, share, size, size_rate, span
from seb_appliance.ui.warnings import warnings

_FIELDS: Final = frozenset({"span"})
SPANS_S: Final = {"15m": 900, "1h": 3_600, "6h": 6 * 3_600, "24h": 24 * 3_600}


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request, _FIELDS)
        chosen = visit.query.text("span", "1h")
        if chosen not in SPANS_S:
            raise BadRequestError(f"The span is one of {', '.join(SPANS_S)}.")
        telemetry, readiness = desk.options.telemetry(), await desk.broker.readiness()
        now_us = desk.clock.wall_us()
        from_us = now_us - SPANS_S[chosen] * 1_000_000
        samples = desk.options.history.since(from_us)
        totals = desk.broker.topic_lists.totals()
        return desk.page(
            visit,
            "overview",
            parts=frozenset({"overview-live"}),
            ready=readiness.ready,
            warnings=warnings(telemetry, readiness.sentences),
            figures=[
                *_figures(telemetry, totals, samples[-1] if samples else None),
                *desk.options.cost(),
            ],
            charts=_charts(samples, from_us, now_us),
            spans=list(SPANS_S),
            chosen=chosen,
            totals=totals,
            every_s=limits.SAMPLE_EVERY_S,
        )

    return [show]


def _figures(telemetry: Telemetry, totals: Totals, latest: Sample | None) -> list[Figure]:
    """Rates are those of the latest sample."""
    status = telemetry.status
    journal, snapshots, bucket = status.journal, status.snapshots, status.bucket
    seconds = latest.seconds if latest else 1.0
    reads = latest.sections_at_hand + latest.sections_fetched if latest else 0
    hits = latest.sections_at_hand / reads if latest and reads else None
    snapshot = (
        f"{count(snapshots.entries_since)} entries since"
        if snapshots.seq is not None
        else "a start replays the whole journal"
    )
    return [
        Figure("Records in", rate(latest.records_in / seconds if latest else None), "acknowledged"),
        Figure("Bytes in", size_rate(latest.bytes_in / seconds if latest else None), "as stored"),
        Figure("Records out", rate(latest.records_out / seconds if latest else None), "to readers"),
        Figure(
            "PUT latency, median",
            span(latest.put_p50_s if latest else None),
            f"p99 {span(latest.put_p99_s if latest else None)}",
        ),
        Figure(
            "Requests to the bucket",
            rate(latest.bucket_requests / seconds if latest else None),
            f"last answer {span(bucket.last_answer_age_s)} ago",
        ),
        Figure("Cache hit rate", share(hits), "of sections read"),
        Figure("Stored", size(totals.size_bytes), f"{count(totals.records)} records"),
        Figure("Topics", count(totals.topics), f"{count(status.counts.groups)} groups"),
        Figure("Journal", f"seq {count(journal.seq)}", f"epoch {count(journal.epoch)}"),
        Figure(
            "Last snapshot",
            "none yet" if snapshots.seq is None else f"seq {count(snapshots.seq)}",
            snapshot,
        ),
        *([_standby(status.standby)] if status.standby else []),
        Figure(
            "Bucket",
            journal.durability,
            f"{bucket.description}, fencing mode {journal.fencing_mode}",
        ),
        Figure("Running", span(status.uptime_s), f"version {status.version}"),
    ]


def _standby(standby: StandbyStatus) -> Figure:
    if standby.waits_for:
        state = f"waits for {standby.waits_for}"
    elif standby.lag_entries:
        state = f"{standby.lag_entries:,} entries, {standby.lag_s:.1f} s behind"
    elif standby.seen_end_age_s is None:
        state = "reads"
    else:
        state = f"up to date {standby.seen_end_age_s:.1f} s ago"
    return Figure("Standby", state, "of the writer's journal")


def _charts(samples: Sequence[Sample], from_us: int, until_us: int) -> list[Chart]:
    ends = {"from_us": from_us, "until_us": until_us}
    return [
        chart("Records in", samples, [("", lambda s: s.records_in / s.seconds)], rate, **ends),
        chart("Records out", samples, [("", lambda s: s.records_out / s.seconds)], rate, **ends),
        chart("Bytes in", samples, [("", lambda s: s.bytes_in / s.seconds)], size_rate, **ends),
        chart(
            "PUT latency",
            samples,
            [("p50", lambda s: s.put_p50_s), ("p99", lambda s: s.put_p99_s)],
            span,
            **ends,
        ),
        chart(
            "Requests to the bucket",
            samples,
            [("", lambda s: s.bucket_requests / s.seconds)],
            rate,
            **ends,
        ),
        chart("Stored", samples, [("", lambda s: float(s.size_bytes))], size, **ends),
    ]
