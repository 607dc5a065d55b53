"""What record keys cost, and how fast they answer: `python -m benchmarks.record_keys`.

One appliance in a process of its own, on a directory. First a topic is filled without an index and
the index is switched on: how long it takes, and how much memory. Then records are produced at a
steady rate with and without an index, and questions are asked meanwhile.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

PORT = 29_313
PER_REQUEST = 1_000
PRODUCERS = 4  # connections
VALUE = (
    b'{"device":"%07d","reading":%012d,"unit":"celsius","place":"northern hall","state":"alive"}'
)
NOW_US = time.time_ns() // 1_000


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
        return json.loads(text) if text else None

    def set_index(self, topic: str, mode: str) -> None:
        body = json.dumps({"key_index": mode}).encode()
        self("PATCH", f"/v1/topics/{topic}", body, "application/json")


def made_batch(chance: random.Random, keys: int, records: int) -> bytes:
    """Values of 100 bytes that shrink as JSON does, to about a quarter."""
    numbers = [chance.randrange(keys) for _ in range(records)]
    columns = Columns(
        int64s([NOW_US] * records),
        BinaryColumn.of([VALUE % (n, chance.randrange(10**12)) for n in numbers]),
        BinaryColumn.of([b"key-%07d" % n for n in numbers]),
    )
    return batch.encode(columns, base_offset=0, created_us=0)


def rss_mb(pid: int, name: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise AssertionError(name)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(times_s: list[float], share: float) -> float:
    """In milliseconds."""
    return sorted(times_s)[int(len(times_s) * share)] * 1000 if times_s else float("nan")


def shown(times_s: list[float]) -> str:
    shares = ", ".join(f"p{s * 100:.0f} {percentile(times_s, s):.2f}" for s in (0.5, 0.95, 0.99))
    return f"{shares} ms"


def timed(call: Callable[..., object], *args: object) -> float:
    began = time.perf_counter()
    call(*args)
    return time.perf_counter() - began


def indexed(client: Client, topic: str) -> tuple[int, int]:
    found = client("GET", "/v1/status")["key_index"]
    behind = next((t for t in found["behind"] if t["topic"] == topic), None)
    return found["lag_records"], 0 if behind is None else behind["indexed_offset"]


def fill(client: Client, topic: str, records: int, keys: int) -> None:
    chance = random.Random(1)
    bodies = [
        made_batch(chance, keys, PER_REQUEST) for _ in range(min(300, records // PER_REQUEST))
    ]
    began = time.perf_counter()
    for n in range(records // PER_REQUEST):
        if n % len(bodies) == 0 and n:
            bodies = [made_batch(chance, keys, PER_REQUEST) for _ in bodies]
        path = f"/v1/topics/{topic}/records"
        client("POST", path, bodies[n % len(bodies)], "application/vnd.seb.batch")
    print(f"filled with {records:,} records in {time.perf_counter() - began:.0f} s", flush=True)


def build(client: Client, topic: str, mode: str, pid: int) -> None:
    before_mb, before_s = rss_mb(pid), cpu_s(pid)
    began = time.perf_counter()
    client.set_index(topic, mode)
    ready: list[float] = []
    while True:
        lag, _ = indexed(client, topic)
        if lag == 0:
            break
        ready.append(timed(client, "GET", "/healthz"))
        time.sleep(0.1)
    took = time.perf_counter() - began
    size_mb = client("GET", "/v1/status")["key_index"]["size_bytes"] / 2**20
    print(
        f"index {mode}: built in {took:.0f} s ({cpu_s(pid) - before_s:.0f} s of CPU), "
        f"RSS {before_mb:.0f} → {rss_mb(pid):.0f} MB (most {rss_mb(pid, 'VmHWM'):.0f}), "
        f"{size_mb:.0f} MB on disk; /healthz meanwhile {shown(ready)}",
        flush=True,
    )


def produce(key: str, topic: str, per_s: int, over: Event, told: Connection) -> None:
    """Produce so many records a second, 50 at a time, until it is over; tell how long each took. In
    a process of its own: who asks must not wait for this one's interpreter."""
    chance = random.Random(2)
    bodies = [made_batch(chance, 1_000_000, 50) for _ in range(200)]
    path = f"/v1/topics/{topic}/records"
    times_s: list[float] = []

    def one(first: int) -> None:
        client, began = Client(key), time.perf_counter()
        for n in count():
            time.sleep(max(0.0, began + n * 50 * PRODUCERS / per_s - time.perf_counter()))
            if over.is_set():
                return
            body = bodies[(first + n) % len(bodies)]
            times_s.append(timed(client, "POST", path, body, "application/vnd.seb.batch"))

    threads = [threading.Thread(target=one, args=(n * 50,)) for n in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.send(times_s)


def steady(client: Client, key: str, topic: str, seconds: float, per_s: int, *, ask: bool) -> None:
    """Records at a steady rate; questions about their keys meanwhile."""
    over, (told, telling) = multiprocessing.Event(), multiprocessing.Pipe(duplex=False)
    producing = multiprocessing.Process(target=produce, args=(key, topic, per_s, over, telling))
    producing.start()
    asked = asking(client, topic, seconds) if ask else time.sleep(seconds)
    over.set()
    produce_s = told.recv()
    producing.join()
    rate = len(produce_s) * 50 / seconds
    print(f"{topic}: {rate:,.0f} records/s produced, {shown(produce_s)}{asked or ''}", flush=True)


def asking(client: Client, topic: str, seconds: float) -> str:
    chance = random.Random(3)
    latest_s: list[float] = []
    page_s: list[float] = []
    health_s: list[float] = []  # what the machine and HTTP take
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        name = f"key-{chance.randrange(1_000_000):07d}"
        with suppress(AssertionError):
            path = f"/v1/topics/{topic}/keys/latest?key={name}"
            latest_s.append(timed(client, "GET", path))
        path = f"/v1/topics/{topic}/keys?prefix={name[:9]}&limit=100"
        page_s.append(timed(client, "GET", path))
        health_s.append(timed(client, "GET", "/healthz"))
        time.sleep(0.01)
    return f"; latest {shown(latest_s)}; prefix page {shown(page_s)}; /healthz {shown(health_s)}"


def as_fast_as_it_goes(client: Client, topic: str, seconds: float) -> None:
    bodies = [made_batch(random.Random(3), 1_000_000, 1_000) for _ in range(100)]
    n, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        path = f"/v1/topics/{topic}/records"
        client("POST", path, bodies[n % len(bodies)], "application/vnd.seb.batch")
        n += 1
    rate = n * 1_000 / (time.perf_counter() - began)
    print(f"{topic}: {rate:,.0f} records/s, one producer as fast as it goes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--directory", help="on which disk; the system's temporary directory")
    parser.add_argument("--only-questions", action="store_true", help="no other topics, no history")
    asked = parser.parse_args()
    assert len(VALUE % (0, 0)) == 100
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        command = [sys.executable, "-m", "seb_appliance", "serve", "--port", str(PORT)]
        command += ["--bucket", f"file:{folder}/bucket", "--data", f"{folder}/data"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            key_file = Path(folder) / "data" / "admin.key"
            while not key_file.exists():
                time.sleep(0.1)
            time.sleep(1)
            key = key_file.read_text().strip()
            client = Client(key)
            client("PUT", "/v1/topics/big", b"{}", "application/json")
            fill(client, "big", asked.records, asked.keys)
            build(client, "big", "latest", server.pid)
            others = (("plain", "none"), ("latest", "latest"), ("history", "history"))
            for topic, mode in () if asked.only_questions else others:
                body = json.dumps({"key_index": mode}).encode()
                client("PUT", f"/v1/topics/{topic}", body, "application/json")
                steady(client, key, topic, asked.seconds, 5_000, ask=False)
                as_fast_as_it_goes(client, topic, asked.seconds / 2)
                while indexed(client, topic)[0]:
                    time.sleep(0.1)
            steady(client, key, "big", asked.seconds, 5_000, ask=True)
            if not asked.only_questions:
                build(client, "big", "history", server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


if __name__ == "__main__":
    main()
