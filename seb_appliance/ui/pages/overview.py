"""The overview: figures, charts and warnings of the whole appliance."""

from __future__ import annotations

from typing import Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.status import StandbyStatus, Telemetry
from seb_appliance.errors import NotFoundError
from seb_appliance.quantities import counted
from seb_appliance.ui import answers, charts
from seb_appliance.ui.history import Sample, TopicRate
from seb_appliance.ui.options import Figure
from seb_appliance.ui.page_context import Routes, Visit
from seb_appliance.ui.units import count, rate, share, size, size_rate, span
from seb_appliance.ui.warnings import all_warnings

routes = Routes()
_LISTED: Final = 5


@routes.get("/", {"span"})
async def show(visit: Visit) -> ASGIApp:
    telemetry, readiness = await visit.options.telemetry(), await visit.broker.readiness()
    live = ("overview-live", "overview-more")
    drawn = {} if visit.part in live else await charts.shown(visit, "overview")
    return visit.page(
        "overview",
        parts=[*live, "charts"],
        ready=readiness.ready,
        warnings=all_warnings(visit, telemetry, readiness.sentences),
        traffic=_traffic(telemetry, visit.options.history.newest(visit.now_us)),
        storage=_storage(telemetry),
        cost=visit.options.cost(),
        appliance=appliance_figures(telemetry),
        busiest=_busiest(visit),
        lagging=_lagging(visit),
        totals=telemetry.totals,
        every_s=limits.SAMPLE_EVERY_S,
        **drawn,
    )


@routes.get("/charts/{kind:str}", {"span"})
async def draw(visit: Visit, kind: str) -> ASGIApp:
    """For charts.js."""
    if kind not in charts.CHARTS:
        raise NotFoundError(f"There are charts of {', '.join(charts.CHARTS)}.")
    _, span = charts.chosen_span(visit)
    return answers.json(await charts.drawing(visit, charts.CHARTS[kind], span))


def _busiest(visit: Visit) -> list[tuple[str, TopicRate | None]]:
    """Topics and their rates, in the last sample."""
    rates, name_of = visit.options.rates, visit.broker.topics.name_of
    ids = rates.busiest(_LISTED)
    return [(name, rates.of(topic_id)) for topic_id in ids if (name := name_of(topic_id))]


def _lagging(visit: Visit) -> list[tuple[str, str, int]]:
    """Groups, topics and lags in records, in the last sample."""
    name_of = visit.broker.topics.name_of
    return [
        (group, name, lag)
        for lag, (group, topic_id) in visit.options.lags.largest(_LISTED)
        if (name := name_of(topic_id))
    ]


def _traffic(telemetry: Telemetry, latest: Sample | None) -> list[Figure]:
    """Rates are those of the latest sample."""
    seconds = latest.seconds if latest else 1.0
    reads = latest.sections_at_hand + latest.sections_fetched if latest else 0
    hits = latest.sections_at_hand / reads if latest and reads else None
    answered = span(telemetry.status.bucket.last_answer_age_s)
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
            f"last answer {answered} ago",
        ),
        Figure("Cache hit rate", share(hits), "of sections read"),
    ]


def _storage(telemetry: Telemetry) -> list[Figure]:
    status, totals = telemetry.status, telemetry.totals
    journal, snapshots = status.journal, status.snapshots
    snapshot = (
        f"{counted(snapshots.entries_since, 'entry')} since"
        if snapshots.seq is not None
        else "a start replays the whole journal"
    )
    return [
        Figure("Stored", size(totals.size_bytes), counted(totals.records, "record")),
        Figure("Topics", count(totals.topics), counted(status.counts.groups, "group")),
        Figure("Journal", f"seq {count(journal.seq)}", f"epoch {count(journal.epoch)}"),
        Figure(
            "Last snapshot",
            "none yet" if snapshots.seq is None else f"seq {count(snapshots.seq)}",
            snapshot,
        ),
    ]


def appliance_figures(telemetry: Telemetry) -> list[Figure]:
    status = telemetry.status
    journal, bucket = status.journal, status.bucket
    return [
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
        state = f"{counted(standby.lag_entries, 'entry')}, {standby.lag_s:.1f} s behind"
    elif standby.seen_end_age_s is None:
        state = "reads"
    else:
        state = f"up to date {standby.seen_end_age_s:.1f} s ago"
    return Figure("Standby", state, "of the writer's journal")
