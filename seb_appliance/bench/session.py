"""A whole measurement: the appliance it may start, what it is compared with, what is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from seb_appliance.bench.connecting import BenchError, call
from seb_appliance.bench.consuming import Known
from seb_appliance.bench.machine import FsyncProbe, Usage, usage_of
from seb_appliance.bench.plan import Plan
from seb_appliance.bench.result import Against, Appliance, Fsync, Measured, Result, result_of
from seb_appliance.bench.run import Conditions, Progress, measure
from seb_appliance.bench.targets import Address, SebTarget, Target

# Processes that a measurement starts, and stops again: the appliance, the null server.


READY_S: Final = 60.0
STOP_S: Final = 30.0
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """`store`: "disk", "memory", or an address s3://BUCKET/PREFIX, below which each appliance has a
    prefix of its own, whose objects stay. `ready_bytes`: of a bucket in memory, taken from the
    machine before anything is measured. `directory`: where a new directory for bucket and data is
    made, None: the system's own place. `flags`: more of `seb serve`. `environment`: of the process,
    None: ours."""

    store: str = "disk"
    ready_bytes: int = 0
    directory: Path | None = None
    flags: Sequence[str] = ()
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Embedded:
    """An appliance of our own. `folder` holds its data and, when it is a directory, its bucket."""

    address: Address
    token: str
    pid: int
    folder: Path


@contextlib.asynccontextmanager
async def embedded(options: EmbeddedOptions) -> AsyncIterator[Embedded]:
    """A new appliance, ready; stopped and its files removed at the end. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="seb-bench-", dir=options.directory) as made:
        folder, port = Path(made), free_port()
        bucket = {
            "disk": f"file:{folder / 'bucket'}",
            "memory": f"memory:{options.ready_bytes}",
        }.get(options.store, f"{options.store.rstrip('/')}/{folder.name}")
        command = [sys.executable, "-m", "seb_appliance", "serve"]
        command += ["--bucket", bucket, "--host", HOST]
        command += ["--data", str(folder / "data"), "--port", str(port), *options.flags]
        async with running(command, folder / "output", options.environment) as process:
            address = Address(HOST, port)
            await _until_ready(process, address, folder / "output")
            token = (folder / "data" / "admin.key").read_text().strip()
            yield Embedded(address, token, process.pid, folder)


@contextlib.asynccontextmanager
async def null_server() -> AsyncIterator[Address]:
    """The server that does nothing but answer (null_server.py). Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="seb-bench-") as made:
        port, output = free_port(), Path(made) / "output"
        command = [sys.executable, "-m", "seb_appliance.bench.null_server", str(port)]
        async with running(command, output, None) as process:
            address = Address(HOST, port)
            await _until_ready(process, address, output)
            yield address


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A process in a session of its own: an interrupt of the terminal is for us, who then stop
    it."""
    process = _start(command, output, environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(
    command: Sequence[str], output: Path, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    with output.open("wb") as sink:
        return subprocess.Popen(  # noqa: S603 - our own arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _last_line(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


async def _until_ready(process: subprocess.Popen[bytes], address: Address, output: Path) -> None:
    give_up_s = time.monotonic() + READY_S
    request = f"GET /readyz HTTP/1.1\r\nHost: {address.host}\r\n\r\n".encode()
    while time.monotonic() < give_up_s and process.poll() is None:
        try:
            caller = await call(address)
            answer = await caller.ask(request, 5.0)
            caller.abort()
        except BenchError:
            await asyncio.sleep(0.02)
            continue
        if answer.status < 300:
            return
        await asyncio.sleep(0.02)
    raise BenchError(f"the server did not start: {_last_line(output)}")


PAIRS: Final = 5
SLICE_S_MIN: Final = 1.0
_FSYNC_ALLOWED_US: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`target` or `embedded`: one of them is None."""

    plan: Plan
    target: Target | None
    embedded: EmbeddedOptions | None
    against_null: bool = False
    keep_topics: bool = False


async def run_session(session: Session, stop: asyncio.Event, progress: Progress) -> Result:
    """Raises BenchError when nothing could be measured."""
    async with _target(session) as (target, own):
        in_memory = session.embedded is not None and session.embedded.store == "memory"
        watch = _Watch(own, probes=_waits_for_disk(session), in_memory=in_memory)
        conditions = Conditions(
            stop=stop,
            progress=progress,
            keep_topics=session.keep_topics,
            on_measuring=watch.measuring,
        )
        started = datetime.now(UTC)
        slices: list[Measured] = []
        against = None
        try:
            watch.start()
            if session.against_null:
                against = await _alternate(session, target, conditions, slices)
            else:
                slices.append(await measure(session.plan, target, conditions))
        finally:
            watch.stop()
        result = result_of(session.plan, target, started, slices, stop.is_set())
        return msgspec.structs.replace(
            result,
            appliance=watch.appliance(result),
            fsync=watch.fsync(result),
            against=against,
        )


@contextlib.asynccontextmanager
async def _target(session: Session) -> AsyncIterator[tuple[Target, Embedded | None]]:
    if session.target is not None:
        yield session.target, None
        return
    assert session.embedded is not None
    async with embedded(session.embedded) as own:
        yield SebTarget(own.address, own.token), own


def _waits_for_disk(session: Session) -> bool:
    """Whether there is a disk whose fsync a record waits for."""
    return (
        session.embedded is not None
        and session.embedded.store == "disk"
        and session.plan.workload in ("e2e", "fan")
    )


class NullTarget(SebTarget):
    """Is asked as an appliance is, and has no topics."""

    name = "null"

    def create(self, topic: str) -> None:  # noqa: ARG002 - as the protocol has it
        return None

    def delete(self, topic: str) -> None:  # noqa: ARG002 - as the protocol has it
        return None


async def _alternate(
    session: Session, target: Target, conditions: Conditions, slices: list[Measured]
) -> Against:
    """Slices against the target and the null server in turn, so that what else the machine does
    meets both; those against the target go into `slices`."""
    plan = session.plan
    part = replace(
        plan,
        duration_s=max(SLICE_S_MIN, plan.duration_s / PAIRS),
        warm_up_s=min(plan.warm_up_s, SLICE_S_MIN),
    )
    null_rates: list[float] = []
    ratios: list[float] = []
    async with null_server() as address:
        while len(ratios) < PAIRS and not conditions.stop.is_set():
            slices.append(await measure(part, target, conditions))
            beside = await _measure_null(part, address, conditions, slices[-1])
            null_rates.append(_requests_per_s(beside))
            if not null_rates[-1]:
                raise BenchError("the null server answered nothing in a slice: take a longer one")
            ratios.append(_requests_per_s(slices[-1]) / null_rates[-1])
    if not ratios:
        raise BenchError("ended before anything was compared")
    return Against(
        server="null",
        requests_per_s=[round(rate, 1) for rate in null_rates],
        ratios=[round(ratio, 4) for ratio in ratios],
        median=round(statistics.median(ratios), 4),
    )


async def _measure_null(
    part: Plan, address: Address, conditions: Conditions, like: Measured
) -> Measured:
    target = NullTarget(address, "seb_" + "x" * 57)  # as long as an API key
    known: list[Known] = []
    if part.workload == "consume":
        read = like.meters[0]
        size = read.size_bytes // max(1, read.requests)
        request = target.request("GET", f"/null/{size}")
        known = [Known(request, read.records // max(1, read.requests), size, 0)]
    alone = replace(conditions, verify=False, keep_topics=True, on_measuring=lambda _: None)
    return await measure(part, target, alone, known)


def _requests_per_s(measured: Measured) -> float:
    marks = measured.meters[0].marks
    if len(marks) < 2:
        return 0.0
    return (marks[-1].requests - marks[0].requests) / (marks[-1].at_s - marks[0].at_s)


class _Watch:
    """What the embedded appliance uses, and its disk does, while it is measured."""

    def __init__(self, own: Embedded | None, *, probes: bool, in_memory: bool) -> None:
        self._own = own
        self._in_memory = in_memory
        self._probe = FsyncProbe(own.folder) if own is not None and probes else None
        self._cpu_s = 0.0
        self._began: Usage | None = None
        self._last: Usage | None = None

    def start(self) -> None:
        if self._probe is not None:
            self._probe.start()

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()

    def measuring(self, begins: bool) -> None:
        if self._probe is not None:
            self._probe.count(begins)
        if self._own is None:
            return
        usage = usage_of(self._own.pid)
        if begins:
            self._began = usage
        elif usage is not None and self._began is not None:
            self._cpu_s += usage.cpu_s - self._began.cpu_s
            self._last = usage

    def appliance(self, result: Result) -> Appliance | None:
        now = usage_of(self._own.pid) if self._own is not None else None
        used = now or self._last
        if used is None:
            return None
        requests = sum(row.requests for row in result.rows)
        return Appliance(
            holds_bucket=self._in_memory,
            peak_bytes=used.peak_bytes,
            cpu_s=round(self._cpu_s, 2),
            cpu_us_per_request=round(self._cpu_s * 1e6 / requests, 2) if requests else None,
        )

    def fsync(self, result: Result) -> Fsync | None:
        if self._probe is None or not self._probe.samples:
            return None
        p99_us = self._probe.p99_us()
        allowed_us = _FSYNC_ALLOWED_US + 2 * p99_us
        curves = [row.latency for row in result.rows if row.what == "end to end" and row.latency]
        held = curves[0].value_us(99.0) <= allowed_us if curves else None
        return Fsync(samples=self._probe.samples, p99_us=p99_us, allowed_us=allowed_us, held=held)
