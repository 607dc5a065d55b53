"""Committed offsets of groups: the same as by HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from seb_appliance import limits
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.groups.groups import Committed
from seb_appliance.broker.shares import Reservation
from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka.answers import by_partition
from seb_appliance.protocols.kafka.errors import ErrorCode, code_of
from seb_appliance.protocols.kafka.groups.grants import may_use
from seb_appliance.protocols.kafka.groups.names import group_of
from seb_appliance.protocols.kafka.partitions import partition_of, topic_of
from seb_appliance.protocols.kafka.requests import Request, handles
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each
from seb_appliance.tasks import in_slices

Asked = Mapping[str, tuple[str, Message]]  # by our topic: Kafka's name, and the partition


def asked_of(body: Message) -> Asked:
    return {
        topic_of(topic["name"], one["partition_index"]): (topic["name"], one)
        for topic in body["topics"]
        for one in topic["partitions"]
    }


async def may_commit(server: Server, request: Request, group: str, asked: Asked) -> ErrorCode:
    """A grant on each topic, and on one that the group stands on; NONE if there are."""
    if not request.may("consume", group=group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    async for name in in_slices({name for name, _ in asked.values()}):
        if not request.may("consume", name, group):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_its = server.broker.groups.stands_on_one_of(group, asked.keys())
    if not is_its and not await may_use(server, request, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def commit_of(group: str, asked: Asked) -> Commit:
    return Commit(
        group,
        {topic: one["committed_offset"] for topic, (_, one) in asked.items()},
        {topic: one["committed_metadata"] or "" for topic, (_, one) in asked.items()},
        allow_backward=True,
    )


def answer_of(body: Message, codes: Mapping[str, ErrorCode]) -> Message:
    """`codes`: by our topic; NONE for those that are not named."""

    def answered(name: str, one: Message) -> Message:
        index = one["partition_index"]
        code = codes.get(topic_of(name, index), ErrorCode.NONE)
        return {"partition_index": index, "error_code": code}

    return {"topics": by_partition(body["topics"], answered)}


@handles(8)
async def offset_commit(server: Server, request: Request) -> Message:
    body, broker = request.body, server.broker
    group, asked = group_of(body["group_id"]), asked_of(body)
    code = server.coordinator.check_commit(
        group, body["generation_id"], body["member_id"], body["group_instance_id"]
    ) or await may_commit(server, request, group, asked)
    if code:
        return answer_of(body, dict.fromkeys(asked, code))
    refused = check(server, asked)
    good = {topic: one for topic, one in asked.items() if topic not in refused}
    if good:
        held = Reservation(broker.pending, request.caller.key.api_key_id)
        try:
            patience_ms = server.coordinator.session_ms(group, body["member_id"])
            await broker.groups.commit(commit_of(group, good), held, request.actor, patience_ms)
        except SebError as error:
            refused |= dict.fromkeys(good, code_of(error, of_group=True))
    return answer_of(body, refused)


def check(server: Server, asked: Asked) -> dict[str, ErrorCode]:
    """What cannot be committed, by our topic."""
    refused = dict[str, ErrorCode]()
    for topic, (_, one) in asked.items():
        if not server.broker.topics.exists(topic):
            refused[topic] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif len(one["committed_metadata"] or "") > limits.COMMIT_METADATA_CHARACTERS_MAX:
            refused[topic] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        elif one["committed_offset"] < 0:
            refused[topic] = ErrorCode.OFFSET_OUT_OF_RANGE
    return refused


# --- read ---


@handles(9)
def offset_fetch(server: Server, request: Request) -> Message:
    body = request.body
    if request.version < 8:
        found = _fetched(server, request, group_of(body["group_id"]), body["topics"])
        if request.version < 2:
            found.pop("error_code", None)
        return found
    groups = {one["group_id"]: one["topics"] for one in body["groups"]}

    def fetched(group_id: str) -> Message:
        found = _fetched(server, request, group_of(group_id), groups[group_id])
        return {"group_id": group_id, **found}

    return {"groups": Each(groups, fetched)}


def _fetched(server: Server, request: Request, group: str, topics: Any) -> Message:
    """`topics` None: all."""
    if not request.may("consume", group=group):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED, "topics": []}
    committed = server.broker.groups.committed_of
    try:
        offsets = committed(group)
        if topics is None:
            topics = [
                one
                for one in _by_name((*partition_of(topic), one) for topic, one in offsets.items())
                if request.may("consume", one["name"], group)  # else its name would be told
            ]
    except SebError as error:
        return {"error_code": code_of(error, of_group=True), "topics": []}
    unstable = (
        server.transactions.topics_to_commit(group) if request.body["require_stable"] else set()
    )

    answered = partial(_offset, request, group, offsets, unstable)
    return {"topics": by_partition(topics, answered, by_index=True)}


def _by_name(found: Iterable[tuple[str, int, Committed]]) -> list[Message]:
    names = dict[str, list[int]]()
    for name, index, _ in found:
        names.setdefault(name, []).append(index)
    return [{"name": name, "partition_indexes": indexes} for name, indexes in names.items()]


def _offset(
    request: Request,
    group: str,
    offsets: Mapping[str, Committed],
    unstable: set[str],
    name: str,
    index: int,
) -> Message:
    none: Message = {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
    }
    topic = topic_of(name, index)
    if not request.may("consume", name, group):
        return {**none, "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    if topic in unstable:
        return {**none, "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT}
    found = offsets.get(topic)
    if found is None:
        return none
    known = {"committed_offset": found.offset, "metadata": found.metadata}
    return {**none, **known, "committed_leader_epoch": 0}


# --- delete ---


@handles(47)
async def offset_delete(server: Server, request: Request) -> Message:
    """Not of a topic that members of the group consume; here, of no topic while it has any."""
    body, broker = request.body, server.broker
    group, asked = group_of(body["group_id"]), asked_of(body)
    if not request.may("manage", group=group):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    described = server.coordinator.describe(group)
    if described is not None and described.members:
        return {"error_code": ErrorCode.NON_EMPTY_GROUP}
    refused = {
        topic: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        async for topic, (name, _) in in_slices(asked.items())
        if not request.may("manage", name, group)
    }
    good = [topic for topic in asked if topic not in refused]
    try:
        if good or not refused:
            await broker.groups.forget(group, good, request.actor)
    except SebError as error:
        return {"error_code": code_of(error, of_group=True)}
    return answer_of(body, refused)
