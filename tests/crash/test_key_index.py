"""Kill -9 while the key index fills: it goes on where it was, and says what the log says."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.load import Connection
from tests.support.process import Bucket, SebProcess

pytestmark = pytest.mark.slow

RECORDS, PER_REQUEST, KEYS = 300_000, 10_000, 30_000


async def asked(seb: SebProcess, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    connection = Connection(seb.port, seb.admin_key)
    try:
        sent = b"" if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        answer = await connection.request(method, path, sent, headers)
        assert answer.status < 300, answer
        return answer.json()
    finally:
        connection.close()


async def progress(seb: SebProcess, offset: int) -> None:
    """Wait until the index has come further than `offset`."""
    while True:
        index = (await asked(seb, "GET", "/v1/status"))["key_index"]
        if index["topics"] and (
            not index["behind"] or index["behind"][0]["indexed_offset"] > offset
        ):
            return


def indexed_offset(data: Path) -> int:
    """How far the index had come; 0 if it has not begun."""
    connection = sqlite3.connect(data / "keyindex.sqlite")
    try:
        row = connection.execute("SELECT indexed_offset FROM topics").fetchone()
    finally:
        connection.close()
    return 0 if row is None else int(row[0])


async def test_kills_while_the_key_index_fills_leave_it_true(tmp_path: Path) -> None:
    chance = random.Random(5)
    bucket, data = Bucket.directory(tmp_path / "bucket"), tmp_path / "data"
    seb = SebProcess(bucket, data)
    await seb.ready()
    await asked(seb, "PUT", "/v1/topics/t", {})
    newest: dict[str, int] = {}
    for base in range(0, RECORDS, PER_REQUEST):
        keys = [f"k{chance.randrange(KEYS):05}" for _ in range(PER_REQUEST)]
        newest |= {key: base + n for n, key in enumerate(keys)}
        records = [{"key": key, "value": "v"} for key in keys]
        await asked(seb, "POST", "/v1/topics/t/records", {"records": records})
    await asked(seb, "PATCH", "/v1/topics/t", {"key_index": "history"})
    reached = [0]
    while reached[-1] < RECORDS:
        await progress(seb, reached[-1])
        seb.kill()
        reached.append(indexed_offset(data))
        seb = SebProcess(bucket, data)
        await seb.ready()
    assert reached == sorted(reached), "a kill takes nothing back that was committed"
    assert any(0 < offset < RECORDS for offset in reached), reached
    found: dict[str, int] = {}
    after = ""
    while after is not None:
        page = await asked(seb, "GET", f"/v1/topics/t/keys?fresh=true&limit=1000&after={after}")
        found |= {row["key"]: row["offset"] for row in page["keys"]}
        after = page["next_after"]
    assert found == newest
    key = max(newest, key=lambda name: newest[name])
    told = await asked(seb, "GET", f"/v1/topics/t/keys/history?key={key}")
    assert told["records"][0]["offset"] == newest[key] == RECORDS - 1
    seb.kill()
