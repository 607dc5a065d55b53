"""`POST /v1/transactions`: records to several topics, a group's offsets and a queue's
acknowledgements, whole or not at all."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Answer, Headers, format_time, json_answer
from seb_appliance.api.encoding.conditions import idempotency_key, stamp
from seb_appliance.api.encoding.record_bodies import refuse_record_headers
from seb_appliance.api.encoding.record_json import (
    CountedRecord,
    Record,
    bad_json,
    decode_counted,
    to_columns,
)
from seb_appliance.api.encoding.trace_context import keep_traceparent
from seb_appliance.api.openapi.parameters import CONTENT_ENCODING, IDEMPOTENCY_KEY, TIMEOUT
from seb_appliance.api.openapi.shared import (
    DURABILITY_HEADER,
    NEW_RECORD,
    REPLAYED_HEADER,
    TIME,
    WRITE_ERRORS,
)
from seb_appliance.api.routes.groups.groups import authorize_commit
from seb_appliance.api.routes.groups.offsets import Generation, Metadata
from seb_appliance.api.routes.queues.queues import authorize_named
from seb_appliance.api.routes.records.produce import REPLAYED, timeout_ms
from seb_appliance.api.routes.route import (
    RequestContext,
    json_body,
    json_reply,
    route,
)
from seb_appliance.api.server.auth import look_again
from seb_appliance.api.server.bodies import check_json_type, read_body
from seb_appliance.broker.append.transactions import Transacted, Transaction
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.topics.names import check_group_name, check_topic_name
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    BadJsonError,
    CommitBackwardError,
    CommitBeyondEndError,
    IdempotencyMismatchError,
    LeaseEndedError,
    OffsetConflictError,
    QueueNotFoundError,
    RecordTooLargeError,
    RequestTooLargeError,
    StaleGenerationError,
    TopicNotFoundError,
)
from seb_appliance.formats.numbers import Whole


class NewCommit(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a commit, with the group. Every offset must move forward."""

    group: str
    offsets: Annotated[
        dict[str, Whole], msgspec.Meta(min_length=1, max_length=limits.OFFSETS_PER_COMMIT_MAX)
    ]
    metadata: dict[str, Metadata] = {}
    expected: dict[str, Whole | None] = {}
    topic_ids: dict[str, Whole] = {}
    generation: Generation | None = None


class NewAck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Deliveries of a queue. Each must be this worker's."""

    queue: str
    deliveries: Annotated[
        list[str], msgspec.Meta(min_length=1, max_length=limits.DELIVERIES_PER_REQUEST_MAX)
    ]


class NewTransaction(msgspec.Struct, forbid_unknown_fields=True):
    """Records by topic, the commit of a group, and acknowledgements of a queue. At least one of
    the three is required."""

    produce: Annotated[
        dict[str, list[Record]], msgspec.Meta(max_length=limits.TRANSACTION_TOPICS_MAX)
    ] = {}
    commit: NewCommit | None = None
    ack: NewAck | None = None


class _Read(msgspec.Struct, forbid_unknown_fields=True):
    """A transaction whose records are counted, and whose commit is measured before it is read."""

    produce: Annotated[
        dict[str, list[CountedRecord]], msgspec.Meta(max_length=limits.TRANSACTION_TOPICS_MAX)
    ] = {}
    commit: msgspec.Raw = msgspec.Raw(b"null")
    ack: NewAck | None = None


_decoder: Final = msgspec.json.Decoder(_Read)
_commit_decoder: Final = msgspec.json.Decoder(NewCommit | None)


def parse_transaction(body: bytes) -> tuple[Transaction, NewAck | None]:
    """Without its Idempotency-Key, and what it acknowledges. Raises BadJsonError,
    RequestTooLargeError, RecordTooLargeError."""
    read, count = decode_counted(body or b"{}", _decoder)
    if count != sum(map(len, read.produce.values())):
        raise BadJsonError("A topic is named twice in produce.")
    for topic, records in read.produce.items():
        if not records:
            raise BadJsonError(f"The list of records for {topic[:128]!r} is empty.")
    produce = {
        topic: to_columns(records, partial("$.produce[{!r}][{}]".format, topic[:128]))
        for topic, records in read.produce.items()
    }
    return Transaction(produce, _commit(read.commit)), read.ack


def _commit(sent: msgspec.Raw) -> Commit | None:
    if len(bytes(sent)) > limits.COMMIT_BYTES_MAX:
        raise RequestTooLargeError(
            f"A commit has at most {limits.COMMIT_BYTES_MAX} bytes, in a transaction too."
        )
    try:
        asked = _commit_decoder.decode(sent)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error, where="commit: ") from error
    if asked is None:
        return None
    return Commit(
        asked.group,
        asked.offsets,
        asked.metadata,
        asked.expected,
        asked.topic_ids,
        asked.generation,
    )


class ProducedInTopic(msgspec.Struct):
    """Offsets are `offset` to `last_offset`, both inclusive."""

    topic_id: int
    offset: int
    count: int
    last_offset: int
    timestamp: str


class CommittedOut(msgspec.Struct):
    group: str
    offsets: dict[str, int]


class TransactionOut(msgspec.Struct):
    """What was stored, by topic. `committed` is null if the request had no commit."""

    produced: dict[str, ProducedInTopic]
    committed: CommittedOut | None


def _authorize_any(ctx: RequestContext) -> None:
    """The topics stand in the body; nothing of it is read for a key that may neither produce nor
    commit anything. Raises ForbiddenError."""
    if not ctx.broker.may(ctx.call.key, "consume"):
        ctx.broker.authorize(ctx.call.key, "produce")


async def _authorize(ctx: RequestContext, asked: Transaction, ack: NewAck | None) -> None:
    """All that the transaction needs, or ForbiddenError."""
    broker, call = ctx.broker, ctx.call
    for topic in asked.produce:
        broker.authorize(call.key, "produce", check_topic_name(topic))
    if asked.commit is not None:
        topics = [check_topic_name(topic) for topic in asked.commit.offsets]
        await authorize_commit(broker, call.key, check_group_name(asked.commit.group), topics)
    if ack is not None:
        await authorize_named(ctx, "work", check_topic_name(ack.queue, "queue"))


def _answer(done: Transacted, transaction: Transaction) -> Answer:
    produced = {
        topic: ProducedInTopic(
            item.topic_id,
            item.offset,
            item.count,
            item.offset + item.count - 1,
            format_time(item.timestamp_us),
        )
        for topic, item in done.produced.items()
    }
    commit = transaction.commit
    committed = CommittedOut(commit.group, done.committed) if commit is not None else None
    headers: Headers = [(b"seb-durability", done.durability.encode())]
    if done.replayed:
        headers.append(REPLAYED)
    return json_answer(201, TransactionOut(produced, committed), headers)


@route(
    "POST",
    "/v1/transactions",
    "transact",
    tag="Records",
    summary="Append to several topics, commit and acknowledge, all or nothing",
    description="Everything is stored in one journal entry, or nothing is stored. Every offset "
    "of the commit must move forward, otherwise 409 `commit_backward`. Therefore a program that "
    "reads, processes and writes can send the same transaction again, and it takes effect once. "
    "The API key needs `produce` on each topic of `produce`, and `consume` on each topic of "
    "`commit` and on the group. `ack` needs `work` on the queue; if one of its deliveries is not "
    "this worker's any more, nothing is stored: 409 `lease_ended`.",
    parameters=[IDEMPOTENCY_KEY, TIMEOUT, CONTENT_ENCODING],
    body=json_body(
        NewTransaction,
        {
            "produce": {"invoices": [NEW_RECORD]},
            "commit": {
                "group": "billing",
                "offsets": {"orders.eu": 78},
                "expected": {"orders.eu": 77},
            },
        },
    ),
    replies=json_reply(
        TransactionOut,
        {
            "produced": {
                "invoices": {
                    "topic_id": 4,
                    "offset": 31,
                    "count": 1,
                    "last_offset": 31,
                    "timestamp": TIME,
                }
            },
            "committed": {"group": "billing", "offsets": {"orders.eu": 78}},
        },
        "Stored, all of it",
        status=201,
        headers={**DURABILITY_HEADER, **REPLAYED_HEADER},
    ),
    errors=(
        *WRITE_ERRORS,
        RecordTooLargeError,
        TopicNotFoundError,
        CommitBeyondEndError,
        CommitBackwardError,
        OffsetConflictError,
        StaleGenerationError,
        QueueNotFoundError,
        LeaseEndedError,
        IdempotencyMismatchError,
    ),
    grant=_authorize_any,
    decodes=False,
)
async def transact(ctx: RequestContext) -> object:
    call = ctx.call
    refuse_record_headers(call.headers)
    key, deadline_ms = idempotency_key(call), timeout_ms(call.headers)
    body, reservation = await read_body(
        ctx.request.receive,
        call.headers,
        call.owner,
        ctx.broker.pending,
        ctx.options.max_request_bytes,
    )
    ctx.options.failpoints.reach("K1")
    try:
        check_json_type(body, call.headers)
        asked, ack = await ctx.options.parser.parse(call.key.api_key_id, parse_transaction, body)
        await _authorize(ctx, asked, ack)
        request_stamp = await stamp(key, call, ctx.request.scope["path"], body)
        acknowledging = None
        if ack is not None:
            acknowledging = await ctx.broker.queues.acknowledging(ack.queue, ack.deliveries)
        look_again(ctx.request.scope)
    except BaseException:
        reservation.release()
        raise
    for records in asked.produce.values():
        if isinstance(records, NewRecords):
            keep_traceparent(records, call.headers)
    transaction = Transaction(asked.produce, asked.commit, request_stamp, acknowledging)
    done = await ctx.broker.appends.transact(
        call.key, transaction, reservation, deadline_ms, address=call.address
    )
    return _answer(done, transaction)


ROUTES: Final = [transact]
