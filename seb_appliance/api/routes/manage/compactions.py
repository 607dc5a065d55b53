"""`/v1/topics/{topic}/compactions`, and `POST …/segments`: what others compact, and hand over."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Answer, json_answer
from seb_appliance.api.encoding.json_bodies import read_json
from seb_appliance.api.encoding.parameters import refuse_unsupported
from seb_appliance.api.server.auth import AnyRequest, Call, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.upkeep.external_compactions import ExternalCompaction, State
from seb_appliance.errors import BadRequestError, CompactionRefusedError
from seb_appliance.formats.numbers import Whole

_MD5_BYTES: Final = 16


class CompactionOut(msgspec.Struct):
    """Of the offsets from base to last, both inclusive, the newest record of each record key is to
    stay, and what has none; nothing below `log_start_offset`. Where the newest is a tombstone that
    was created until `tombstones_until_us` and lies below the offset `tombstones_below` it may go,
    unless it is the last record of all.
    `state`: `open`, `checking`, `in_force` or `refused`; `reason`: why."""

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
    """A segment that is to be stored: the offsets that it answers for, both inclusive, its bytes,
    and their MD5 in base64."""

    base_offset: Whole
    last_offset: Whole
    size_bytes: Whole
    md5: str


class UploadOut(msgspec.Struct):
    """PUT the bytes to `url`, with these headers. `segment` names it when all are handed over."""

    segment: str
    url: str
    headers: dict[str, str]


class HandOverIn(msgspec.Struct, forbid_unknown_fields=True):
    """All segments of a compaction, in the order of their offsets."""

    compaction: str
    segments: list[str]


_segment_decoder: Final = msgspec.json.Decoder(NewSegmentIn)
_hand_over_decoder: Final = msgspec.json.Decoder(HandOverIn)


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
        raise BadRequestError(f"md5 is {_MD5_BYTES} bytes, in base64.")
    return digest


def _entered(request: AnyRequest, broker: Broker) -> tuple[Call, str]:
    call = enter(request, broker)
    topic: str = request.scope["path_params"]["topic"]
    broker.authorize(call.key, "manage", topic)
    return call, topic


def _check_quotas(call: Call) -> None:
    """Raises CompactionRefusedError."""
    if call.key.quotas.bytes_in_per_second is not None:
        raise CompactionRefusedError(
            "This API key has a quota on bytes in, and nobody could count what it stores in the "
            "bucket itself."
        )


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @post("/v1/topics/{topic:str}/compactions")
    async def begin_compaction(request: AnyRequest) -> ASGIApp:
        call, topic = _entered(request, broker)
        refuse_unsupported(call.headers)
        _check_quotas(call)
        begun = await broker.tidying.external.begin(topic, call.owner)
        return json_answer(201, _compaction_out(begun))

    @get("/v1/topics/{topic:str}/compactions/{compaction:str}")
    async def get_compaction(request: AnyRequest) -> ASGIApp:
        _, topic = _entered(request, broker)
        compaction: str = request.scope["path_params"]["compaction"]
        return json_answer(200, _compaction_out(broker.tidying.external.get(topic, compaction)))

    @delete("/v1/topics/{topic:str}/compactions/{compaction:str}", status_code=200)
    async def give_up_compaction(request: AnyRequest) -> ASGIApp:
        call, topic = _entered(request, broker)
        refuse_unsupported(call.headers)
        compaction: str = request.scope["path_params"]["compaction"]
        broker.tidying.external.give_up(broker.tidying.external.get(topic, compaction))
        return Answer(204, [])

    @post("/v1/topics/{topic:str}/compactions/{compaction:str}/segments")
    async def name_segment(request: AnyRequest) -> ASGIApp:
        call, topic = _entered(request, broker)
        compaction: str = request.scope["path_params"]["compaction"]
        _check_quotas(call)
        asked = await read_json(request, call, broker, _segment_decoder)
        if not 0 < asked.size_bytes <= limits.HANDED_OVER_SEGMENT_BYTES_MAX:
            most = limits.HANDED_OVER_SEGMENT_BYTES_MAX
            raise BadRequestError(f"A segment has at most {most} bytes.")
        name, upload = await broker.tidying.external.upload(
            broker.tidying.external.get(topic, compaction),
            asked.base_offset,
            asked.last_offset,
            asked.size_bytes,
            _md5(asked.md5),
        )
        return json_answer(201, UploadOut(name, upload.url, upload.headers))

    @post("/v1/topics/{topic:str}/segments")
    async def hand_over(request: AnyRequest) -> ASGIApp:
        call, topic = _entered(request, broker)
        asked = await read_json(request, call, broker, _hand_over_decoder)
        found = broker.tidying.external.get(topic, asked.compaction)
        broker.tidying.external.hand_over(found, asked.segments)
        return json_answer(202, _compaction_out(found))

    return [begin_compaction, get_compaction, give_up_compaction, name_segment, hand_over]
