"""What the pages show of the appliance beside the broker; the composition root fills it in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of an overview: its name, its value as a person reads it, and what it means."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in force. `source`: default, a file, a variable or a flag."""

    name: str
    value: str
    source: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Now. Failures are in words, "" while there is none. Ages and times in seconds."""

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
    key_index_lag_records: int
    key_index_failure: str
    damaged_reads: int
    pending_bytes: int
    pending_bytes_max: int
    groups: int
