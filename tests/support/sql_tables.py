"""An appliance with a table on a directory, whose files are written by a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from seb_appliance.broker.lake.queries import SqlRows
from tests.support.appliance import RunningAppliance, running_appliance

TOPIC = "/v1/topics/Orders.eu"
VALUES = [{"customer": f"c{i % 3}", "total": i / 2} for i in range(20)]


class EndlessSql:
    """In place of the runner: a statement that goes on until it is cancelled."""

    def __init__(self) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, _: Any) -> SqlRows:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        raise AssertionError


class Sql:
    def __init__(self, seb: RunningAppliance) -> None:
        self.seb = seb

    async def ask(self, statement: str, **more: Any) -> Any:
        headers = {"authorization": f"Bearer {more.pop('key')}"} if "key" in more else {}
        return await self.seb.client.post(
            "/v1/sql", json={"sql": statement, **more}, headers=headers
        )

    async def rows(self, statement: str, **more: Any) -> list[list[Any]]:
        answer = await self.ask(statement, **more)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["rows"])

    async def refused(self, statement: str, **more: Any) -> tuple[str, str]:
        answer = await self.ask(statement, **more)
        assert answer.status_code >= 400, answer.text
        assert not answer.json()["retryable"]
        return answer.json()["code"], answer.json()["detail"]

    async def send(self, *values: Any, headers: dict[str, str] | None = None) -> None:
        records = [{"value": json.dumps(one), "headers": headers or {}} for one in values]
        answer = await self.seb.client.post(f"{TOPIC}/records", json={"records": records})
        assert answer.status_code == 201, answer.text
        await self.settle()

    async def change(self, **settings: Any) -> None:
        assert (await self.seb.client.patch(TOPIC, json=settings)).status_code == 200
        await self.settle()

    async def settle(self) -> None:
        appliance = self.seb.appliance
        for table in appliance.broker.tables.all():
            appliance.broker.table_commits.lags.wait_from(table, -math.inf)
        while await appliance.tables.step():
            pass


@contextlib.asynccontextmanager
async def ground(folder: Path) -> AsyncIterator[Sql]:
    flags = {"bucket": f"file:{folder / 'bucket'}", "tidier": "off"}
    async with running_appliance(folder / "data", **flags) as seb:
        made = await seb.client.put(
            TOPIC, json={"table": "iceberg", "table_columns": "customer:string, total:double"}
        )
        assert made.status_code == 201, made.text
        sql = Sql(seb)
        await sql.send(*VALUES)
        yield sql
