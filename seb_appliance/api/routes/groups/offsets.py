"""`PUT /v1/groups/{group}/offsets`: what a group has read, durably."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from litestar import delete, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import JSON, Answer, json_answer, json_line
from seb_appliance.api.encoding.json_bodies import check_json_type, decode_json, read_json
from seb_appliance.api.encoding.parameters import refuse_unsupported
from seb_appliance.api.routes.groups.rights import authorize_commit, authorize_group
from seb_appliance.api.server.auth import AnyRequest, enter, look_again
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadParameterError
from seb_appliance.formats.numbers import Whole
from seb_appliance.formats.operations import CommittedOffset

Metadata = Annotated[str, msgspec.Meta(max_length=limits.COMMIT_METADATA_CHARACTERS_MAX)]
Generation = Annotated[int, msgspec.Meta(ge=1, le=limits.OFFSET_MAX)]


_NO_MORE: Final = msgspec.Meta(max_length=limits.OFFSETS_PER_COMMIT_MAX)


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets by topic: the next one to read. The other members name topics of `offsets` only.
    `expected`: what must be committed now, null for nothing. `topic_ids`: which topic of that name
    it must be. `generation`: of the lease that the committer holds."""

    offsets: Annotated[
        dict[str, Whole], msgspec.Meta(min_length=1, max_length=limits.OFFSETS_PER_COMMIT_MAX)
    ]
    metadata: Annotated[dict[str, Metadata], _NO_MORE] = {}
    expected: Annotated[dict[str, Whole | None], _NO_MORE] = {}
    topic_ids: Annotated[dict[str, Whole], _NO_MORE] = {}
    generation: Generation | None = None
    allow_backward: bool = False


class OffsetsOut(msgspec.Struct):
    """What was committed, by topic."""

    group: str
    offsets: dict[str, int]
    topic_ids: dict[str, int]


_decoder: Final = msgspec.json.Decoder(NewOffsets)


def parse_offsets(body: bytes) -> NewOffsets:
    """Raises BadJsonError."""
    return decode_json(body, _decoder)


def commit_of(group: str, asked: NewOffsets) -> Commit:
    """What is to be committed. Raises BadNameError."""
    for topic in asked.offsets:
        check_topic_name(topic)
    return Commit(
        group,
        asked.offsets,
        asked.metadata,
        asked.expected,
        asked.topic_ids,
        asked.generation,
        asked.allow_backward,
    )


def committed_body(commit: Commit, stored: Sequence[CommittedOffset]) -> bytes:
    """`stored` in the order of the commit's offsets."""
    topic_ids = {topic: item.topic_id for topic, item in zip(commit.offsets, stored, strict=True)}
    return json_line(OffsetsOut(commit.group, dict(commit.offsets), topic_ids))


def routes(broker: Broker, options: ApiOptions) -> list[HTTPRouteHandler]:
    @put("/v1/groups/{group:str}/offsets")
    async def commit_offsets(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        group: str = request.scope["path_params"]["group"]
        broker.authorize(call.key, "consume", group=group)
        refuse_unsupported(call.headers)
        body, reservation = await read_body(
            request.receive, call.headers, call.owner, broker.pending, limits.COMMIT_BYTES_MAX
        )
        try:
            check_json_type(body, call.headers)
            asked = await options.parser.parse(call.owner, parse_offsets, body)
            commit = commit_of(group, asked)
            await authorize_commit(broker, call.key, group, commit.offsets)
            look_again(request.scope)
        except BaseException:
            reservation.release()
            raise
        stored = await broker.groups.commit(commit, reservation, call.actor)
        return Answer(200, [(b"content-type", JSON)], committed_body(commit, stored))

    return [commit_offsets]


# `/v1/groups/{group}/lease`: one consumer at a time, for those who need that.


RELEASE_QUERY: Final = frozenset({"generation"})
Holder = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX)]
Ttl = Annotated[int, msgspec.Meta(ge=limits.LEASE_TTL_MS_MIN, le=limits.LEASE_TTL_MS_MAX)]


class NewLease(msgspec.Struct, forbid_unknown_fields=True):
    """`holder` names who asks: the same one renews, any other is refused while it lives."""

    holder: Holder
    ttl_ms: Ttl


class LeaseTakenOut(msgspec.Struct):
    """Send `generation` with each commit. Renew well before `expires_in_ms` is over."""

    group: str
    generation: int
    holder: str
    ttl_ms: int
    expires_in_ms: int


_lease_decoder: Final = msgspec.json.Decoder(NewLease)


def lease_routes(broker: Broker) -> list[HTTPRouteHandler]:
    @post("/v1/groups/{group:str}/lease", status_code=200)
    async def take_lease(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        group: str = request.scope["path_params"]["group"]
        broker.authorize(call.key, "consume", group=group)
        asked = await read_json(request, call, broker, _lease_decoder)
        await authorize_group(broker, call.key, "consume", group)
        lease = await broker.groups.take_lease(group, asked.holder, asked.ttl_ms, call.actor)
        taken = LeaseTakenOut(
            group, lease.generation, lease.holder, lease.ttl_ms, lease.expires_in_ms
        )
        return json_answer(200, taken)

    @delete("/v1/groups/{group:str}/lease", status_code=200)  # the answer itself says 204
    async def release_lease(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker, RELEASE_QUERY)
        group: str = request.scope["path_params"]["group"]
        await authorize_group(broker, call.key, "consume", group)
        refuse_unsupported(call.headers)
        given = call.query.get("generation")
        if given is None:
            raise BadParameterError("Say which lease: ?generation= with what taking it answered.")
        generation = parameters.integer(given, "generation", smallest=1, largest=limits.OFFSET_MAX)
        await broker.groups.release_lease(group, generation, call.owner)
        return Answer(204, [])

    return [take_lease, release_lease]
