"""Kill -9 in every step of a compaction: of each record key the newest stays, once, at its
offset."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import Arena, Place, directory_arena, rounds, s3_arena
from tests.crash.test_tidying import EAGER, child_of
from tests.support.load import Connection, pass_time
from tests.support.process import SebProcess

pytestmark = pytest.mark.slow

PLACES: list[tuple[Mode, Place, list[str]]] = [
    ("A", s3_arena, ["K16", "K17", "K18"]),
    ("B", directory_arena, ["K17"]),
]
KEYS = 40
START_S = 60.0  # how long it takes is tested elsewhere
RECORDS = "/v1/topics/t/records"


class Topic:
    """What was produced, and acknowledged."""

    def __init__(self) -> None:
        self.newest: dict[str, tuple[int, str]] = {}
        self.end = 0
        self._chance = random.Random(7)

    async def produce(self, seb: SebProcess, count: int) -> None:
        keys = [f"k{self._chance.randrange(KEYS)}" for _ in range(count)]
        records = [{"key": key, "value": f"{self.end + n}"} for n, key in enumerate(keys)]
        answer = await asked(seb, "POST", RECORDS, {"records": records})
        assert answer["offset"] == self.end
        self.newest |= {key: (self.end + n, f"{self.end + n}") for n, key in enumerate(keys)}
        self.end += count

    async def check(self, seb: SebProcess) -> None:
        """What is left is the newest record of each record key, and nothing else."""
        found, offset = [], 0
        while offset < self.end:
            page = await asked(seb, "GET", f"{RECORDS}?offset={offset}&max_records=1000")
            found += [(r["key"], r["offset"], r["value"]) for r in page["records"]]
            offset = page["next_offset"]
        assert sorted(found) == sorted((key, *newest) for key, newest in self.newest.items())


async def asked(seb: SebProcess, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    key = seb.data.with_name("first.key").read_text()
    connection = Connection(seb.port, key)
    try:
        sent = b"" if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        answer = await connection.request(method, path, sent, headers)
        assert answer.status < 300, answer
        return answer.json() if answer.body else None
    finally:
        connection.close()


async def set_cleanup(seb: SebProcess, cleanup: str) -> None:
    await asked(seb, "PATCH", "/v1/topics/t", {"cleanup": cleanup})


async def in_segments(seb: SebProcess) -> None:
    """Wait until the tidier has merged what there is, but for the entry that says so."""
    while (await asked(seb, "GET", "/v1/status"))["tidier"]["waiting_bytes"] > 1_024:
        await pass_time(0.02)


async def compacted(seb: SebProcess) -> None:
    while True:
        tidier = (await asked(seb, "GET", "/v1/status"))["tidier"]
        if tidier["compacted_bytes"] and not tidier["dirty_bytes"]:
            return
        await pass_time(0.02)


async def compacting(seb: SebProcess) -> int | None:
    """The tidier's child, as soon as it compacts; None when that is done."""
    while True:
        tidier = (await asked(seb, "GET", "/v1/status"))["tidier"]
        if tidier["doing"].startswith("compact"):
            return child_of(seb)
        if tidier["compacted_bytes"] and not tidier["dirty_bytes"]:
            return None
        await pass_time(0.001)


async def begun(arena: Arena) -> SebProcess:
    """The first start, with topic t."""
    seb = arena.start("local", *EAGER, take_over=True)
    await seb.ready(within_s=START_S)
    seb.data.with_name("first.key").write_text(seb.admin_key)
    settings = {"cleanup": "none", "dirty_ratio": 0.01}
    await asked(seb, "PUT", "/v1/topics/t", settings)
    return seb


@pytest.mark.parametrize(("mode", "place", "points"), PLACES)
async def test_a_kill_in_each_step_of_a_compaction_loses_and_doubles_nothing(
    mode: Mode, place: Place, points: list[str], tmp_path: Path
) -> None:
    topic = Topic()
    async with place(mode, tmp_path) as arena:
        seb = await begun(arena)
        for i in range(rounds(1) * len(points)):
            await topic.produce(seb, 100)
            await in_segments(seb)
            seb.kill()
            seb = arena.start("local", "--no-tidier")
            await seb.ready(within_s=START_S)
            await set_cleanup(seb, "compact")
            seb.kill()
            point = points[i % len(points)]  # the first job of this start is the compaction
            dying = arena.start("local", *EAGER, fresh=i % 2 == 1, fail=f"{point}:kill:1")
            assert await dying.ended(within_s=START_S) == -9, (point, dying.shown)
            seb = arena.start("local", *EAGER, fresh=i % 3 == 1)
            await seb.ready(within_s=START_S)
            await compacted(seb)
            await topic.check(seb)
            await set_cleanup(seb, "none")
        for _ in range(3):  # snapshots
            await topic.produce(seb, 5)
            seb.process.terminate()
            assert await seb.ended() == 0, seb.shown
            seb = arena.start("local", *EAGER)
            await seb.ready(within_s=START_S)
        await arena.stop_and_compare_snapshots(seb)


async def test_the_end_of_the_child_in_a_compaction_costs_the_job_and_nothing_else(
    tmp_path: Path,
) -> None:
    topic = Topic()
    async with directory_arena("A", tmp_path) as arena:
        seb = await begun(arena)
        for _ in range(3):
            await topic.produce(seb, 10_000)
        await in_segments(seb)
        await set_cleanup(seb, "compact")
        while (child := await compacting(seb)) is None:  # over before we looked: once more
            await topic.produce(seb, 10_000)
            await in_segments(seb)
        os.kill(child, signal.SIGKILL)
        await pass_time(0.1)
        seb.kill()  # and at any moment, what it left behind is there for the next start
        seb = arena.start("local", *EAGER)
        await seb.ready(within_s=START_S)
        await compacted(seb)
        await topic.check(seb)
        assert [p for p in seb.data.iterdir() if p.name.startswith("tmp")] == []
