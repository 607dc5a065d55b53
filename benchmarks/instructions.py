"""How many instructions a request takes inside the process, without kernel and sockets.

    python benchmarks/instructions.py [--json]

Counted by callgrind (Debian's package valgrind): the difference of two runs, so that what a start
takes falls out. The same code gives the same number within a percent or two, whatever else the
machine does: compare it before and after a change.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

FEW, MANY = 500, 2_500
AT_ONCE = 250  # that many connections append to one window
COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")

WORKS = {
    "append": "append of 1 KiB",
    "append-batch": "append of a batch of 32 x 1 KiB",
    "append-topics": "append of 1 KiB, each to another topic",
    "read-batch": "read of 1,024 x 256 B as record batch",
    "read-ndjson": "read of 32 x 1 KiB as NDJSON",
}


def count(work: str, times: int) -> int:
    """Instructions of a process that does `work` so many times. Raises SystemExit."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [sys.executable, __file__, "--run", work, str(times)]
    # Sets and dicts of strings are in the same order each time.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError:
        raise SystemExit("valgrind is not installed: apt install valgrind") from None
    found = COLLECTED.search(ran.stderr)
    if ran.returncode or found is None:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return int(found[1])


def main() -> None:
    counted = {}
    for work, words in WORKS.items():
        each = (count(work, MANY) - count(work, FEW)) / (MANY - FEW)
        counted[work] = round(each)
        if "--json" not in sys.argv:
            print(f"{words:44} {each:>12,.0f} instructions", flush=True)
    if "--json" in sys.argv:
        print(json.dumps(counted))


# --- in the counted process ---


async def run(work: str, times: int) -> None:
    from tests.support.appliance import running_appliance

    with tempfile.TemporaryDirectory() as folder:
        async with running_appliance(Path(folder), tidier=False) as seb:
            connections = Answered(seb)
            work_of = read if work.startswith("read") else append
            await work_of(seb, connections, work, times)
            connections.leave()


async def append(seb, asked: Answered, work: str, times: int) -> None:  # type: ignore[no-untyped-def]
    topics = AT_ONCE if work == "append-topics" else 1
    for topic in range(topics):
        await seb.client.put(f"/v1/topics/t{topic}", json={})
    value = batch_of(32, 1_024) if work == "append-batch" else bytes(range(256)) * 4
    kind = "application/vnd.seb.batch" if work == "append-batch" else "application/octet-stream"
    heads = [
        f"POST /v1/topics/t{i % topics}/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        f"{seb.admin_key}\r\nContent-Type: {kind}\r\nContent-Length: {len(value)}\r\n\r\n"
        for i in range(AT_ONCE)
    ]
    requests = [head.encode() + value for head in heads]
    for _ in range(times // AT_ONCE):
        await asked.ask(requests, b"HTTP/1.1 201")


async def read(seb, asked: Answered, work: str, times: int) -> None:  # type: ignore[no-untyped-def]
    records, size, kind = (
        (1_024, 256, "application/vnd.seb.batch")
        if work == "read-batch"
        else (32, 1_024, "application/x-ndjson")
    )
    await seb.client.put("/v1/topics/t", json={})
    headers = {"content-type": "application/vnd.seb.batch"}
    for _ in range(4):
        await seb.client.post(
            "/v1/topics/t/records", content=batch_of(records, size), headers=headers
        )
    heads = [
        f"GET /v1/topics/t/records?offset={i % (3 * records)}&max_records={records} HTTP/1.1\r\n"
        f"Host: x\r\nAuthorization: Bearer {seb.admin_key}\r\nAccept: {kind}\r\n\r\n"
        for i in range(times)
    ]
    for head in heads:
        await asked.ask([head.encode()], b"HTTP/1.1 200")


class Answered:
    """Connections, each asked once at a time; `done` when all that were asked have answered."""

    def __init__(self, seb) -> None:  # type: ignore[no-untyped-def]
        from tests.support.lanes import Lane

        class Connection(Lane):
            def write(connection, data) -> None:  # type: ignore[no-untyped-def] # noqa: N805
                assert data.startswith(self.wanted), data
                self.missing -= 1
                if not self.missing:
                    self.done.set_result(None)

        self._new = lambda: Connection(seb)
        self._connections: list[Connection] = []
        self.wanted = b""
        self.missing = 0
        self.done = asyncio.get_running_loop().create_future()

    async def ask(self, requests: list[bytes], wanted: bytes) -> None:
        """Each on a connection of its own, at once."""
        while len(self._connections) < len(requests):
            self._connections.append(self._new())
        self.wanted, self.missing = wanted, len(requests)
        self.done = asyncio.get_running_loop().create_future()
        for connection, request in zip(self._connections, requests, strict=False):
            connection.protocol.data_received(request)
        await self.done
        await asyncio.sleep(0)  # whoever answered last is not done with it yet

    def leave(self) -> None:
        for connection in self._connections:
            connection.leave()


def batch_of(count: int, size: int) -> bytes:
    from seb_appliance.formats import batch
    from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

    values = BinaryColumn.of([bytes(size)] * count)
    columns = Columns(int64s([1_700_000_000_000_000] * count), values)
    return batch.encode(columns, base_offset=0, created_us=1_700_000_000_000_000)


if __name__ == "__main__":
    if "--run" in sys.argv:
        asyncio.run(run(sys.argv[2], int(sys.argv[3])))
    else:
        main()
