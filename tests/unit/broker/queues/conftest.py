"""Queue q of a broker over fakes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.takers import Taken
from seb_appliance.broker.queues.work_queues import QueueView, Result
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import NewRecords
from seb_appliance.formats.operations import QueueProgressed
from seb_appliance.formats.queues.queues import QueueSettings
from tests.unit.broker.conftest import ADMIN, House


@dataclass(frozen=True)
class Delivery:
    token: str
    topic: str
    offset: int
    attempt: int
    value: bytes | None


class Work:
    """Queue q at a house."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.queues = house.broker.queues

    async def put(self, *topics: str, **members) -> bool:
        settings = QueueSettings(topics=topics or ("t",), **members)
        return await self.house.done(self.queues.put("q", settings))

    def taking(self, most: int = 100, wait_ms: int = 0) -> asyncio.Task[list[Taken]]:
        return asyncio.ensure_future(self.queues.take("q", most, wait_ms, None, OPERATOR))

    async def take(self, most: int = 100) -> list[Delivery]:
        return self.told(await self.taking(most))

    def told(self, taken: list[Taken], queue: str = "q") -> list[Delivery]:
        found = []
        for one in taken:
            piece = one.piece
            offsets = piece.batch.offsets()[piece.begin : piece.end]
            values = piece.batch.columns.values.slice(piece.begin, piece.end)
            for offset, value, out in zip(offsets, values, one.deliveries, strict=True):
                token = self.queues.token(queue, Place(one.topic.topic_id, offset), out.lease)
                found.append(Delivery(token, one.topic.name, offset, out.attempt, value))
        return found

    async def ack(self, *deliveries: Delivery) -> list[Result]:
        tokens = [one.token for one in deliveries]
        return await self.house.done(self.queues.ack("q", tokens, OPERATOR))

    async def retry(self, *deliveries: Delivery, delay_ms: int | None = None) -> list[Result]:
        tokens = [one.token for one in deliveries]
        return await self.house.done(self.queues.retry("q", tokens, delay_ms, OPERATOR))

    async def reject(self, *deliveries: Delivery) -> list[Result]:
        tokens = [one.token for one in deliveries]
        return await self.house.done(self.queues.reject("q", tokens, "no use"))

    async def view(self) -> QueueView:
        return await self.queues.describe("q")

    def restart(self) -> None:
        """What is in memory only is gone."""
        self.queues._close(self.queues._live["q"])

    async def keyed(self, *records: tuple[bytes | None, bytes]) -> None:
        reservation = self.house.broker.pending.reserve(OPERATOR, 1)
        columns = NewRecords([value for _, value in records], [key for key, _ in records])
        await self.house.done(
            self.house.broker.appends.append(ADMIN, "t", columns, reservation, None)
        )

    def events(self) -> list[QueueProgressed]:
        return [
            operation
            for encoded in self.house.journal.entries
            for operation in encoded.entry.contents.operations
            if isinstance(operation, QueueProgressed)
        ]


@pytest.fixture
def work(house: House) -> Work:
    return Work(house)


def values(deliveries: list[Delivery]) -> list[bytes | None]:
    return [one.value for one in deliveries]
