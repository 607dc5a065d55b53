"""Those who come in by other doors than the clients of every class, in the class `doors`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from random import Random
from typing import Any

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from tests.simulation.clients import TOPICS, Failed, rows_of
from tests.simulation.importing import Importers, small_imports
from tests.simulation.library import Programs
from tests.simulation.log import Log
from tests.simulation.senders import Senders
from tests.simulation.visitors import Visitors, cheap_passwords
from tests.simulation.world import World

_COMES = 0.6  # probability of each group of them


@contextlib.contextmanager
def simulated_doors(seed: int) -> Iterator[None]:
    """What takes most of a seed's time and does not matter here is cheap, and what is random
    follows from the seed."""
    with cheap_passwords(), small_imports(Random(seed)):
        yield


class Doors:
    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._programs = Programs(world)
        self._visitors = Visitors(world)
        self._senders = Senders(world)
        self._importers = Importers(world)

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """Each ends when the world is over. In a seed, some of them come."""
        programs, visitors, senders = self._programs, self._visitors, self._senders
        groups: list[list[Callable[[], Coroutine[Any, Any, None]]]] = [
            [partial(programs.run, name) for name in programs.names],
            [visitors.operate, visitors.visit],
            [senders.operate, partial(senders.send, "i0"), partial(senders.send, "i1")],
            [self._importers.run, self._importers.append],
            [self._read_again],
        ]
        return [work() for group in groups if self._draws.random() < _COMES for work in group]

    async def _read_again(self) -> None:
        """Consumers that begin with the oldest record, wherever they are answered."""
        history = self._world.history
        while not self._world.over:
            await asyncio.sleep(2.0 * self._draws.random())
            machine, topic = (
                self._draws.choice(self._world.machines),
                self._draws.choice(list(TOPICS)),
            )
            start = From(earliest=True)
            while True:
                try:
                    asked = partial(_read, topic, ReadRequest(start, max_records=20))
                    result, by = await self._world.ask(asked, machine)
                except Failed:
                    break
                history.served_rows(result.topic_id, rows_of(result), by.name)
                if result.next_offset == result.log_end_offset:
                    break
                start = From(offset=result.next_offset)

    def begin(self) -> None:
        """Before the first start."""
        self._importers.store_files()

    def told(self, broker: Broker) -> None:
        """Before calls are held against the log."""
        self._importers.told({topic.name: topic.topic_id for topic in broker.topics.all()})

    def violations(self, log: Log, broker: Broker) -> Iterator[str]:
        """`broker`: of a start from the bucket alone."""
        yield from self._programs.violations(log)
        yield from self._visitors.violations(broker)
        yield from self._senders.violations(broker)
        yield from self._importers.violations()


async def _read(topic: str, request: ReadRequest, broker: Broker) -> ReadResult:
    return await broker.read(topic, request)
