"""Processes that a measurement starts, and stops again: the appliance, the null server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from seb_appliance.bench.connecting import call
from seb_appliance.bench.failures import BenchError
from seb_appliance.bench.targets import Address

READY_S: Final = 60.0
STOP_S: Final = 30.0
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """`ready_bytes`: of a bucket in memory, taken from the machine before anything is measured.
    `directory`: where a new directory for bucket and data is made, None: the system's own place.
    `flags`: more of `seb serve`. `environment`: of the process, None: ours."""

    store: Literal["disk", "memory"] = "disk"
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
        in_memory = options.store == "memory"
        bucket = f"memory:{options.ready_bytes}" if in_memory else f"file:{folder / 'bucket'}"
        command = ["-m", "seb_appliance", "serve", "--bucket", bucket, "--host", HOST]
        command += ["--data", str(folder / "data"), "--port", str(port), *options.flags]
        async with _process(command, folder / "output", options.environment) as process:
            address = Address(HOST, port)
            await _until_ready(process, address, folder / "output")
            token = (folder / "data" / "admin.key").read_text().strip()
            yield Embedded(address, token, process.pid, folder)


@contextlib.asynccontextmanager
async def null_server() -> AsyncIterator[Address]:
    """The server that does nothing but answer (null_server.py). Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="seb-bench-") as made:
        port, output = free_port(), Path(made) / "output"
        command = ["-m", "seb_appliance.bench.null_server", str(port)]
        async with _process(command, output, None) as process:
            address = Address(HOST, port)
            await _until_ready(process, address, output)
            yield address


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextlib.asynccontextmanager
async def _process(
    arguments: Sequence[str], output: Path, environment: Mapping[str, str] | None
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """In a session of its own: an interrupt of the terminal is for us, who then stop it."""
    process = _start(arguments, output, environment)
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
    arguments: Sequence[str], output: Path, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    with output.open("wb") as sink:
        return subprocess.Popen(  # noqa: S603 - our own module, our own arguments
            [sys.executable, *arguments],
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
