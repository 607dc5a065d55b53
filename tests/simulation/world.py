"""Machines, one bucket and a network: where processes are started, killed, stopped and healed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar

from seb_appliance.broker.broker import Broker
from seb_appliance.storage.recovery.opening import StartOptions
from tests.simulation.bucket import Bucket, Network
from tests.simulation.clock import SimulatedClock
from tests.simulation.history import History
from tests.simulation.hosts import Host
from tests.simulation.loop import Owner, SimulatedLoop
from tests.simulation.process import NotServingError, Process
from tests.simulation.slow_disks import SlowDisk
from tests.simulation.sqlite_state import KnownEntries, SqliteDisk
from tests.simulation.state import Copies, Disk
from tests.simulation.trace import Trace

T = TypeVar("T")
Loss = Literal["kept", "set back", "lost"]

GIVE_UP_S = [40.0, 40.0, 40.0, 2.0, 0.05]  # a client's own time-out: one of these
DOORS_GIVE_UP_S = [
    10.0,
    4.0,
    4.0,
    1.0,
    0.05,
]  # in the class `doors`: who waits sees no other machine
LOOK_EVERY_S = 0.5


class NoAnswerError(Exception):
    """Nothing is known of what became of a request."""


class Machine:
    """Processes one after another on one disk. `beside`: another one, of which this is a second
    data directory: it shares its host and clock."""

    def __init__(self, name: str, world: World, beside: Machine | None = None) -> None:
        self.name = name
        self.host = Host(name) if beside is None else beside.host
        self.clock = SimulatedClock(world.loop) if beside is None else beside.clock
        folder = world.folder / name
        folder.mkdir()
        self.disk = world.make_disk(folder, self.host)
        self.process: Process | None = None
        self.starts = 0
        self._world = world

    def boot(
        self, *, standby: bool = False, take_over: bool = False, kind: type[Process] = Process
    ) -> Process:
        assert self.process is None or not self.process.runs
        self.starts += 1
        world = self._world
        world.bucket.date_offset_us = 0  # at a start, nobody could tell
        options = StartOptions(take_over=take_over, list_rounds=2)
        self.process = kind(
            f"{self.name}{self.starts}",
            world.loop,
            world.network,
            world.bucket,
            self.disk,
            self.clock,
            Random(world.draws.getrandbits(64)),
            standby=standby,
            options=options,
            epochs=world.epochs,
            host=self.host,
        )
        world.owners.append(self.process.owner)
        world.note(self.process.name, "boots", "standby" if standby else "writer", take_over)
        return self.process

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.runs

    def lose(self, loss: Loss, entries: int) -> None:
        """What a crash does to the disk."""
        if loss == "set back":
            self.disk.set_back(entries)
        elif loss == "lost":
            self.disk.lose()


class World:
    """`draws` decide everything that is not decided inside of a process. `over`: clients stop.
    `doors`: hosts are cut off, and disks are slow."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        mode: str,
        in_order: bool,
        trace: Trace,
        machines: int,
        sqlite: bool = False,
        doors: bool = False,
    ) -> None:
        self.draws = Random(seed)
        self.trace = trace
        self.folder = folder
        loop_draws = Random(self.draws.getrandbits(64))
        self.loop = SimulatedLoop(loop_draws, in_order=in_order, slow_threads=doors)
        self.mode = mode
        self.bucket = Bucket(creates_only_if_absent=mode == "A")
        network_draws = Random(self.draws.getrandbits(64))
        self.network = Network(self.loop, self.bucket, network_draws, trace)
        self.history = History()
        self.sqlite = sqlite
        self.doors = doors
        self.give_up_s = DOORS_GIVE_UP_S if doors else GIVE_UP_S
        self.copies = Copies()
        self.known = KnownEntries()
        self.owners: list[Owner] = []
        self.machines = [Machine(name, self) for name in "ABC"[:machines]]
        if doors and machines < 3 and self.draws.random() < 0.5:
            self.machines.append(Machine("D", self, beside=self.machines[0]))
        self.over = False
        self.epochs: set[int] = set()  # of all who ever came into force
        self._asked_last = 0

    def make_disk(self, folder: Path, host: Host) -> Any:
        """One of the three kinds; a world has but one of them."""
        if self.sqlite:
            return SqliteDisk(folder, self.known)
        if self.doors:
            return SlowDisk(folder, self.copies, host, Random(self.draws.getrandbits(64)))
        return Disk(folder, self.copies)

    def note(self, who: str, what: str, *details: object) -> None:
        self.trace.note(self.loop.time(), who, what, *details)

    async def ask(
        self, work: Callable[[Broker], Awaitable[T]], machine: Machine | None = None
    ) -> tuple[T, Process]:
        """Have a broker do something, the one that did the last time first. Raises NoAnswerError,
        NotServingError, and what the broker raises."""
        machine = machine or self.machines[self._asked_last % len(self.machines)]
        process = machine.process
        if process is None or not process.runs:
            self._asked_last += 1
            await asyncio.sleep(0.2)
            raise NotServingError
        one_way_s = 0.001 + 0.01 * self.draws.random()
        try:
            async with asyncio.timeout(self.draws.choice(self.give_up_s)):
                return await _carried(machine.host, process, work, one_way_s), process
        except TimeoutError:
            self._asked_last += 1
            raise NoAnswerError from None
        except Exception:
            self._asked_last += 1
            raise

    @property
    def somebody_starts(self) -> bool:
        processes = [machine.process for machine in self.machines if machine.process is not None]
        return any(process.runs and not process.serves for process in processes)

    def is_newest_writer(self, process: Process) -> bool:
        """Whether nobody has come into force after it."""
        return process.writes and process.epoch == max(self.epochs, default=0)


async def _carried(
    host: Host, process: Process, work: Callable[[Broker], Awaitable[T]], one_way_s: float
) -> T:
    """The answer, unless the network between clients and the host is cut then. Raises what was
    answered."""
    if host.to_clients == "lost_request":
        await _for_ever()
    try:
        found = await process.request(work, one_way_s)
    except Exception:
        if host.to_clients:
            await _for_ever()
        raise
    if host.to_clients:
        await _for_ever()
    return found


async def _for_ever() -> None:
    """Until the caller gives up."""
    await asyncio.get_running_loop().create_future()
