"""What is rewritten into segments, and what came of it: plain values that fit through a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from seb_appliance.broker.ports import EntryRef
from seb_appliance.formats.operations import ReplacedRange, StoredObject


@dataclass(frozen=True, slots=True)
class SectionPlace:
    """A section in force in a segment or packed object. `at`: from the object's beginning."""

    key: str
    topic_id: int
    base_offset: int
    last_offset: int
    at: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """Of the sections of a topic from base to last offset, which are all in segments, leave the
    newest record of each record key. `tombstones_until_us`: where the newest is a tombstone that
    was stored until then, and lies below `tombstones_below`, it goes as well; None when older
    records may lie below the range."""

    topic_id: int
    name: str
    base_offset: int
    last_offset: int
    tombstones_until_us: int | None
    tombstones_below: int


@dataclass(frozen=True, slots=True)
class ExternalSegment:
    """A segment that somebody else has stored, of these offsets (inclusive) and so many bytes."""

    key: str
    base_offset: int
    last_offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """Rewrite whole journal entries, or sections of objects, into new segments; with `compactions`
    only the records of these sections that are to stay.

    `log_starts` of living topics: what lies below, and other topics' records, is left out. `name`:
    8 random bytes, never used before, from which the keys are made. `compressed`: ids of the topics
    that want to be stored so. `inputs`: keys of the objects that `sections` lie in. `made`: nothing
    is to be written; these segments, in the order of their offsets, are to be checked against what
    the one compaction leaves.
    """

    bucket_id: bytes
    epoch: int
    name: bytes
    segment_bytes: int
    log_starts: Mapping[int, int]
    compressed: frozenset[int] = frozenset()
    entries: tuple[EntryRef, ...] = ()
    sections: tuple[SectionPlace, ...] = ()
    inputs: tuple[str, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    made: tuple[ExternalSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """`objects` are stored, and were read back and compared with what they were made of;
    `records_removed`: what compaction left out of it."""

    replaced: tuple[ReplacedRange, ...]
    objects: tuple[StoredObject, ...]
    records_removed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(slots=True)
class Asked:
    """Requests to the bucket that no store of this process counted, by kind, and the bytes that
    they brought; since the start."""

    requests: Counter[str] = field(default_factory=Counter)
    received_bytes: int = 0


class Rewriter(Protocol):
    asked: Asked

    async def rewrite(self, job: RewriteJob) -> Rewritten:
        """Raises CorruptObjectError, StoreError; then some of the new objects may be stored."""

    async def close(self) -> None: ...
