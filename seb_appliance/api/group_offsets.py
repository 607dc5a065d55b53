"""`PUT /v1/groups/{group}/offsets`: what a group has read, durably."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar import put
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.answers import json_answer
from seb_appliance.api.auth import AnyRequest, enter
from seb_appliance.api.json_bodies import read_held_json
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.group_admission import Commit
from seb_appliance.broker.names import check_topic_name
from seb_appliance.formats.operations import Whole

Metadata = Annotated[str, msgspec.Meta(max_length=limits.COMMIT_METADATA_CHARACTERS_MAX)]
Generation = Annotated[int, msgspec.Meta(ge=1, le=limits.OFFSET_MAX)]


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets by topic: the next one to read. The other members name topics of `offsets` only.
    `expected`: what must be committed now, null for nothing. `topic_ids`: which topic of that name
    it must be. `generation`: of the lease that the committer holds."""

    offsets: Annotated[
        dict[str, Whole], msgspec.Meta(min_length=1, max_length=limits.OFFSETS_PER_COMMIT_MAX)
    ]
    metadata: dict[str, Metadata] = {}
    expected: dict[str, Whole | None] = {}
    topic_ids: dict[str, Whole] = {}
    generation: Generation | None = None
    allow_backward: bool = False


class OffsetsOut(msgspec.Struct):
    """What was committed, by topic."""

    group: str
    offsets: dict[str, int]
    topic_ids: dict[str, int]


_decoder: Final = msgspec.json.Decoder(NewOffsets)


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @put("/v1/groups/{group:str}/offsets")
    async def commit_offsets(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        group: str = request.scope["path_params"]["group"]
        broker.authorize(call.key, "consume", group=group)
        asked, reservation = await read_held_json(
            request, call, broker, _decoder, limits.COMMIT_BYTES_MAX
        )
        try:
            for topic in asked.offsets:
                broker.authorize(call.key, "consume", check_topic_name(topic), group)
        except BaseException:
            reservation.release()
            raise
        commit = Commit(
            group,
            asked.offsets,
            asked.metadata,
            asked.expected,
            asked.topic_ids,
            asked.generation,
            asked.allow_backward,
        )
        stored = await broker.groups.commit(commit, reservation)
        topic_ids = {
            topic: item.topic_id for topic, item in zip(asked.offsets, stored, strict=True)
        }
        return json_answer(200, OffsetsOut(group, asked.offsets, topic_ids))

    return [commit_offsets]
