"""Where partitions begin and end, and which offset has a time."""

from __future__ import annotations

from functools import partial
from typing import Final

from seb_appliance.broker.append.retry_results import Producer
from seb_appliance.broker.values import From
from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka.answers import by_partition, by_partition_later
from seb_appliance.protocols.kafka.apis.producing import producer_id_of
from seb_appliance.protocols.kafka.errors import ErrorCode, code_of
from seb_appliance.protocols.kafka.partitions import topic_of
from seb_appliance.protocols.kafka.requests import Request, handles
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each

# "Times" of ListOffsets. The earliest that is on a local disk is the earliest.
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_STARTS: Final = {
    _LATEST: From(latest=True),
    _EARLIEST: From(earliest=True),
    _EARLIEST_LOCAL: From(earliest=True),
}


@handles(2)
async def list_offsets(server: Server, request: Request) -> Message:
    listed = partial(_listed, server, request)
    return {"topics": await by_partition_later(request.body["topics"], listed)}


async def _listed(server: Server, request: Request, name: str, asked: Message) -> Message:
    index, time_ms = asked["partition_index"], asked["timestamp"]
    return {"partition_index": index, **await _found(server, request, name, index, time_ms)}


async def _found(server: Server, request: Request, name: str, index: int, time_ms: int) -> Message:
    broker, topic = server.broker, topic_of(name, index)
    if not request.may("consume", name):
        return {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    try:
        if time_ms == _MAX_TIMESTAMP:
            place = await broker.newest_record(topic)
        elif time_ms in _STARTS:
            offset = (await broker.offset_at(topic, _STARTS[time_ms])).offset
            return {"offset": offset, "leader_epoch": 0}
        elif time_ms < 0:
            return {"error_code": ErrorCode.INVALID_TIMESTAMP}
        else:
            place = await broker.offset_at(topic, From(timestamp_us=time_ms * 1000))
    except SebError as error:
        return {"error_code": code_of(error)}
    if place.timestamp_us is None:  # no record is so young
        return {}
    return {"timestamp": place.timestamp_us // 1000, "offset": place.offset, "leader_epoch": 0}


@handles(23)
def offset_for_leader_epoch(server: Server, request: Request) -> Message:
    """There is one leader and one epoch, 0: its end is the end of the log."""

    end_of = partial(_end_of_epoch, server, request)
    return {"topics": by_partition(request.body["topics"], end_of, name="topic")}


def _end_of_epoch(server: Server, request: Request, name: str, asked: Message) -> Message:
    found: Message = {"partition": asked["partition"]}
    if not request.may("consume", name):
        return {**found, "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    try:
        view = server.broker.topics.get(topic_of(name, asked["partition"]))
    except SebError as error:
        return {**found, "error_code": code_of(error)}
    if asked["leader_epoch"] != 0:
        return found
    return {**found, "leader_epoch": 0, "end_offset": view.log_end_offset}


@handles(61)
def describe_producers(server: Server, request: Request) -> Message:
    """Producers that are remembered for a partition. Open transactions are not in the log."""

    producers = partial(_producers, server, request)
    topics = request.body["topics"]
    return {"topics": by_partition(topics, producers, by_index=True)}


def _producers(server: Server, request: Request, name: str, index: int) -> Message:
    if not request.may("consume", name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return {"partition_index": index, "error_code": code}
    try:
        found = server.broker.topics.producers(topic_of(name, index))
    except SebError as error:
        return {"partition_index": index, "error_code": code_of(error)}
    return {"partition_index": index, "active_producers": Each(found, _producer)}


def _producer(one: Producer) -> Message | None:
    """None: it is no producer of Kafka."""
    producer_id = producer_id_of(one.producer_id)
    if producer_id is None:
        return None
    return {
        "producer_id": producer_id,
        "producer_epoch": one.epoch,
        "last_sequence": one.next_seq - 1,
        "last_timestamp": one.used_us // 1000,
        "coordinator_epoch": 0,
    }
