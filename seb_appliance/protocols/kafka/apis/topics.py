"""Topics and their partitions: create, delete, add partitions, delete records."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.server.auth import authorize_to_delete
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import SebError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.protocols.kafka.answers import by_partition_later, one_by_one
from seb_appliance.protocols.kafka.apis.cluster import may_see, name_of, uuid_of
from seb_appliance.protocols.kafka.configs import (
    BadConfigError,
    changes_of,
    configs_of,
    described,
)
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError, code_of
from seb_appliance.protocols.kafka.partitions import count_of, partition_of, topic_of
from seb_appliance.protocols.kafka.requests import Request, handles
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each
from seb_appliance.protocols.kafka.wire.types import NO_UUID

_DEFAULT: Final = -1  # number of partitions, replication factor
_LOG_END: Final = -1  # an offset of DeleteRecords


# --- create ---


@handles(19)
async def create_topics(server: Server, request: Request) -> Message:
    """Any replication factor is taken: the bucket replicates."""
    times = Counter(one["name"] for one in request.body["topics"])

    async def create(asked: Message) -> Message:
        if times[asked["name"]] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice.")
        return await _create(server, request, asked)

    return {"topics": await one_by_one(request.body["topics"], ("name",), create)}


async def _create(server: Server, request: Request, asked: Message) -> Message:
    """Raises SebError, KafkaError."""
    topics, name = server.broker.topics, check_topic_name(asked["name"])
    request.check_manages(name)
    if topics.exists(name):
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {name!r} exists.")
    count = len(asked["assignments"]) or asked["num_partitions"]
    count = server.partitions if count == _DEFAULT else count
    _check_count(name, count)
    if topics.exists(left := topic_of(name, count)):
        text = f"Delete {left!r} first, which would be a partition of it."
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, text)
    configs = {one["name"]: one["value"] for one in asked["configs"]}
    settings = msgspec.structs.replace(TopicSettings(), **changes_of(configs))
    effective = _effective(server, settings)
    if not request.body["validate_only"]:
        await _make(server, request, name, range(count), settings)
    return {
        "error_message": None,
        "topic_id": NO_UUID if request.body["validate_only"] else uuid_of(server, name),
        "num_partitions": count,
        "replication_factor": 1,
        "configs": Each(configs_of(settings, effective), described),
    }


async def _make(
    server: Server, request: Request, name: str, partitions: range, settings: TopicSettings
) -> None:
    for partition in reversed(partitions):  # the first one last: then all of them count
        await server.broker.topics.create(topic_of(name, partition), settings, request.actor)


def _effective(server: Server, settings: TopicSettings) -> TopicSettings:
    """Raises BadConfigError for a value out of its range."""
    try:
        return server.broker.topics.effective(settings)
    except SebError as error:
        raise BadConfigError(error.detail) from error


def _check_count(name: str, count: int) -> None:
    if partition_of(name)[1]:
        text = f"{name!r} is the name of a partition."
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    if not 0 < count <= limits.KAFKA_PARTITIONS_MAX:
        text = f"A topic has 1 to {limits.KAFKA_PARTITIONS_MAX} partitions, not {count}."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    check_topic_name(topic_of(name, count - 1))


@handles(37)
async def create_partitions(server: Server, request: Request) -> Message:
    add = partial(_add, server, request)
    return {"results": await one_by_one(request.body["topics"], ("name",), add)}


async def _add(server: Server, request: Request, asked: Message) -> Message:
    """Raises SebError, KafkaError."""
    name, wanted = asked["name"], asked["count"]
    request.check_manages(name)
    settings = server.broker.topics.get(name).settings
    count = count_of(server.broker.topics, name)
    if wanted <= count:
        text = f"The topic has {count} partitions already."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    _check_count(name, wanted)
    if not request.body["validate_only"]:
        await _make(server, request, name, range(count, wanted), settings)
    return {}


# --- delete ---


@handles(20)
async def delete_topics(server: Server, request: Request) -> Message:
    body = request.body
    asked = body["topics"] or [{"name": name, "topic_id": NO_UUID} for name in body["topic_names"]]
    named = (
        one if one["name"] is not None else {**one, "name": name_of(server, one["topic_id"])}
        for one in asked
    )
    delete = partial(_delete, server, request)
    return {"responses": await one_by_one(named, ("name", "topic_id"), delete)}


async def _delete(server: Server, request: Request, asked: Message) -> Message:
    """Raises SebError."""
    broker, name = server.broker, asked["name"]
    if name is None or (asked["topic_id"] != NO_UUID and not may_see(request, name)):
        return {"name": None, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}
    authorize_to_delete(broker, request.caller.key, name)
    broker.topics.get(name)
    names = [topic_of(name, partition) for partition in range(count_of(broker.topics, name))]
    await broker.topics.delete_together(names, request.actor)
    return {}


@handles(21)
async def delete_records(server: Server, request: Request) -> Message:
    trimmed = partial(_trimmed, server, request)
    return {"topics": await by_partition_later(request.body["topics"], trimmed)}


async def _trimmed(server: Server, request: Request, name: str, asked: Message) -> Message:
    index = asked["partition_index"]
    done = await _trim(server, request, name, topic_of(name, index), asked["offset"])
    return {"partition_index": index, **done}


async def _trim(server: Server, request: Request, name: str, topic: str, before: int) -> Message:
    topics = server.broker.topics
    if not request.may("manage", name):
        return {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    try:
        if before == _LOG_END:
            before = topics.get(topic).log_end_offset
        if before < 0:
            return {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
        view = await topics.trim(topic, before, request.actor)
    except SebError as error:
        return {"error_code": code_of(error)}
    return {"low_watermark": view.log_start_offset}
