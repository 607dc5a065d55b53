"""The status, metrics and cost of one appliance, as the API returns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from heapq import nlargest
from typing import Final

from seb_appliance import __version__, limits
from seb_appliance.api.encoding.answers import format_time
from seb_appliance.api.routes.manage.health import Sample, histogram
from seb_appliance.api.routes.manage.status import (
    BudgetOut,
    CostLine,
    CostOut,
    PricesOut,
    PurposeCost,
    TopicCost,
)
from seb_appliance.broker.status import (
    BackgroundStatus,
    BillLine,
    BucketStatus,
    CacheFigures,
    CostStatus,
    Counts,
    JournalStatus,
    KeyIndexStatus,
    LastUsedStatus,
    RememberedStatus,
    SnapshotStatus,
    StandbyStatus,
    StateStatus,
    Status,
    TablesStatus,
    Telemetry,
    TidierRequests,
    TidierStatus,
    TopicBehind,
    WaitingStatus,
    measured,
)
from seb_appliance.broker.topics.catalog import Totals
from seb_appliance.ops.jobs.cost_job import CostKeeper
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.protocols.sockets.connected import connections_of

_SHOWN: Final = 10  # topics that the key index is behind on


async def telemetry(appliance: Appliance) -> Telemetry:
    """All figures, from memory."""
    broker, sections, tidier = appliance.broker, appliance.sections, appliance.tidier
    stored, behind = broker.tidying.stored.all(), broker.gauges.groups_behind()
    objects = [(found.length, found.living_bytes) for found in stored]
    queues = broker.queues.live()
    oldest_us, cost = broker.remembered.oldest_request_us, appliance.cost.recent()
    totals = await broker.topics.totals()
    return Telemetry(
        status=await status(appliance, totals),
        totals=totals,
        log=broker.counters,
        cache=CacheFigures(
            sections.from_memory,
            sections.from_disk,
            sections.from_bucket,
            sections.damaged,
            sections.cached_bytes if sections.has_cache else None,
            appliance.settings.cache_bytes,
        ),
        requests=appliance.store.counts.rows,
        tidier_requests=[TidierRequests(*row) for row in sorted(tidier.asked.requests.items())],
        groups_behind=behind,
        cost_lines=[
            BillLine(cost.prices.currency, line.what, line.amount) for line in cost.so_far.lines
        ],
        tidied_seq=broker.tidying.tidied_seq,
        object_bytes=sum(length for length, _ in objects),
        living_bytes=sum(living for _, living in objects),
        is_standby=appliance.standby is not None,
        snapshots_published=appliance.snapshots.published,
        snapshot_failures=appliance.snapshots.failures,
        window_bytes=broker.gauges.window_bytes,
        pending_refusals=broker.pending.refusals,
        reading_refusals=broker.reading.refusals,
        following_refusals=broker.followers.budget.refusals,
        following_bytes=broker.followers.budget.used,
        followers=broker.followers.count,
        followers_cut=broker.followers.cut,
        remembered_oldest_s=(
            0.0 if oldest_us is None else max(0.0, broker.log_clock.age_us(oldest_us) / 1e6)
        ),
        dates_refused=appliance.clock.dates_refused,
        group_lag_worst=max((found.lag for found in behind), default=0),
        queue_in_flight=sum(len(queue.deliveries.out) for queue in queues),
        queue_aside=sum(queue.deliveries.aside for queue in queues),
        queue_doomed=sum(len(queue.deliveries.doomed) for queue in queues),
        queue_takers=sum(len(queue.takers) for queue in queues),
        loop_delay_worst_s=appliance.loop_probe.worst_s,
        parsed_bodies=appliance.parser.parsed,
        parser_restarts=appliance.parser.restarts,
        stored_bytes=cost.ledger.stored_bytes,
        linger_s=cost.linger_ms / 1000,
        cost_failing=bool(appliance.cost.failure),
    )


async def status(appliance: Appliance, totals: Totals) -> Status:
    broker, clock, snapshots = appliance.broker, appliance.clock, appliance.snapshots
    up_s = clock.monotonic_s() - appliance.opened_s
    report = appliance.cost.recent()
    ports = connections_of(appliance.beside).ports()
    return Status(
        version=__version__,
        started=format_time(clock.wall_us() - int(up_s * 1_000_000)),
        uptime_s=up_s,
        standby=_standby(appliance),
        journal=_journal(appliance),
        bucket=_bucket(appliance),
        state=StateStatus(appliance.follower.lag_entries, appliance.follower.failure),
        snapshots=SnapshotStatus(
            snapshots.newest_seq or None,
            appliance.journal.position.seq - snapshots.newest_seq,
            snapshots.failure,
        ),
        remembered=_remembered(appliance),
        last_used=LastUsedStatus(appliance.last_used.failure),
        tidier=await _tidier(appliance),
        tables=_tables(appliance),
        key_index=await _key_index(appliance),
        waiting=WaitingStatus(
            pending_bytes=broker.pending.used,
            pending_bytes_max=broker.pending.limit,
            reading_bytes=broker.reading.used,
            reading_bytes_max=broker.reading.limit,
            waiting_readers=broker.waiting_readers,
        ),
        shares=broker.gauges.shares(),
        background=[
            BackgroundStatus(
                task.name, task.is_essential, task.is_failing, task.failures, task.failure
            )
            for task in appliance.supervisor.tasks
        ],
        cost=CostStatus(
            currency=report.prices.currency,
            this_month=report.so_far.total,
            forecast=report.forecast.total,
            budget=None if report.budget is None else report.budget.amount,
            linger_ms=report.linger_ms,
            failure=appliance.cost.failure,
        ),
        ports=ports,
        counts=Counts(
            topics=totals.topics,
            groups=broker.groups.count,
            queues=len(broker.queues.all()),
            members=broker.groups.members.count,
            connections=sum(port.connections for port in ports),
            api_keys=len(broker.access.all()),
            records=totals.records,
        ),
    )


def _journal(appliance: Appliance) -> JournalStatus:
    journal = appliance.journal
    return JournalStatus(
        seq=journal.position.seq,
        epoch=journal.epoch,
        fencing_mode=journal.mode,
        durability=journal.durability,
        bucket_id=journal.bucket_id.hex(),
        clock_ahead_s=appliance.broker.log_clock.ahead_s,
    )


def _standby(appliance: Appliance) -> StandbyStatus | None:
    keeper = appliance.standby
    if keeper is None:
        return None
    return StandbyStatus(
        lag_entries=keeper.lag_entries,
        lag_s=keeper.lag_s,
        seen_end_age_s=keeper.seen_end_age_s,
        waits_for=keeper.journal.waits_for,
        applied=keeper.applied,
    )


def _bucket(appliance: Appliance) -> BucketStatus:
    health, now_s = appliance.journal.health, appliance.clock.monotonic_s()
    since_s = health.failing_since_s
    return BucketStatus(
        description=appliance.store.description,
        last_answer_age_s=now_s - health.last_success_s,
        failing_s=None if since_s is None else now_s - since_s,
        failure=health.failure,
    )


def _remembered(appliance: Appliance) -> RememberedStatus:
    kept = appliance.broker.remembered
    oldest_us = kept.oldest_request_us
    return RememberedStatus(
        requests=kept.requests,
        places=kept.places,
        places_max=limits.REMEMBERED_REQUESTS_MAX,
        oldest_request=None if oldest_us is None else format_time(oldest_us),
        producers=kept.producers,
        producers_max=limits.PRODUCERS_MAX,
    )


async def _tidier(appliance: Appliance) -> TidierStatus:
    tidier, tidying = appliance.tidier, appliance.broker.tidying
    compaction = await tidying.compactions.progress()
    return TidierStatus(
        doing=tidier.doing,
        failure=tidier.failure,
        waiting_entries=len(tidying.untidied.entries),
        waiting_bytes=tidying.untidied.total_bytes,
        overdue_s=tidier.overdue_s,
        objects=len(tidying.stored),
        garbage=len(tidying.stored.garbage),
        compacted_topics=compaction.topics,
        compacted_bytes=compaction.total_bytes,
        dirty_bytes=compaction.dirty_bytes,
        **asdict(tidier.counters),
    )


def _tables(appliance: Appliance) -> TablesStatus:
    keeper, commits = appliance.tables, appliance.broker.table_commits
    tables = appliance.broker.tables.all()
    published = appliance.broker.tables.published
    sql = appliance.broker.sql
    return TablesStatus(
        doing=keeper.doing,
        failure=keeper.failure,
        tables=len(tables),
        worst_lag_s=max(map(commits.lags.seconds, tables), default=0.0),
        lag_records=sum(map(commits.lags.records, tables)),
        files=sum(t.head.newest.files for t in tables if t.head.newest),
        stored_bytes=appliance.broker.tables.stored_bytes,
        unpublished=sum(published(t.head.table_id) is None for t in tables),
        foreign=len(commits.foreign),
        memory_bytes=keeper.writer.rss_bytes,
        sql_queries=sum(sql.outcomes.values()),
        sql_failures=sum(sql.outcomes.values()) - sql.outcomes["ok"],
        sql_seconds=sql.seconds,
        **asdict(keeper.counters),
    )


async def _key_index(appliance: Appliance) -> KeyIndexStatus:
    keys = appliance.broker.record_keys
    progress = await keys.indexing.progress()
    return KeyIndexStatus(
        topics=len(progress),
        lag_records=sum(topic.lag for topic in progress),
        size_bytes=keys.size_bytes,
        rebuilds=keys.indexing.rebuilds,
        failure=keys.indexing.failure,
        behind=[
            TopicBehind(topic.name, topic.indexed_offset, topic.log_end_offset)
            for topic in nlargest(_SHOWN, progress, key=lambda topic: topic.lag)
            if topic.lag
        ],
    )


def cost(keeper: CostKeeper) -> CostOut:
    """As of now."""
    report = keeper.report()
    return CostOut(
        month=report.ledger.month.name,
        counted_since=format_time(report.ledger.counted_since_us),
        until=format_time(report.ledger.until_us),
        currency=report.prices.currency,
        prices=PricesOut(report.prices.name, report.prices.as_of),
        this_month=report.so_far.total,
        forecast=report.forecast.total,
        stored_bytes=report.ledger.stored_bytes,
        lines=[
            CostLine(now.what, now.quantity, now.unit, now.included, now.amount, then.amount)
            for now, then in report.lines
        ],
        purposes=[
            PurposeCost(purpose, requests, report.so_far.by_purpose.get(purpose, 0.0))
            for purpose, requests in report.ledger.this_month.by_purpose.items()
        ],
        topics=[
            TopicCost(
                share.topic,
                share.entries,
                share.requests_amount,
                share.storage_amount,
                share.amount,
            )
            for share in keeper.topics(report)
        ],
        budget=BudgetOut(
            None if report.budget is None else report.budget.amount,
            report.linger_ms,
            report.linger_why,
        ),
        comparison=str(report.crossover),
        failure=keeper.failure,
    )


def samples(
    appliance: Appliance, figures: Telemetry, fast_lane_requests: int, application_requests: int
) -> Iterator[Sample]:
    """The metrics of `figures`, the request counts of both paths, and two histograms."""
    for metric, labels, value in measured(figures):
        yield Sample(metric.name, metric.help, metric.kind, value, labels)
    text = "Requests answered by the fast lane, without the application."
    yield Sample("seb_fast_lane_requests_total", text, "counter", fast_lane_requests)
    text = "Requests answered by the application."
    yield Sample("seb_application_requests_total", text, "counter", application_requests)
    for kind, latencies in list(appliance.store.latencies.items()):
        text = "How long requests to the bucket took."
        yield from histogram("seb_store_request_seconds", text, latencies, {"kind": kind})
    text = "How late the event loop was, asked once a second."
    yield from histogram("seb_loop_delay_seconds", text, appliance.loop_probe.delays)
