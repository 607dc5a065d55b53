"""Live delivery: one reader of the topic's log, from its end on, for all subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Protocol

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import SebError
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Publish, Subscription
from seb_appliance.protocols.mqtt.filters import Filters
from seb_appliance.protocols.mqtt.outgoing import Outgoing, merged
from seb_appliance.protocols.mqtt.reading import Turns, read
from seb_appliance.protocols.mqtt.records import to_publish

_log = logging.getLogger(__name__)
_Subscribed = tuple[Subscription, int]  # and the log end when it was made


class Subscriber(Protocol):
    """A connection."""

    key: ApiKeyView | None
    client_id: str
    outgoing: Outgoing

    def end(self, code: int, reason: str) -> None: ...


class Dispatcher:
    """It reads only while there are subscriptions."""

    def __init__(self, broker: Broker, topic: str, counts: Counter[str]) -> None:
        self._broker = broker
        self.topic = topic
        self._counts = counts
        self._room = broker.shares.declare(
            "mqtt_subscriptions", limits.MQTT_SUBSCRIPTIONS_MAX, "MQTT subscriptions"
        )
        self._filters = Filters[_Subscribed]()
        self._by_connection: dict[Subscriber, set[str]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.begun_offset = self.done_offset = 0  # see `Log`
        self._turns = Turns()

    @property
    def count(self) -> int:
        return self._filters.count

    @property
    def end_offset(self) -> int:
        """Raises MqttError."""
        try:
            return self._broker.topics.get(self.topic).log_end_offset
        except SebError as error:
            raise MqttError(Code.REFUSED, error.detail) from error

    def subscribe(self, connection: Subscriber, asked: Subscription, since: int) -> None:
        """It gets the records from `since` on. Raises MqttError."""
        assert connection.key is not None
        mine = self._by_connection.setdefault(connection, set())
        if asked.topic_filter not in mine:
            if not self._room.try_take(connection.key.api_key_id, 1):
                raise MqttError(Code.QUOTA, "there are too many subscriptions")
            mine.add(asked.topic_filter)
        self._filters.put(asked.topic_filter, connection, (asked, since))
        if self._reading is None:
            self.begun_offset = self.done_offset = self.end_offset
            self._reading = asyncio.create_task(self._run(), name="mqtt subscriptions")

    def unsubscribe(self, connection: Subscriber, topic_filter: str) -> bool:
        """Whether there was such a subscription."""
        mine = self._by_connection.get(connection, set())
        if topic_filter not in mine:
            return False
        assert connection.key is not None
        mine.remove(topic_filter)
        self._filters.remove(topic_filter, connection)
        self._room.give_back(connection.key.api_key_id, 1)
        return True

    def forget(self, connection: Subscriber) -> None:
        """The connection is closed."""
        for topic_filter in tuple(self._by_connection.get(connection, ())):
            self.unsubscribe(connection, topic_filter)
        self._by_connection.pop(connection, None)
        if not self._by_connection and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _run(self) -> None:
        """A failure ends the connections that have subscriptions: their clients come again."""
        try:
            with self._broker.follow(self.topic, OPERATOR) as follower:
                while not follower.stopping:
                    if follower.log_end_offset == self.done_offset:
                        await follower.wait()
                    else:
                        await self._read()
        except SebError as error:
            _log.warning("MQTT subscriptions cannot be served: %s", error)
            self._reading = None
            for connection in tuple(self._by_connection):
                connection.end(Code.UNAVAILABLE, error.detail)

    async def _read(self) -> None:
        rows, next_offset = await read(self._broker, self.topic, self.done_offset)
        for row in rows:
            await self._turns.step()
            self.begun_offset = row.offset + 1
            found = to_publish(row.key, row.value, row.headers, self._broker.clock.wall_us())
            if found is not None:
                await self._send(*found, row.offset)
            self.done_offset = row.offset + 1
        self.begun_offset = self.done_offset = next_offset

    async def _send(self, message: Publish, origin: str, offset: int) -> None:
        receivers = dict[Subscriber, list[Subscription]]()
        for owner, (subscription, since) in self._filters.match(message.topic):
            connection: Subscriber = owner  # type: ignore[assignment]
            if offset < since or (subscription.no_local and origin == connection.client_id):
                continue
            receivers.setdefault(connection, []).append(subscription)
        for connection, subscriptions in receivers.items():
            await self._turns.step()
            sent = merged(message, subscriptions)
            self._counts[connection.outgoing.deliver(sent, offset)] += 1
