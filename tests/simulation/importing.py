"""P25: `seb import` of a Go broker's files, run again until it succeeds. Each record of the files
is in its topic once, at its offset; what is appended later lies behind them; and an import that is
run once more finds all of it.

The command is the product's but for the making of its appliance: it runs in a process as any other
(`ImportingProcess`), and is killed, stopped and taken over as any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import ImportRefusedError, StoreUnusableError
from seb_appliance.formats import batch_v1
from seb_appliance.ops.serve import go_import
from seb_appliance.ops.serve.go_import import _Work
from seb_appliance.protocols.go.files import OldLog, look
from seb_appliance.storage import layout
from tests.simulation.clients import ADMIN, Failed, is_refusal
from tests.simulation.clock import START_US
from tests.simulation.history import Call
from tests.simulation.process import Process
from tests.simulation.world import Machine, World

TOPICS = ["old.a", "old.b"]
_DAY_US = 86_400_000_000


class ImportingProcess(Process):
    """`imported`: whether all is imported, and so was said; `in_place`: not copied."""

    imported = False
    in_place = True

    async def _serve_from_state(self) -> None:
        journal, report = await self._open()
        broker = await self._make_broker(journal, report)
        broker.start()
        self.epoch = journal.epoch
        self._epochs.add(self.epoch)
        try:
            await self._import(broker, journal)
            if not await broker.drain(20):
                raise StoreUnusableError("the bucket did not answer within the grace time")
            assert self._snapshots is not None
            await self._snapshots.publish_last()
            self.imported = True
        finally:
            await self._close(broker)

    async def _import(self, broker: Broker, journal: Any) -> None:
        store = self._retrying()
        appliance: Any = SimpleNamespace(
            broker=broker,
            journal=journal,
            settings=SimpleNamespace(segment_bytes=300, compression="zstd"),
            store=SimpleNamespace(used_for=lambda _: store),
        )
        old = await look(store, TOPICS.__contains__)
        log = OldLog(store, self._clock.wall_us(), times_may_go_back=True)
        await _Work(old, log, lambda *_: None).run(appliance, in_place=self.in_place)


def small_imports(draws: Random) -> contextlib.AbstractContextManager[Any]:
    """A handful of files is many; the machine's randomness and clock are the simulation's."""
    patches = contextlib.ExitStack()
    for name, value in (
        ("_FILES_PER_ENTRY", 2),
        ("os", SimpleNamespace(urandom=draws.randbytes)),
        ("_retrying", lambda store, _: store),
    ):
        patches.enter_context(mock.patch.object(go_import, name, value))
    return patches


class Importers:
    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._files: list[Call] = []
        self._imported = False
        self._in_place = self._draws.random() < 0.6
        self._found: list[str] = []

    def store_files(self) -> None:
        """As the Go broker left them."""
        for topic in TOPICS:
            offset, created_us = 0, START_US - 9 * _DAY_US
            for _ in range(self._draws.randint(1, 9)):
                created_us += self._draws.randrange(_DAY_US // 2)
                count = self._draws.choice([1, 2, 5])
                marks = tuple(b"%s:%d" % (topic.encode(), offset + i) for i in range(count))
                file = batch_v1.compress(batch_v1.encode([m + b" old" for m in marks], created_us))
                self._world.bucket.put(layout.go_batch_key(topic, offset), file)
                self._files.append(Call(topic, marks, 0.0, offset=offset))
                offset += count
        self._world.history.calls += self._files

    async def run(self) -> None:
        """Until it has succeeded, and some times more."""
        again = self._draws.choice([1, 2])
        while again and not self._world.over:
            await asyncio.sleep(6.0 * self._draws.random())
            process = await self._begun(self._draws.choice(self._world.machines))
            while process is not None and process.runs:
                await asyncio.sleep(0.2)
            if process is None:
                continue
            self._world.note(process.name, "import ended", process.ended.split(":")[0])
            if process.ended.startswith(ImportRefusedError.__name__):
                self._found.append(f"P25 {process.name}: {process.ended}")
            if process.imported:
                again -= 1
                self._imported = True

    async def _begun(self, machine: Machine) -> ImportingProcess | None:
        """The operator stops the appliance, and imports in its place; None: somebody was faster."""
        if machine.process is not None and machine.process.runs:
            machine.process.ask_to_stop()
            until_s = self._world.loop.time() + 10.0
            while machine.runs and self._world.loop.time() < until_s:
                await asyncio.sleep(0.05)
        if machine.runs or self._world.over:
            return None
        process = machine.boot(take_over=self._draws.random() < 0.5, kind=ImportingProcess)
        assert isinstance(process, ImportingProcess)
        process.in_place = self._in_place
        return process

    async def append(self) -> None:
        """To what was imported, once that has succeeded: before, an import would be refused."""
        number = 0
        while not self._world.over:
            await asyncio.sleep(2.0 * self._draws.random())
            if not self._imported:
                continue
            topic, mark = self._draws.choice(TOPICS), b"n:%d" % number
            number += 1
            call = Call(topic, (mark,), self._world.loop.time())
            self._world.history.calls.append(call)
            try:
                appended, by = await self._world.ask(_append(topic, mark))
            except Failed as error:
                call.outcome = "refused" if is_refusal(error) else "unknown"
                continue
            call.outcome, call.answered_s = "acked", self._world.loop.time()
            call.topic_id, call.offset, call.epoch = appended.topic_id, appended.offset, by.epoch

    def violations(self) -> Iterator[str]:
        yield from self._found

    def told(self, topic_ids: dict[str, int]) -> None:
        """What has succeeded is acknowledged. Call it before calls are held against the log."""
        for call in self._files if self._imported else ():
            call.outcome, call.topic_id = "acked", topic_ids[call.topic]


def _append(topic: str, mark: bytes) -> Callable[[Broker], Any]:
    def work(broker: Broker) -> Any:
        room = broker.pending.reserve(OPERATOR, 100)
        return broker.appends.append(ADMIN, topic, NewRecords([mark + b" new"]), room)

    return work
