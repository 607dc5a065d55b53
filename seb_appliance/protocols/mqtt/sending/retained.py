"""Retained messages: the newest of each MQTT topic that was published with the flag.

They lie in a compacted topic of their own, because a message without the flag must not replace one.
All of them are in memory, as a tree of their levels, which a start fills from the bucket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import OPERATOR, Reservation
from seb_appliance.broker.topics.topic import no_such_topic
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import SebError, TopicDiffersError, TopicNotFoundError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Publish, Subscription
from seb_appliance.protocols.mqtt.messages.reading import Row, Turns, read
from seb_appliance.protocols.mqtt.messages.records import owned, owner_of, to_publish, topic_of
from seb_appliance.protocols.mqtt.sending.outgoing import Outgoing
from seb_appliance.protocols.mqtt.sessions import Client
from seb_appliance.tasks import in_slices

_log = logging.getLogger(__name__)
_SETTINGS: Final = TopicSettings(cleanup="compact", key_index="latest")
_FOUND_BYTES: Final = 8  # of a level that a lookup has found
_LEVEL_BYTES: Final = 256  # about what a level takes in memory, most of it in `below`
_RETRY_S: Final = 0.1  # while there is no room
_AT_ONCE: Final = 2_000  # levels whose children are found between two turns of the event loop


class _Level:
    """`owner`: who sent the message that it was made for."""

    __slots__ = ("below", "owner", "row")

    def __init__(self, owner: str = OPERATOR) -> None:
        self.below: dict[str, _Level] | None = None
        self.owner = owner
        self.row: Row | None = None


class Retained:
    """`topic`: where they are stored. Bytes, also of the levels of the tree, are counted for the
    API key that sent them."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self._broker = broker
        remedy = "Delete retained messages: publish empty ones with the flag."
        self._room = broker.shares.declare(
            "mqtt_retained", mqtt_limits.RETAINED_BYTES_MAX, "bytes of retained messages", remedy
        )
        self._lookups = broker.shares.declare(
            "mqtt_lookups", mqtt_limits.RETAINED_BYTES_MAX, "bytes of lookups of retained messages"
        )
        self._root = _Level()
        self._topic_id = self._at = 0
        self._read = asyncio.Event()  # replaced after each read
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises SebError."""
        await self._begin()
        self._reading = asyncio.create_task(self._run(), name="mqtt retained")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def records(self, given: NewRecords, api_key_id: str) -> NewRecords:
        """What is stored here of a message. Raises MqttError if it finds no room."""
        value, key = given.values[0], (given.keys or [None])[0]
        assert key is not None
        packed = given.headers[0] if given.headers else b""
        if not value:
            return NewRecords([None], [key])
        level, missing = self._find(key.decode().split("/"))
        is_new = level is None or level.row is None
        size_bytes = _size_bytes(Row(0, key, value, packed)) + _LEVEL_BYTES * missing
        if self.count + is_new > mqtt_limits.RETAINED_MAX or not self._room.has_room(
            api_key_id, size_bytes
        ):
            raise MqttError(Code.QUOTA, "there are too many retained messages")
        return NewRecords([value], [key], [owned(packed, api_key_id)])

    async def matching(
        self, topic_filter: str, held: Reservation
    ) -> AsyncIterator[tuple[Publish, str]]:
        """Those that are stored when each is asked for, and who sent them, as far as that is
        known. `held`: of `lookup`; it waits for room in it. Raises SebError."""
        is_one = "+" not in topic_filter and "#" not in topic_filter
        while not held.try_grow(_FOUND_BYTES * (1 if is_one else self.count)):
            await self._broker.clock.sleep(_RETRY_S)
        await self._caught_up()
        found = await self._match(topic_filter)
        held.shrink_to(_FOUND_BYTES * len(found))
        for level in found:
            await self._caught_up()
            row = level.row
            message = None if row is None else self._message(row)
            if message is not None:
                message[0].retain = True
                yield message
            elif row is not None:  # it has expired
                self._put(Row(row.offset, row.key, None, None))

    def lookup(self, api_key_id: str) -> Reservation:
        """What a client holds while it is sent what a subscription finds."""
        return Reservation(self._lookups, api_key_id)

    @property
    def is_empty(self) -> bool:
        """Also of what was acknowledged and is not read yet."""
        return not (self.count or self._is_behind)

    # --- inside ---

    @property
    def _is_behind(self) -> bool:
        """Something was acknowledged that is not read yet."""
        try:
            found = self._broker.topics.get(self.topic)
        except TopicNotFoundError:  # somebody has deleted it just now
            return False
        return found.topic_id != self._topic_id or self._at < found.log_end_offset

    async def _caught_up(self) -> None:
        """No older message than a subscriber may have got from the topic of all messages."""
        while self._is_behind:
            await self._read.wait()

    async def _begin(self) -> None:
        """With all that the topic has; if it is missing, it is made. Raises SebError."""
        with contextlib.suppress(TopicDiffersError):  # somebody has changed its settings
            await self._broker.topics.create(self.topic, _SETTINGS, THE_APPLIANCE)
        found = self._broker.topics.get(self.topic)
        self._topic_id, self._at = found.topic_id, found.log_start_offset
        while self._is_behind:
            await self._take()
        self._tell()

    async def _run(self) -> None:
        try:
            while not await self._follow():
                await self._forget()
        except SebError as error:
            _log.warning("retained MQTT messages are not followed any more: %s", error)

    async def _follow(self) -> bool:
        """Until the appliance stops; False once somebody has deleted the topic. Raises SebError."""
        try:
            if not self._topic_id:
                await self._begin()
            with self._broker.follow(self.topic, OPERATOR) as follower:
                while follower.topic_id == self._topic_id and not follower.stopping:
                    if follower.log_end_offset == self._at:
                        await follower.wait()
                    else:
                        await self._take()
                return follower.stopping
        except TopicNotFoundError:
            return False

    async def _forget(self) -> None:
        """What the deleted topic had: nothing of it is retained any more."""
        levels = deque((self._root.below or {}).values())
        self._root, self.count, self._topic_id = _Level(), 0, 0
        async for level in in_slices(_emptied(levels)):
            self._room.give_back(level.owner, _LEVEL_BYTES)
            if level.row is not None:
                self._count_bytes(level.row, -1)
                level.row = None

    async def _take(self) -> None:
        if self._broker.topics.get(self.topic).topic_id != self._topic_id:
            raise no_such_topic(self.topic)
        rows, self._at = await read(self._broker, self.topic, self._at)
        for row in rows:
            self._put(row)
        self._tell()

    def _tell(self) -> None:
        self._read.set()
        self._read = asyncio.Event()

    def _message(self, row: Row) -> tuple[Publish, str] | None:
        return to_publish(topic_of(row.key), row.value, row.headers, self._broker.clock.wall_us())

    def _put(self, row: Row) -> None:
        found = self._message(row)
        if found is None and row.value is not None:
            return
        levels = (row.key or b"").decode("utf-8", "replace").split("/")
        if row.value and not self._takes(row, self._find(levels)[1]):
            row = row._replace(value=None)
        path = [self._root]
        for name in levels:
            below = path[-1].below
            if below is None or name not in below:
                if not row.value:
                    return
                below = path[-1].below = below or {}
                below[name] = _Level(owner_of(row.headers))
                self._room.take_anyway(below[name].owner, _LEVEL_BYTES)
            path.append(below[name])
        level = path[-1]
        for old, sign in ((level.row, -1), (row if row.value else None, 1)):
            if old is not None:
                self.count += sign
                self._count_bytes(old, sign)
        level.row = row if row.value else None
        while levels and level.row is None and not level.below:
            self._room.give_back(path.pop().owner, _LEVEL_BYTES)
            level = path[-1]
            assert level.below is not None
            del level.below[levels.pop()]

    def _takes(self, row: Row, missing: int) -> bool:
        """Clients are refused before there are too many, but what others store in the topic is
        not. Twice as many: those that were on their way together. `missing`: levels."""
        size_bytes = self._room.used + _size_bytes(row) + _LEVEL_BYTES * missing
        if size_bytes <= 2 * self._room.limit and self.count < 2 * mqtt_limits.RETAINED_MAX:
            return True
        self._room.refusals += 1
        return False

    def _count_bytes(self, row: Row, sign: int) -> None:
        change = self._room.take_anyway if sign > 0 else self._room.give_back
        change(owner_of(row.headers), _size_bytes(row))

    def _find(self, levels: list[str]) -> tuple[_Level | None, int]:
        """The level of a topic; if there is none, how many would have to be made."""
        level = self._root
        for depth, name in enumerate(levels):
            found = None if level.below is None else level.below.get(name)
            if found is None:
                return None, len(levels) - depth
            level = found
        return level, 0

    async def _match(self, topic_filter: str) -> list[_Level]:
        """Wildcards do not match a first level that begins with $."""
        levels = topic_filter.split("/")
        has_rest = levels[-1] == "#"
        nodes = [self._root]
        for depth, wanted in enumerate(levels[: -1 if has_rest else None]):
            nodes = await _below(nodes, wanted, is_root=depth == 0)
        found, is_root = await _with_row(nodes), len(levels) == 1
        while has_rest and nodes:
            nodes, is_root = await _below(nodes, "+", is_root=is_root), False
            found += await _with_row(nodes)
        return found


def _emptied(levels: deque[_Level]) -> Iterator[_Level]:
    """All of them, and all below them."""
    while levels:
        level = levels.pop()
        levels += (level.below or {}).values()
        yield level


async def _below(nodes: list[_Level], wanted: str, *, is_root: bool) -> list[_Level]:
    found = list[_Level]()
    for begin in range(0, len(nodes), _AT_ONCE):
        some = [one.below for one in nodes[begin : begin + _AT_ONCE] if one.below]
        if is_root and wanted == "+":
            found += [one for below in some for name, one in below.items() if name[:1] != "$"]
        elif wanted == "+":
            for below in some:
                found += below.values()
        else:
            found += [below[wanted] for below in some if wanted in below]
        await asyncio.sleep(0)
    return found


async def _with_row(nodes: list[_Level]) -> list[_Level]:
    found = list[_Level]()
    for begin in range(0, len(nodes), _AT_ONCE):
        found += [one for one in nodes[begin : begin + _AT_ONCE] if one.row is not None]
        await asyncio.sleep(0)
    return found


def _size_bytes(row: Row) -> int:
    """About what it takes in memory."""
    parts = (row.key, row.value, row.headers)
    return limits.PENDING_RECORD_BYTES + sum(len(part or b"") for part in parts)


class RetainedSender:
    """Sends a client what its subscriptions find, one after the other, as fast as it takes them."""

    def __init__(
        self, retained: Retained, outgoing: Outgoing, client: Client, counts: Counter[str]
    ) -> None:
        self._retained = retained
        self._outgoing = outgoing
        self._client = client
        self._counts = counts
        self._waiting = deque[Subscription]()
        self._sending: asyncio.Task[None] | None = None

    def add(self, subscription: Subscription) -> None:
        """Raises MqttError if too many wait."""
        if len(self._waiting) >= mqtt_limits.RETAINED_LOOKUPS_MAX:
            raise MqttError(Code.QUOTA, "too many subscriptions wait for retained messages")
        self._waiting.append(subscription)
        if self._sending is None and not self._retained.is_empty:
            self._sending = asyncio.create_task(self._run(), name="mqtt retained")
        elif self._sending is None:
            self._waiting.clear()

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _run(self) -> None:
        while self._waiting:
            try:
                await self._send(self._waiting.popleft())
            except SebError as error:
                self._outgoing.fail(error.detail)
                return
        self._sending = None

    async def _send(self, asked: Subscription) -> None:
        api_key_id, client_id = self._client
        turns = Turns()
        with self._retained.lookup(api_key_id) as held:
            async for message, origin in self._retained.matching(asked.topic_filter, held):
                if asked.no_local and origin == client_id:
                    continue
                message.qos = min(message.qos, asked.qos)
                if asked.identifier:
                    message.properties["subscription_id"] = [asked.identifier]
                await self._outgoing.room(message)
                self._counts[self._outgoing.deliver(message)] += 1
                await turns.step()
