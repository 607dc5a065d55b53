"""What a SUBSCRIBE begins, and what a session goes on with."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from seb_appliance.broker.topics.topic import Topic
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Subscription
from seb_appliance.protocols.mqtt.messages.reading import Logs
from seb_appliance.protocols.mqtt.messages.records import check_filter, is_shared
from seb_appliance.protocols.mqtt.receiving.incoming import Incoming
from seb_appliance.protocols.mqtt.sending.dispatching import Dispatcher, Subscriber
from seb_appliance.protocols.mqtt.sending.retained import RetainedSender
from seb_appliance.protocols.mqtt.sending.sharing import SharedSubscriptions, check_shared
from seb_appliance.protocols.mqtt.sessions import Session
from seb_appliance.tasks import in_slices

_NO_GRANT: Final = "the API key has no grant to consume"


class Client(Subscriber, Protocol):
    """A connection."""

    incoming: Incoming
    retained: RetainedSender
    session: Session
    wants_origin: bool

    @property
    def has_left(self) -> bool: ...


class Server(Protocol):
    dispatcher: Dispatcher
    shared: SharedSubscriptions


async def subscribe(client: Client, server: Server, asked: Subscription) -> int:
    """It begins at the log end; if there is one with this filter, only its options change. Returns
    the QoS that it has. Raises MqttError. Nothing else may change subscriptions of the client
    meanwhile: thousands of topics are looked at in slices."""
    if is_shared(asked.topic_filter):
        return await _subscribe_shared(client, server, asked)
    check_filter(asked.topic_filter)
    if not client.incoming.grants.may_subscribe(asked.topic_filter):
        raise MqttError(Code.NOT_AUTHORIZED, _NO_GRANT)
    session, dispatcher = client.session, server.dispatcher
    earlier = session.subscriptions.get(asked.topic_filter)
    if earlier is None:
        matched, only = await _matched(session, dispatcher.logs, asked.topic_filter)
        if client.has_left:
            raise MqttError(Code.UNSPECIFIED, "the client has left")
        since = {one.topic_id: one.log_end_offset for one in matched}
        dispatcher.subscribe(client, asked, since)
        for one in matched:
            session.position(one.topic_id)
        for one in only:
            at = session.position(one.topic_id)
            at.next_offset = max(at.next_offset, since[one.topic_id])
    else:
        since = earlier[1]
        dispatcher.subscribe(client, asked, since)
    session.subscriptions[asked.topic_filter] = asked, since
    client.wants_origin |= asked.no_local
    if asked.retain_handling == 0 or (asked.retain_handling == 1 and earlier is None):
        client.retained.add(asked)
    return asked.qos


async def _matched(
    session: Session, logs: Logs, topic_filter: str
) -> tuple[list[Topic], list[Topic]]:
    """Topics that may have what the filter matches; and those of them that no earlier filter of the
    session matches, which begin there."""
    matched, only = list[Topic](), list[Topic]()
    earlier = list(session.subscriptions)
    async for topic in logs.all_in_slices(topic_filter):
        matched.append(topic)
        at = session.positions.get(topic.topic_id)
        if at is not None and at.next_offset >= topic.log_end_offset:
            continue  # it is there already
        async for one in in_slices(earlier):
            if logs.routes.may_have(topic.name, one):
                break
        else:
            only.append(topic)
    return matched, only


async def _subscribe_shared(client: Client, server: Server, asked: Subscription) -> int:
    """QoS 1 at most: what one client has not acknowledged goes to another."""
    name = check_shared(client.session.client[0], asked.topic_filter)
    if not client.incoming.grants.may_subscribe(name.topic_filter):
        raise MqttError(Code.NOT_AUTHORIZED, _NO_GRANT)
    given = replace(asked, qos=min(asked.qos, 1))
    await server.shared.subscribe(client, given)
    return given.qos


def unsubscribe(client: Client, server: Server, topic_filter: str) -> int:
    """The reason code."""
    if is_shared(topic_filter):
        done = server.shared.unsubscribe(client, topic_filter)
    else:
        done = server.dispatcher.unsubscribe(client, topic_filter)
        client.session.subscriptions.pop(topic_filter, None)
    return Code.SUCCESS if done else Code.NO_SUBSCRIPTION


def resume(client: Client, server: Server) -> None:
    """Serve the subscriptions of its session. What the API key may not read any more is left out.
    Raises MqttError."""
    subscriptions = client.session.subscriptions
    for topic_filter, (asked, since) in list(subscriptions.items()):
        if client.incoming.grants.may_subscribe(topic_filter):
            server.dispatcher.subscribe(client, asked, since)
            client.wants_origin |= asked.no_local
        else:
            del subscriptions[topic_filter]
    for topic_filter, (asked, since) in list(client.session.shared.items()):
        name = check_shared(client.session.client[0], topic_filter)
        if client.incoming.grants.may_subscribe(name.topic_filter):
            server.shared.join(client, asked, since)
        else:
            server.shared.unsubscribe(client, topic_filter)
