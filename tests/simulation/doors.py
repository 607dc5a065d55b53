"""Those who come in by other doors than the clients of every class, in the class `doors`."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any

from seb_appliance.broker.broker import Broker
from tests.simulation.importing import Importers, small_imports
from tests.simulation.library import Programs
from tests.simulation.log import Log
from tests.simulation.senders import Senders
from tests.simulation.visitors import Visitors, cheap_passwords
from tests.simulation.world import World


@contextlib.contextmanager
def simulated_doors(seed: int) -> Iterator[None]:
    """What takes most of a seed's time and does not matter here is cheap, and what is random
    follows from the seed."""
    with cheap_passwords(), small_imports(Random(seed)):
        yield


class Doors:
    def __init__(self, world: World) -> None:
        self._programs = Programs(world)
        self._visitors = Visitors(world)
        self._senders = Senders(world)
        self._importers = Importers(world)

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """Each ends when the world is over."""
        visitors, senders = self._visitors, self._senders
        works = [self._programs.run(name) for name in self._programs.names]
        works += [visitors.operate(), visitors.visit(), senders.operate()]
        works += [senders.send("i0"), senders.send("i1")]
        return [*works, self._importers.run(), self._importers.append()]

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
