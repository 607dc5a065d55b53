"""A broker over fakes: its clock stands still, its journal can be held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.append.appends import NO_CONDITIONS, Conditions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.groups.groups import GroupView
from seb_appliance.broker.ports import LoadedState
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.streams.admission import StreamAppend, WantedStream
from seb_appliance.broker.values import ApiKeyView, Appended, From, NewRecords, ReadRequest
from seb_appliance.errors import SebError
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.formats.operations import CommittedOffset
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.fakes import FakeClock, FakeJournal, FakeKeyIndex, FakeSource, FakeState, settle

ADMIN = ApiKeyView("admin", "admin", (Grant(operation="admin"),), 0)


@dataclass
class House:
    """A started broker and everything around it."""

    broker: Broker
    clock: FakeClock
    journal: FakeJournal
    source: FakeSource
    state: FakeState

    def append(
        self,
        topic: str,
        *values: bytes,
        key: ApiKeyView = ADMIN,
        timeout_ms: int | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> asyncio.Task[Appended]:
        """Admitted at the next turn of the loop; acknowledged when the task is done."""
        reservation = self.broker.pending.reserve(OPERATOR, sum(map(len, values)))
        records = NewRecords(list(values))
        return asyncio.ensure_future(
            self.broker.appends.append(key, topic, records, reservation, timeout_ms, conditions)
        )

    async def appended(self, topic: str, *values: bytes) -> Appended:
        task = self.append(topic, *values)
        await self.clock.advance(1)
        return await task

    async def topic(self, name: str, **settings: int | bool) -> None:
        task = asyncio.ensure_future(self.broker.topics.create(name, TopicSettings(**settings)))
        await self.clock.advance(1)
        await task

    def committing(
        self, group: str, offsets: dict[str, int], **conditions: object
    ) -> asyncio.Task[tuple[CommittedOffset, ...]]:
        """A commit that is under way; it holds 100 bytes of the budget."""
        commit = Commit(group, offsets, **conditions)  # type: ignore[arg-type]
        reservation = self.broker.pending.reserve(OPERATOR, 100)
        return asyncio.ensure_future(self.broker.groups.commit(commit, reservation))

    async def commit(
        self, group: str, offsets: dict[str, int], **conditions: object
    ) -> tuple[CommittedOffset, ...]:
        """A commit, with the time it needs."""
        return await self.done(self.committing(group, offsets, **conditions))

    async def filled(self, topic: str, count: int = 10) -> int:
        """A topic with `count` records of one entry each; its id."""
        for n in range(count):
            topic_id = (await self.appended(topic, str(n).encode())).topic_id
        return topic_id

    async def group(self, name: str = "g") -> GroupView:
        return await self.broker.groups.describe(name, lambda *_: True, everybody)

    async def group_names(self) -> list[str]:
        views, _ = await self.broker.groups.page("", 100, lambda *_: True, everybody)
        return [view.group for view in views]

    async def stand(self, topic: str = "t") -> int | None:
        """Where group g stands on the topic."""
        if "g" not in await self.group_names():
            return None
        found = (t.committed_offset for t in (await self.group()).topics if t.topic == topic)
        return next(found, None)

    async def done(self, coroutine):
        """The result of an operator's call, with the time it needs."""
        task = asyncio.ensure_future(coroutine)
        await self.clock.advance(1)
        return await task

    async def values(self, topic: str, start: From | None = None, **limits: int) -> list[bytes]:
        request = ReadRequest(start or From(earliest=True), **limits)
        result = await self.broker.read(topic, request)
        return [
            value
            for piece in result.slices
            for value in piece.batch.columns.values.slice(piece.begin, piece.end)
        ]


class Nobody:
    """An `AckCallback` that ignores what it hears."""

    def stored(self, admitted: object, window_s: float, put_s: float) -> None: ...

    def failed(self, error: SebError) -> None: ...


async def make_stream(house: House, wanted: WantedStream, name: str = "s") -> bool:
    reservation = house.broker.pending.reserve(OPERATOR, 1)
    create = house.broker.streams.create(name, wanted, [b"first"], reservation, THE_APPLIANCE)
    _, made = await house.done(create)
    return made


async def append_to_stream(house: House, value: bytes, *, close: bool = False) -> None:
    asked = StreamAppend([value], close=close)
    reservation = house.broker.pending.reserve(OPERATOR, 1)
    await house.done(house.broker.streams.append("s", asked, reservation))


@pytest.fixture
def settings() -> BrokerSettings:
    return BrokerSettings(linger_ms=10)


@pytest.fixture
async def house(settings: BrokerSettings) -> AsyncIterator[House]:
    clock = FakeClock()
    journal, source, state = FakeJournal(clock), FakeSource(), FakeState()
    with ThreadPoolExecutor(1) as executor:
        broker = Broker(
            LoadedState(ORIGIN),
            journal,
            source,
            state,
            settings,
            FakeKeyIndex(),
            clock=clock,
            executor=executor,
            random_bytes=lambda n: b"\x07" * n,
        )
        broker.start()
        await settle()
        yield House(broker, clock, journal, source, state)
        journal.release()
        await broker.stop()
