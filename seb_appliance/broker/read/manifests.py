"""Which segments hold a range of a topic, for readers that GET them from the bucket directly."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace

from seb_appliance import limits
from seb_appliance.broker.ports import ObjectRef, SectionRef, SectionSource
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic, owner_of
from seb_appliance.broker.values import From


@dataclass(frozen=True, slots=True)
class ManifestSegment:
    """`sections`: the active ones of an object of `length` bytes, by offset. `url`: None unless it
    was requested and the bucket signs URLs."""

    ref: ObjectRef
    length: int
    sections: list[SectionRef] = field(default_factory=list)
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Nothing from `segments_end_offset` on is in a segment yet. `compacted_seq`: the newest entry
    that compacted a part of the requested range; 0: none."""

    topic: str
    topic_id: int
    segments: list[ManifestSegment]
    next_offset: int
    segments_end_offset: int
    log_start_offset: int
    log_end_offset: int
    compacted_seq: int


class Manifests:
    """Which segments hold a range of a topic, for readers that GET them from the bucket directly.
    Journal entries and packed objects also hold other topics' records: the API serves those.

    `grace_ms`: how long an unreferenced object stays; no URL is valid for longer."""

    def __init__(
        self, catalog: Catalog, reads: Reads, source: SectionSource, grace_ms: int
    ) -> None:
        self._catalog = catalog
        self._reads = reads
        self._source = source
        self._valid_s_max = grace_ms // 1000

    async def of(self, name: str, start: From, until: From | None, valid_s: int | None) -> Manifest:
        """`valid_s`: for how many seconds URLs are valid at most; None: no URLs. Raises
        TopicNotFoundError, OffsetExpiredError, OffsetOutOfRangeError, StoreError."""
        topic, offset, end = await self._reads.range_of(name, start, until)
        segments, next_offset = self._segments(topic, offset, end)
        manifest = Manifest(
            topic.name,
            topic.topic_id,
            segments,
            next_offset,
            max(topic.log_start_offset, _segments_end(topic)),
            topic.log_start_offset,
            topic.log_end_offset,
            _compacted_seq(topic, offset, end),
        )
        valid_s = min(valid_s or 0, self._valid_s_max)
        if not valid_s or not segments:
            return manifest
        urls = await self._source.signed_urls([found.ref for found in segments], valid_s)
        if urls is None:
            return manifest
        signed = [replace(found, url=url) for found, url in zip(segments, urls, strict=True)]
        return replace(manifest, segments=signed)

    def _segments(self, topic: Topic, offset: int, end: int) -> tuple[list[ManifestSegment], int]:
        """Segments from `offset` on, and the offset up to which they were searched."""
        segments: list[ManifestSegment] = []
        looked_at = 0
        while offset < end:
            owner, until = owner_of(topic, offset)
            rows, first = owner.stored, max(0, owner.stored.row_of(offset))
            behind = bisect_left(rows.bases, min(end, until)) if offset < rows.end else 0
            for row in range(first, behind):
                if looked_at == limits.MANIFEST_SECTIONS_MAX:
                    return segments, rows.bases[row]
                looked_at += 1
                self._name(segments, owner, row, until)
            offset = min(end, until)
        return segments, end

    def _name(self, segments: list[ManifestSegment], owner: Topic, row: int, until: int) -> None:
        """Add the row's section, if its segment holds only records of `owner` below `until`: a
        reader of a fork may not read its parent's later records."""
        section = self._catalog.section_ref(owner, owner.stored, row)
        ref = section.entry
        if not isinstance(ref, ObjectRef) or not ref.is_segment_of(owner.topic_id, until):
            return
        if not segments or segments[-1].ref != ref:
            length = self._catalog.stored.get(ref.object_id).length
            segments.append(ManifestSegment(ref, length))
        segments[-1].sections.append(section)


def _compacted_seq(topic: Topic, offset: int, end: int) -> int:
    newest = 0
    while offset < end:
        owner, until = owner_of(topic, offset)
        until = min(end, until)
        for run in owner.runs:
            if run.base < until and run.last >= offset:
                newest = max(newest, run.seq)
        offset = until
    return newest


def _segments_end(topic: Topic) -> int:
    owner, end = owner_of(topic, topic.log_start_offset)
    reached = min(owner.stored.end, end)
    while owner is not topic and reached == end:
        owner, end = owner_of(topic, reached)
        reached = max(reached, min(owner.stored.end, end))
    return reached
