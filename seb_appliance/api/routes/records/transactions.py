"""`POST /v1/transactions`: records to several topics and a group's offsets, whole or not at all."""

from __future__ import annotations

from typing import Final

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import Answer, Headers, json_answer
from seb_appliance.api.encoding.conditions import IDEMPOTENCY_KEY, idempotency_key, stamp
from seb_appliance.api.encoding.json_bodies import check_json_type
from seb_appliance.api.encoding.parameters import refuse_unsupported
from seb_appliance.api.encoding.record_bodies import refuse_record_headers
from seb_appliance.api.encoding.times import format_time
from seb_appliance.api.encoding.trace_context import keep_traceparent
from seb_appliance.api.encoding.transaction_bodies import parse_transaction
from seb_appliance.api.routes.groups.rights import authorize_commit
from seb_appliance.api.routes.records.produce import REPLAYED, timeout_ms
from seb_appliance.api.server.auth import AnyRequest, Call, enter, look_again
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.append.appends import Transacted, Transaction
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.topics.names import check_group_name, check_topic_name
from seb_appliance.broker.values import NewRecords

_UNDERSTOOD: Final = frozenset({IDEMPOTENCY_KEY})


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
    """What was stored, by topic; `committed` is null when nothing was asked to be."""

    produced: dict[str, ProducedInTopic]
    committed: CommittedOut | None


def routes(broker: Broker, options: ApiOptions) -> list[HTTPRouteHandler]:
    @post("/v1/transactions")
    async def transact(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        _authorize_any(broker, call)
        refuse_unsupported(call.headers, _UNDERSTOOD)
        refuse_record_headers(call.headers)
        key, deadline_ms = idempotency_key(call), timeout_ms(call.headers)
        body, reservation = await read_body(
            request.receive, call.headers, call.owner, broker.pending, options.max_request_bytes
        )
        options.failpoints.reach("K1")
        try:
            check_json_type(body, call.headers)
            asked = await options.parser.parse(call.key.api_key_id, parse_transaction, body)
            await _authorize(broker, call, asked)
            request_stamp = await stamp(key, call, request.scope["path"], body)
            look_again(request.scope)
        except BaseException:
            reservation.release()
            raise
        for records in asked.produce.values():
            if isinstance(records, NewRecords):
                keep_traceparent(records, call.headers)
        transaction = Transaction(asked.produce, asked.commit, request_stamp)
        done = await broker.appends.transact(
            call.key, transaction, reservation, deadline_ms, address=call.address
        )
        return _answer(done, transaction)

    return [transact]


def _authorize_any(broker: Broker, call: Call) -> None:
    """The topics stand in the body; nothing of it is read for a key that may neither produce nor
    commit anything. Raises ForbiddenError."""
    if not broker.may(call.key, "consume"):
        broker.authorize(call.key, "produce")


async def _authorize(broker: Broker, call: Call, asked: Transaction) -> None:
    """All that the transaction needs, or ForbiddenError."""
    for topic in asked.produce:
        broker.authorize(call.key, "produce", check_topic_name(topic))
    if asked.commit is not None:
        topics = [check_topic_name(topic) for topic in asked.commit.offsets]
        await authorize_commit(broker, call.key, check_group_name(asked.commit.group), topics)


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
