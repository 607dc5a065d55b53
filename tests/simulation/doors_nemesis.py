"""What goes wrong in the class `doors` beside what goes wrong everywhere: a network that is cut on
one side or in one direction, disks that take seconds, and more than one data directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from tests.simulation.hosts import Way
from tests.simulation.nemesis import Nemesis
from tests.simulation.process import Process
from tests.simulation.world import Machine, World

Side = Literal["to_bucket", "to_clients"]
_LASTS_S = [2.0, 8.0, 20.0]
_USUAL_DISKS_S = [0.0, 0.0, 0.05, 0.3]
_DISKS_S = [0.5, 3.0, 10.0, 30.0]


class DoorsNemesis(Nemesis):
    """Each machine has a second data directory: empty, or a copy of some machine's as it was."""

    strikes = (3, 14)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._spares = {}
        for machine in world.machines:
            folder = world.folder / f"{machine.name}-spare"
            folder.mkdir()
            self._spares[machine.name] = world.make_disk(folder, machine.host)
            machine.host.usual_disk_s = world.draws.choice(_USUAL_DISKS_S)
            machine.host.disk_s = machine.host.usual_disk_s

    def calm(self) -> None:
        super().calm()
        for machine in self._world.machines:
            machine.host.heal()

    def _strikes(self) -> list[Callable[[], None]]:
        cuts = [self._clients_cut_off, self._bucket_cut_off]
        disks = [self._slow_disks, self._copy, self._clones_start]
        return super()._strikes() + 4 * cuts + 3 * disks

    def _clients_cut_off(self) -> None:
        """While the bucket is reached: it writes on, and perhaps somebody takes over."""
        self._cut("to_clients")

    def _bucket_cut_off(self) -> None:
        """That of one machine alone, perhaps only the answers to it."""
        self._cut("to_bucket")

    def _cut(self, side: Side) -> None:
        if self._calm:
            return
        host = self._draws.choice(self._world.machines).host
        way: Way = self._draws.choice(get_args(Way)[1:])
        seconds = self._draws.choice(_LASTS_S) * (0.5 + self._draws.random())
        setattr(host, side, way)
        self._world.note(host.name, "is cut off", side, way, seconds)
        self._world.loop.later(seconds, setattr, host, side, "")
        if self._draws.random() < 0.5:
            self._world.loop.later(seconds * self._draws.random(), self._other_takes_over)

    def _slow_disks(self) -> None:
        if self._calm:
            return
        host = self._draws.choice(self._world.machines).host
        seconds = self._draws.choice(_LASTS_S)
        host.disk_s = self._draws.choice(_DISKS_S)
        self._world.note(host.name, "has slow disks", host.disk_s, seconds)
        self._world.loop.later(seconds, setattr, host, "disk_s", host.usual_disk_s)

    def _copy(self) -> None:
        """A backup of a data directory, or a cloned disk: a machine has it as its second one."""
        if self._calm:
            return
        of, to = (self._draws.choice(self._world.machines) for _ in range(2))
        self._spares[to.name].copy_from(of.disk)
        self._world.note(of.name, "is copied to", to.name, len(of.disk.entries))

    def _clones_start(self) -> None:
        """Two machines lose their power, and begin at the same moment with copies of one disk."""
        machines = self._world.machines
        if self._calm or len(machines) == 1:
            return
        one, other = self._draws.sample(machines, 2)
        for machine in (one, other):
            if machine.process is not None and machine.runs:
                machine.process.owner.kill()
        other.disk.copy_from(one.disk)
        self._world.note(other.name, "is a clone of", one.name)
        for machine in (one, other):
            machine.boot(take_over=True)

    def _boot_again(self, machine: Machine, process: Process) -> None:
        if self._draws.random() < 0.3 and not process.ended.startswith("bug"):
            here, spare = machine.disk, self._spares[machine.name]
            machine.disk, self._spares[machine.name] = spare, here
            self._world.note(machine.name, "has its other directory", len(spare.entries))
            machine.boot(take_over=self._draws.random() < 0.7)
        else:
            super()._boot_again(machine, process)
