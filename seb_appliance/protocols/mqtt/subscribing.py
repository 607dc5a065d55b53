"""What a SUBSCRIBE begins, and what a session goes on with."""

from __future__ import annotations

from typing import Protocol

from seb_appliance.protocols.mqtt.codec import Code, MqttError, Subscription
from seb_appliance.protocols.mqtt.dispatching import Dispatcher, Subscriber
from seb_appliance.protocols.mqtt.incoming import Incoming
from seb_appliance.protocols.mqtt.records import check_filter
from seb_appliance.protocols.mqtt.retained import RetainedSender
from seb_appliance.protocols.mqtt.sessions import Session


class Client(Subscriber, Protocol):
    """A connection."""

    incoming: Incoming
    retained: RetainedSender
    session: Session
    wants_origin: bool


class Server(Protocol):
    dispatcher: Dispatcher


def subscribe(client: Client, server: Server, asked: Subscription) -> None:
    """It begins at the log end; if there is one with this filter, only its options change. Raises
    MqttError."""
    check_filter(asked.topic_filter)
    if asked.topic_filter.startswith("$share/"):
        raise MqttError(Code.NO_SHARED, "shared subscriptions are not supported")
    if not client.incoming.grants.may_subscribe(asked.topic_filter):
        raise MqttError(Code.NOT_AUTHORIZED, "the API key has no grant to consume")
    session, dispatcher = client.session, server.dispatcher
    earlier = session.subscriptions.get(asked.topic_filter)
    since = dispatcher.end_offset if earlier is None else earlier[1]
    dispatcher.subscribe(client, asked, since)
    if not session.subscriptions:
        session.next_offset = max(session.next_offset, since)
    session.subscriptions[asked.topic_filter] = asked, since
    client.wants_origin |= asked.no_local
    if asked.retain_handling == 0 or (asked.retain_handling == 1 and earlier is None):
        client.retained.add(asked)


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
