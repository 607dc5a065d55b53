"""The shapes of the appliance's answers: of each, the members that the connector reads."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from seb_appliance.formats.lake.tables import ColumnType


class Settings(TypedDict):
    cleanup: str


class Topic(TypedDict):
    topic: str
    topic_id: int
    log_start_offset: int
    log_end_offset: int
    last_entry: NotRequired[str]  # an older appliance does not send it
    effective_settings: Settings


class Topics(TypedDict):
    topics: list[Topic]


class GroupTopic(TypedDict):
    topic: str
    topic_id: int
    committed_offset: int
    metadata: str
    log_end_offset: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float


class Group(TypedDict):
    topics: list[GroupTopic]


class GroupName(TypedDict):
    group: str


class Groups(TypedDict):
    groups: list[GroupName]
    next_after: str | None


class Section(TypedDict):
    base_offset: int
    last_offset: int
    at: int
    length: int
    crc32c: int


class Segment(TypedDict):
    url: str | None
    sections: list[Section]


class Manifest(TypedDict):
    topic_id: int
    segments: list[Segment]
    next_offset: int
    compacted_seq: NotRequired[int]  # an older appliance does not send it


class Record(TypedDict):
    offset: int


class Records(TypedDict):
    records: list[Record]


class Page(Records):
    cursor: str


class Column(TypedDict):
    name: str
    type: ColumnType
    path: list[str]


class Published(TypedDict):
    snapshot: int
    next_offset: int
    columns: list[Column]


class Table(TypedDict):
    topic_id: int
    location: str
    formats: list[str]
    next_offset: int
    columns: list[Column]
    published: Published | None


class Upload(TypedDict):
    segment: str
    url: str
    headers: dict[str, str]


class Compacted(TypedDict):
    state: str
    reason: str
