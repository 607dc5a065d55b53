"""Fault schedules: a seed decides what happens when, and the same seed does it again.

The moments are those of a running machine, so a schedule is repeated, not its interleaving; the
simulation repeats bit for bit.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seb_appliance.storage.layout import Mode
from tests.proof.ground import Ground, ground
from tests.proof.units import Done, PartOfProof
from tests.support.faultproxy import Rule

READ_S = "400ms"
"""What a request to the bucket may take: a request that hangs costs the run so much."""


@dataclass(frozen=True)
class Step:
    """After `wait_s` since the step before, do `what`; `rule` says how the bucket behaves."""

    wait_s: float
    what: str
    rule: dict[str, Any] | None = None

    def __str__(self) -> str:
        told = "" if self.rule is None else " " + " ".join(f"{k}={v}" for k, v in self.rule.items())
        return f"+{self.wait_s:.2f} s  {self.what}{told}"


@dataclass(frozen=True)
class Schedule:
    """`tables`: some topics are lake tables, and bad PUTs are those of tables, too. `by_kafka`:
    some workers come by the Kafka protocol."""

    mode: Mode
    steps: tuple[Step, ...]
    tables: bool
    by_kafka: bool


_ON_PUT = ("drop_reply", "reset", "late", "hang", "slow", "lie412", "status")
_ON_GET = ("reset", "hang", "slow", "status", "truncate", "flip")
_CODES = (409, 412, 429, 500, 502, 503, 504, 507, 400, 403)
_TABLES = 0.5  # of the schedules have lake tables
_BY_KAFKA = 0.5  # of the schedules have workers by Kafka
_ACTS = ("kill", "kill, disk gone", "pause", "take over", "take over while paused")


def plan(seed: str, steps: int = 8) -> Schedule:
    """The schedule of a seed: six bad whiles of the bucket and two things done to the processes."""
    dice = random.Random(f"schedule/{seed}")
    mode: Mode = dice.choice(("A", "B"))
    acts = set(dice.sample(range(1, steps), 2))
    return Schedule(
        mode,
        tuple(
            Step(round(dice.uniform(0.1, 0.5), 2), dice.choice(_ACTS))
            if i in acts
            else Step(round(dice.uniform(0.1, 0.5), 2), "bucket", _rule(dice, mode))
            for i in range(steps)
        ),
        random.Random(f"tables/{seed}").random() < _TABLES,
        random.Random(f"kafka/{seed}").random() < _BY_KAFKA,
    )


def _rule(dice: random.Random, mode: Mode) -> dict[str, Any]:
    method = dice.choice(("PUT", "PUT", "GET"))
    action = dice.choice(_ON_PUT if method == "PUT" else _ON_GET)
    if mode == "B" and action == "lie412":
        action = "drop_reply"  # no condition is sent, so no store answers that it does not hold
    rule: dict[str, Any] = {"action": action, "method": method}
    rule |= {"p": round(dice.uniform(0.2, 1.0), 2), "count": dice.randint(1, 6)}
    if action == "status":
        codes = [c for c in _CODES if c != 412 or (mode == "A" and method == "PUT")]
        rule["code"] = dice.choice(codes)
    if action in {"late", "slow"}:
        rule["delay"] = round(dice.uniform(0.05, 1.5), 2)
    return rule


async def apply(here: Ground, step: Step) -> None:
    """Do one step. What is done to a process happens with the bucket well again, because a start
    beside a bucket that fails is told, and is no fault of the log."""
    await asyncio.sleep(step.wait_s)
    proxy = here.arena.proxy
    assert proxy is not None
    if step.rule is not None:
        is_put = step.rule["method"] == "PUT"
        proxy.add(Rule(**step.rule, match="/journal/" if is_put else ""))
        # After a 403 a table rests for 30 s, and there is nothing to see of it.
        if here.lake is not None and is_put and step.rule.get("code") != 403:
            proxy.add(Rule(**step.rule, match="/tables/"))
        return
    if step.what.startswith("take over"):
        proxy.clear()
        await here.take_over(paused=step.what.endswith("paused"))
    elif step.what.startswith("kill"):
        proxy.clear()
        await here.kill(fresh=step.what.endswith("gone"))
    else:
        await here.pause(0.8)


async def replay(seed: str, folder: Path) -> Done:
    """The schedule of a seed, and the verdict."""
    schedule = plan(seed)
    async with ground(schedule.mode, folder, seed, s3_read_timeout=READ_S) as here:
        await here.begin(tables=schedule.tables, by_kafka=schedule.by_kafka)
        for step in schedule.steps:
            await apply(here, step)
        assert here.arena.proxy is not None
        await here.arena.proxy.late_landed()
        await here.verdict()
        return Done.of(seed, here)


async def run(unit: str, seed: str, folder: Path) -> Done:
    """The unit is the number of the schedule."""
    return await replay(f"{seed}.{unit}", folder)


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


SCHEDULES = PartOfProof(
    "schedules",
    "schedules of faults by seed: of the bucket, of processes, of two appliances",
    {"quick": "10 seeds", "full": "100 seeds", "long": "500 seeds"},
    {"quick": _numbers(10), "full": _numbers(100), "long": _numbers(500)},
    run,
    beside=True,
)


async def run_puts(unit: str, seed: str, folder: Path) -> Done:
    """`MODE-COUNT-NUMBER`: so many PUTs of the journal that fail, one in two, in every way."""
    mode: Mode = "A" if unit.startswith("A") else "B"
    count = int(unit.split("-")[1])
    async with ground(mode, folder, f"{seed}/{unit}", s3_read_timeout="100ms") as here:
        await here.begin()
        proxy = here.arena.proxy
        assert proxy is not None
        for rule in _every_way(mode, random.Random(f"{seed}/{unit}")):
            proxy.clear()
            rule.count = None
            before = sum(proxy.faults.values())
            share = count // len(_WAYS) + 1
            proxy.add(rule)
            while sum(proxy.faults.values()) < before + share:
                here.require_workers()
                await asyncio.sleep(0.02)
        proxy.clear()
        await proxy.late_landed()
        await here.verdict()
        faulted = sum(here.faults.values())
        return Done.of(unit, here, faulted_PUTs=faulted)


_WAYS = [
    *({"action": action} for action in ("drop_reply", "reset", "slow", "hang", "lie412")),
    {"action": "late", "delay": 0.3},
    *({"action": "status", "code": code} for code in _CODES if code not in {403, 429, 507}),
]


def _every_way(mode: Mode, dice: random.Random) -> Iterator[Rule]:
    for way in dice.sample(_WAYS, len(_WAYS)):
        lies = way["action"] == "lie412" or way.get("code") == 412
        fields: dict[str, Any] = {"action": "drop_reply"} if lies and mode == "B" else way
        yield Rule(**{"delay": 0.05, **fields}, method="PUT", match="/journal/", p=0.5)


PUTS = PartOfProof(
    "faulted-puts",
    "PUTs that are lost, late, refused, or stored without an answer",
    {"quick": "300 PUTs", "full": "20,000 PUTs", "long": "100,000 PUTs"},
    {
        "quick": ["A-300-0"],
        "full": [f"{'AB'[i % 2]}-1000-{i}" for i in range(20)],
        "long": [f"{'AB'[i % 2]}-1000-{i}" for i in range(100)],
    },
    run_puts,
    beside=True,
)
