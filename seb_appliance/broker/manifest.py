"""Which segments hold a range of a topic, for readers that GET them from the bucket themselves.

Only segments are named: journal entries and packed objects hold other topics' records, too. What no
segment covers is read through the API.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from seb_appliance import limits
from seb_appliance.broker.catalog import Catalog, Topic
from seb_appliance.broker.ports import ObjectRef, SectionRef, SectionSource
from seb_appliance.broker.reads import Reads
from seb_appliance.broker.values import From


@dataclass(frozen=True, slots=True)
class ManifestSegment:
    """`sections`: those in force, in the order of their offsets, of an object of `length` bytes.
    `url`: None unless one was asked for and the bucket has URLs."""

    ref: ObjectRef
    length: int
    sections: list[SectionRef] = field(default_factory=list)
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Of the offsets from the one asked for up to `next_offset`, as of now. Beyond
    `segments_end_offset` nothing is in a segment yet."""

    topic: str
    topic_id: int
    segments: list[ManifestSegment]
    next_offset: int
    segments_end_offset: int
    log_start_offset: int
    log_end_offset: int


class Manifests:
    def __init__(self, catalog: Catalog, reads: Reads, source: SectionSource) -> None:
        self._catalog = catalog
        self._reads = reads
        self._source = source

    async def of(self, name: str, start: From, until: From | None, valid_s: int | None) -> Manifest:
        """`valid_s`: for how many seconds URLs are to be good; None: no URLs. Raises
        TopicNotFoundError, OffsetExpiredError, OffsetOutOfRangeError, StoreError."""
        topic, offset, end = await self._reads.range_of(name, start, until)
        segments, next_offset = self._segments(topic, offset, end)
        manifest = Manifest(
            topic.name,
            topic.topic_id,
            segments,
            next_offset,
            max(topic.log_start_offset, topic.stored.end),
            topic.log_start_offset,
            topic.log_end_offset,
        )
        if valid_s is None or not segments:
            return manifest
        urls = await self._source.signed_urls([found.ref for found in segments], valid_s)
        return manifest if urls is None else _with_urls(manifest, urls)

    def _segments(self, topic: Topic, offset: int, end: int) -> tuple[list[ManifestSegment], int]:
        """The topic's own segments from `offset` on, and up to where they were looked for."""
        rows = topic.stored
        segments: list[ManifestSegment] = []
        if offset >= min(end, rows.end):
            return segments, end
        first = max(0, rows.row_of(offset))
        for row in range(first, len(rows)):
            if rows.bases[row] >= end:
                break
            if row - first == limits.MANIFEST_SECTIONS_MAX:
                return segments, rows.bases[row]
            section = self._catalog.section_ref(topic, rows, row)
            ref = section.entry
            if not isinstance(ref, ObjectRef) or not ref.is_segment_of(topic.topic_id):
                continue
            if not segments or segments[-1].ref != ref:
                length = self._catalog.stored.get(ref.object_id).length
                segments.append(ManifestSegment(ref, length))
            segments[-1].sections.append(section)
        return segments, end


def _with_urls(manifest: Manifest, urls: list[str]) -> Manifest:
    signed = [
        replace(segment, url=url) for segment, url in zip(manifest.segments, urls, strict=True)
    ]
    return replace(manifest, segments=signed)
