"""Settings of topics, read and changed; those of the broker can be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from seb_appliance.errors import SebError
from seb_appliance.formats.topic_settings import SETTINGS
from seb_appliance.protocols.kafka.answers import failed, one_by_one
from seb_appliance.protocols.kafka.apis.cluster import may_see
from seb_appliance.protocols.kafka.configs import (
    BadConfigError,
    changes_of,
    configs_of,
    described,
    listed,
)
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError, code_of
from seb_appliance.protocols.kafka.partitions import count_of, topic_of
from seb_appliance.protocols.kafka.requests import Request, handles
from seb_appliance.protocols.kafka.server import NODE_ID, Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each

_TOPIC, _BROKER = 2, 4  # types of resources
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)  # operations
_STATIC: Final = 4  # the source of a config: a setting of the appliance

Wanted: TypeAlias = Callable[[Message], Mapping[str, Any]]  # the changes, of a resource


@handles(32)
def describe_configs(server: Server, request: Request) -> Message:
    asked = {(one["resource_type"], one["resource_name"]): one for one in request.body["resources"]}
    return {"results": Each(asked.values(), partial(_described, server, request))}


def _described(server: Server, request: Request, asked: Message) -> Message:
    answer = {"resource_type": asked["resource_type"], "resource_name": asked["resource_name"]}
    try:
        configs = _configs_of(server, request, asked)
    except (SebError, KafkaError) as error:
        return {**answer, **failed(error)}
    wanted = asked["configuration_keys"]
    if wanted is not None:
        configs = [one for one in configs if one["name"] in wanted]
    unwanted: Message = {}
    if not request.body["include_documentation"]:
        unwanted["documentation"] = None
    if not request.body["include_synonyms"]:
        unwanted["synonyms"] = []
    configs = [one | unwanted for one in configs]
    return {**answer, "configs": configs}


def _configs_of(server: Server, request: Request, asked: Message) -> list[Message]:
    """Raises SebError, KafkaError."""
    name = asked["resource_name"]
    if asked["resource_type"] == _TOPIC:
        if not may_see(request, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise KafkaError(code, f"The API key has no grant on {name!r}.")
        view = server.broker.topics.get(name)
        return [described(one) for one in configs_of(view.settings, view.effective)]
    if asked["resource_type"] != _BROKER or name not in ("", str(NODE_ID)):
        text = "The resources are topics, and the broker 1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    of_broker = {
        "num.partitions": str(server.partitions),
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
    }
    return [
        {"name": key, "value": value, "read_only": True, "config_source": _STATIC}
        for key, value in of_broker.items()
    ]


@handles(33)
async def alter_configs(server: Server, request: Request) -> Message:
    """What is not named gets its default."""

    def wanted(resource: Message) -> dict[str, Any]:
        given = {one["name"]: one["value"] for one in resource["configs"]}
        return dict.fromkeys(SETTINGS) | changes_of(given)

    return await _altered(server, request, wanted)


@handles(44)
async def incremental_alter_configs(server: Server, request: Request) -> Message:
    def wanted(resource: Message) -> dict[str, Any]:
        given = dict[str, str | None]()
        for one in resource["configs"]:
            name, how, value = one["name"], one["config_operation"], one["value"]
            if how in (_APPEND, _SUBTRACT):
                effective = server.broker.topics.get(resource["resource_name"]).effective
                value = listed(name, effective, value or "", appended=how == _APPEND)
            elif how not in (_SET, _DELETE):
                raise BadConfigError(f"{how} is no operation on a config")
            given[name] = None if how == _DELETE else value
        return changes_of(given)

    return await _altered(server, request, wanted)


async def _altered(server: Server, request: Request, wanted: Wanted) -> Message:
    alter = partial(_alter, server, request, wanted)
    named = "resource_type", "resource_name"
    return {"responses": await one_by_one(request.body["resources"], named, alter)}


async def _alter(server: Server, request: Request, wanted: Wanted, asked: Message) -> Message:
    """Of all partitions. Raises SebError, KafkaError."""
    name, topics = asked["resource_name"], server.broker.topics
    if asked["resource_type"] != _TOPIC:
        text = "Only the settings of topics can be changed here."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    request.check_manages(name)
    topics.get(name)
    changes = wanted(asked)
    if request.body["validate_only"] or not changes:
        return {}
    for partition in range(count_of(topics, name)):
        try:
            await topics.change(topic_of(name, partition), dict(changes), request.actor)
        except SebError as error:
            if code_of(error) is ErrorCode.INVALID_REQUEST:
                raise BadConfigError(error.detail) from error
            raise
    return {}
