"""Kills of an appliance that writes a lake table: at T1 to T9 of a commit, at any moment, and after
a drop.

    python -m tests.crash.table_kills --kills 300 [--seed S] [--mode A|B]

The points are those of docs/TESTING.md. T1 and T3 to T8 kill the process that writes tables; the
appliance is killed as soon as it knows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from seb_appliance.storage.stores.object_store import list_all
from tests.crash.arena import Arena, directory_arena, s3_arena
from tests.crash.test_compaction import asked
from tests.support.lake_reader import DataFiles, Found, read_delta, read_iceberg
from tests.support.load import LostError, NotSentError, pass_time, read_topic
from tests.support.process import SebProcess

POINTS: Final = [f"T{n}" for n in range(1, 10)]
TOPIC: Final = "orders"
TABLE: Final = "iceberg,delta"
EAGER: Final = ("--tidy-bytes", "1KiB", "--tidy-young", "0ms", "--garbage-grace", "0ms")
_HINT: Final = "metadata/version-hint.text"
_WRITTEN_ANEW: Final = (_HINT, "_delta_log/_last_checkpoint")
_WITHIN_S: Final = 90.0


class TableKills:
    """`done`: kills by where they were."""

    def __init__(self, arena: Arena, seed: str) -> None:
        self.done: Counter[str] = Counter()
        self._arena = arena
        self._dice = random.Random(seed)
        self._sent = 0
        self._seen: list[Found] = []
        self._objects: dict[str, bytes] = {}
        self._dropped: list[str] = []

    async def begin(self) -> None:
        seb = self._arena.start("local", *EAGER, take_over=True)
        await seb.ready(_WITHIN_S)
        seb.data.with_name("first.key").write_text(seb.admin_key)
        settings = {"table": TABLE, "table_lag_ms": 1_000, "table_snapshots": 20}
        await asked(seb, "PUT", f"/v1/topics/{TOPIC}", settings)
        seb.kill()

    async def kill_at(self, point: str, passes: int, *, fresh: bool) -> None:
        """`fresh`: of an appliance without what was on the disk."""
        fail = f"{point}:kill:{passes}"
        seb = self._arena.start("local", *EAGER, fresh=fresh, fail=fail)
        until_s = time.monotonic() + _WITHIN_S
        with contextlib.suppress(NotSentError, LostError):
            while seb.running and not await self._has_lost_its_writer(seb):
                assert time.monotonic() < until_s, (fail, seb.shown)
                await self._send(seb)
                await pass_time(0.05)
        await self._killed(seb, point)

    async def kill_any_time(self, *, fresh: bool) -> None:
        seb = self._arena.start("local", *EAGER, fresh=fresh)
        await seb.ready(_WITHIN_S)
        until_s = time.monotonic() + self._dice.uniform(0, 4)
        while time.monotonic() < until_s:
            await self._send(seb)
            await pass_time(0.05)
        await self._killed(seb, "any moment")

    async def kill_after_a_drop(self) -> None:
        """The topic gets another table at once."""
        seb = self._arena.start("local", *EAGER)
        await seb.ready(_WITHIN_S)
        await self._send(seb)  # it may be the first kill
        table = await self._settled(seb)
        await asked(seb, "PATCH", f"/v1/topics/{TOPIC}", {"table": "none"})
        await asked(seb, "DELETE", f"/v1/tables/{table['table_id']}")
        location = table["location"]
        self._dropped.append(location[location.rindex("/tables/") + 1 :] + "/")
        await asked(seb, "PATCH", f"/v1/topics/{TOPIC}", {"table": TABLE})
        await pass_time(self._dice.uniform(0, 2))
        await self._killed(seb, "a drop")

    async def _has_lost_its_writer(self, seb: SebProcess) -> bool:
        if "admin page" not in seb.shown:  # it starts
            return False
        tables = (await asked(seb, "GET", "/v1/tables"))["tables"]
        return any(table["failure"] for table in tables)

    async def _send(self, seb: SebProcess) -> None:
        if "admin page" not in seb.shown:
            return
        records = [{"value": f"{self._sent + i}", "key": f"k{i}"} for i in range(5)]
        self._sent += len(records)
        await asked(seb, "POST", f"/v1/topics/{TOPIC}/records", {"records": records})

    async def _killed(self, seb: SebProcess, where: str) -> None:
        """Kill it if it lives; what it left behind can be read."""
        seb.kill()
        assert "Traceback" not in seb.shown, seb.shown
        self.done[where] += 1
        await self._look()

    async def _look(self) -> list[Found]:
        """At every table in the bucket; none of its objects has changed."""
        get = self._arena.store.get
        keys = [info.key for info in await list_all(self._arena.store, "tables/")]
        objects = {key: await get(key) for key in keys if not key.endswith(_WRITTEN_ANEW)}
        for key, body in objects.items():
            assert self._objects.get(key, body) == body, f"{key} was replaced by other bytes"
        self._objects = objects
        found = []
        for hint in (key for key in keys if key.endswith(_HINT)):
            location = hint.removesuffix(_HINT)
            if location in self._dropped:
                continue
            names = [key for key in keys if key.startswith(location)]
            found.append(await read_iceberg(DataFiles(get), location))
            found.append(await read_delta(DataFiles(get), names, location))
        self._seen += found
        return found

    async def _settled(self, seb: SebProcess) -> dict[str, Any]:
        """The table, once it has all that there is."""
        until_s = time.monotonic() + _WITHIN_S
        while True:
            for table in (await asked(seb, "GET", "/v1/tables"))["tables"]:
                printed = f"/v{table['commits']}." in (table["metadata"] or "")
                if printed and table["lag_records"] == 0 and table["rows"]:
                    return dict(table)
            assert time.monotonic() < until_s, seb.shown
            await pass_time(0.1)

    async def verdict(self) -> int:
        """All that was ever seen is what the log has; how many records that is."""
        seb = self._arena.start("local", *EAGER)
        await seb.ready(_WITHIN_S)
        key = seb.data.with_name("first.key").read_text()
        await self._send(seb)
        await self._settled(seb)
        await self._without(seb, self._dropped)
        log = await read_topic(seb.port, key, TOPIC)
        seb.process.terminate()
        assert await seb.ended() == 0, seb.shown
        for last in await self._look():
            assert last.next_offset == len(log), (last.next_offset, len(log))
        assert len({value for _, value in log}) == len(log)
        for seen in self._seen:
            rows = [(offset, value) for offset, _, value in seen.rows]
            assert rows == log[: seen.next_offset], (seen.next_offset, len(rows))
        await self._arena.require_sound(seb)
        return len(log)

    async def _without(self, seb: SebProcess, locations: list[str]) -> None:
        until_s = time.monotonic() + _WITHIN_S
        for location in locations:
            while await list_all(self._arena.store, location):
                assert time.monotonic() < until_s, f"{location} is not removed: {seb.shown}"
                await pass_time(0.2)


async def many(kills: int, seed: str, mode: str) -> None:
    dice = random.Random(f"{seed}/{mode}")
    place = s3_arena if mode == "A" else directory_arena
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with place("A" if mode == "A" else "B", Path(folder)) as arena:
            here = TableKills(arena, seed)
            await here.begin()
            for i in range(kills):
                kind, fresh = dice.random(), dice.random() < 0.25
                if kind < 0.7:
                    await here.kill_at(dice.choice(POINTS), dice.randint(1, 3), fresh=fresh)
                elif kind < 0.95:
                    await here.kill_any_time(fresh=fresh)
                else:
                    await here.kill_after_a_drop()
                print(f"{i + 1} {dict(here.done)} {time.monotonic() - began_s:.0f} s", flush=True)
            records = await here.verdict()
    print(f"{records} records, {sum(here.done.values())} kills: all tables were right")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.table_kills")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--mode", choices=["A", "B"], default="A")
    given = parser.parse_args()
    asyncio.run(many(given.kills, given.seed, given.mode))


if __name__ == "__main__":
    main()
