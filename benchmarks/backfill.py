"""What a backfill of a table costs those who produce: `python -m benchmarks.backfill`.

One appliance on a directory, with a topic of so many records of about 200 bytes. `seb bench` sends
to another topic at a fixed rate, in turns without and with a backfill that goes on all the time.
Tells the p99 of both, and how long records of a topic with a short lag waited for their table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.tables import SIX, reading
from tests.support.process import Bucket, SebProcess, seb_process

OLD = "/v1/topics/old"
LINES = 10_000
SECONDS = 6


class Api:
    def __init__(self, seb: SebProcess) -> None:
        self._connection = HTTPConnection("127.0.0.1", seb.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {seb.admin_key}"}

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body)
        self._connection.request(method, path, content, {**self._headers, "Content-Type": kind})
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (method, path, answer.status, text)
        return json.loads(text) if text else None

    def fill(self, topic: str, records: int) -> None:
        self.call("PUT", topic, {})
        lines = b"\n".join(b'{"value": %b}' % reading() for _ in range(LINES))
        for _ in range(records // LINES):
            self.call("POST", f"{topic}/records", lines, "application/x-ndjson")

    def wait_for_rows(self, records: int) -> None:
        while not any(one["rows"] >= records for one in self.call("GET", "/v1/tables")["tables"]):
            time.sleep(0.1)


async def p99_ms(seb: SebProcess, rate: int) -> float:
    """Of appends to a topic of its own."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "seb_appliance", "bench", "produce", "--json"),
        *("--url", f"http://127.0.0.1:{seb.port}", "--key-file", str(seb.data / "admin.key")),
        *("--rate", str(rate), "--record-bytes", "1000", "--duration", f"{SECONDS}s"),
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await child.communicate()
    assert child.returncode == 0, told
    result = json.loads(told)
    return dict(result["rows"][0]["latency"]["at"])[99.0] / 1_000


async def again_and_again(api: Api, records: int, enough: asyncio.Event, done: list[float]) -> None:
    """Make the table from the log start, drop it, and so on, until that is enough."""
    while not enough.is_set():
        began_s = time.monotonic()
        await asyncio.to_thread(api.call, "PATCH", OLD, {"table": "iceberg", "table_columns": SIX})
        await asyncio.to_thread(api.wait_for_rows, records)
        done.append(time.monotonic() - began_s)
        await asyncio.to_thread(api.call, "PATCH", OLD, {"table": "none", "table_columns": None})
        await asyncio.to_thread(api.call, "DELETE", "/v1/tables/old")


async def measure(folder: Path, records: int, rate: int, rounds: int) -> None:
    async with seb_process(Bucket.directory(folder / "bucket"), folder / "data") as seb:
        api = Api(seb)
        api.fill(OLD, records)
        alone: list[float] = []
        beside: list[float] = []
        backfills: list[float] = []
        for _ in range(rounds):
            alone.append(await p99_ms(seb, rate))
            enough = asyncio.Event()
            busy = asyncio.create_task(again_and_again(Api(seb), records, enough, backfills))
            beside.append(await p99_ms(seb, rate))
            enough.set()
            await busy
        ratio = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
        print(f"p99 of appends: {show(alone)} ms alone, {show(beside)} ms beside a backfill, "
              f"{ratio:.2f} times (asked: 1.20)")  # fmt: skip
        print(f"{len(backfills)} backfills of {records:,} records in {show(backfills)} s")


def show(figures: list[float]) -> str:
    return ", ".join(f"{one:.1f}" for one in figures)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), asked.records, asked.rate, asked.rounds))


if __name__ == "__main__":
    main()
