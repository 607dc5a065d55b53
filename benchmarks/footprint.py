"""How much memory an appliance takes at its limits, and how long anything stops its event loop:

    python -m benchmarks.footprint [--gib N] [--folder FOLDER] [--memory GIB]

One appliance on a directory gets 10,000 topics, an idle connection for each (beyond its limit,
those that were idle longest make room), 50,000 groups, 1,000,000 record keys, and N GiB of records
(24: as many as in a day at 1 GiB an hour) as fast as they go. After each step it tells memory, the
longest pause for each generation of garbage, and the longest delay of the event loop in the last
minute (`seb_loop_delay_worst_seconds`). `--memory`: the appliance and the tidier may use no more
(cgroups of version 1 only, as root).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from seb_appliance import limits
from tests.support.load import Connection, LostError, NotSentError
from tests.support.process import Bucket, SebProcess

TOPICS, CONNECTIONS, GROUPS, KEYS = limits.TOPICS_MAX - 2, 10_000, 50_000, 1_000_000
AT_ONCE = 200
CGROUP = Path("/sys/fs/cgroup/memory/seb-footprint")


def serve() -> None:
    """This process becomes `seb serve` that writes its pauses for garbage beside its data: the
    generation, and seconds of its processor time, because the machine may do other things, too."""
    begun_s = 0.0
    path = Path(sys.argv[sys.argv.index("--data") + 1] + ".pauses")
    noted = path.open("a", buffering=1)

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal begun_s
        if phase == "start":
            begun_s = time.thread_time()
        else:
            noted.write(f"{info['generation']} {time.thread_time() - begun_s}\n")

    gc.callbacks.append(note)
    if CGROUP.is_dir():
        (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
    runpy.run_module("seb_appliance", run_name="__main__")


class Measured:
    """The running appliance, and a pool of connections to it."""

    def __init__(self, seb: SebProcess) -> None:
        self._seb = seb
        self._pool = [Connection(seb.port, seb.admin_key) for _ in range(AT_ONCE)]
        self.first = self._pool[0]
        self._begun_s = time.monotonic()
        self._pauses = 0  # that were told

    async def each(
        self,
        count: int,
        work: Callable[[Connection, int], Awaitable[None]],
        at_once: int = AT_ONCE,
    ) -> None:
        numbers = iter(range(count))

        async def one(connection: Connection) -> None:
            for number in numbers:
                await work(connection, number)

        await asyncio.gather(*map(one, self._pool[:at_once]))

    async def lag_records(self) -> float:
        """How far the key index is behind."""
        return await self._metric("seb_key_index_lag_records")

    async def _metric(self, name: str) -> float:
        """The sum over its labels."""
        text = (await self.first.request("GET", "/metrics")).body.decode()
        lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def tell(self, step: str) -> None:
        """Memory now and at most, the longest collection of each generation in this step, and the
        longest delay of the loop in the last minute."""
        worst = await self._metric("seb_loop_delay_worst_seconds")
        lines = self._seb.data.with_name(self._seb.data.name + ".pauses").read_text().splitlines()
        pauses = [line.split() for line in lines[self._pauses :]]
        self._pauses = len(lines)
        garbage = ", ".join(
            f"{max((float(s) for g, s in pauses if g == generation), default=0) * 1000:.0f}"
            for generation in "012"
        )
        now, most = (self._seb.rss_bytes(name) / limits.MIB for name in ("VmRSS", "VmHWM"))
        print(
            f"{step:50} {time.monotonic() - self._begun_s:6.0f} s  {now:6.0f} MiB, at most "
            f"{most:6.0f} MiB, garbage {garbage} ms, loop {worst * 1000:4.0f} ms",
            flush=True,
        )
        self._begun_s = time.monotonic()


async def ask(connection: Connection, method: str, path: str, body: object) -> None:
    """Once more on a new connection if this one was closed because it was idle."""
    as_json = {"Content-Type": "application/json"}
    request = method, path, json.dumps(body).encode(), as_json, 120
    try:
        answer = await connection.request(*request)
    except LostError:
        answer = await connection.request(*request)
    assert answer.status < 300, (path, answer.status, answer.body)


async def topic(connection: Connection, number: int) -> None:
    await ask(connection, "PUT", f"/v1/topics/t{number}", {})


async def group(connection: Connection, number: int) -> None:
    offsets = {f"t{number % TOPICS}": 0}
    await ask(connection, "PUT", f"/v1/groups/g{number}/offsets", {"offsets": offsets})


async def keys(connection: Connection, number: int) -> None:
    records = [{"key": f"customer-{number * 1000 + n}", "value": "x" * 100} for n in range(1000)]
    await ask(connection, "POST", "/v1/topics/keyed/records", {"records": records})


async def mebibyte(connection: Connection, number: int) -> None:
    lines = b"".join(b"%d %s\n" % (n, b"x" * 1012) for n in range(1024))
    kind = {"Content-Type": "text/plain"}
    answer = await connection.request("POST", "/v1/topics/day/records?body=lines", lines, kind, 120)
    assert answer.status < 300, (number, answer.status, answer.body)


async def idle_connections(seb: SebProcess) -> tuple[list[Connection], int]:
    """As many as it takes, each after one request; how many it refused."""
    kept: list[Connection] = []
    for _ in range(CONNECTIONS):
        connection = Connection(seb.port)
        try:
            answer = await connection.request("GET", "/healthz")
        except (NotSentError, LostError):
            continue
        if answer.status == 200:
            kept.append(connection)
    return kept, CONNECTIONS - len(kept)


@contextlib.contextmanager
def limited(memory_gib: float) -> Iterator[None]:
    if not memory_gib:
        yield
        return
    CGROUP.mkdir(exist_ok=True)
    (CGROUP / "memory.limit_in_bytes").write_text(str(int(memory_gib * 2**30)))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the killed tidier may still be there
            CGROUP.rmdir()


async def measure(folder: Path, gib: int) -> None:
    bucket = Bucket.directory(folder / "bucket")
    seb = SebProcess(bucket, folder / "data", program=("benchmarks.footprint",))
    try:
        await seb.ready(60)
        measured = Measured(seb)
        await measured.tell("started")
        await measured.each(TOPICS, topic)
        await measured.tell(f"{TOPICS:,} topics")
        kept, refused = await idle_connections(seb)
        await measured.tell(f"{len(kept):,} idle connections ({refused:,} refused)")
        for connection in kept:
            connection.close()
        await measured.each(GROUPS, group)
        await measured.tell(f"{GROUPS:,} groups")
        for name, settings in (
            ("keyed", {"key_index": "latest"}),
            ("day", {"retention_bytes": 2**30}),
        ):
            await ask(measured.first, "PUT", f"/v1/topics/{name}", settings)
        await measured.each(KEYS // 1000, keys)
        until_s = time.monotonic() + 300
        while await measured.lag_records():
            assert time.monotonic() < until_s
            await asyncio.sleep(0.5)
        await measured.tell(f"{KEYS:,} record keys, indexed")
        await measured.each(gib * 1024, mebibyte, at_once=16)
        await measured.tell(f"{gib} GiB of records")
    finally:
        seb.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, default=24)
    parser.add_argument("--memory", type=float, default=0, metavar="GIB")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, limited(given.memory):
        asyncio.run(measure(given.folder or Path(scratch), given.gib))


if __name__ == "__main__":
    serve() if sys.argv[1:2] == ["serve"] else main()
