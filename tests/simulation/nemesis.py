"""What goes wrong, and who starts processes again: drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from tests.simulation.process import Process
from tests.simulation.world import LOOK_EVERY_S, Loss, Machine, World

POINTS = ["K2", "K3", "K7", "K10", "K14", "K15", "K16", "K17", "K18", "K19", "K20"]
POINTS += ["T1", "T2", "T3", "T4", "T5", "T6", "T9"]  # plain tables have four objects of metadata
SQLITE_POINTS = [*POINTS, "K8", "K9", "K8", "K9"]
_DAY_US = 86_400_000_000
CLOCK_JUMPS_US = [
    *(-3_600_000_000, 5_000_000, 3_600_000_000),
    *(-30 * _DAY_US, 2 * _DAY_US, 400 * _DAY_US),
]


class Nemesis:
    """`start` draws what will happen; `calm` ends it. `strikes`: how many at least, and at
    most."""

    strikes = (1, 7)

    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._calm = False

    def start(self, until_s: float) -> list[asyncio.Task[None]]:
        self._weather()
        loop = self._world.loop
        tasks = [loop.task_of(None, self._keep(machine)) for machine in self._world.machines]
        for _ in range(self._draws.randint(*self.strikes)):
            at_s = loop.time() + self._draws.random() * until_s
            strike = self._draws.choice(self._strikes())
            loop.call_at(at_s, strike)
        return tasks

    def calm(self) -> None:
        """Nothing goes wrong any more; what was stopped goes on."""
        self._calm = True
        self._world.network.weather = type(self._world.network.weather)()
        self._world.bucket.date_offset_us = 0
        for machine in self._world.machines:
            machine.clock.wall_offset_us = 0
            if machine.process is not None:
                machine.process.owner.callbacks_left = None
                machine.process.failpoints.point = ""
                self._world.loop.go_on(machine.process.owner)

    def _weather(self) -> None:
        weather, draws = self._world.network.weather, self._draws
        weather.late_s = draws.choice([3.0, 10.0, 30.0])
        weather.one_way_s = draws.choice([0.002, 0.01, 0.05, 0.15])
        faults = ["lost_request", "lost_answer", "late", "refused", "false_412", "conflict"]
        faults += ["flipped", "cut"]
        for fault in draws.sample(faults, draws.randint(0, 4)):
            setattr(weather, fault, draws.choice([0.01, 0.03, 0.08]))

    def _strikes(self) -> list[Callable[[], None]]:
        strikes = [self._kill, self._kill, self._kill_at_a_point, self._stop_for_long]
        strikes += [self._stop_the_process, self._away, self._denied, self._clock_jumps]
        if len(self._world.machines) > 1:
            strikes += [self._other_takes_over, self._other_takes_over, self._stop_for_long]
        if len(self._world.machines) > 2:
            strikes += [self._other_takes_over] * 4
        return strikes

    # --- what goes wrong ---

    def _victim(self) -> Process | None:
        running = [m.process for m in self._world.machines if m.process is not None and m.runs]
        return self._draws.choice(running) if running and not self._calm else None

    def _kill(self) -> None:
        """Between any two callbacks."""
        victim = self._victim()
        if victim is not None:
            victim.owner.callbacks_left = self._draws.randrange(300)
            self._world.note(victim.name, "dies after", victim.owner.callbacks_left)

    def _kill_at_a_point(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.failpoints.point = self._draws.choice(
                SQLITE_POINTS if self._world.sqlite else POINTS
            )
            victim.failpoints.passes = self._draws.randint(1, 3)
            self._world.note(victim.name, "dies at", victim.failpoints.point)

    def _stop_for_long(self) -> None:
        """As SIGSTOP; perhaps somebody takes over meanwhile."""
        victim = self._victim()
        if victim is None or victim.owner.stopped:
            return
        victim.owner.stopped = True
        seconds = self._draws.choice([1.0, 8.0, 35.0, 70.0]) * (0.5 + self._draws.random())
        self._world.note(victim.name, "is stopped for", seconds)
        self._world.loop.later(seconds, self._world.loop.go_on, victim.owner)
        if self._draws.random() < 0.7:
            self._world.loop.later(seconds * self._draws.random(), self._other_takes_over)

    def _stop_the_process(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._world.note(victim.name, "is asked to stop")
            victim.ask_to_stop()

    def _other_takes_over(self) -> None:
        """A standby is promoted, or somebody starts with --take-over."""
        if self._calm:
            return
        idle = [machine for machine in self._world.machines if not machine.runs]
        machine = self._draws.choice(idle or self._world.machines)
        process = machine.process
        if process is None or not process.runs:
            machine.boot(take_over=True)
        elif process.standby:
            self._world.note(process.name, "is promoted")
            process.ask_to_stop(promote=True)

    def _away(self) -> None:
        self._fail_for("away", self._draws.choice([1.0, 10.0, 40.0]))

    def _denied(self) -> None:
        self._fail_for("denied", self._draws.choice([1.0, 6.0]))

    def _fail_for(self, how: str, seconds: float) -> None:
        weather = self._world.network.weather
        setattr(weather, how, not self._calm)
        self._world.note("bucket", "is", how, seconds)
        self._world.loop.later(seconds, setattr, weather, how, False)

    def _clock_jumps(self) -> None:
        """That of a machine, the store's, or all at once, as on one host."""
        machines, jump_us = self._world.machines, self._draws.choice(CLOCK_JUMPS_US)
        whose = self._draws.choice(["machine", "store", "all"])
        jumping = {"machine": [self._draws.choice(machines)], "store": [], "all": machines}[whose]
        for machine in jumping:
            machine.clock.wall_offset_us += jump_us
            self._world.note(machine.name, "wall clock", machine.clock.wall_offset_us)
        starts = any(m.runs and not m.process.serves for m in self._world.machines if m.process)
        if whose != "machine" and not starts:
            self._world.bucket.date_offset_us += jump_us
            self._world.note("bucket", "Date", self._world.bucket.date_offset_us)

    # --- who starts them again ---

    async def _keep(self, machine: Machine) -> None:
        """As a service manager, and sometimes as an operator."""
        while not self._calm:
            await asyncio.sleep(LOOK_EVERY_S)
            process = machine.process
            if process is None or process.runs or self._calm:
                continue
            self._world.note(process.name, "ended", process.ended.split(":")[0])
            await asyncio.sleep(5.0 * self._draws.random() ** 2)
            if not machine.runs and not self._calm:
                self._boot_again(machine, process)

    def _boot_again(self, machine: Machine, process: Process) -> None:
        if process.promote:
            machine.boot(take_over=True)
        elif process.ended == "killed":
            losses: list[Loss] = ["kept", "kept", "set back", "lost"]
            loss = self._draws.choice(losses)
            machine.lose(loss, self._draws.randrange(20))
            standby = process.standby and self._draws.random() < 0.7
            machine.boot(standby=standby, take_over=loss == "lost" or process.standby)
        elif process.ended.startswith(("Fenced", "BucketInUse")):
            if len(self._world.machines) > 1 and self._draws.random() < 0.6:
                machine.boot(standby=True)
        elif process.ended.startswith("bug"):
            return
        elif process.ended.startswith("ReplayError"):
            machine.boot(standby=True)
        else:
            machine.boot(take_over=process.standby and process.ended == "stopped")
