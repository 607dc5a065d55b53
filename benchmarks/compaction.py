"""What compaction costs, and what it leaves: `python -m benchmarks.compaction`.

One appliance in a process of its own, on a directory. A topic that is compacted is filled with
records of random record keys and values that do not shrink; then it is told when the tidier is done
with it, what its child took of time and memory, how often it wrote each byte, and how large the
bucket is. In the end everything is compacted into one run, and all record keys are read back.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

PORT = 29_413
PER_REQUEST = 1_000
VALUE_BYTES = 100
TOPIC = "/v1/topics/big"


class Client:
    def __init__(self, key: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
        self.headers = {"authorization": f"Bearer {key}"}

    def __call__(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> Any:
        headers = {**self.headers, **({"content-type": kind} if kind else {})}
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text)
        is_json = "json" in (answer.getheader("content-type") or "")
        return json.loads(text) if is_json else None


class Keys:
    """Which record of each record key is the newest."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.newest: dict[int, int] = {}
        self._chance = random.Random(1)

    def batch(self, offset: int, count: int) -> bytes:
        numbers = [self._chance.randrange(self.count) for _ in range(count)]
        self.newest.update(zip(numbers, range(offset, offset + count), strict=True))
        columns = Columns(
            int64s([time.time_ns() // 1_000] * count),
            BinaryColumn.of([self._chance.randbytes(VALUE_BYTES) for _ in range(count)]),
            BinaryColumn.of([b"key-%07d" % number for number in numbers]),
        )
        return batch.encode(columns, base_offset=0, created_us=0)

    @property
    def live_bytes(self) -> int:
        """Of record keys and values."""
        return len(self.newest) * (VALUE_BYTES + len(b"key-%07d" % 0))


def most_mb(pid: int) -> float:
    """Of memory that the process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started(folder: str) -> tuple[subprocess.Popen[bytes], Client]:
    command = [sys.executable, "-m", "seb_appliance", "serve", "--port", str(PORT)]
    command += ["--bucket", f"file:{folder}/bucket", "--data", f"{folder}/data"]
    command += ["--tidy-young", "0ms", "--garbage-grace", "0ms"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    key_file = Path(folder) / "data" / "admin.key"
    while not key_file.exists():
        assert server.poll() is None
        time.sleep(0.1)
    client = Client(key_file.read_text().strip())
    while True:
        try:
            client("GET", "/readyz")
        except (OSError, AssertionError):
            client.connection.close()
            time.sleep(0.1)
        else:
            return server, client


def stopped(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    server.wait(60)


def child_of(server: subprocess.Popen[bytes]) -> int | None:
    pids = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return int(pids[0]) if pids else None


class Totals:
    """What children of the tidier took, over all starts."""

    def __init__(self) -> None:
        self.cpu_s: dict[int, float] = {}
        self.most_mb = 0.0
        self.bytes_written = self.compactions = self.records_removed = 0

    def look(self, server: subprocess.Popen[bytes]) -> None:
        child = child_of(server)
        if child is not None:
            self.cpu_s[child] = cpu_s(child)
            self.most_mb = max(self.most_mb, most_mb(child))

    def add(self, tidier: dict[str, Any]) -> None:
        self.bytes_written += tidier["bytes_written"]
        self.compactions += tidier["compactions"]
        self.records_removed += tidier["records_removed"]


def tidied(server: subprocess.Popen[bytes], client: Client, totals: Totals) -> dict[str, Any]:
    """What the status says once the tidier has had nothing to do for a while."""
    idle_s = time.monotonic()
    while True:
        found: dict[str, Any] = client("GET", "/v1/status")["tidier"]
        assert not found["failure"], found
        totals.look(server)
        if found["doing"]:
            idle_s = time.monotonic()
        if time.monotonic() - idle_s > 12:
            return found
        time.sleep(0.2)


def metric(name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def bucket_bytes(folder: str, under: str) -> int:
    place = Path(folder) / "bucket" / "_seb" / under
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def report(what: str, folder: str, keys: Keys, tidier: dict[str, Any]) -> None:
    stored = bucket_bytes(folder, "segments") + bucket_bytes(folder, "packed")
    journal = bucket_bytes(folder, "journal")
    print(
        f"{what}: segments {stored / 1e6:,.0f} MB = {stored / keys.live_bytes:.2f} x live data, "
        f"journal {journal / 1e6:,.0f} MB; {tidier['dirty_bytes'] / 1e6:,.0f} MB not compacted",
        flush=True,
    )


def filled(client: Client, keys: Keys, records: int) -> None:
    began = time.perf_counter()
    for offset in range(0, records, PER_REQUEST):
        body = keys.batch(offset, PER_REQUEST)
        answer = client("POST", f"{TOPIC}/records", body, "application/vnd.seb.batch")
        assert answer["offset"] == offset
    print(f"filled with {records:,} records in {time.perf_counter() - began:.0f} s", flush=True)


def check(client: Client, keys: Keys) -> None:
    """Read all that is left: the newest record of each record key, and those older ones that wait
    to be merged or compacted."""
    offset, found = 0, {}
    while True:
        path = f"{TOPIC}/records?offset={offset}&max_records=100000&max_bytes=16MiB"
        answer = client("GET", path)
        found.update({record["offset"]: record["key"] for record in answer["records"]})
        offset = answer["next_offset"]
        if offset == answer["log_end_offset"]:
            break
    wanted = {offset: f"key-{number:07d}" for number, offset in keys.newest.items()}
    lost = {offset: key for offset, key in wanted.items() if found.get(offset) != key}
    older = len(found) - len(wanted) + len(lost)
    print(
        f"read back: the newest record of each of {len(wanted) - len(lost):,} record keys, "
        f"{len(lost):,} are lost; {older:,} older records",
        flush=True,
    )
    assert not lost, sorted(lost.items())[:10]


def measure(folder: str, records: int, keys: Keys) -> None:
    totals = Totals()
    server, client = started(folder)
    try:
        body = json.dumps({"cleanup": "compact"}).encode()
        client("PUT", TOPIC, body, "application/json")
        filled(client, keys, records)
        began = time.perf_counter()
        tidier = tidied(server, client, totals)
        print(f"the tidier is done {time.perf_counter() - began:.0f} s after the last record")
        report("as it comes (dirty_ratio 0.5)", folder, keys, tidier)
        client("PATCH", TOPIC, b'{"dirty_ratio": 0.01}', "application/json")
        began = time.perf_counter()
        totals.add(tidied(server, client, totals))
        print(f"compacted as a whole in {time.perf_counter() - began:.0f} s")
        entry_bytes = metric("seb_entry_bytes_total")
        for _ in range(3):  # snapshots, below which entries may go
            stopped(server)
            server, client = started(folder)
        report("in the end", folder, keys, tidied(server, client, totals))
        print(
            f"{totals.compactions} compactions removed {totals.records_removed:,} records; the "
            f"tidier wrote {totals.bytes_written / 1e6:,.0f} MB, {entry_bytes / 1e6:,.0f} MB came "
            f"in: write amplification {1 + totals.bytes_written / entry_bytes:.1f}; its process "
            f"took {sum(totals.cpu_s.values()):.0f} s of CPU "
            f"({sum(totals.cpu_s.values()) / records * 1e6:.1f} us a record), "
            f"{totals.most_mb:.0f} MB at most",
            flush=True,
        )
        check(client, keys)
    finally:
        stopped(server)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(folder, asked.records, Keys(asked.keys))
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
