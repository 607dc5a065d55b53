"""A read-process-write loop is exactly-once: every input is in the output once, in order, whatever
kills the appliance, and whatever is sent again."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import directory_arena, rounds
from tests.support.load import Connection, LostError, NotSentError, Response, read_topic
from tests.support.producer import Doors

pytestmark = pytest.mark.slow

INPUTS = 4_000
PAUSE_S = 0.01
KEYED, BLIND = "keyed", "blind"


@dataclass
class Client:
    """Sends each request until it is answered with more than "try again"."""

    doors: Doors
    answers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._connection = Connection(0)

    def close(self) -> None:
        self._connection.close()

    async def asked(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Response:
        content = b"" if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **(headers or {})}
        while True:
            port = self.doors.ports[0]
            if self._connection.port != port:
                self._connection.close()
                self._connection = Connection(port, self.doors.key)
            try:
                answer = await self._connection.request(method, path, content, given, 3)
            except (NotSentError, LostError) as error:
                self.answers[type(error).__name__] += 1
            else:
                self.answers[
                    "replayed" if "idempotency-replayed" in answer.headers else answer.code
                ] += 1
                if answer.status < 500:
                    return answer
            await asyncio.sleep(PAUSE_S)


async def feed(client: Client, seed: str) -> None:
    """The inputs 0, 1, 2, … by an idempotent producer that sends each seq until it is answered."""
    dice = random.Random(f"{seed}/feed")
    n = seq = 0
    while n < INPUTS:
        count = min(dice.randint(1, 40), INPUTS - n)
        records = [{"value": str(i)} for i in range(n, n + count)]
        headers = {"Producer-Id": "feed", "Producer-Epoch": "0", "Producer-Seq": str(seq)}
        answer = await client.asked("POST", "/v1/topics/in/records", {"records": records}, headers)
        assert answer.status in (200, 201), answer.body
        assert answer.json()["offset"] == n, answer.body
        n, seq = n + count, seq + 1


async def work(client: Client, how: str, seed: str) -> None:
    """Read from the committed offset on, write what was read to another topic, commit: until all
    inputs were committed. Holds no state of its own but the step it is at."""
    dice = random.Random(f"{seed}/work")
    out, group = f"out.{how}", how
    while True:
        query = f"max_records={dice.randint(1, 30)}&wait=100ms"
        page = await client.asked("GET", f"/v1/groups/{group}/topics/in/records?{query}")
        if page.status == 404:  # nothing was fed yet
            await asyncio.sleep(PAUSE_S)
            continue
        found = page.json()
        if not found["records"]:
            if found["next_offset"] == INPUTS:
                return
            continue
        step = {
            "produce": {out: [{"value": record["value"]} for record in found["records"]]},
            "commit": {"group": group, "offsets": {"in": found["next_offset"]}},
        }
        first = found["records"][0]["offset"]
        headers = {"Idempotency-Key": f"step-{first}"} if how == KEYED else {}
        answer = await client.asked("POST", "/v1/transactions", step, headers)
        if how == BLIND and answer.code == "commit_backward":
            continue  # the answer was lost, the step was not
        assert answer.status == 201, answer.body


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_a_read_process_write_loop_is_exactly_once_under_kills(
    mode: Mode, tmp_path: Path
) -> None:
    dice = random.Random(f"exactly-once/{mode}")
    async with directory_arena(mode, tmp_path) as arena:
        seb = arena.start(take_over=True)
        await seb.ready()
        doors = Doors(seb.admin_key, [seb.port])
        clients = [Client(doors) for _ in range(3)]
        tasks = [
            asyncio.create_task(feed(clients[0], mode)),
            asyncio.create_task(work(clients[1], KEYED, mode)),
            asyncio.create_task(work(clients[2], BLIND, mode)),
        ]
        kills = 0
        until_s = time.monotonic() + 60 + 10 * rounds(8)
        while not all(task.done() for task in tasks):
            assert time.monotonic() < until_s, [client.answers for client in clients]
            await asyncio.wait(tasks, timeout=dice.uniform(0.05, 0.6))
            if kills < rounds(8):
                seb.kill()
                kills += 1
                seb = arena.start(fresh=kills % 2 == 0)
                doors.ports[:] = [seb.port]
                await seb.ready()
        await asyncio.gather(*tasks)
        for client in clients:
            client.close()
        for topic in ("in", f"out.{KEYED}", f"out.{BLIND}"):
            log = await read_topic(seb.port, doors.key, topic)
            assert [int(value) for _, value in log] == list(range(INPUTS)), topic
        print(f"{kills} kills;", *(dict(client.answers) for client in clients))
        await arena.stop_and_compare(seb)
