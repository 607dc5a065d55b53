"""The clients of other projects that speak Kafka, each behind a driver in `drivers/`.

A driver is a process that plays one role and tells each event as a line of JSON:

| role | does | events |
|---|---|---|
| `create` | makes `topic` with `partitions` (only confluent-kafka) | |
| `produce` | produces `count` numbers from `first`, keys k0 to k7 | `acked`, `failed` |
| `consume` | reads `count` records of all partitions from the beginning | `record` |
| `member` | reads in `group`, commits, leaves at the end of stdin | `assigned`, `record` |
| `transform` | copies `topic` to `output` in transactions, aborts each fourth | `committed` |

`record` is topic, partition, offset, key, value and the header `from`. `done` is the last event."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.streams.node import node
from tests.support.process import ROOT
from tests.support.servers.s3_server import die_with_parent

DRIVERS = Path(__file__).parent / "drivers"
INSTALLED = ROOT / ".state/kafka"
MODULES = INSTALLED / "node_modules"
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WITHIN_S = 120.0

Event = dict[str, Any]


@dataclass(frozen=True)
class Client:
    """`neighbour`: it is installed by install.sh, not by pip. `needs`: a path or a command."""

    name: str
    command: Callable[[], list[str]]
    codecs: tuple[str, ...] = ALL_CODECS
    transactions: bool = True
    neighbour: bool = True
    needs: str = ""
    pairs: bool = False

    def arguments(self, role: str, options: dict[str, Any]) -> list[str]:
        if not self.pairs:
            return [*self.command(), role, json.dumps(options)]
        words = (
            f"{name}={str(one).lower() if isinstance(one, bool) else one}"
            for name, one in options.items()
            if one is not None
        )
        return [*self.command(), role, *words]

    @property
    def missing(self) -> bool:
        return bool(self.needs) and not Path(self.needs).exists() and not shutil.which(self.needs)

    def param(self) -> Any:
        marks = [pytest.mark.neighbours] if self.neighbour else []
        if self.missing:
            marks += [pytest.mark.skip(reason=f"{self.name} is not installed (install.sh)")]
        return pytest.param(self, id=self.name, marks=marks)


def python(module: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.kafka.drivers.{module}"]


def javascript(library: str) -> Callable[[], list[str]]:
    return lambda: [node(), str(DRIVERS / "driver.mjs"), library]


def java() -> list[str]:
    return [
        "java",
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-cp",
        f"{INSTALLED}/java:{INSTALLED}/java/*",
        "Driver",
    ]


CONFLUENT = Client("confluent-kafka", python("confluent"), neighbour=False)
CLIENTS = [
    CONFLUENT,
    Client("kafka-python", python("pure_python"), codecs=("none", "gzip")),
    Client("aiokafka", python("asynchronous")),
    Client("kcat", python("kcat"), transactions=False, needs="kcat"),
    Client(
        "kafkajs", javascript("kafkajs"), codecs=("none", "gzip"), needs=str(MODULES / "kafkajs")
    ),
    Client(
        "kafka-javascript",
        javascript("confluent"),
        codecs=("none", "gzip", "snappy", "lz4"),  # install.sh builds it without libzstd
        needs=str(
            MODULES / "@confluentinc/kafka-javascript/build/Release/confluent-kafka-javascript.node"
        ),
    ),
    Client("franz-go", lambda: [str(INSTALLED / "franz")], needs=str(INSTALLED / "franz")),
    Client("java", java, needs=str(INSTALLED / "java/Driver.class"), pairs=True),
]


@dataclass
class Driver:
    """A running driver; `events` is all that it has told."""

    process: asyncio.subprocess.Process
    errors: Path
    events: list[Event] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))
            self.told.set()
        await self.process.wait()
        self.ended = True
        self.told.set()

    def all(self, name: str) -> list[Any]:
        return [event[name] for event in self.events if name in event]

    @property
    def said(self) -> str:
        other = [
            event for event in self.events if not event.keys() & {"acked", "record", "committed"}
        ]
        return f"{other[-20:]} {self.errors.read_text(errors='replace')[-3000:]}"

    async def until(self, reached: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        """Wait until what it has told is enough. Fails when the driver ends, or takes too long."""
        try:
            async with asyncio.timeout(within_s):
                while not reached():
                    assert not self.ended, f"the driver ended: {self.said}"
                    self.told.clear()
                    await self.told.wait()
        except TimeoutError:
            raise AssertionError(f"not after {within_s} s: {self.said}") from None

    async def done(self, within_s: float = WITHIN_S) -> None:
        await self.until(lambda: "done" in (self.events or [{}])[-1], within_s)
        assert await self.process.wait() == 0, self.said

    async def stop(self) -> None:
        """Tell it to leave, and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.done()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def driving(client: Client, role: str, folder: Path, **options: Any) -> AsyncIterator[Driver]:
    """The client in a role; killed at the end if it still runs."""
    errors = folder / f"{client.name}-{role}-{os.urandom(3).hex()}.errors"
    with errors.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *client.arguments(role, options),
            cwd=ROOT,
            env={**os.environ, "SEB_NODE_MODULES": str(MODULES), "NODE_NO_WARNINGS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            limit=1 << 20,
            preexec_fn=die_with_parent,
        )
    driver = Driver(process, errors)
    listening = asyncio.create_task(driver.listen())
    try:
        yield driver
    finally:
        await driver.kill()
        await listening
