"""`GET /v1/status`: how the appliance is, for its operator."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import json_answer
from seb_appliance.api.server.auth import AnyRequest, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.share_views import ShareView


class JournalStatus(msgspec.Struct):
    """`seq` and `epoch` of the last entry; `durability`: `s3`, `disk` or `memory`. `clock_ahead_s`:
    how far the log's clock is ahead of the wall clock; negative: behind."""

    seq: int
    epoch: int
    fencing_mode: str
    durability: str
    bucket_id: str
    clock_ahead_s: float


class BucketStatus(msgspec.Struct):
    """`failing_s`: since how long it fails; null while all is well, and `failure` is "" then."""

    description: str
    last_answer_age_s: float
    failing_s: float | None
    failure: str


class StandbyStatus(msgspec.Struct):
    """How far a standby is behind the appliance that it follows: entries that it knows of and does
    not serve yet, and by how much the newest of them was made later than the newest that it serves.
    `seen_end_age_s`: how long ago it had read all there was (null: never yet), so what it serves is
    at most so old. `waits_for`: whom it waits for before it reads on, or "". `applied`: entries
    since it began."""

    lag_entries: int
    lag_s: float
    seen_end_age_s: float | None
    waits_for: str
    applied: int


class StateStatus(msgspec.Struct):
    """SQLite: how many entries it is behind, and why it does not follow ("" if it does)."""

    lag_entries: int
    failure: str


class SnapshotStatus(msgspec.Struct):
    """`seq`: up to which entry the newest one reaches; null when there is none yet."""

    seq: int | None
    entries_since: int
    failure: str


class RememberedStatus(msgspec.Struct):
    """What makes retries safe: results of requests with an Idempotency-Key, and idempotent
    producers. A request takes a place for each topic that it wrote to. While fewer than
    `places_max` are taken, the requests of the last 24 hours are all there; then only those since
    `oldest_request` (null: there is none)."""

    requests: int
    places: int
    places_max: int
    oldest_request: str | None
    producers: int
    producers_max: int


class LastUsedStatus(msgspec.Struct):
    """When API keys were last used. `failure`: why it cannot be written down; "" while it can.
    Nothing else depends on it."""

    failure: str


class TopicBehind(msgspec.Struct):
    """How far the key index of a topic is: everything below `indexed_offset` is in it."""

    topic: str
    indexed_offset: int
    log_end_offset: int


class KeyIndexStatus(msgspec.Struct):
    """The key index: how many topics it has, how many records it lacks, how often it was damaged
    and begun anew, and why it does not follow ("" if it does). `behind`: topics that it has not
    reached the end of, the furthest behind first (at most 10)."""

    topics: int
    lag_records: int
    size_bytes: int
    rebuilds: int
    failure: str
    behind: list[TopicBehind]


class WaitingStatus(msgspec.Struct):
    """What waits, beside its limits."""

    pending_bytes: int
    pending_bytes_max: int
    reading_bytes: int
    reading_bytes_max: int
    waiting_readers: int


class TidierStatus(msgspec.Struct):
    """What it does now (`doing`, "" for nothing), what waits for it, what it keeps, and why its
    last attempt came to nothing ("" if it did not). `overdue_s`: for how long entries have waited
    that should have been merged, 0 if that is less than an hour. `garbage`: objects that are gone
    once their grace time is over. Of the `compacted_topics` there are `compacted_bytes` in
    segments, of which compaction has not gone over `dirty_bytes`. All other bytes and counts since
    the start."""

    doing: str
    failure: str
    waiting_entries: int
    waiting_bytes: int
    overdue_s: float
    objects: int
    garbage: int
    jobs: int
    failures: int
    bytes_read: int
    bytes_written: int
    topics_trimmed: int
    compacted_topics: int
    compacted_bytes: int
    dirty_bytes: int
    compactions: int
    records_removed: int
    entries_removed: int
    objects_removed: int


class BackgroundStatus(msgspec.Struct):
    """A task that goes on beside the log, and is begun again when it has raised: how often that
    was (`failures`), what it raised last ("" for nothing), and whether that was in the last minutes
    (`failing`). While an `essential` one fails, the appliance is not ready. `callbacks` stands for
    all that is called by timers, and for tasks that nobody waits for."""

    name: str
    essential: bool
    failing: bool
    failures: int
    failure: str


class CostStatus(msgspec.Struct):
    """What the bucket costs (`GET /v1/cost` has more): this month so far, the forecast of all of
    it, and `budget`, null when there is none. `linger_ms`: the window of topics that set none
    themselves, which linger = auto stretches. `failure`: why it cannot be written down, or ""."""

    currency: str
    this_month: float
    forecast: float
    budget: float | None
    linger_ms: int
    failure: str


class Counts(msgspec.Struct):
    """What there is now; `records`: those that can be read, over all topics."""

    topics: int
    groups: int
    api_keys: int
    records: int


class Status(msgspec.Struct):
    """What the composition root knows. `standby` is null for an appliance that writes."""

    version: str
    started: str
    uptime_s: float
    standby: StandbyStatus | None
    journal: JournalStatus
    bucket: BucketStatus
    state: StateStatus
    snapshots: SnapshotStatus
    remembered: RememberedStatus
    last_used: LastUsedStatus
    tidier: TidierStatus
    key_index: KeyIndexStatus
    waiting: WaitingStatus
    shares: list[ShareView]
    background: list[BackgroundStatus]
    cost: CostStatus
    counts: Counts


class StatusOut(Status):
    """`problems`: sentences for the operator; ready when there are none, and it is no standby."""

    ready: bool
    problems: list[str]


def routes(broker: Broker, status: Callable[[], Status]) -> list[HTTPRouteHandler]:
    @get("/v1/status")
    async def get_status(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        broker.authorize(call.key, "admin")
        readiness = await broker.readiness()
        known = msgspec.structs.asdict(status())
        answer = StatusOut(**known, ready=readiness.ready, problems=readiness.problems)
        return json_answer(200, answer)

    return [get_status]
