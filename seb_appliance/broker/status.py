"""The state of an appliance at one moment, for `/v1/status`, `/metrics` and the admin page.

A `failure` is a sentence, or "" if there is none. Counts are since the start, ages in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Annotated, get_type_hints

import msgspec

from seb_appliance import limits
from seb_appliance.broker.counters import Counters, Label, Metric, RequestCount
from seb_appliance.broker.gauges import GroupLag, ShareView
from seb_appliance.broker.topics.catalog import Totals


def _sections(source: str) -> Metric:
    return Metric("seb_section_reads_total", "Sections read.", labels={"source": source})


def _refusals(what: str) -> Metric:
    text = f"Requests refused because the {what} budget was used up."
    return Metric(f"seb_{what}_refusals_total", text)


class JournalStatus(msgspec.Struct):
    """`seq` and `epoch`: of the last entry. `durability`: `s3`, `disk` or `memory`.
    `clock_ahead_s`: how far the log's clock is ahead of the wall clock; negative if it is behind.
    """

    seq: Annotated[int, Metric("seb_journal_seq", "Seq of the last entry.")]
    epoch: Annotated[int, Metric("seb_journal_epoch", "Epoch of this writer.")]
    fencing_mode: str
    durability: str
    bucket_id: str
    clock_ahead_s: Annotated[
        float,
        Metric(
            "seb_log_clock_ahead_seconds", "How far the log's clock is ahead of the wall clock."
        ),
    ]


class BucketStatus(msgspec.Struct):
    """`failing_s`: how long requests have been failing; null if they succeed (then `failure` is
    "")."""

    description: str
    last_answer_age_s: float
    failing_s: Annotated[
        float | None,
        Metric("seb_store_failing_seconds", "Since when the bucket fails.", of_none=0.0),
    ]
    failure: str


class StandbyStatus(msgspec.Struct):
    """How far a standby is behind the appliance that it follows. `lag_entries`: entries that it
    knows of and has not applied yet. `lag_s`: the age difference between the newest of them and the
    newest applied one. `seen_end_age_s`: when it last had applied all entries, in seconds before
    now (null: never); the data that it serves is at most that old. `waits_for`: the writer that it
    waits for, or "". `applied`: entries applied since its start."""

    lag_entries: Annotated[
        int, Metric("seb_standby_lag_entries", "Entries known and not served yet.")
    ]
    lag_s: Annotated[
        float,
        Metric(
            "seb_standby_lag_seconds",
            "By how much the newest known entry is younger than the newest served.",
        ),
    ]
    seen_end_age_s: Annotated[
        float | None,
        Metric(
            "seb_standby_seen_end_seconds",
            "How long ago all there was had been read; what is served is at most so old.",
        ),
    ]
    waits_for: str
    applied: int


class StateStatus(msgspec.Struct):
    """SQLite. `lag_entries`: how many entries it is behind. `failure`: why it cannot apply
    entries."""

    lag_entries: Annotated[int, Metric("seb_state_lag_entries", "Entries that SQLite is behind.")]
    failure: Annotated[str, Metric("seb_state_failing", "1 while SQLite does not follow.")]


class SnapshotStatus(msgspec.Struct):
    """`seq`: the last entry in the newest snapshot; null if there is no snapshot yet."""

    seq: int | None
    entries_since: int
    failure: str


class RememberedStatus(msgspec.Struct):
    """What is remembered so that retries are safe: results of requests with an Idempotency-Key, and
    idempotent producers. A request uses one place for each topic that it wrote to. All requests of
    the last 24 hours are remembered unless all `places_max` places are in use; then only those
    since `oldest_request` (null: none)."""

    requests: Annotated[int, Metric("seb_remembered_requests", "Requests with an Idempotency-Key.")]
    places: int
    places_max: int
    oldest_request: str | None
    producers: Annotated[
        int, Metric("seb_remembered_producers", "Idempotent producers that are known.")
    ]
    producers_max: int


class LastUsedStatus(msgspec.Struct):
    """When API keys were last used. `failure`: why this cannot be saved. Nothing else depends on
    it."""

    failure: Annotated[
        str,
        Metric(
            "seb_last_used_failing",
            "1 while it cannot be written down when API keys were last used.",
        ),
    ]


class TopicBehind(msgspec.Struct):
    """The progress of a topic's key index: it has all records below `indexed_offset`."""

    topic: str
    indexed_offset: int
    log_end_offset: int


class KeyIndexStatus(msgspec.Struct):
    """The key index. `topics`: how many it has. `lag_records`: records that are not indexed yet.
    `rebuilds`: how often it was damaged and rebuilt. `failure`: why it cannot index. `behind`: the
    topics that are not fully indexed, those with the most missing records first (at most 10)."""

    topics: int
    lag_records: Annotated[
        int, Metric("seb_key_index_lag_records", "Records not in the key index yet.")
    ]
    size_bytes: Annotated[int, Metric("seb_key_index_bytes", "Bytes of the key index.")]
    rebuilds: Annotated[
        int,
        Metric("seb_key_index_rebuilds_total", "Times that the key index was damaged and rebuilt."),
    ]
    failure: str
    behind: list[TopicBehind]


class WaitingStatus(msgspec.Struct):
    """Bytes and readers that wait, and their limits."""

    pending_bytes: Annotated[
        int, Metric("seb_pending_bytes", "Bytes of the pending budget in use.")
    ]
    pending_bytes_max: int
    reading_bytes: Annotated[
        int, Metric("seb_reading_bytes", "Bytes of the reading budget in use.")
    ]
    reading_bytes_max: int
    waiting_readers: Annotated[int, Metric("seb_waiting_readers", "Readers waiting at a log end.")]


class TidierStatus(msgspec.Struct):
    """The tidier. `doing`: its current job, or "". `failure`: why its last attempt failed, or "".
    `overdue_s`: how long entries have waited that should be merged; 0 if less than an hour.
    `garbage`: objects that will be removed when their grace time is over. `compacted_bytes`: what
    the `compacted_topics` have in segments; `dirty_bytes`: the part of it that is not compacted
    yet. Other bytes and counts are since the start."""

    doing: str
    failure: str
    waiting_entries: Annotated[int, Metric("seb_tidier_waiting_entries", "Entries not tidied.")]
    waiting_bytes: Annotated[
        int, Metric("seb_tidier_waiting_bytes", "Bytes of entries not tidied.")
    ]
    overdue_s: Annotated[
        float,
        Metric(
            "seb_tidier_overdue_seconds",
            "For how long entries wait that should have been merged; 0 below an hour.",
        ),
    ]
    objects: Annotated[int, Metric("seb_objects", "Segments and packed objects in force.")]
    garbage: Annotated[int, Metric("seb_garbage_objects", "Condemned objects in the bucket.")]
    jobs: Annotated[int, Metric("seb_tidier_jobs_total", "Jobs of the tidier put in force.")]
    failures: Annotated[int, Metric("seb_tidier_failures_total", "Its attempts that failed.")]
    bytes_read: Annotated[int, Metric("seb_tidier_read_bytes_total", "Bytes it read.")]
    bytes_written: Annotated[int, Metric("seb_tidier_written_bytes_total", "Bytes it wrote.")]
    topics_trimmed: Annotated[
        int, Metric("seb_topics_trimmed_total", "Log starts moved by retention.")
    ]
    compacted_topics: int
    compacted_bytes: Annotated[
        int, Metric("seb_compacted_bytes", "In segments, of compacted topics.")
    ]
    dirty_bytes: Annotated[
        int, Metric("seb_compaction_dirty_bytes", "Of those, not compacted yet.")
    ]
    compactions: Annotated[
        int, Metric("seb_compactions_total", "Compactions put in force, of a topic each.")
    ]
    records_removed: Annotated[
        int, Metric("seb_compaction_removed_records_total", "Records that compaction removed.")
    ]
    entries_removed: Annotated[int, Metric("seb_tidier_entries_removed_total", "Entries removed.")]
    objects_removed: Annotated[int, Metric("seb_tidier_objects_removed_total", "Objects removed.")]


class TablesStatus(msgspec.Struct):
    """Tables of topics. `doing`: the current job, or "". `failure`: why the last step failed, or
    "". `worst_lag_s`: for how long the records that wait longest have waited for their table.
    `unpublished`: tables whose last commit is not known to be readable yet. `foreign`: tables that
    stopped because someone else wrote their metadata. `memory_bytes`: the most that the writing
    process took. Counts of commits, rows and bytes are since the start."""

    doing: str
    failure: Annotated[str, Metric("seb_tables_failing", "1 while the last step failed.")]
    tables: Annotated[int, Metric("seb_tables", "Tables.")]
    worst_lag_s: Annotated[
        float, Metric("seb_table_lag_seconds", "The longest wait of records for their table.")
    ]
    lag_records: Annotated[
        int, Metric("seb_table_lag_records", "Offsets that tables do not cover yet.")
    ]
    files: Annotated[int, Metric("seb_table_files", "Data files in newest snapshots.")]
    stored_bytes: Annotated[int, Metric("seb_table_bytes", "Of all data files of tables.")]
    unpublished: Annotated[
        int, Metric("seb_table_unpublished", "Tables whose last commit is not readable yet.")
    ]
    foreign: Annotated[
        int, Metric("seb_table_foreign", "Tables stopped by metadata of someone else.")
    ]
    commits: Annotated[int, Metric("seb_table_commits_total", "Commits of tables.")]
    failures: Annotated[int, Metric("seb_table_failures_total", "Steps that failed.")]
    rows: Annotated[int, Metric("seb_table_rows_total", "Records added to tables.")]
    bad_rows: Annotated[
        int, Metric("seb_table_bad_rows_total", "Of those, not readable as the columns say.")
    ]
    bytes_read: Annotated[int, Metric("seb_table_read_bytes_total", "Bytes read for tables.")]
    bytes_written: Annotated[
        int, Metric("seb_table_written_bytes_total", "Bytes of data files written.")
    ]
    sql_queries: Annotated[int, Metric("seb_sql_queries_total", "SQL statements that were run.")]
    sql_failures: Annotated[int, Metric("seb_sql_failures_total", "Of those, without an answer.")]
    sql_seconds: Annotated[float, Metric("seb_sql_seconds_total", "Time that they took.")]
    memory_bytes: Annotated[
        int, Metric("seb_table_memory_bytes", "Most memory of the writing process.")
    ]


class BackgroundStatus(msgspec.Struct):
    """A background task, which is restarted after an exception. `failures`: the number of
    exceptions. `failure`: the last one, or "". `failing`: whether it was in the last minutes. While
    an `essential` task is failing, the appliance is not ready. The task `callbacks` stands for all
    timer callbacks and for tasks that nothing awaits."""

    name: Annotated[str, Label("task")]
    essential: bool
    failing: Annotated[
        bool, Metric("seb_background_failing", "1 while it has raised in the last minutes.")
    ]
    failures: Annotated[
        int,
        Metric(
            "seb_background_failures_total",
            "Times that a background task raised, and was begun again.",
        ),
    ]
    failure: str


class CostStatus(msgspec.Struct):
    """What the bucket costs: this month so far, the forecast for the whole month, and `budget`
    (null if there is none). `GET /v1/cost` has the details. `linger_ms`: the linger of topics that
    set none themselves; linger = auto changes it. `failure`: why the numbers cannot be saved."""

    currency: Annotated[str, Label("currency")]
    this_month: Annotated[float, Metric("seb_cost_month", "What the bucket has cost this month.")]
    forecast: Annotated[float, Metric("seb_cost_forecast", "What the whole month will cost.")]
    budget: Annotated[
        float | None,
        Metric("seb_cost_budget", "What it may cost; 0 when there is no budget.", of_none=0.0),
    ]
    linger_ms: int
    failure: str


class PortStatus(msgspec.Struct):
    """The port of a protocol. `stalled`: connections whose producers mostly wait for the window."""

    protocol: str
    connections: int
    stalled: int = 0


class Counts(msgspec.Struct):
    """Current counts. `members`: of groups; `records`: the readable records of all topics."""

    topics: Annotated[int, Metric("seb_topics", "Topics.")]
    groups: Annotated[int, Metric("seb_groups", "Consumer groups.")]
    queues: Annotated[int, Metric("seb_queues", "Work queues.")]
    members: int
    connections: int
    api_keys: int
    records: int


class Status(msgspec.Struct):
    """`standby` is null for an appliance that writes."""

    version: str
    started: str
    uptime_s: Annotated[float, Metric("seb_uptime_seconds", "Since the start.")]
    standby: StandbyStatus | None
    journal: JournalStatus
    bucket: BucketStatus
    state: StateStatus
    snapshots: SnapshotStatus
    remembered: RememberedStatus
    last_used: LastUsedStatus
    tidier: TidierStatus
    tables: TablesStatus
    key_index: KeyIndexStatus
    waiting: WaitingStatus
    shares: list[ShareView]
    background: list[BackgroundStatus]
    cost: CostStatus
    ports: list[PortStatus]
    counts: Counts


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """Sections read, by where they came from, and the cache on disk (`size_bytes` None: none)."""

    from_memory: Annotated[int, _sections("memory")]
    from_disk: Annotated[int, _sections("disk")]
    from_bucket: Annotated[int, _sections("bucket")]
    damaged: Annotated[int, Metric("seb_damaged_reads_total", "Reads of missing or damaged bytes.")]
    size_bytes: Annotated[
        int | None, Metric("seb_cache_bytes", "Bytes of the cache on disk.", of_none=0)
    ]
    limit_bytes: Annotated[int, Metric("seb_cache_bytes_max", "What it may take.")]


@dataclass(frozen=True, slots=True)
class TidierRequests:
    """Requests to the bucket by the process that tidies."""

    kind: Annotated[str, Label("kind")]
    requests: Annotated[
        int, Metric("seb_tidier_requests_total", "Requests to the bucket by the tidier's process.")
    ]


@dataclass(frozen=True, slots=True)
class BillLine:
    """What one kind of operation has cost this month."""

    currency: Annotated[str, Label("currency")]
    what: Annotated[str, Label("what")]
    amount: Annotated[
        float,
        Metric("seb_cost_month_by_operation", "What the bucket has cost this month, by operation."),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """`status`: what `/v1/status` answers. Entries up to `tidied_seq` hold no live record; of
    `object_bytes` in segments, `living_bytes` are those of live records."""

    status: Status
    totals: Totals
    log: Counters
    cache: CacheFigures
    requests: Sequence[RequestCount]
    tidier_requests: Sequence[TidierRequests]
    groups_behind: Sequence[GroupLag]
    cost_lines: Sequence[BillLine]
    tidied_seq: int
    object_bytes: int
    living_bytes: int
    is_standby: Annotated[
        bool, Metric("seb_standby", "1 for a standby, 0 for an appliance that writes.")
    ]
    snapshots_published: Annotated[
        int, Metric("seb_snapshots_total", "Snapshots put into the bucket.")
    ]
    snapshot_failures: Annotated[
        int, Metric("seb_snapshot_failures_total", "Snapshots that could not be made.")
    ]
    window_bytes: Annotated[int, Metric("seb_window_bytes", "Bytes in the open window.")]
    window_bytes_max: Annotated[
        int, Metric("seb_window_bytes_max", "Bytes with which a window closes.")
    ] = limits.WINDOW_BYTES_MAX
    pending_refusals: Annotated[int, _refusals("pending")]
    reading_refusals: Annotated[int, _refusals("reading")]
    following_refusals: Annotated[int, _refusals("following")]
    following_bytes: Annotated[
        int, Metric("seb_following_bytes", "Bytes of the following budget in use.")
    ]
    followers: Annotated[int, Metric("seb_followers", "Live streams of topics.")]
    followers_cut: Annotated[
        int,
        Metric("seb_followers_cut_total", "Live streams ended because nothing was taken of them."),
    ]
    remembered_oldest_s: Annotated[
        float, Metric("seb_remembered_requests_oldest_seconds", "Age of the oldest of them.")
    ]
    dates_refused: Annotated[
        int,
        Metric("seb_store_dates_refused_total", "Times that a Date of the store was refused."),
    ]
    group_lag_worst: Annotated[
        int,
        Metric(
            "seb_group_lag_worst_records",
            "Records that the group furthest behind has not committed of a topic.",
        ),
    ]
    queue_in_flight: Annotated[
        int, Metric("seb_queue_in_flight", "Records of queues that are out with workers.")
    ]
    queue_aside: Annotated[
        int,
        Metric("seb_queue_aside", "Records of queues that wait for a retry or their record key."),
    ]
    queue_doomed: Annotated[
        int, Metric("seb_queue_doomed", "Records of queues that are to become dead letters.")
    ]
    queue_takers: Annotated[
        int, Metric("seb_queue_takers", "Requests that wait for a record of a queue.")
    ]
    loop_delay_worst_s: Annotated[
        float,
        Metric("seb_loop_delay_worst_seconds", "The longest such delay in the last minute."),
    ]
    parsed_bodies: Annotated[
        int, Metric("seb_parsed_bodies_total", "Large request bodies read in child processes.")
    ]
    parser_restarts: Annotated[
        int,
        Metric(
            "seb_parser_restarts_total", "Times that such a child process was ended, or had died."
        ),
    ]
    stored_bytes: Annotated[
        int, Metric("seb_stored_bytes", "Bytes in the bucket, as far as is known.")
    ]
    linger_s: Annotated[float, Metric("seb_linger_seconds", "The window of topics that set none.")]
    cost_failing: Annotated[
        bool,
        Metric("seb_cost_failing", "1 while it cannot be written down what the bucket costs."),
    ]


def measured(figures: object) -> Iterator[tuple[Metric, dict[str, str], float]]:
    """Each metric in `figures` and in what they hold, with its labels and its value."""
    if isinstance(figures, Sequence):
        for one in figures:
            yield from measured(one)
        return
    if not isinstance(figures, msgspec.Struct) and not is_dataclass(figures):
        return
    labels: dict[str, str] = {}
    metrics = []
    for name, note in _notes(figures.__class__):
        value = getattr(figures, name)
        if isinstance(note, Label):
            labels[note.name] = value
        elif isinstance(note, Metric):
            metrics.append((note, note.of_none if value is None else value))
        elif not isinstance(value, str):
            yield from measured(value)
    for metric, value in metrics:
        if value is not None:
            number = int(bool(value)) if isinstance(value, str | bool) else value
            yield metric, {**labels, **metric.labels}, number


@cache
def _notes(kind: type[object]) -> list[tuple[str, object]]:
    """The annotated fields of a class, and those that may hold others (note None)."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        (name, next(iter(getattr(hint, "__metadata__", ())), None)) for name, hint in hints.items()
    ]
