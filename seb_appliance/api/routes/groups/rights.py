"""What an API key may do with a group: a group is used by those who may use a topic it stands on.

A group stands on the topics on which it has an offset. One that stands on none is free for whoever
has a grant for its name. Refusals name no topic that the caller did not name.
"""

from __future__ import annotations

from collections.abc import Collection

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.consumer_groups import Sees
from seb_appliance.broker.groups.groups import no_such_group
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.tasks import in_slices


def group_sees(broker: Broker, key: ApiKeyView) -> Sees:
    """What the caller may see of groups: what it may read, or manage."""

    def sees(group: str, topic: str | None) -> bool:
        return any(broker.may(key, operation, topic, group) for operation in ("consume", "manage"))

    return sees


async def authorize_group(broker: Broker, key: ApiKeyView, operation: str, group: str) -> None:
    """A grant on one of the topics that the group stands on. Raises ForbiddenError."""
    broker.authorize(key, operation, group=group)
    none = True
    async for topic in in_slices(broker.groups.stands_on(group)):
        none = False
        if broker.may(key, operation, topic, group):
            return
    if not none:
        raise broker.access.no_grant(key, operation, None, group)


async def authorize_commit(
    broker: Broker, key: ApiKeyView, group: str, topics: Collection[str]
) -> None:
    """`consume` on each of `topics`, and on one that the group stands on. Raises ForbiddenError."""
    async for topic in in_slices(topics):
        broker.authorize(key, "consume", topic, group)
    if not broker.groups.stands_on_one_of(group, topics):
        await authorize_group(broker, key, "consume", group)


async def authorize_whole(broker: Broker, key: ApiKeyView, group: str) -> None:
    """`manage` on every topic that the group stands on, as of when this returns. Raises
    ForbiddenError; GroupNotFoundError, also for a group of which the key sees nothing."""
    await check_seen(broker, key, group)
    looked_at: set[str] = set()
    while not looked_at.issuperset(broker.groups.stands_on(group)):
        async for topic in in_slices(broker.groups.stands_on(group)):
            looked_at.add(topic)
            if not broker.may(key, "manage", topic, group):
                raise broker.access.no_grant(key, "manage", None, group)


async def check_seen(broker: Broker, key: ApiKeyView, group: str) -> None:
    """Raises GroupNotFoundError for a group that is not there, or of which the key sees nothing."""
    sees, none = group_sees(broker, key), not broker.groups.topics_of(group)
    async for topic in in_slices(broker.groups.stands_on(group)):
        if sees(group, topic):
            return
    if not none:
        raise no_such_group(group)
