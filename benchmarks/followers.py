"""500 followers of one topic at 1,000 records a second: do they keep up, and what do they cost?

    python -m benchmarks.followers [--followers 500] [--rate 1000] [--seconds 20]

A real `seb serve` on a directory, with a linger of 100 ms; followers and producer are this process.
Each follower counts what it gets, and says how old each part was when it came; the memory is what
the appliance's process has before the followers come, and at most while they are there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

KIB = 1024


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--followers", type=int, default=500)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second")
    parser.add_argument("--bytes", type=int, default=200, help="of a record's value")
    parser.add_argument("--seconds", type=int, default=20)
    return parser.parse_args()


def memory_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / KIB


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Seen:
    """What the followers got. `late_s`: of each part, since its last record was sent."""

    def __init__(self) -> None:
        self.records = 0
        self.late_s: list[float] = []


async def connect(
    port: int, key: str, head: str, body: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request that was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 * KIB * KIB)
    lines = f"{head}\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    writer.write(f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return reader, writer


async def follow(port: int, key: str, total: int, seen: Seen, begun: asyncio.Semaphore) -> None:
    head = "GET /v1/topics/followed/records?offset=latest&format=sse HTTP/1.1"
    reader, writer = await connect(port, key, head)
    await reader.readuntil(b"retry: 1000\n\n")
    begun.release()
    count = 0
    rest = b""
    while count < total:
        data = await reader.read(KIB * KIB)
        assert data, f"cut after {count} records"
        whole, end, rest = (rest + data).rpartition(b"\n\n")
        count += whole.count(b"\ndata: ")
        sent = whole.rfind(b"at=")
        if end and sent >= 0:
            seen.late_s.append(time.monotonic() - float(whole[sent + 3 :].split(b" ", 1)[0]))
    assert count == total, count
    seen.records += count
    writer.close()


async def post(port: int, key: str, records: int, size: int) -> None:
    value = f"at={time.monotonic():.6f} ".ljust(size, "x")
    body = json.dumps({"records": [{"value": value}] * records}).encode()
    head = "POST /v1/topics/followed/records HTTP/1.1\r\nContent-Type: application/json"
    reader, writer = await connect(port, key, head, body)
    assert (await reader.readline()).split()[1] == b"201"
    writer.close()


async def produce(port: int, key: str, asked: argparse.Namespace) -> None:
    """Every 10 ms what is due, on a connection of its own: nobody waits for a window to close."""
    begun_s = time.monotonic()
    sent, total = 0, asked.rate * asked.seconds
    posts = []
    while sent < total:
        due = min(total, int((time.monotonic() - begun_s) * asked.rate))
        if due > sent:
            posts.append(asyncio.create_task(post(port, key, due - sent, asked.bytes)))
            sent = due
        await asyncio.sleep(0.01)
    await asyncio.gather(*posts)


async def measure(pid: int, port: int, key: str, asked: argparse.Namespace) -> None:
    await post(port, key, 1, asked.bytes)
    before_mib, seen, begun = memory_mib(pid), Seen(), asyncio.Semaphore(0)
    total = asked.rate * asked.seconds
    following = [
        asyncio.create_task(follow(port, key, total, seen, begun)) for _ in range(asked.followers)
    ]
    for _ in following:
        await begun.acquire()
    idle_mib, used_s, begun_s = memory_mib(pid), cpu_s(pid), time.monotonic()
    most = [idle_mib]
    producing = asyncio.create_task(produce(port, key, asked))
    while not all(task.done() for task in following):
        await asyncio.wait(following, timeout=0.5)
        most.append(memory_mib(pid))
    await asyncio.gather(producing, *following)
    took_s = time.monotonic() - begun_s
    late_ms = sorted(1000 * late for late in seen.late_s)
    at = {part: late_ms[int(part * (len(late_ms) - 1))] for part in (0.5, 0.99, 1.0)}
    print(f"{asked.followers} followers, {asked.rate:,} records/s of {asked.bytes} bytes")
    print(f"all had all {total:,} records {took_s - asked.seconds:.2f} s behind the last second")
    print(
        f"age of a part's last record when it came: p50 {at[0.5]:.0f} ms, p99 {at[0.99]:.0f} ms, "
        f"most {at[1.0]:.0f} ms"
    )
    print(
        f"appliance: {(cpu_s(pid) - used_s) / took_s:.0%} of a core; memory {before_mib:.0f} MiB "
        f"without followers, {idle_mib:.0f} with them idle, {max(most):.0f} at most"
    )


def main() -> None:
    asked = arguments()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "seb_appliance", "serve", "--port", str(port)]
        command += ["--bucket", f"file:{folder}/bucket", "--data", f"{folder}/local"]
        command += ["--linger", "100ms", "--auto-create-topics", "--log-level", "error"]
        with Path(folder, "output").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_until_ready(port)
            key = Path(folder, "local", "admin.key").read_text().strip()
            asyncio.run(measure(process.pid, port, key, asked))
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(port: int) -> None:
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz")
            return
        time.sleep(0.1)
    raise TimeoutError("the appliance did not get ready")


if __name__ == "__main__":
    main()
