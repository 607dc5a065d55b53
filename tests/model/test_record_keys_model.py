"""Latest, history, listing and view of a whole appliance equal a dictionary, whatever happens to
the key index: restarts, a file that is lost, damaged or old, another setting, a topic trimmed, or
made anew."""

from __future__ import annotations

import asyncio
import base64
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.appliance import RunningAppliance, running_appliance

KEYS = [b"", b"\0", b"\xff", b"a/b", *(b"k%d" % n for n in range(8))]
SETTINGS = ("latest", "history", "none")


class Log:
    """What is in the topic, and what is to be answered about it."""

    def __init__(self) -> None:
        self.key_index = "history"
        self.records: list[tuple[bytes | None, str | None]] = []
        self.start = 0

    def newest(self) -> dict[bytes, tuple[int, str]]:
        found: dict[bytes, tuple[int, str]] = {}
        for offset, (key, value) in enumerate(self.records):
            if key is not None:
                found.pop(key, None)
                if value is not None:
                    found[key] = (offset, value)
        return {key: newest for key, newest in found.items() if newest[0] >= self.start}

    def history(self, key: bytes) -> list[tuple[int, str | None]]:
        """Newest first."""
        listed = [(o, v) for o, (k, v) in enumerate(self.records) if k == key and o >= self.start]
        return listed[::-1]


async def asked(seb: RunningAppliance, path: str, question: dict[str, Any]) -> dict[str, Any]:
    """The answer, once a damaged index is rebuilt; 404 becomes {}."""
    for _ in range(200):
        if question:
            answer = await seb.client.post(f"/v1/topics/t/{path}", json=question)
        else:
            answer = await seb.client.get(f"/v1/topics/t/{path}")
        if answer.status_code != 503:
            break
        await asyncio.sleep(0.02)
    assert answer.status_code in (200, 404), answer.text
    return answer.json() if answer.status_code == 200 else {}


def key_of(item: dict[str, Any]) -> bytes:
    return base64.b64decode(item["key_base64"]) if "key_base64" in item else item["key"].encode()


async def check(seb: RunningAppliance, log: Log) -> None:
    if log.key_index == "none":
        return
    newest = log.newest()
    page = await asked(seb, "keys", {"fresh": True, "limit": 1_000})
    assert [(key_of(row), row["offset"]) for row in page["keys"]] == sorted(
        (key, offset) for key, (offset, _) in newest.items()
    )
    assert page["indexed_offset"] == len(log.records)
    view = await asked(seb, "records?view=latest&fresh=true", {})
    assert [(r["offset"], key_of(r), r["value"]) for r in view["records"]] == sorted(
        (offset, key, value) for key, (offset, value) in newest.items()
    )
    for key in KEYS:
        named = {"key_base64": base64.b64encode(key).decode(), "fresh": True, "limit": 1_000}
        if log.key_index == "history":
            told = await asked(seb, "keys/history", named)
            assert [(r["offset"], r["value"]) for r in told["records"]] == log.history(key)
        del named["limit"]
        found = await asked(seb, "keys/latest", named)
        record = found.get("record")
        assert (record and (record["offset"], record["value"])) == newest.get(key)


async def produce(seb: RunningAppliance, log: Log, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 3)):
        fresh = [
            (
                None if chance.random() < 0.1 else chance.choice(KEYS),
                f"v{len(log.records) + n}",
            )
            for n in range(chance.randint(1, 20))
        ]
        records = [
            (key, None if key is not None and chance.random() < 0.2 else value)
            for key, value in fresh
        ]
        sent = [
            {"value": value}
            if key is None
            else {"value": value, "key_base64": base64.b64encode(key).decode()}
            for key, value in records
        ]
        answer = await seb.client.post("/v1/topics/t/records", json={"records": sent})
        assert answer.json()["offset"] == len(log.records)
        log.records += records


async def manage(seb: RunningAppliance, log: Log, chance: random.Random) -> None:
    what = chance.random()
    if what < 0.25:
        log.key_index = chance.choice(SETTINGS)
        await seb.client.patch("/v1/topics/t", json={"key_index": log.key_index})
    elif what < 0.35:
        await seb.client.delete("/v1/topics/t")
        log.records, log.start = [], 0
        await seb.client.put("/v1/topics/t", json={"key_index": log.key_index})
    elif what < 0.6:
        log.start = chance.randint(log.start, len(log.records))
        await seb.client.post("/v1/topics/t/trim", json={"before": log.start})


def meddle(data: Path, aside: Path, chance: random.Random) -> None:
    """Something befalls the file of an index while the appliance is down."""
    path = data / "keyindex.sqlite"
    what = chance.choice(["nothing", "lost", "cut", "flipped", "old", "kept"])
    if what == "lost":
        path.unlink()
    elif what == "cut":
        path.write_bytes(path.read_bytes()[: chance.randint(0, path.stat().st_size)])
    elif what == "flipped":
        damaged = bytearray(path.read_bytes())
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
    elif what == "old" and aside.exists():
        shutil.copy(aside, path)
    elif what == "kept":
        shutil.copy(path, aside)


async def history(folder: Path, seed: int, starts: int) -> None:
    chance = random.Random(seed)
    log = Log()
    data, bucket = folder / "data", f"file:{folder / 'bucket'}"
    async with running_appliance(data, bucket=bucket) as seb:
        await seb.client.put("/v1/topics/t", json={"key_index": log.key_index})
    for _ in range(starts):
        meddle(data, folder / "aside", chance)
        async with running_appliance(data, bucket=bucket) as seb:
            await produce(seb, log, chance)
            await manage(seb, log, chance)
            await produce(seb, log, chance)
            if chance.random() < 0.8:
                await check(seb, log)


async def test_answers_equal_a_dictionary_whatever_befalls_the_index(tmp_path):
    await history(tmp_path, seed=0, starts=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 20))
async def test_answers_equal_a_dictionary_in_many_histories(tmp_path, seed):
    await history(tmp_path, seed, starts=8)
