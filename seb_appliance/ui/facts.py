"""What the pages show of the appliance beside the broker; the composition root fills it in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CheckKind = Literal["doctor", "fsck"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of an overview: its name, its value as a person reads it, and what it means."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class BillRow:
    """One line of the month's bill, as a person reads it; `forecast`: of the whole month."""

    what: str
    quantity: str
    so_far: str
    forecast: str


@dataclass(frozen=True, slots=True)
class Remark:
    """What a check did not like, and what to do about it."""

    title: str
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckShown:
    """Doctor, or fsck. `progress`: how far it is in words, "" while it does not run. The rest is of
    the last time; `finished_us` None: there was none since the start."""

    kind: CheckKind
    title: str
    about: str
    progress: str
    finished_us: int | None = None
    seconds: float = 0.0
    is_well: bool = False
    verdict: str = ""
    figures: Sequence[Figure] = ()
    remarks: Sequence[Remark] = ()


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in force. `source`: default, a file, a variable or a flag."""

    name: str
    value: str
    source: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Now. Failures are in words, "" while there is none. Ages and times in seconds. `standby`: how
    far it is behind, in words; "" for an appliance that writes."""

    version: str
    uptime_s: float
    bucket: str
    durability: str
    fencing_mode: str
    epoch: int
    journal_seq: int
    bucket_answer_age_s: float
    bucket_failing_s: float | None
    bucket_failure: str
    snapshot_seq: int | None
    snapshot_entries_since: int
    snapshot_failure: str
    state_lag_entries: int
    state_failure: str
    tidier_failure: str
    tidier_overdue_s: float
    background_failures: tuple[str, ...]
    key_index_lag_records: int
    key_index_failure: str
    damaged_reads: int
    pending_bytes: int
    pending_bytes_max: int
    groups: int
    standby: str = ""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """Requests to the bucket since the start. `by`: who sent them."""

    kind: str
    outcome: str
    by: str
    requests: int
    seconds: float | None
    sent_bytes: int | None
    received_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFacts:
    """Now, and (jobs, reads, requests) since the start. Entries up to `tidied_seq` hold nothing in
    force. `cache_bytes` None: there is no cache. What is `doing` is in words, "" for nothing."""

    journal_seq: int
    epoch: int
    bucket: str
    fencing_mode: str
    durability: str
    tidied_seq: int
    waiting_entries: int
    waiting_bytes: int
    objects: int
    object_bytes: int
    living_bytes: int
    garbage: int
    snapshot_seq: int | None
    snapshot_entries_since: int
    snapshots: int
    snapshot_failure: str
    doing: str
    tidier_failure: str
    jobs: int
    tidier_read_bytes: int
    tidier_written_bytes: int
    entries_removed: int
    objects_removed: int
    topics_trimmed: int
    cache_bytes: int | None
    cache_limit_bytes: int
    sections_from_memory: int
    sections_from_disk: int
    sections_from_bucket: int
    damaged_reads: int
    requests: tuple[RequestRow, ...]
