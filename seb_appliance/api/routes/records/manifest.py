"""`GET /v1/topics/{topic}/manifest`: which segments a reader may GET from the bucket itself."""

from __future__ import annotations

from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.routes.route import (
    RequestContext,
    json_reply,
    route,
)
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.read.manifests import ManifestSegment
from seb_appliance.errors import (
    BadParameterError,
    CorruptObjectError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    TopicNotFoundError,
)


class SectionOut(msgspec.Struct):
    """Consecutive record batches: `length` bytes from byte `at` of the object. It covers the
    offsets from base to last, both inclusive; some of them may have no record."""

    base_offset: int
    last_offset: int
    at: int
    length: int
    crc32c: int


class SegmentOut(msgspec.Struct):
    """An object in the bucket. If `url` is null, read these offsets through the API."""

    base_offset: int
    last_offset: int
    size_bytes: int
    url: str | None
    sections: list[SectionOut]


class ManifestOut(msgspec.Struct):
    """The segments that hold offsets below `next_offset`; continue there with the next request.
    Read offsets that no segment covers through the API; no segment covers offsets from
    `segments_end_offset` on. `compacted_seq`: the seq of the journal entry that compacted a part of
    the requested range last; 0 if none did. As long as it stays, no compaction removes records of
    the range."""

    topic: str
    topic_id: int
    segments: list[SegmentOut]
    next_offset: int
    segments_end_offset: int
    log_start_offset: int
    log_end_offset: int
    compacted_seq: int


def _valid_s(call: Call) -> int | None:
    """How long the URLs are valid; None if none are requested or none can be given."""
    text = call.query.get("presign")
    if text is None:
        return None
    valid_ms = parameters.duration_ms(text, "presign", largest=limits.PRESIGN_MS_MAX)
    if valid_ms < 1000:
        raise BadParameterError("presign is at least 1s.")
    # What goes past the appliance cannot be counted: a quota on it would be a lie.
    return None if call.key.quotas.bytes_out_per_second is not None else valid_ms // 1000


def _segment_out(segment: ManifestSegment) -> SegmentOut:
    sections = [
        SectionOut(part.base_offset, part.last_offset, part.at, part.length, part.crc)
        for part in segment.sections
    ]
    begin, end = sections[0].base_offset, sections[-1].last_offset
    return SegmentOut(begin, end, segment.length, segment.url, sections)


_MANIFEST: Final = {
    "topic": "orders.eu",
    "topic_id": 3,
    "segments": [
        {
            "base_offset": 0,
            "last_offset": 655359,
            "size_bytes": 67121480,
            "url": "https://bucket.example/seb/_seb/segments/3/…?X-Amz-Signature=…",
            "sections": [
                {
                    "base_offset": 0,
                    "last_offset": 10239,
                    "at": 32,
                    "length": 1048616,
                    "crc32c": 2868364117,
                }
            ],
        }
    ],
    "next_offset": 660044,
    "segments_end_offset": 655360,
    "log_start_offset": 0,
    "log_end_offset": 660044,
    "compacted_seq": 0,
}


@route(
    "GET",
    "/v1/topics/{topic}/manifest",
    "getManifest",
    tag="Topics",
    summary="Which segments in the bucket hold a range of a topic",
    description="For readers that GET segments from the bucket in parallel. Only segments are "
    "listed, because journal entries and packed objects also hold records of other topics. Read "
    "offsets that no segment covers through the API. There are no URLs if the bucket is a "
    "directory or the API key has a quota on bytes out. If the store refuses a URL, it has "
    "expired or the tidier has replaced the segment: request the manifest again.",
    parameters=[
        query("offset", "Where to begin, as in a read of records.", "0", type="string"),
        query("until", "Exclusive end: an offset or `@time`.", "655360"),
        query(
            "presign",
            "Include URLs that are valid for this time, at most 1h and at most `garbage_grace`.",
            "15m",
        ),
    ],
    replies=json_reply(ManifestOut, _MANIFEST, "The manifest"),
    errors=(
        TopicNotFoundError,
        OffsetExpiredError,
        OffsetOutOfRangeError,
        CorruptObjectError,
        StoreUnavailableError,
    ),
    grant="consume",
)
async def get_manifest(ctx: RequestContext) -> object:
    start = parameters.position(ctx.call.query.get("offset", "earliest"), "offset")
    until = ctx.call.query.get("until")
    end = None if until is None else parameters.end_position(until, "until")
    ctx.broker.look_for_newer_writer()
    manifest = await ctx.broker.manifests.of(ctx.topic, start, end, _valid_s(ctx.call))
    return ManifestOut(
        manifest.topic,
        manifest.topic_id,
        list(map(_segment_out, manifest.segments)),
        manifest.next_offset,
        manifest.segments_end_offset,
        manifest.log_start_offset,
        manifest.log_end_offset,
        manifest.compacted_seq,
    )


ROUTES: Final = [get_manifest]
