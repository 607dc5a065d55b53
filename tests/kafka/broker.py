"""`seb serve --kafka-port` as the broker of the clients: started, killed, started again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kafka.clients import CONFLUENT, driving
from tests.support.load import Connection
from tests.support.process import Bucket, SebProcess
from tests.support.servers.s3_server import free_port

WITHIN_S = 120.0


class KafkaBroker:
    """An appliance on a directory. Its ports stay the same when it is started again."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder, self.kafka_port = folder, free_port()
        self._flags = ["--kafka-port", str(self.kafka_port), "--linger", "10ms", *flags]
        self.seb: SebProcess

    async def start(self) -> None:
        bucket = Bucket.directory(self.folder / "bucket")
        self.seb = SebProcess(bucket, self.folder / "data", self._flags)
        await self.seb.ready()

    async def kill_and_start_again(self) -> None:
        self.seb.kill()
        await self.start()

    @property
    def options(self) -> dict[str, Any]:
        """What each driver is told."""
        return {"brokers": f"127.0.0.1:{self.kafka_port}", "password": self.seb.admin_key}

    async def create(self, topic: str, partitions: int) -> None:
        given = {**self.options, "topic": topic, "partitions": partitions}
        async with driving(CONFLUENT, "create", self.folder, **given) as creating:
            await creating.done()

    async def values(self, topic: str, partitions: int) -> list[list[int]]:
        """The numbers of each partition in order, by HTTP."""
        names = [topic, *(f"{topic}.kafka-{part}" for part in range(1, partitions))]
        connection = Connection(self.seb.port)
        try:
            return [await self._values(connection, name) for name in names]
        finally:
            connection.close()

    async def _values(self, connection: Connection, name: str) -> list[int]:
        found: list[int] = []
        offset = 0
        headers = {"Authorization": f"Bearer {self.seb.admin_key}"}
        while True:
            path = f"/v1/topics/{name}/records?offset={offset}"
            answer = await connection.request("GET", path, headers=headers)
            assert answer.status == 200, answer
            read = json.loads(answer.body)
            if not read["records"]:
                return found
            found += [int(one["value"]) for one in read["records"]]
            offset = read["next_offset"]

    async def holds(self, topic: str, partitions: int, count: int) -> None:
        """Wait until the partitions have so many records."""
        until_s = time.monotonic() + WITHIN_S
        while (found := sum(map(len, await self.values(topic, partitions)))) < count:
            assert time.monotonic() < until_s, f"{topic} has {found} of {count} records"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def kafka_broker(folder: Path, *flags: str) -> AsyncIterator[KafkaBroker]:
    broker = KafkaBroker(folder, *flags)
    await broker.start()
    try:
        yield broker
    finally:
        broker.seb.kill()
