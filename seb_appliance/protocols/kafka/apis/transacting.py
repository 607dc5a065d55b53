"""Idempotent and transactional producers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.apis.committing import (
    answer_of,
    asked_of,
    check,
    commit_of,
    may_commit,
)
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError, code_of
from seb_appliance.protocols.kafka.groups.names import group_of
from seb_appliance.protocols.kafka.partitions import topic_of
from seb_appliance.protocols.kafka.requests import Outcome, Request, handles
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")
_NOBODY: Final = {"producer_id": -1, "producer_epoch": -1}


def _code(error: SebError | KafkaError, request: Request) -> ErrorCode:
    """PRODUCER_FENCED is not known to clients of old versions, and in TxnOffsetCommit to none.
    COORDINATOR_NOT_AVAILABLE is what all of them take for a reason to ask again."""
    code = error.code if isinstance(error, KafkaError) else code_of(error)
    if code is ErrorCode.REQUEST_TIMED_OUT:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    first = {22: 4, 24: 2, 25: 2, 26: 2}.get(request.api.key)
    if code is ErrorCode.PRODUCER_FENCED and (first is None or request.version < first):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode(code)


def _identity(body: Message) -> tuple[int, int]:
    return body["producer_id"], body["producer_epoch"]


@handles(22)
def init_producer_id(server: Server, request: Request) -> Outcome:
    body = request.body
    transactional_id = body["transactional_id"]
    if not request.may("produce"):
        code = (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if transactional_id is None
            else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        return {"error_code": code, **_NOBODY}
    if transactional_id is None:
        return {"producer_id": server.new_producer_id(), "producer_epoch": 0}
    if not 0 < len(transactional_id) <= kafka_limits.TRANSACTIONAL_ID_CHARACTERS_MAX:
        return {"error_code": ErrorCode.INVALID_REQUEST, **_NOBODY}
    return _begun(server, request)


async def _begun(server: Server, request: Request) -> Message:
    """An answer means: the bucket knows who has the transactional id."""
    body = request.body
    try:
        producer_id, epoch = await server.transactions.begin(
            request.caller.key,
            body["transactional_id"],
            body["transaction_timeout_ms"],
            _identity(body),
        )
    except (SebError, KafkaError) as error:
        return {"error_code": _code(error, request), **_NOBODY}
    return {"producer_id": producer_id, "producer_epoch": epoch}


@handles(24)
def add_partitions_to_txn(server: Server, request: Request) -> Message:
    body = request.body
    if sum(len(topic["partitions"]) for topic in body["topics"]) > limits.TRANSACTION_TOPICS_MAX:
        return _by_partition(body, {})
    codes = dict[tuple[str, int], ErrorCode]()
    for topic in body["topics"]:
        may = request.may("produce", topic["name"])
        for index in topic["partitions"]:
            code = ErrorCode.NONE if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if may and not server.broker.topics.exists(topic_of(topic["name"], index)):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            codes[topic["name"], index] = code
    if any(codes.values()):
        others = {at: code or ErrorCode.OPERATION_NOT_ATTEMPTED for at, code in codes.items()}
        return _by_partition(body, others)
    try:
        server.transactions.add_partitions(
            request.caller.key,
            body["transactional_id"],
            _identity(body),
            {topic_of(*at) for at in codes},
        )
    except (SebError, KafkaError) as error:
        codes = dict.fromkeys(codes, _code(error, request))
    return _by_partition(body, codes)


def _by_partition(body: Message, codes: Mapping[tuple[str, int], ErrorCode]) -> Message:
    """`codes`: INVALID_REQUEST for those that are not named."""

    def of_topic(topic: Message) -> Message:
        def of_partition(index: int) -> Message:
            code = codes.get((topic["name"], index), ErrorCode.INVALID_REQUEST)
            return {"partition_index": index, "partition_error_code": code}

        partitions = Each(topic["partitions"], of_partition)
        return {"name": topic["name"], "results_by_partition": partitions}

    return {"results_by_topic": Each(body["topics"], of_topic)}


@handles(25)
def add_offsets_to_txn(server: Server, request: Request) -> Message:
    body = request.body
    if not request.may("consume", group=group_of(body["group_id"])):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    try:
        server.transactions.add_partitions(
            request.caller.key, body["transactional_id"], _identity(body), set()
        )
    except (SebError, KafkaError) as error:
        return {"error_code": _code(error, request)}
    return {}


@handles(28)
async def txn_offset_commit(server: Server, request: Request) -> Message:
    """The offsets are checked when the transaction ends."""
    body = request.body
    group = group_of(body["group_id"])
    code = server.coordinator.check_commit(
        group,
        body["generation_id"],
        body["member_id"],
        body["group_instance_id"],
        is_transactional=True,
    )
    asked = asked_of(body)
    code = code or await may_commit(server, request, group, asked)
    refused = dict.fromkeys(asked, code) if code else check(server, asked)
    if not refused:
        try:
            server.transactions.commit_offsets(
                request.caller.key,
                body["transactional_id"],
                _identity(body),
                commit_of(group, asked),
            )
        except (SebError, KafkaError) as error:
            refused = dict.fromkeys(asked, _code(error, request))
    return answer_of(body, refused)


@handles(26)
async def end_txn(server: Server, request: Request) -> Message:
    """An answer means: the bucket has the whole transaction, or nothing of it."""
    body = request.body
    try:
        await server.transactions.end(
            request.caller.key,
            body["transactional_id"],
            _identity(body),
            commits=body["committed"],
            address=request.caller.address,
        )
    except (SebError, KafkaError) as error:
        code = _code(error, request)
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            code = _of_a_lost_one(request.caller.software)
        return {"error_code": code}
    return {}


def _of_a_lost_one(software: str) -> ErrorCode:
    """What the client aborts, and what Flink, which commits by the Java client long after it has
    flushed, does not take for a transaction that is stored: it logs UNKNOWN_PRODUCER_ID and goes
    on. Java knows TRANSACTION_ABORTABLE since 3.8."""
    name, _, version = software.partition(" ")
    if name != "apache-kafka-java":
        return ErrorCode.UNKNOWN_PRODUCER_ID
    found = _VERSION.match(version)
    is_new = found is not None and (int(found[1]), int(found[2])) >= (3, 8)
    return ErrorCode.TRANSACTION_ABORTABLE if is_new else ErrorCode.INVALID_PRODUCER_ID_MAPPING
