"""`GET /v1/topics/{topic}/manifest`: which segments a reader may GET from the bucket itself."""

from __future__ import annotations

from typing import Final

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import json_answer
from seb_appliance.api.server.auth import AnyRequest, Call, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import SectionRef
from seb_appliance.broker.read.manifest import Manifest, ManifestSegment
from seb_appliance.errors import BadParameterError

MANIFEST_QUERY: Final = frozenset({"offset", "until", "presign"})


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


def _section_out(section: SectionRef) -> SectionOut:
    return SectionOut(
        section.base_offset, section.last_offset, section.at, section.length, section.crc
    )


def _segment_out(segment: ManifestSegment) -> SegmentOut:
    return SegmentOut(
        segment.sections[0].base_offset,
        segment.sections[-1].last_offset,
        segment.length,
        segment.url,
        list(map(_section_out, segment.sections)),
    )


def _manifest_out(manifest: Manifest) -> ManifestOut:
    return ManifestOut(
        manifest.topic,
        manifest.topic_id,
        list(map(_segment_out, manifest.segments)),
        manifest.next_offset,
        manifest.segments_end_offset,
        manifest.log_start_offset,
        manifest.log_end_offset,
    )


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @get("/v1/topics/{topic:str}/manifest")
    async def get_manifest(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, MANIFEST_QUERY)
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, "consume", topic)
        start = parameters.position(call.query.get("offset", "earliest"), "offset")
        until = call.query.get("until")
        end = None if until is None else parameters.end_position(until, "until")
        broker.look_for_newer_writer()
        manifest = await broker.manifests.of(topic, start, end, _valid_s(call))
        return json_answer(200, _manifest_out(manifest))

    return [get_manifest]
