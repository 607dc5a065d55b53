"""Jobs that rewrite objects into segments, and their results: plain values for a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from seb_appliance.broker.ports import EntryRef
from seb_appliance.formats.operations import ReplacedRange, StoredObject


@dataclass(frozen=True, slots=True)
class SectionPlace:
    """An active section of a segment or packed object. `at`: its first byte in the object."""

    key: str
    topic_id: int
    base_offset: int
    last_offset: int
    at: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """Keep the newest record of each record key in the segments of a topic from base to last
    offset. Remove a tombstone, too, if it was stored until `tombstones_until_us` and lies below
    `tombstones_below`; None when older records may lie below the range."""

    topic_id: int
    name: str
    base_offset: int
    last_offset: int
    tombstones_until_us: int | None
    tombstones_below: int


@dataclass(frozen=True, slots=True)
class ExternalSegment:
    """A segment that a cluster has stored; offsets inclusive, `length` in bytes."""

    key: str
    base_offset: int
    last_offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """Rewrite whole journal entries, or sections of objects, into new segments; with `compactions`
    only the records that these keep.

    `log_starts`: topics that are not in it, and records below it, are left out. `name`: 8 fresh
    random bytes, part of the keys. `compressed`: ids of topics with compression. `made`: write
    nothing, but compare these segments, in the order of offsets, with what the compaction keeps.
    """

    bucket_id: bytes
    epoch: int
    name: bytes
    segment_bytes: int
    log_starts: Mapping[int, int]
    compressed: frozenset[int] = frozenset()
    entries: tuple[EntryRef, ...] = ()
    sections: tuple[SectionPlace, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    made: tuple[ExternalSegment, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Keys of the objects that hold `sections`."""
        return tuple(dict.fromkeys(place.key for place in self.sections))


@dataclass(frozen=True, slots=True)
class Rewritten:
    """`objects` are stored, and were read back and compared with their inputs."""

    replaced: tuple[ReplacedRange, ...]
    objects: tuple[StoredObject, ...]
    records_removed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(slots=True)
class Asked:
    """Requests to the bucket by the rewriting process, by kind, and their received bytes."""

    requests: Counter[str] = field(default_factory=Counter)
    received_bytes: int = 0


class Rewriter(Protocol):
    asked: Asked

    async def rewrite(self, job: RewriteJob) -> Rewritten:
        """Raises CorruptObjectError, StoreError; some new objects may be stored then."""

    async def close(self) -> None: ...
