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
from seb_appliance.broker.read.reads import ManifestSegment
from seb_appliance.errors import (
    BadParameterError,
    CorruptObjectError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    TopicNotFoundError,
)


class SectionOut(msgspec.Struct):
    """Record batches back to back: `length` bytes from byte `at` of the object. It answers for the
    offsets from base to last, both inclusive, though some may have no record."""

    base_offset: int
    last_offset: int
    at: int
    length: int
    crc32c: int


class SegmentOut(msgspec.Struct):
    """An object in the bucket. `url` null: read these offsets through the API."""

    base_offset: int
    last_offset: int
    size_bytes: int
    url: str | None
    sections: list[SectionOut]


class ManifestOut(msgspec.Struct):
    """Segments of the offsets up to `next_offset`, from which the next question goes on. What none
    of them covers is read through the API; from `segments_end_offset` on that is everything."""

    topic: str
    topic_id: int
    segments: list[SegmentOut]
    next_offset: int
    segments_end_offset: int
    log_start_offset: int
    log_end_offset: int


def _valid_s(call: Call) -> int | None:
    """For how long URLs are to be good; None: none are asked for, or none are given."""
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
}


@route(
    "GET",
    "/v1/topics/{topic}/manifest",
    "getManifest",
    tag="Topics",
    summary="Which segments in the bucket hold a range of a topic",
    description="For readers that GET segments themselves, many at a time. Only segments are "
    "named: journal entries and packed objects hold other topics' records, too. What no "
    "segment covers is read through the API. A bucket that is a directory has no URLs, and an "
    "API key with a quota on bytes out gets none. A URL that is refused has expired, or the "
    "tidier has replaced the segment: ask again.",
    parameters=[
        query("offset", "Where to begin, as for reading records.", "0", type="string"),
        query("until", "Exclusive end: an offset or `@time`.", "655360"),
        query(
            "presign",
            "Give URLs that are good for so long, 1h and `garbage_grace` at most.",
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
    )


ROUTES: Final = [get_manifest]
