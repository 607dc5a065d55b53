"""Contents, newest records, history and listing of a compacted topic equal a dictionary, whatever
is produced, deleted, compacted, trimmed, let go by retention, and started again."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest

from seb_appliance import limits
from tests.model.test_record_keys_model import KEYS, asked, key_of
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.tidied import FLAGS, compact

Record = tuple[bytes | None, str | None]


class Log:
    """`records` by offset, those below `start` apart."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.start = self.end = 0
        self.compacted = 0  # below it nothing older of any record key is left
        self.tombstones_go = True

    def append(self, records: list[Record]) -> None:
        self.records.update(enumerate(records, self.end))
        self.end += len(records)

    def trim(self, start: int) -> None:
        self.start = start
        self.records = {o: record for o, record in self.records.items() if o >= start}

    def compact(self) -> None:
        newest = {key: o for o, (key, _) in self.records.items() if key is not None}
        self.records = {
            o: (key, value)
            for o, (key, value) in self.records.items()
            if key is None
            or (
                newest[key] == o
                and (
                    value is not None
                    or not self.tombstones_go
                    or o >= self.compacted
                    or o == self.end - 1
                )
            )
        }
        self.compacted = self.end

    def newest(self) -> dict[bytes, tuple[int, str]]:
        found: dict[bytes, tuple[int, str]] = {}
        for offset, (key, value) in sorted(self.records.items()):
            if key is not None:
                found.pop(key, None)
                if value is not None:
                    found[key] = (offset, value)
        return found


async def contents(seb: RunningAppliance, pages_of: int) -> dict[int, Record]:
    found: dict[int, Record] = {}
    at = "earliest"
    while True:
        query = {"offset": at, "max_records": pages_of}
        page = (await seb.client.get("/v1/topics/t/records", params=query)).json()
        for item in page["records"]:
            assert item["offset"] not in found
            keyed = "key_base64" in item or item["key"] is not None
            found[item["offset"]] = (key_of(item) if keyed else None, item["value"])
        at = page["next_offset"]
        if at == page["log_end_offset"]:
            return found


async def check(seb: RunningAppliance, log: Log, chance: random.Random) -> None:
    assert await contents(seb, chance.choice([1, 7, 1_000])) == log.records
    newest = log.newest()
    page = await asked(seb, "keys", {"fresh": True, "limit": 1_000})
    assert [(key_of(row), row["offset"]) for row in page["keys"]] == sorted(
        (key, offset) for key, (offset, _) in newest.items()
    )
    view = await asked(seb, "records?view=latest&fresh=true", {})
    assert [(r["offset"], key_of(r), r["value"]) for r in view["records"]] == sorted(
        (offset, key, value) for key, (offset, value) in newest.items()
    )
    for key in KEYS:
        named = {"key_base64": base64.b64encode(key).decode(), "fresh": True, "limit": 1_000}
        told = await asked(seb, "keys/history", named)
        listed = [(o, v) for o, (k, v) in sorted(log.records.items()) if k == key]
        assert [(r["offset"], r["value"]) for r in told["records"]] == listed[::-1]
        del named["limit"]
        record = (await asked(seb, "keys/latest", named)).get("record")
        assert (record and (record["offset"], record["value"])) == newest.get(key)


async def produce(seb: RunningAppliance, log: Log, chance: random.Random) -> None:
    records: list[Record] = []
    for n in range(chance.randint(1, 20)):
        key = None if chance.random() < 0.1 else chance.choice(KEYS)
        gone = key is not None and chance.random() < 0.3
        records.append((key, None if gone else f"v{log.end + n}"))
    sent = [
        {"value": value} | ({} if key is None else {"key_base64": base64.b64encode(key).decode()})
        for key, value in records
    ]
    answer = await seb.client.post("/v1/topics/t/records", json={"records": sent})
    assert answer.json()["offset"] == log.end
    log.append(records)


async def manage(seb: RunningAppliance, log: Log, chance: random.Random) -> None:
    what = chance.random()
    if what < 0.2 and log.end:
        start = chance.randint(log.start, log.end)
        await seb.client.post("/v1/topics/t/trim", json={"before": start})
        log.trim(start)
    elif what < 0.4:
        log.tombstones_go = not log.tombstones_go
        retention_ms = 0 if log.tombstones_go else None
        await change(seb, tombstone_retention_ms=retention_ms)
    elif what < 0.5:
        size = (await seb.client.get("/v1/topics/t")).json()["size_bytes"]
        await change(seb, cleanup="compact,delete", retention_bytes=chance.randint(1, size + 1))
        await seb.appliance.tidier.step()
        await change(seb, cleanup="compact", retention_bytes=None)
        start = (await seb.client.get("/v1/topics/t")).json()["log_start_offset"]
        log.trim(start)
    elif what < 0.6:
        await seb.client.delete("/v1/topics/t")
        log.__init__()  # type: ignore[misc]
        await make(seb)


async def change(seb: RunningAppliance, **settings: Any) -> None:
    assert (await seb.client.patch("/v1/topics/t", json=settings)).status_code == 200


async def make(seb: RunningAppliance) -> None:
    settings = {"cleanup": "compact", "key_index": "history", "dirty_ratio": 0.01}
    await seb.client.put("/v1/topics/t", json={**settings, "tombstone_retention_ms": 0})


async def history(folder: Path, seed: int, starts: int, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
    patch.setattr(limits, "RETENTION_EVERY_S", -1.0)
    patch.setattr(limits, "COMPACTION_KEYS_BYTES", 500)
    chance = random.Random(seed)
    log = Log()
    flags = {**FLAGS, "bucket": f"file:{folder / 'bucket'}", "tidy_after": "0ms"}
    async with running_appliance(folder / "data", **flags) as seb:
        await make(seb)
    for _ in range(starts):
        async with running_appliance(folder / "data", **flags) as seb:
            for _ in range(6):
                await produce(seb, log, chance)
                if chance.random() < 0.3:
                    await manage(seb, log, chance)
                if chance.random() < 0.5:
                    before = log.end
                    await compact(seb.appliance)
                    assert log.end == before
                    log.compact()
                    if chance.random() < 0.5:
                        await check(seb, log, chance)
            await check(seb, log, chance)


async def test_answers_equal_a_dictionary_while_a_topic_is_compacted(tmp_path, monkeypatch):
    await history(tmp_path, seed=0, starts=1, patch=monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
async def test_answers_equal_a_dictionary_in_many_compacted_histories(tmp_path, monkeypatch, seed):
    await history(tmp_path, seed, starts=4, patch=monkeypatch)
