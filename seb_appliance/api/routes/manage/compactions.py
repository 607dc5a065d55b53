"""`/v1/topics/{topic}/compactions`, and `POST …/segments`: what others compact, and hand over."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.broker.upkeep.external_compactions import ExternalCompaction, State
from seb_appliance.errors import (
    BadRequestError,
    CompactionNotFoundError,
    CompactionRefusedError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from seb_appliance.formats.numbers import Whole

_MD5_BYTES: Final = 16


class CompactionOut(msgspec.Struct):
    """What to compact: the offsets from base to last, both inclusive. Keep the newest record of
    each record key and all records without one; drop records below `log_start_offset`. A newest
    record may also be dropped if it is a tombstone that was created at or before
    `tombstones_until_us`, is below the offset `tombstones_below`, and is not the last record of the
    range. `state`: `open`, `checking`, `in_force` or `refused`; `reason`: why."""

    compaction: str
    topic: str
    topic_id: int
    bucket_id: str
    base_offset: int
    last_offset: int
    log_start_offset: int
    tombstones_until_us: int | None
    tombstones_below: int
    size_bytes: int
    dirty_bytes: int
    segment_bytes: int
    state: State
    reason: str


class NewSegmentIn(msgspec.Struct, forbid_unknown_fields=True):
    """A segment to upload: the offsets that it covers, both inclusive, its size, and its MD5 in
    base64."""

    base_offset: Whole
    last_offset: Whole
    size_bytes: Whole
    md5: str


class UploadOut(msgspec.Struct):
    """PUT the bytes to `url` with these headers. `segment` is the name to hand over later."""

    segment: str
    url: str
    headers: dict[str, str]


class HandOverIn(msgspec.Struct, forbid_unknown_fields=True):
    """All segments of a compaction, in the order of their offsets."""

    compaction: str
    segments: list[str]


def _compaction_out(found: ExternalCompaction) -> CompactionOut:
    item = found.item
    return CompactionOut(
        found.compaction_id,
        found.topic,
        item.topic_id,
        found.job.bucket_id.hex(),
        item.base_offset,
        item.last_offset,
        found.log_start_offset,
        item.tombstones_until_us,
        item.tombstones_below,
        found.size_bytes,
        found.dirty_bytes,
        found.job.segment_bytes,
        found.state,
        found.reason,
    )


def _md5(text: str) -> bytes:
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError("md5 is base64.") from error
    if len(digest) != _MD5_BYTES:
        raise BadRequestError(f"md5 must be {_MD5_BYTES} bytes, in base64.")
    return digest


def _may_store(ctx: RequestContext) -> None:
    """Raises ForbiddenError, CompactionRefusedError."""
    ctx.broker.authorize(ctx.call.key, "manage", ctx.topic)
    if ctx.call.key.quotas.bytes_in_per_second is not None:
        raise CompactionRefusedError(
            "This API key has a quota on bytes in, which cannot be enforced on uploads to the "
            "bucket. Use an API key without that quota."
        )


_ID: Final = "9f86d081884c7d65"
_COMPACTION: Final = {
    "compaction": _ID,
    "topic": "customers",
    "topic_id": 3,
    "bucket_id": "5f1d6c0be3a2479b8d1e2f3a4b5c6d7e",
    "base_offset": 0,
    "last_offset": 655359,
    "log_start_offset": 0,
    "tombstones_until_us": 1795258800000000,
    "tombstones_below": 491520,
    "size_bytes": 67108864,
    "dirty_bytes": 50331648,
    "segment_bytes": 67108864,
    "state": "open",
    "reason": "",
}
_REPLY: Final = {"application/json": Content(struct=CompactionOut, example=_COMPACTION)}


@route(
    "POST",
    "/v1/topics/{topic}/compactions",
    "beginCompaction",
    tag="Topics",
    summary="Begin an external compaction of a topic, for example on a cluster",
    description="The answer says what to compact: all segments except those that are too young "
    "by the topic's settings. The tidier does not touch these segments as long as the client "
    "gets the compaction at least once an hour. The topic does not change until all segments "
    "are handed over.",
    replies={201: Reply(description="What is to be compacted", content=_REPLY)},
    errors=(TopicNotFoundError, CompactionRefusedError, StoreUnavailableError),
    grant=_may_store,
)
async def begin_compaction(ctx: RequestContext) -> object:
    begun = await ctx.broker.tidying.external.begin(ctx.topic, ctx.call.owner)
    return _compaction_out(begun)


@route(
    "GET",
    "/v1/topics/{topic}/compactions/{compaction}",
    "getCompaction",
    tag="Topics",
    summary="Show the state of an external compaction",
    replies={200: Reply(description="The compaction", content=_REPLY)},
    errors=(CompactionNotFoundError,),
    grant="manage",
)
async def get_compaction(ctx: RequestContext) -> object:
    return _compaction_out(ctx.broker.tidying.external.get(ctx.topic, ctx.path["compaction"]))


@route(
    "DELETE",
    "/v1/topics/{topic}/compactions/{compaction}",
    "giveUpCompaction",
    tag="Topics",
    summary="Cancel an external compaction",
    description="The tidier may compact the topic again. Segments that were already handed over "
    "may still be applied.",
    replies=no_content("Given up"),
    errors=(CompactionNotFoundError,),
    grant="manage",
)
async def give_up_compaction(ctx: RequestContext) -> None:
    ctx.broker.tidying.external.give_up(
        ctx.broker.tidying.external.get(ctx.topic, ctx.path["compaction"])
    )


@route(
    "POST",
    "/v1/topics/{topic}/compactions/{compaction}/segments",
    "nameSegment",
    tag="Topics",
    summary="Get a name and a signed URL to upload a segment",
    description="The URL accepts only these bytes, for one hour. A segment that is not handed "
    "over is removed later.",
    body=json_body(
        NewSegmentIn,
        {
            "base_offset": 0,
            "last_offset": 655359,
            "size_bytes": 20971520,
            "md5": "1B2M2Y8AsgTpgAmY7PhCfg==",
        },
    ),
    replies=json_reply(
        UploadOut,
        {
            "segment": "c3ab8ff13720e8ad",
            "url": "https://bucket.example/seb/_seb/segments/3/…?X-Amz-Signature=…",
            "headers": {"Content-Length": "20971520", "Content-MD5": "1B2M2Y8As…"},
        },
        "Where to store it",
        status=201,
    ),
    errors=(CompactionNotFoundError, CompactionRefusedError, StoreUnavailableError),
    grant=_may_store,
)
async def name_segment(ctx: RequestContext) -> object:
    asked: NewSegmentIn = ctx.body
    if not 0 < asked.size_bytes <= limits.HANDED_OVER_SEGMENT_BYTES_MAX:
        most = limits.HANDED_OVER_SEGMENT_BYTES_MAX
        raise BadRequestError(f"A segment has at most {most} bytes.")
    name, upload = await ctx.broker.tidying.external.upload(
        ctx.broker.tidying.external.get(ctx.topic, ctx.path["compaction"]),
        asked.base_offset,
        asked.last_offset,
        asked.size_bytes,
        _md5(asked.md5),
    )
    return UploadOut(name, upload.url, upload.headers)


@route(
    "POST",
    "/v1/topics/{topic}/segments",
    "handOverSegments",
    tag="Topics",
    summary="Hand over all segments of a compaction",
    description="The tidier compares the segments, record for record, with the correct result "
    "of the compaction, and applies them if they agree. Get the compaction until its state is "
    "`in_force` or `refused`. It is `refused` if the topic was changed in the meantime or the "
    "segments are wrong; then nothing has changed.",
    body=json_body(HandOverIn, {"compaction": _ID, "segments": ["c3ab8ff13720e8ad"]}),
    replies={
        202: Reply(
            description="The segments are being checked, or were checked before", content=_REPLY
        )
    },
    errors=(CompactionNotFoundError, CompactionRefusedError),
    grant="manage",
)
async def hand_over(ctx: RequestContext) -> object:
    asked: HandOverIn = ctx.body
    found = ctx.broker.tidying.external.get(ctx.topic, asked.compaction)
    ctx.broker.tidying.external.hand_over(found, asked.segments)
    return _compaction_out(found)


ROUTES: Final = [begin_compaction, get_compaction, give_up_compaction, name_segment, hand_over]
