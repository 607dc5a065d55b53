"""What the broker needs of a key index: a protocol that `state/` fulfils, and its values.

The index is a view of the log and nothing else: it may be lost at any time, and is made again from
the log. Per topic it is true up to an offset of its own, `indexed_offset` (exclusive).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seb_appliance.broker.values import BatchSlice
from seb_appliance.formats.topic_settings import KeyIndexMode


@dataclass(frozen=True, slots=True)
class IndexedTopic:
    """`mode`: how the topic is indexed, `latest` or `history`."""

    mode: KeyIndexMode
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class IndexRange:
    """All records of a topic from `offset` up to `next_offset` (exclusive); `slices` hold them."""

    topic_id: int
    offset: int
    next_offset: int
    slices: Sequence[BatchSlice]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The newest record of a record key: not a tombstone."""

    key: bytes
    offset: int
    timestamp_us: int


@dataclass(frozen=True, slots=True)
class KeyRows:
    """In the order of their record keys, as bytes; true up to `indexed_offset`."""

    rows: Sequence[KeyRow]
    indexed_offset: int


@dataclass(frozen=True, slots=True)
class KeyOffsets:
    """Offsets of records; true up to `indexed_offset`."""

    offsets: Sequence[int]
    indexed_offset: int


class KeyIndex(Protocol):
    """Every method raises CorruptObjectError when the index is damaged: `clear` it then, and begin
    anew; ConfigurationError when the machine does not let us use its file.

    Rows below a topic's `log_start` are never answered.
    """

    @property
    def size_bytes(self) -> int:
        """About what it takes on disk."""

    async def load(self) -> dict[int, IndexedTopic]:
        """What is indexed, by topic id, once its file was found sound."""

    async def clear(self) -> None:
        """Throw everything away."""

    async def begin(self, topic_id: int, topic: IndexedTopic) -> None:
        """Index a topic from an offset on; what there was of it is gone."""

    async def drop(self, topic_id: int) -> None:
        """Forget a topic and all its rows."""

    async def trim(self, topic_id: int, log_start: int) -> None:
        """Forget rows below a log start offset."""

    async def add(self, ranges: Sequence[IndexRange], kept_below: Mapping[int, int]) -> None:
        """Take records in, in one transaction; each range begins at its topic's indexed offset.

        What they supersede is kept for `live` where its offset is smaller than the topic's in
        `kept_below`.
        """

    async def forget_kept(self, topic_id: int) -> None:
        """What was kept for `live` is needed no more."""

    async def latest(self, topic_id: int, key: bytes, log_start: int) -> KeyRows:
        """The one row of a record key, or none."""

    async def page(
        self, topic_id: int, prefix: bytes, after: bytes | None, most: int, log_start: int
    ) -> KeyRows:
        """Record keys that begin with `prefix` and come behind `after`."""

    async def history(
        self, topic_id: int, key: bytes, before: int | None, most: int, log_start: int
    ) -> KeyOffsets:
        """Every record of a record key below `before` (None: all), newest first, tombstones too."""

    async def live(self, topic_id: int, as_of: int, begin: int, most: int) -> KeyOffsets:
        """The newest records of all record keys as of the offset `as_of`, from the offset `begin`
        on, in offset order, without tombstones. Exact if what was superseded since was kept."""
