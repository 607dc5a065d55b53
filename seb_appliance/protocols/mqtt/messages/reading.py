"""Reading topics as rows, and those whose records are messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.read.waiting import FollowerOfMany
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.errors import TopicNotFoundError
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Publish
from seb_appliance.protocols.mqtt.messages.records import to_publish
from seb_appliance.protocols.mqtt.messages.routes import Routes
from seb_appliance.tasks import in_slices

_RECORDS: Final = 1_000  # of one read
_AT_ONCE: Final = 500  # steps between two turns of the event loop: about 2 ms
_STEP_BYTES: Final = 4 * limits.KIB  # what takes as long as a step

Offsets = dict[int, int]  # by topic id


class Row(NamedTuple):
    """A record. `headers`: packed."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: bytes | None


class Logs:
    """The topics whose records are messages: those that routes name, and those that they match,
    also such as are made later."""

    def __init__(self, broker: Broker, routes: Routes) -> None:
        self.broker = broker
        self.routes = routes

    async def start(self) -> None:
        """Raises SebError."""
        await self.make()
        self.follower = await self.broker.follow_many(
            self.routes.is_log, OPERATOR, is_limited=False
        )

    async def make(self) -> None:
        """The topics that routes name, where they are missing: few clients may. Raises SebError."""
        for topic in self.routes.keyed:
            await self.broker.topics.make_on_first_use(topic, THE_APPLIANCE)

    def stop(self) -> None:
        self.follower.__exit__(None, None, None)

    def all(self, topic_filter: str = "#") -> list[Topic]:
        """Those that may have what the filter matches."""
        return [
            one
            for one in self.follower.topics.values()
            if not one.deleted and self.routes.may_have(one.name, topic_filter)
        ]

    async def all_in_slices(self, topic_filter: str) -> AsyncIterator[Topic]:
        """As `all`, with pauses for others: thousands of topics take long."""
        async for one in in_slices(list(self.follower.topics.values())):
            if not one.deleted and self.routes.may_have(one.name, topic_filter):
                yield one

    def ends(self) -> Offsets:
        return {one.topic_id: one.log_end_offset for one in self.all("#")}

    async def follow(self, topic_filter: str, owner: str) -> FollowerOfMany:
        """Those that may have what the filter matches. Raises SebError."""

        def wants(topic: str) -> bool:
            return self.routes.is_log(topic) and self.routes.may_have(topic, topic_filter)

        return await self.broker.follow_many(wants, owner, is_limited=False)

    async def record(self, topic_id: int, offset: int) -> Row | None:
        """None if retention, compaction or a deletion took it. Raises SebError."""
        found = await self.read(topic_id, offset, 1)
        rows = found[0] if found is not None else []
        return rows[0] if rows and rows[0].offset == offset else None

    def as_publish(self, topic_id: int, row: Row) -> tuple[Publish, str] | None:
        """As `to_publish`."""
        topic = self.topic(topic_id)
        found = None if topic is None else self.routes.topic_of(topic.name, row.key)
        return to_publish(found, row.value, row.headers, self.broker.clock.wall_us())

    def commit(self, group: str, offsets: Offsets) -> Commit | None:
        """Of those that are not committed yet, in topics that exist."""
        found = dict[str, int]()
        for topic_id, offset in offsets.items():
            topic = self.topic(topic_id)
            done = self.broker.groups.committed_offset(group, topic_id)
            if topic is not None and (done is None or done < offset):
                found[topic.name] = offset
        return Commit(group, found, heeds_lease=False) if found else None

    @property
    def default_id(self) -> int:
        """0 while there is no default topic."""
        try:
            return self.broker.topics.get(self.routes.default).topic_id
        except TopicNotFoundError:
            return 0

    @property
    def is_full(self) -> bool:
        """No more topics are made for MQTT topics."""
        return len(self.follower.topics) >= mqtt_limits.TOPICS_MAX

    def has(self, topic: str) -> bool:
        """Whether it exists."""
        try:
            self.broker.topics.get(topic)
        except TopicNotFoundError:
            return False
        return True

    def topic(self, topic_id: int) -> Topic | None:
        """None once it is deleted."""
        found = self.follower.topics.get(topic_id)
        return None if found is None or found.deleted else found

    async def read(
        self, topic_id: int, offset: int, most: int = _RECORDS
    ) -> tuple[list[Row], int] | None:
        """As `read`; None once the topic is deleted."""
        topic = self.topic(topic_id)
        if topic is None:
            return None
        try:
            found = await _read(self.broker, topic.name, offset, most)
        except TopicNotFoundError:
            return None
        return (_rows(found), found.next_offset) if found.topic_id == topic_id else None


async def read(
    broker: Broker, topic: str, offset: int, most: int = _RECORDS
) -> tuple[list[Row], int]:
    """Some rows from there on, and where to go on. Raises SebError."""
    found = await _read(broker, topic, offset, most)
    return _rows(found), found.next_offset


async def _read(broker: Broker, topic: str, offset: int, most: int) -> ReadResult:
    start = broker.topics.get(topic).log_start_offset
    request = ReadRequest(From(offset=max(offset, start)), max_records=most)
    found = broker.read_nowait(topic, request, waits=False)
    return await broker.read(topic, request) if found is None else found


def _rows(found: ReadResult) -> list[Row]:
    return [row for piece in found.slices for row in _rows_of(piece)]


def _rows_of(piece: BatchSlice) -> list[Row]:
    columns, begin, end = piece.batch.columns, piece.begin, piece.end
    nothing = [None] * (end - begin)
    keys = nothing if columns.keys is None else columns.keys.slice(begin, end)
    headers = nothing if columns.headers is None else columns.headers.slice(begin, end)
    values, offsets = columns.values.slice(begin, end), piece.batch.offsets()[begin:end]
    return [Row(*row) for row in zip(offsets, keys, values, headers, strict=True)]


class Turns:
    """Lets others have their turn now and then."""

    def __init__(self) -> None:
        self._steps = 0

    async def step(self, size_bytes: int = 0) -> None:
        """`size_bytes`: what is copied then."""
        self._steps += 1 + size_bytes // _STEP_BYTES
        if self._steps >= _AT_ONCE:
            self._steps = 0
            await asyncio.sleep(0)
