"""Live delivery: one reader of the topics, from their log ends on, for all subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, Protocol

from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import SebError
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Publish, Subscription
from seb_appliance.protocols.mqtt.messages.filters import Filters
from seb_appliance.protocols.mqtt.messages.reading import Logs, Offsets, Turns
from seb_appliance.protocols.mqtt.sending.outgoing import Outgoing, merged
from seb_appliance.protocols.mqtt.sessions import Subscribed
from seb_appliance.protocols.mqtt.unfinished import Place

_log = logging.getLogger(__name__)
_CATCHING_UP: Final = 32
_TOPICS_OF_A_PLACE: Final = 100  # whose log ends a subscription and a session keep, 16 KB of them


class Subscriber(Protocol):
    """A connection."""

    client_id: str
    outgoing: Outgoing

    @property
    def key(self) -> ApiKeyView: ...

    def end(self, reason: str, code: int = 0) -> None: ...


class Progress:
    """In the log of a topic. `begun_offset`: no record from there on was begun with."""

    __slots__ = ("begun_offset", "done_offset")

    def __init__(self, offset: int) -> None:
        self.begun_offset = self.done_offset = offset


class Dispatcher:
    """It reads only while there are subscriptions."""

    def __init__(self, logs: Logs, counts: Counter[str]) -> None:
        self._broker = logs.broker
        self.logs = logs
        self._counts = counts
        self._room = logs.broker.shares.declare(
            "mqtt_subscriptions", mqtt_limits.SUBSCRIPTIONS_MAX, "MQTT subscriptions"
        )
        self._filters = Filters[Subscribed]()
        # Filters, and how many places of the share each takes.
        self._by_connection: dict[Subscriber, dict[str, int]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._progress = dict[int, Progress]()  # by topic id
        self._turns = Turns()
        # Of clients that catch up, those whose records are in memory.
        self.catching_up = asyncio.Semaphore(_CATCHING_UP)

    @property
    def count(self) -> int:
        return self._filters.count

    def progress(self, topic_id: int) -> Progress:
        """A topic that it does not know yet was made after it began."""
        return self._progress.setdefault(topic_id, Progress(0))

    def subscribe(self, connection: Subscriber, asked: Subscription, since: Offsets) -> None:
        """It gets the records from `since` on. Raises MqttError."""
        mine = self._by_connection.setdefault(connection, {})
        if asked.topic_filter not in mine:
            places = 1 + len(since) // _TOPICS_OF_A_PLACE
            if not self._room.try_take(connection.key.api_key_id, places):
                raise MqttError(Code.QUOTA, "there are too many subscriptions")
            mine[asked.topic_filter] = places
        self._filters.put(asked.topic_filter, connection, (asked, since))
        if self._reading is None:
            ends = self.logs.ends()
            self._progress = {topic_id: Progress(offset) for topic_id, offset in ends.items()}
            self._reading = asyncio.create_task(self._run(), name="mqtt subscriptions")

    def unsubscribe(self, connection: Subscriber, topic_filter: str) -> bool:
        """Whether there was such a subscription."""
        mine = self._by_connection.get(connection, {})
        if topic_filter not in mine:
            return False
        self._filters.remove(topic_filter, connection)
        self._room.give_back(connection.key.api_key_id, mine.pop(topic_filter))
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
            follower = self.logs.follower
            while not follower.stopping:
                changed = list(follower.changed.values())
                follower.changed.clear()
                for topic in changed:
                    await self._read_on(topic)
                if not follower.changed:
                    await follower.wait()
        except SebError as error:
            _log.warning("MQTT subscriptions cannot be served: %s", error)
            self._failed(error.detail)
        except Exception:
            # Without this nobody would get a message any more, and nobody would be told.
            _log.exception("MQTT subscriptions cannot be served")
            self._failed("an internal error")

    def _failed(self, reason: str) -> None:
        self._reading = None
        for connection in tuple(self._by_connection):
            connection.end(reason, Code.UNAVAILABLE)

    async def _read_on(self, topic: Topic) -> None:
        """Some of what is new in it; if there is more, it is still among the changed ones."""
        if topic.deleted:
            self.logs.follower.drop(topic)
            self._progress.pop(topic.topic_id, None)
            return
        progress = self.progress(topic.topic_id)
        if progress.done_offset >= topic.log_end_offset:
            return
        found = await self.logs.read(topic.topic_id, progress.done_offset)
        if found is None:
            return
        rows, next_offset = found
        for row in rows:
            await self._turns.step()
            progress.begun_offset = row.offset + 1
            message = self.logs.as_publish(topic.topic_id, row)
            if message is not None:
                await self._send(*message, Place(topic.topic_id, row.offset))
            progress.done_offset = row.offset + 1
        progress.begun_offset = progress.done_offset = next_offset
        if next_offset < topic.log_end_offset:
            self.logs.follower.changed[topic.topic_id] = topic

    async def _send(self, message: Publish, origin: str, place: Place) -> None:
        receivers = dict[Subscriber, list[Subscription]]()
        for found in self._filters.steps(message.topic):
            if found is None:
                await asyncio.sleep(0)
                continue
            owner, (subscription, since) = found
            connection: Subscriber = owner  # type: ignore[assignment]
            mine = subscription.no_local and origin == connection.client_id
            if mine or place.offset < since.get(place.topic_id, 0):
                continue
            receivers.setdefault(connection, []).append(subscription)
        for connection, subscriptions in receivers.items():
            await self._turns.step(len(message.payload))
            sent = merged(message, subscriptions)
            outcome = connection.outgoing.deliver(sent, place)
            self._counts[outcome] += 1
