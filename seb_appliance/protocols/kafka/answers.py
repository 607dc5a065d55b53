"""How the answers of many APIs are built: one part for each thing that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka.errors import KafkaError, code_of
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each
from seb_appliance.tasks import in_slices


def failed(error: SebError | KafkaError) -> Message:
    """Code and message of an error."""
    if isinstance(error, KafkaError):
        return {"error_code": error.code, "error_message": str(error)}
    return {"error_code": code_of(error), "error_message": error.detail}


async def one_by_one(
    asked: Iterable[Message], fields: tuple[str, ...], done: Callable[[Message], Awaitable[Message]]
) -> Each:
    """For each thing the `fields` that name it, and what `done` returns or fails with."""
    found = list[Message]()
    async for one in in_slices(asked):
        try:
            answer = await done(one)
        except (SebError, KafkaError) as error:
            answer = failed(error)
        found.append({field: one[field] for field in fields} | answer)
    return Each(found)


def by_partition(
    topics: Iterable[Message],
    answered: Callable[[str, Any], Message],
    *,
    name: str = "name",
    by_index: bool = False,
) -> Each:
    """The answer of most APIs: for each topic of the request, what `answered` returns of its name
    and of each of its partitions. `name`: the field with the name. `by_index`: the request has
    nothing but the indexes of partitions; a repeated one is answered once."""

    def of_topic(topic: Message) -> Message:
        asked = dict.fromkeys(topic["partition_indexes"]) if by_index else topic["partitions"]
        return {name: topic[name], "partitions": Each(asked, partial(answered, topic[name]))}

    return Each(topics, of_topic)


async def by_partition_later(
    topics: Iterable[Message], answered: Callable[[str, Any], Awaitable[Message]]
) -> Each:
    """`by_partition` of answers that must be waited for."""
    found = list[Message]()
    for topic in topics:
        name = topic["name"]
        partitions = [await answered(name, one) async for one in in_slices(topic["partitions"])]
        found.append({"name": name, "partitions": Each(partitions)})
        await asyncio.sleep(0)
    return Each(found)
