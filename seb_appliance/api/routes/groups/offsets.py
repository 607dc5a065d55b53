"""`PUT /v1/groups/{group}/offsets`: what a group has read, durably."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import JSON, Answer, json_line
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.openapi.shared import (
    REMOVAL_ERRORS,
    WRITE_ERRORS,
)
from seb_appliance.api.routes.groups.groups import authorize_commit, authorize_group
from seb_appliance.api.routes.route import (
    RequestContext,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.api.server.auth import look_again
from seb_appliance.api.server.bodies import check_json_type, decode_json, read_body
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import (
    BadParameterError,
    CommitBackwardError,
    CommitBeyondEndError,
    LeaseHeldError,
    OffsetConflictError,
    StaleGenerationError,
    TopicNotFoundError,
)
from seb_appliance.formats.numbers import Whole
from seb_appliance.formats.operations import CommittedOffset

Metadata = Annotated[str, msgspec.Meta(max_length=limits.COMMIT_METADATA_CHARACTERS_MAX)]
Generation = Annotated[int, msgspec.Meta(ge=1, le=limits.OFFSET_MAX)]
_NO_MORE: Final = msgspec.Meta(max_length=limits.OFFSETS_PER_COMMIT_MAX)


class NewOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """`offsets`: the next offset to read, by topic. The other members may name only these topics.
    `expected`: the offset that must be committed now, null for none. `topic_ids`: the id that the
    topic must have. `generation`: that of the lease which the caller holds."""

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


# `/v1/groups/{group}/lease`: one consumer at a time, for those who need that.
Holder = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX)]
Ttl = Annotated[int, msgspec.Meta(ge=limits.LEASE_TTL_MS_MIN, le=limits.LEASE_TTL_MS_MAX)]


class NewLease(msgspec.Struct, forbid_unknown_fields=True):
    """`holder`: name of the caller. The same holder renews the lease; other holders are refused
    until it expires."""

    holder: Holder
    ttl_ms: Ttl


class LeaseTakenOut(msgspec.Struct):
    """Send `generation` with each commit. Renew the lease well before `expires_in_ms` has
    passed."""

    group: str
    generation: int
    holder: str
    ttl_ms: int
    expires_in_ms: int


_LEASE: Final = {
    "generation": 1207,
    "holder": "worker-1",
    "ttl_ms": 30_000,
    "expires_in_ms": 29_412,
}


@route(
    "PUT",
    "/v1/groups/{group}/offsets",
    "commitOffsets",
    tag="Groups",
    summary="Commit the group's offsets on one or several topics, all or none",
    description="An offset is the next one to read. The group's offsets on other topics do not "
    "change. An offset moves back only with `allow_backward`. `expected` makes the commit a "
    "compare-and-set. While a lease is held, the commit must have its `generation`.",
    body=json_body(
        NewOffsets,
        {
            "offsets": {"orders.eu": 1044},
            "metadata": {"orders.eu": "file 17"},
            "expected": {"orders.eu": 1000},
            "topic_ids": {"orders.eu": 3},
            "generation": 1207,
        },
    ),
    replies=json_reply(
        OffsetsOut,
        {
            "group": "lake.orders",
            "offsets": {"orders.eu": 1044},
            "topic_ids": {"orders.eu": 3},
        },
        "Committed: the bucket has it",
    ),
    errors=(
        *WRITE_ERRORS,
        TopicNotFoundError,
        CommitBeyondEndError,
        CommitBackwardError,
        OffsetConflictError,
        StaleGenerationError,
    ),
    grant="consume",
    decodes=False,
)
async def commit_offsets(ctx: RequestContext) -> object:
    body, reservation = await read_body(
        ctx.request.receive,
        ctx.call.headers,
        ctx.call.owner,
        ctx.broker.pending,
        limits.COMMIT_BYTES_MAX,
    )
    try:
        check_json_type(body, ctx.call.headers)
        asked = await ctx.options.parser.parse(ctx.call.owner, parse_offsets, body)
        commit = commit_of(ctx.group, asked)
        await authorize_commit(ctx.broker, ctx.call.key, ctx.group, commit.offsets)
        look_again(ctx.request.scope)
    except BaseException:
        reservation.release()
        raise
    stored = await ctx.broker.groups.commit(commit, reservation, ctx.call.actor)
    return Answer(200, [(b"content-type", JSON)], committed_body(commit, stored))


@route(
    "POST",
    "/v1/groups/{group}/lease",
    "takeLease",
    tag="Groups",
    summary="Take the group's lease, or renew it: only its holder may commit",
    description="A renewal keeps the generation, unless it requests a longer time than was "
    "granted. Therefore send the generation of the newest answer. After a restart of the "
    "appliance the lease has its full time again.",
    body=json_body(NewLease, {"holder": "worker-1", "ttl_ms": 30_000}),
    replies=json_reply(LeaseTakenOut, {"group": "lake.orders", **_LEASE}, "The lease is yours"),
    errors=(*WRITE_ERRORS, LeaseHeldError),
    grant="consume",
)
async def take_lease(ctx: RequestContext) -> object:
    asked: NewLease = ctx.body
    await authorize_group(ctx.broker, ctx.call.key, "consume", ctx.group)
    ctx.broker.look_for_newer_writer()  # a renewal writes nothing
    lease = await ctx.broker.groups.take_lease(
        ctx.group, asked.holder, asked.ttl_ms, ctx.call.actor
    )
    return LeaseTakenOut(
        ctx.group, lease.generation, lease.holder, lease.ttl_ms, lease.expires_in_ms
    )


@route(
    "DELETE",
    "/v1/groups/{group}/lease",
    "releaseLease",
    tag="Groups",
    summary="Give the lease back",
    parameters=[
        query(
            "generation",
            "The generation that taking the lease returned; required.",
            1207,
            type="integer",
            minimum=1,
            maximum=limits.OFFSET_MAX,
        ),
    ],
    replies=no_content("Given back"),
    errors=(*REMOVAL_ERRORS, StaleGenerationError),
    grant="consume",
)
async def release_lease(ctx: RequestContext) -> None:
    await authorize_group(ctx.broker, ctx.call.key, "consume", ctx.group)
    given = ctx.call.query.get("generation")
    if given is None:
        raise BadParameterError("Name the lease: ?generation= the generation that PUT returned.")
    generation = parameters.integer(given, "generation", smallest=1, largest=limits.OFFSET_MAX)
    await ctx.broker.groups.release_lease(ctx.group, generation, ctx.call.owner)


ROUTES: Final = [commit_offsets, take_lease, release_lease]
