"""The metrics of one appliance, gathered from its rooms when somebody asks. docs/METRICS.md lists
them.
"""

from __future__ import annotations

from collections.abc import Iterator

from seb_appliance import limits
from seb_appliance.api.routes.manage.health import Sample, histogram
from seb_appliance.ops.serve.assembly import Appliance

# The metrics of what the bucket costs; beside samples.py, for its length.


def cost_samples(appliance: Appliance) -> Iterator[Sample]:
    """Money in the currency that the label names."""
    found = appliance.cost.report()
    labels = {"currency": found.prices.currency}
    budget = 0.0 if found.budget is None else found.budget.amount
    for name, text, value in (
        ("seb_cost_month", "What the bucket has cost this month.", found.so_far.total),
        ("seb_cost_forecast", "What the whole month will cost.", found.forecast.total),
        ("seb_cost_budget", "What it may cost; 0 when there is no budget.", budget),
    ):
        yield Sample(name, text, "gauge", value, labels)
    for line in found.so_far.lines:
        text = "What the bucket has cost this month, by operation."
        by_operation = {**labels, "what": line.what}
        yield Sample("seb_cost_month_by_operation", text, "gauge", line.amount, by_operation)
    for name, text, amount in (
        ("seb_stored_bytes", "Bytes in the bucket, as far as is known.", found.stored_bytes),
        ("seb_linger_seconds", "The window of topics that set none.", found.linger_ms / 1000),
        (
            "seb_cost_failing",
            "1 while it cannot be written down what the bucket costs.",
            int(bool(appliance.cost.failure)),
        ),
    ):
        yield Sample(name, text, "gauge", amount)


def samples(
    appliance: Appliance, fast_lane_requests: int, application_requests: int
) -> Iterator[Sample]:
    """All of them. The fast lane and the application share the requests between them."""
    yield from _log(appliance)
    text = "Requests answered by the fast lane, without the application."
    yield Sample("seb_fast_lane_requests_total", text, "counter", fast_lane_requests)
    text = "Requests answered by the application."
    yield Sample("seb_application_requests_total", text, "counter", application_requests)
    yield from _standby(appliance)
    yield from _waiting(appliance)
    yield from _remembered(appliance)
    yield from _bucket(appliance)
    yield from _clocks(appliance)
    yield from _cache(appliance)
    yield from _tidier(appliance)
    yield from _key_index(appliance)
    yield from _groups(appliance)
    yield from _background(appliance)
    yield from _machine(appliance)
    yield from cost_samples(appliance)


def _log(appliance: Appliance) -> Iterator[Sample]:
    counters = appliance.broker.counters
    for name, text, value in (
        ("seb_entries_total", "Journal entries stored.", counters.entries),
        ("seb_entry_bytes_total", "Bytes of journal entries stored.", counters.entry_bytes),
        ("seb_writes_total", "Appends, commits and changes stored.", counters.writes),
        ("seb_records_total", "Records acknowledged.", counters.records),
        ("seb_entry_seconds_total", "Seconds from seal to stored.", counters.put_seconds),
        ("seb_reads_total", "Reads answered.", counters.reads),
        ("seb_read_records_total", "Records handed to readers.", counters.read_records),
        (
            "seb_read_ahead_sections_total",
            "Sections fetched before they were asked for.",
            counters.fetched_ahead,
        ),
        (
            "seb_index_lookups_total",
            "Pages of the index read from SQLite.",
            counters.index_lookups,
        ),
        (
            "seb_compressed_plain_bytes_total",
            "Bytes of the batches that are stored compressed, before.",
            counters.plain_bytes,
        ),
        (
            "seb_compressed_bytes_total",
            "Bytes of the batches that are stored compressed, after.",
            counters.packed_bytes,
        ),
        ("seb_deadlines_total", "Callers told outcome_unknown.", counters.deadlines_passed),
        ("seb_snapshots_total", "Snapshots put into the bucket.", appliance.snapshots.published),
        (
            "seb_snapshot_failures_total",
            "Snapshots that could not be made.",
            appliance.snapshots.failures,
        ),
    ):
        yield Sample(name, text, "counter", value)
    position = appliance.journal.position
    yield Sample("seb_journal_seq", "Seq of the last entry.", "gauge", position.seq)
    yield Sample("seb_journal_epoch", "Epoch of this writer.", "gauge", appliance.journal.epoch)


def _standby(appliance: Appliance) -> Iterator[Sample]:
    keeper = appliance.standby
    text = "1 for a standby, 0 for an appliance that writes."
    yield Sample("seb_standby", text, "gauge", int(keeper is not None))
    if keeper is None:
        return
    for name, text, value in (
        ("seb_standby_lag_entries", "Entries known and not served yet.", keeper.lag_entries),
        (
            "seb_standby_lag_seconds",
            "By how much the newest known entry is younger than the newest served.",
            keeper.lag_s,
        ),
        (
            "seb_standby_seen_end_seconds",
            "How long ago all there was had been read; what is served is at most so old.",
            keeper.seen_end_age_s,
        ),
    ):
        if value is not None:
            yield Sample(name, text, "gauge", value)


def _waiting(appliance: Appliance) -> Iterator[Sample]:
    broker = appliance.broker
    for name, text, value in (
        ("seb_window_bytes", "Bytes in the open window.", broker.gauges.window_bytes),
        ("seb_window_bytes_max", "Bytes with which a window closes.", limits.WINDOW_BYTES_MAX),
    ):
        yield Sample(name, text, "gauge", value)
    for what, budget in (
        ("pending", broker.pending),
        ("reading", broker.reading),
        ("following", broker.followers.budget),
    ):
        yield Sample(
            f"seb_{what}_bytes", f"Bytes of the {what} budget in use.", "gauge", budget.used
        )
        yield Sample(
            f"seb_{what}_refusals_total",
            f"Requests refused because the {what} budget was used up.",
            "counter",
            budget.refusals,
        )
    for shares in broker.shares:
        of = {"share": shares.name}
        text = "What API keys and operators hold of a common resource, in its unit."
        yield Sample("seb_share_used", text, "gauge", shares.used, of)
        text = "What may be held of a common resource."
        yield Sample("seb_share_limit", text, "gauge", shares.limit, of)
        text = "Requests refused because a common resource, or the API key's share, was used up."
        yield Sample("seb_share_refusals_total", text, "counter", shares.refusals, of)
    yield Sample(
        "seb_waiting_readers", "Readers waiting at a log end.", "gauge", broker.waiting_readers
    )
    followers = broker.followers
    yield Sample("seb_followers", "Live streams of topics.", "gauge", followers.count)
    text = "Live streams ended because nothing was taken of them."
    yield Sample("seb_followers_cut_total", text, "counter", followers.cut)
    text = "Records encoded for live streams."
    yield Sample("seb_live_encoded_total", text, "counter", broker.counters.live_encoded)
    yield Sample(
        "seb_state_lag_entries",
        "Entries that SQLite is behind.",
        "gauge",
        appliance.follower.lag_entries,
    )


def _remembered(appliance: Appliance) -> Iterator[Sample]:
    kept = appliance.broker.remembered
    oldest_us = kept.oldest_request_us
    age_s = 0.0 if oldest_us is None else appliance.broker.log_clock.age_us(oldest_us) / 1e6
    for name, text, value in (
        ("seb_remembered_requests", "Requests with an Idempotency-Key.", kept.requests),
        ("seb_remembered_requests_oldest_seconds", "Age of the oldest of them.", max(0.0, age_s)),
        ("seb_remembered_producers", "Idempotent producers that are known.", kept.producers),
        (
            "seb_last_used_failing",
            "1 while it cannot be written down when API keys were last used.",
            int(bool(appliance.last_used.failure)),
        ),
    ):
        yield Sample(name, text, "gauge", value)


def _bucket(appliance: Appliance) -> Iterator[Sample]:
    for row in appliance.store.counts.rows:
        labels = {"kind": row.kind, "outcome": row.outcome, "purpose": row.purpose}
        for name, text, value in (
            ("seb_store_requests_total", "Requests to the bucket.", row.requests),
            ("seb_store_seconds_total", "Seconds that they took.", row.seconds),
            ("seb_store_sent_bytes_total", "Bytes sent to the bucket.", row.bytes_sent),
            ("seb_store_received_bytes_total", "Bytes received from it.", row.bytes_received),
        ):
            yield Sample(name, text, "counter", value, labels)
    for kind, latencies in appliance.store.latencies.items():
        text = "How long requests to the bucket took."
        yield from histogram("seb_store_request_seconds", text, latencies, {"kind": kind})
    health, now_s = appliance.journal.health, appliance.clock.monotonic_s()
    failing_s = 0.0 if health.failing_since_s is None else now_s - health.failing_since_s
    yield Sample("seb_store_failing_seconds", "Since when the bucket fails.", "gauge", failing_s)


def _clocks(appliance: Appliance) -> Iterator[Sample]:
    text = "How far the log's clock is ahead of the wall clock."
    yield Sample("seb_log_clock_ahead_seconds", text, "gauge", appliance.broker.log_clock.ahead_s)
    text = "Times that a Date of the store was refused."
    refused = appliance.clock.dates_refused
    yield Sample("seb_store_dates_refused_total", text, "counter", refused)


def _cache(appliance: Appliance) -> Iterator[Sample]:
    sections = appliance.sections
    for source, value in (
        ("memory", sections.from_memory),
        ("disk", sections.from_disk),
        ("bucket", sections.from_bucket),
    ):
        labels = {"source": source}
        yield Sample("seb_section_reads_total", "Sections read.", "counter", value, labels)
    cached, limit_bytes = sections.cached_bytes, appliance.settings.cache_bytes
    yield Sample("seb_cache_bytes", "Bytes of the cache on disk.", "gauge", cached)
    yield Sample("seb_cache_bytes_max", "What it may take.", "gauge", limit_bytes)
    yield Sample(
        "seb_damaged_reads_total", "Reads whose checksum failed.", "counter", sections.damaged
    )


def _tidier(appliance: Appliance) -> Iterator[Sample]:
    counters, tidying = appliance.tidier.counters, appliance.broker.tidying
    compaction = tidying.compactions.progress()
    for name, text, value in (
        ("seb_tidier_jobs_total", "Jobs of the tidier put in force.", counters.jobs),
        ("seb_tidier_failures_total", "Its attempts that failed.", counters.failures),
        ("seb_tidier_read_bytes_total", "Bytes it read.", counters.bytes_read),
        ("seb_tidier_written_bytes_total", "Bytes it wrote.", counters.bytes_written),
        ("seb_tidier_entries_removed_total", "Entries removed.", counters.entries_removed),
        ("seb_tidier_objects_removed_total", "Objects removed.", counters.objects_removed),
        ("seb_topics_trimmed_total", "Log starts moved by retention.", counters.topics_trimmed),
        (
            "seb_compactions_total",
            "Compactions put in force, of a topic each.",
            counters.compactions,
        ),
        (
            "seb_compaction_removed_records_total",
            "Records that compaction removed.",
            counters.records_removed,
        ),
    ):
        yield Sample(name, text, "counter", value)
    for kind, requests in sorted(appliance.tidier.asked.requests.items()):
        text = "Requests to the bucket by the tidier's process."
        yield Sample("seb_tidier_requests_total", text, "counter", requests, {"kind": kind})
    gauges: tuple[tuple[str, str, float], ...] = (
        ("seb_tidier_waiting_entries", "Entries not tidied.", tidying.waiting_entries),
        ("seb_tidier_waiting_bytes", "Bytes of entries not tidied.", tidying.waiting_bytes),
        (
            "seb_tidier_overdue_seconds",
            "For how long entries wait that should have been merged; 0 below an hour.",
            appliance.tidier.overdue_s,
        ),
        ("seb_compacted_bytes", "In segments, of compacted topics.", compaction.total_bytes),
        ("seb_compaction_dirty_bytes", "Of those, not compacted yet.", compaction.dirty_bytes),
        ("seb_objects", "Segments and packed objects in force.", tidying.objects),
        ("seb_garbage_objects", "Condemned objects in the bucket.", tidying.garbage),
    )
    for name, text, amount in gauges:
        yield Sample(name, text, "gauge", amount)


def _background(appliance: Appliance) -> Iterator[Sample]:
    for task in appliance.supervisor.tasks:
        labels = {"task": task.name}
        text = "Times that a background task raised, and was begun again."
        yield Sample("seb_background_failures_total", text, "counter", task.failures, labels)
        text = "1 while it has raised in the last minutes."
        yield Sample("seb_background_failing", text, "gauge", int(task.is_failing), labels)


def _key_index(appliance: Appliance) -> Iterator[Sample]:
    keys = appliance.broker.record_keys
    lag = sum(topic.lag for topic in keys.indexing.progress())
    yield Sample("seb_key_index_lag_records", "Records not in the key index yet.", "gauge", lag)
    yield Sample("seb_key_index_bytes", "Bytes of the key index.", "gauge", keys.size_bytes)
    yield Sample(
        "seb_key_index_rebuilds_total",
        "Times that the key index was damaged and begun anew.",
        "counter",
        keys.indexing.rebuilds,
    )


def _groups(appliance: Appliance) -> Iterator[Sample]:
    groups = appliance.broker.groups
    behind = appliance.broker.gauges.groups_behind()
    text = "Records that the group furthest behind has not committed of a topic."
    worst = max((found.lag for found in behind), default=0)
    yield Sample("seb_group_lag_worst_records", text, "gauge", worst)
    for found in behind:
        labels = {"group": found.group, "topic": found.topic}
        text = "Records that a group has not committed; the groups that are furthest behind."
        yield Sample("seb_group_lag_records", text, "gauge", found.lag, labels)
    yield Sample("seb_groups", "Consumer groups.", "gauge", groups.count)
    yield Sample("seb_topics", "Topics.", "gauge", len(appliance.broker.gauges.topic_names()))


def _machine(appliance: Appliance) -> Iterator[Sample]:
    probe = appliance.loop_probe
    text = "How late the event loop was, asked once a second."
    yield from histogram("seb_loop_delay_seconds", text, probe.delays)
    text = "The longest such delay in the last minute."
    yield Sample("seb_loop_delay_worst_seconds", text, "gauge", probe.worst_s)
    parser = appliance.parser
    text = "Large request bodies read in child processes."
    yield Sample("seb_parsed_bodies_total", text, "counter", parser.parsed)
    text = "Times that such a child process was ended, or had died."
    yield Sample("seb_parser_restarts_total", text, "counter", parser.restarts)
    text = "1 while SQLite does not follow."
    yield Sample("seb_state_failing", text, "gauge", int(bool(appliance.follower.failure)))
    up_s = appliance.clock.monotonic_s() - appliance.opened_s
    yield Sample("seb_uptime_seconds", "Since the start.", "gauge", up_s)
