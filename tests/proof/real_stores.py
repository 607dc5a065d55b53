"""Real stores under load: moto, Ceph with its gateway, Swift, and those of install-built.sh. Their
processes are killed and stopped as the appliances are, and the machine that runs all of them loses
its power.

A process of a store is killed only where the store has stored what it acknowledged: moto has it
in memory. moto also checks a condition and writes without a lock between, so that no two writers
may be awake on it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from seb_appliance.storage.layout import Mode
from tests.crash.arena import arena_on
from tests.proof.ground import EAGER, START_S, Ground, ground
from tests.proof.soak import bad_while
from tests.proof.units import Done, PartOfProof
from tests.support.servers.ceph import running_ceph
from tests.support.servers.garage import running_garage
from tests.support.servers.minio import running_minio
from tests.support.servers.moto import running_moto
from tests.support.servers.s3_server import Processes, S3Server
from tests.support.servers.seaweedfs import running_seaweedfs
from tests.support.servers.swift import running_swift
from tests.support.servers.versitygw import running_versitygw

LISTINGS_S = 60.0
"""What a start waits where listings may lag, once another appliance has ever written there."""
READ_S = 0.5
"""What a request to the bucket may take; who stands still does so for longer."""


@dataclass(frozen=True)
class Store:
    """`mode`: the fencing mode that it allows. `killed`, `stopped`: its processes to which that is
    done. `races`: whether two writers may be awake on it. `lists_late`: its listings may lag."""

    running: Callable[[Path], AbstractContextManager[S3Server]]
    mode: Mode
    killed: tuple[str, ...]
    stopped: tuple[str, ...]
    versioned: bool = False
    races: bool = True
    lists_late: bool = False
    checksums: Literal["when_required", "when_supported"] = "when_required"

    def acts(self) -> list[str]:
        """All that is done to it and to the appliances on it."""
        return [
            *("kill", "kill, disk gone", "pause", "take over while paused", "bad bucket"),
            *(("take over",) if self.races else ()),
            *(f"kill {name}" for name in self.killed),
            *(f"stop {name}" for name in self.stopped),
            *(("power cut", f"take over, {self.killed[0]} killed") if self.killed else ()),
        ]


_CEPH = ("rgw", "osd")
_SWIFT = ("proxy", "object", "container")
STORES = {
    "moto": Store(running_moto, "A", (), ("moto",), races=False),
    "ceph": Store(running_ceph, "A", _CEPH, _CEPH),
    "ceph-versioned": Store(running_ceph, "B", _CEPH, _CEPH, versioned=True),
    "swift": Store(running_swift, "B", _SWIFT, _SWIFT, lists_late=True),
}
BUILT = {
    "garage": Store(running_garage, "B", ("garage",), ("garage",)),
    "minio": Store(running_minio, "A", ("minio",), ("minio",)),
    "seaweedfs": Store(running_seaweedfs, "A", ("seaweedfs",), ("seaweedfs",)),
    "versitygw": Store(running_versitygw, "A", ("versitygw",), ("versitygw",)),
}
BUILT |= {
    f"{name}-crc": replace(store, checksums="when_supported") for name, store in BUILT.items()
}
STORES |= BUILT


def plan(store: Store, seed: str, count: int) -> Iterator[str]:
    """So many acts: all of them once in some order, then all of them again."""
    dice = random.Random(f"real-stores/{seed}")
    acts: list[str] = []
    for _ in range(count):
        acts = acts or dice.sample(store.acts(), len(store.acts()))
        yield acts.pop()


async def apply(here: Ground, processes: Processes, store: Store, act: str, seed: str) -> None:
    """Do it; afterwards something was acknowledged."""
    dice = random.Random(f"{seed}/{act}")
    name = act.partition(" ")[2]
    if act in {"take over", "take over while paused"}:
        await here.take_over(paused=act.endswith("paused"))
    elif act.startswith("take over, "):
        await _take_over_beside_a_kill(here, processes, store.killed[0], dice)
    elif act in {"kill", "kill, disk gone"}:
        await here.kill(fresh=act.endswith("gone"))
    elif act == "pause":
        await here.pause(2 * READ_S)
    elif act == "bad bucket":
        await _bad_bucket(here, dice)
    elif act == "power cut":
        await _power_cut(here, processes, store.killed)
    elif act.startswith("kill "):
        await kill_process(here, processes, name, dice.uniform(0, 2 * READ_S))
    else:
        await _stop_process(here, processes, name)
    await here.crowd.until_acked(10, START_S)


async def _bad_bucket(here: Ground, dice: random.Random) -> None:
    proxy = here.arena.proxy
    assert proxy is not None
    for rule in bad_while(dice, here.arena.mode):
        proxy.add(rule)
    await asyncio.sleep(3 * READ_S)
    proxy.clear()


async def kill_process(here: Ground, processes: Processes, name: str, away_s: float) -> None:
    """Kill -9 of a process of the store, which is started again after a while."""
    here.faults[f"{name} of the store: kill -9"] += 1
    processes.kill(name)
    await asyncio.sleep(away_s)
    processes.start_again(name)


async def _take_over_beside_a_kill(
    here: Ground, processes: Processes, name: str, dice: random.Random
) -> None:
    """While the next appliance tests the store, brings itself up and claims the bucket."""

    async def kill() -> None:
        await asyncio.sleep(dice.uniform(0.5, 3.0))
        await kill_process(here, processes, name, dice.uniform(0, 2 * READ_S))

    killing = asyncio.create_task(kill())
    try:
        await here.take_over(paused=False)
    finally:
        await killing


async def _stop_process(here: Ground, processes: Processes, name: str) -> None:
    here.faults[f"{name} of the store: stands still"] += 1
    processes.pause(name)
    await asyncio.sleep(3 * READ_S)
    processes.resume(name)


async def _power_cut(here: Ground, processes: Processes, names: tuple[str, ...]) -> None:
    """Kill -9 of the appliance and of the store at the same moment; both are started again."""
    here.faults["kill -9 of the appliance and the store"] += 1
    here.seb.kill()
    for name in names:
        processes.kill(name)
    for name in names:
        processes.start_again(name)
    await here.restart(fresh=False)


async def run(unit: str, seed: str, folder: Path) -> Done:
    """`STORE-COUNT`: so many things are done to the store and to the appliances on it."""
    name, _, count = unit.rpartition("-")
    store, seed = STORES[name], f"{seed}/{unit}"
    shutil.rmtree(folder, ignore_errors=True)
    with store.running(folder / "server") as server:
        place = arena_on(server, versioned=store.versioned)
        settings = {"s3_read_timeout": f"{1000 * READ_S:.0f}ms", "linger": "50ms"}
        settings["s3_checksums"] = store.checksums
        settings["s3_immediate_list"] = "off" if store.lists_late else "on"
        async with ground(store.mode, folder / "ground", seed, place, **settings) as here:
            here.flags = EAGER
            here.start_s += LISTINGS_S if store.lists_late else 0.0
            await here.begin()
            status = await here.asked("GET", "/v1/status")
            assert status["journal"]["fencing_mode"] == store.mode, status
            for act in plan(store, seed, int(count)):
                began_s = time.monotonic()
                await apply(here, server.processes, store, act, seed)
                print(f"  {name}: {act} ({time.monotonic() - began_s:.1f} s)", flush=True)
            await here.verdict()
            return Done.of(unit, here)


REAL_STORES = PartOfProof(
    "real-stores",
    "moto, Ceph and Swift, their processes killed and stopped under load, like the appliance",
    {"quick": "moto, 4 faults", "full": "moto, Ceph in both fencing modes, Swift: 62 faults"},
    {
        "quick": ["moto-4"],
        "full": ["moto-12", "ceph-24", "ceph-versioned-12", "swift-14"],
    },
    run,
)
