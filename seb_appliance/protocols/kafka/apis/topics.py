"""Topics and their partitions: create, delete, add partitions, delete records."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.server.auth import authorize_to_delete
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import SebError
from seb_appliance.formats.topic_settings import TopicSettings
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
from seb_appliance.protocols.kafka.wire.long_arrays import Each, by_partition_later
from seb_appliance.protocols.kafka.wire.types import NO_UUID
from seb_appliance.tasks import in_slices

_DEFAULT: Final = -1  # number of partitions, replication factor
_LOG_END: Final = -1  # an offset of DeleteRecords


def by(request: Request) -> Actor:
    """The API key of a request, for the audit."""
    return Actor.of_key(request.caller.key, request.caller.address)


def failed(error: SebError | KafkaError) -> Message:
    """Code and message of an error."""
    if isinstance(error, KafkaError):
        return {"error_code": error.code, "error_message": str(error)}
    return {"error_code": code_of(error), "error_message": error.detail}


# --- create ---


@handles(19)
async def create_topics(server: Server, request: Request) -> Message:
    """Any replication factor is taken: the bucket replicates."""
    answers = []
    times = Counter(one["name"] for one in request.body["topics"])
    async for one in in_slices(request.body["topics"]):
        try:
            _check_once(times[one["name"]])
            answer = await _create(server, request, one)
        except (SebError, KafkaError) as error:
            answer = failed(error)
        answers.append({"name": one["name"], **answer})
    return {"topics": Each(answers)}


async def _create(server: Server, request: Request, asked: Message) -> Message:
    """Raises SebError, KafkaError."""
    topics, name = server.broker.topics, check_topic_name(asked["name"])
    _check_manages(request, name)
    if topics.exists(name):
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {name!r} exists.")
    count = len(asked["assignments"]) or asked["num_partitions"]
    count = server.partitions if count == _DEFAULT else count
    _check_count(name, count)
    if topics.exists(left := topic_of(name, count)):
        text = f"Delete {left!r} first, which would be a partition of it."
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, text)
    try:
        configs = {one["name"]: one["value"] for one in asked["configs"]}
        settings = msgspec.structs.replace(TopicSettings(), **changes_of(configs))
    except BadConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
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
        await server.broker.topics.create(topic_of(name, partition), settings, by(request))


def _effective(server: Server, settings: TopicSettings) -> TopicSettings:
    """Raises KafkaError for a value out of its range."""
    try:
        return server.broker.topics.effective(settings)
    except SebError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.detail) from error


def _check_once(times: int) -> None:
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice.")


def _check_manages(request: Request, name: str) -> None:
    if not request.may("manage", name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise KafkaError(code, f"The API key has no grant to manage {name!r}.")


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
    answers = []
    async for one in in_slices(request.body["topics"]):
        try:
            await _add(server, request, one["name"], one["count"])
            answers.append({"name": one["name"]})
        except (SebError, KafkaError) as error:
            answers.append({"name": one["name"], **failed(error)})
    return {"results": Each(answers)}


async def _add(server: Server, request: Request, name: str, wanted: int) -> None:
    """Raises SebError, KafkaError."""
    _check_manages(request, name)
    settings = server.broker.topics.get(name).settings
    count = count_of(server.broker.topics, name)
    if wanted <= count:
        text = f"The topic has {count} partitions already."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    _check_count(name, wanted)
    if not request.body["validate_only"]:
        await _make(server, request, name, range(count, wanted), settings)


# --- delete ---


@handles(20)
async def delete_topics(server: Server, request: Request) -> Message:
    body = request.body
    asked = body["topics"] or [{"name": name, "topic_id": NO_UUID} for name in body["topic_names"]]
    answers = []
    async for one in in_slices(asked):
        name, uuid = one["name"], one["topic_id"]
        if name is None:
            name = name_of(server, uuid)
        if name is None or (uuid != NO_UUID and not may_see(request, name)):
            answers.append(
                {"name": None, "topic_id": uuid, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}
            )
            continue
        try:
            await _delete(server, request, name)
            answers.append({"name": name, "topic_id": uuid})
        except SebError as error:
            answers.append({"name": name, "topic_id": uuid, **failed(error)})
    return {"responses": Each(answers)}


async def _delete(server: Server, request: Request, name: str) -> None:
    broker = server.broker
    authorize_to_delete(broker, request.caller.key, name)
    broker.topics.get(name)
    names = [topic_of(name, partition) for partition in range(count_of(broker.topics, name))]
    await broker.topics.delete_together(names, by(request))


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
        view = await topics.trim(topic, before, by(request))
    except SebError as error:
        return {"error_code": code_of(error)}
    return {"low_watermark": view.log_start_offset}
