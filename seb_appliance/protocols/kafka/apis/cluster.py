"""What clients learn of the cluster, which is one broker, and of its topics."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import Final

from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import TopicView
from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka.errors import ErrorCode, code_of
from seb_appliance.protocols.kafka.groups.names import group_of
from seb_appliance.protocols.kafka.partitions import count_of, names_of, topic_of
from seb_appliance.protocols.kafka.requests import Outcome, Request, handles
from seb_appliance.protocols.kafka.server import NODE_ID, Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each
from seb_appliance.protocols.kafka.wire.types import NO_UUID
from seb_appliance.tasks import in_slices

_SEES: Final = ("consume", "produce", "manage")  # one of these grants shows a topic
_TOPIC_ID: Final = struct.Struct(">8sQ")
_TRANSACTION: Final = 1  # a type of coordinator keys


def may_see(request: Request, name: str) -> bool:
    return any(request.may(operation, name) for operation in _SEES)


# --- topic ids ---


def uuid_of(server: Server, name: str) -> bytes:
    """Of a topic that exists: another one for a topic that is created again."""
    return _uuid(server, server.broker.topics.get(name))


def _uuid(server: Server, topic: Topic | TopicView) -> bytes:
    """After a restore as of an earlier time, new topics get the ids of others, but not their
    times."""
    said = server.broker.bucket_id + topic.created_us.to_bytes(8, "big")
    return _TOPIC_ID.pack(blake2b(said, digest_size=8).digest(), topic.topic_id)


def name_of(server: Server, uuid: bytes) -> str | None:
    """None: there is no topic with this id."""
    topics = server.broker.topics
    name = topics.name_of(_TOPIC_ID.unpack(uuid)[1])
    found = topics.held([] if name is None else [name])  # each Fetch asks: a view takes longer
    return name if any(_uuid(server, topic) == uuid for topic in found) else None


# --- Metadata ---


@handles(3)
def metadata(server: Server, request: Request) -> Outcome:
    """Topics that are missing are created first, if the client and its grants allow it."""
    asked = request.body["topics"]
    if asked is None or (request.version == 0 and not asked):
        return _answer(server, Each(_names(server), partial(_seen, server, request)))
    makes = request.body["allow_auto_topic_creation"] or request.version < 4
    missing = [
        one["name"]
        for one in asked
        if makes and one["name"] and not server.broker.topics.exists(one["name"])
    ]
    if any(request.may("manage", name) for name in missing):
        return _made(server, request, missing)
    return _of_names(server, request, {})


def _names(server: Server) -> list[str]:
    return sorted(names_of(server.broker.topics.names()))


def _seen(server: Server, request: Request, name: str) -> Message | None:
    """None: the API key may not see it, or it was deleted meanwhile."""
    if not may_see(request, name) or not server.broker.topics.exists(name):
        return None
    return _described(server, name, count_of(server.broker.topics, name))


async def _made(server: Server, request: Request, missing: Iterable[str]) -> Message:
    refused = dict[str, ErrorCode]()
    async for name in in_slices(missing):
        if request.may("manage", name):
            try:
                await make(server, name, server.partitions, Actor.of_key(request.caller.key))
            except SebError as error:
                refused[name] = code_of(error)
    return _of_names(server, request, refused)


async def make(server: Server, name: str, count: int, by: Actor) -> None:
    """Create the topic if the appliance creates topics on first use. Raises SebError."""
    for partition in range(count):
        await server.broker.topics.make_on_first_use(topic_of(name, partition), by)


def _of_names(server: Server, request: Request, refused: dict[str, ErrorCode]) -> Message:
    asked = dict.fromkeys((one["name"], one["topic_id"]) for one in request.body["topics"])
    return _answer(server, Each(asked, partial(_topic, server, request, refused)))


def _topic(
    server: Server,
    request: Request,
    refused: dict[str, ErrorCode],
    asked: tuple[str | None, bytes],
) -> Message:
    name, uuid = asked
    if name is None or uuid != NO_UUID:
        name = name_of(server, uuid)
        if name is None or not may_see(request, name):
            no_name = None if request.version >= 12 else ""
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": no_name, "topic_id": uuid}
    if not may_see(request, name):
        return {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "name": name}
    count = count_of(server.broker.topics, name)
    if not count:
        code = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {"error_code": code, "name": name}
    return _described(server, name, count)


def _described(server: Server, name: str, count: int) -> Message:
    return {
        "name": name,
        "topic_id": uuid_of(server, name),
        "partitions": [
            {
                "partition_index": partition,
                "leader_id": NODE_ID,
                "leader_epoch": 0,
                "replica_nodes": (NODE_ID,),
                "isr_nodes": (NODE_ID,),
            }
            for partition in range(count)
        ],
    }


def _answer(server: Server, topics: Each) -> Message:
    host, port = server.advertised
    return {
        "brokers": [{"node_id": NODE_ID, "host": host, "port": port}],
        "cluster_id": server.cluster_id,
        "controller_id": NODE_ID,
        "topics": topics,
    }


# --- the one broker ---


@handles(60)
def describe_cluster(server: Server, _: Request) -> Message:
    host, port = server.advertised
    return {
        "cluster_id": server.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [{"broker_id": NODE_ID, "host": host, "port": port}],
    }


@handles(29)
def describe_acls(_: Server, __: Request) -> Message:
    """As a broker without an authorizer: MirrorMaker and others then go on without ACLs."""
    text = "There are no ACLs: grants belong to API keys."
    return {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": text}


@handles(10)
def find_coordinator(server: Server, request: Request) -> Message:
    body = request.body
    find = partial(_coordinator, server, request, body["key_type"])
    if request.version < 4:
        return find(body["key"])
    return {"coordinators": Each(dict.fromkeys(body["coordinator_keys"]), find)}


def _coordinator(server: Server, request: Request, key_type: int, key: str) -> Message:
    host, port = server.advertised
    there = {"key": key, "node_id": NODE_ID, "host": host, "port": port}
    nowhere: Message = {"key": key, "node_id": -1, "host": "", "port": -1}
    if key_type == _TRANSACTION:
        return there if request.may("produce") else {
            **nowhere, "error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        }  # fmt: skip
    if key_type or not request.may("consume", group=group_of(key)):
        code = ErrorCode.INVALID_REQUEST if key_type else ErrorCode.GROUP_AUTHORIZATION_FAILED
        return {**nowhere, "error_code": code}
    return there


@handles(35)
def describe_log_dirs(server: Server, request: Request) -> Message:
    """The bucket is the only one."""
    asked = request.body["topics"]
    names = _names(server) if asked is None else dict.fromkeys(one["topic"] for one in asked)
    topics = Each(names, partial(_log, server, request))
    return {"results": Each([{"log_dir": "bucket", "topics": topics}])}


def _log(server: Server, request: Request, name: str) -> Message | None:
    """None: the API key may not see it, or there is no such topic."""
    topics = server.broker.topics
    if not may_see(request, name) or not topics.exists(name):
        return None
    return {
        "name": name,
        "partitions": [
            {
                "partition_index": partition,
                "partition_size": topics.get(topic_of(name, partition)).bytes,
            }
            for partition in range(count_of(topics, name))
        ],
    }
