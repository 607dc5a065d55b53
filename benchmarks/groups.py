"""What 100,000 groups cost: memory, describing one, pages of 500 (also for an API key that sees
few), and the longest time for which the event loop stood still while the topic of all is deleted.

    python benchmarks/groups.py
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from seb_appliance.api.routes.groups.groups import _summary
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.groups.consumer_groups import Sees
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.formats.api_key_members import Grant
from tests.support.appliance import running_appliance

GROUPS = 100_000
AT_ONCE = 5_000
TOPIC = "orders.eu"


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def median_ms(act: Callable[[], object], times: int = 21) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return sorted(took)[times // 2] * 1000


def key_for(groups: str) -> ApiKeyView:
    grants = (Grant(operation="consume", topics="orders.*", groups=groups),)
    return ApiKeyView(f"key-{groups}", "benchmark", grants, 0)


def sees_with(broker: Broker, key: ApiKeyView) -> Sees:
    return lambda group, topic: any(
        broker.may(key, operation, topic, group) for operation in ("consume", "manage")
    )


def page(broker: Broker, sees: Sees, after: str = "") -> tuple[int, str | None]:
    views, following = broker.groups.page(after, 500, sees)
    return len([_summary(view) for view in views]), following


async def fill(broker: Broker) -> None:
    for first in range(0, GROUPS, AT_ONCE):
        names = [f"team-{n % 100}.group-{n}" for n in range(first, first + AT_ONCE)]
        commits = [
            broker.groups.commit(Commit(name, {TOPIC: 1}), broker.pending.reserve(OPERATOR, 100))
            for name in names
        ]
        await asyncio.gather(*commits)


async def longest_turn_s(stop: asyncio.Event) -> tuple[float, float]:
    """Of the event loop: in processor time of its thread, and on the clock, which other work on
    the machine lengthens."""
    worked = passed = 0.0
    before = time.thread_time(), time.perf_counter()
    while not stop.is_set():
        await asyncio.sleep(0)
        now = time.thread_time(), time.perf_counter()
        worked, passed = max(worked, now[0] - before[0]), max(passed, now[1] - before[1])
        before = now
    return worked, passed


def look(broker: Broker) -> None:
    everyone = sees_with(broker, key_for("**"))
    few = sees_with(broker, key_for("team-7.*"))
    nobody = sees_with(broker, key_for("elsewhere.*"))
    name = "team-7.group-707"
    print(f"describe one: {median_ms(lambda: broker.groups.describe(name, everyone)):.2f} ms")
    for who, sees in (("all", everyone), ("1 in 100", few), ("none", nobody)):
        took_ms = median_ms(lambda sees=sees: page(broker, sees, "team-5"))
        count, _ = page(broker, sees, "team-5")
        print(f"page of 500 for a key that sees {who}: {took_ms:.2f} ms, {count} groups")
    began, pages, found, after = time.perf_counter(), 0, 0, ""
    while True:
        count, following = page(broker, few, after)
        pages, found = pages + 1, found + count
        if following is None:
            break
        after = following
    print(f"all of 1 in 100: {found} groups, {pages} pages, {time.perf_counter() - began:.3f} s")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with running_appliance(Path(folder)) as running:
            broker, follower = running.appliance.broker, running.appliance.follower
            key = ApiKeyView("admin", "admin", (Grant(operation="admin"),), 0)
            await broker.appends.append(
                key, TOPIC, NewRecords([b"x"]), broker.pending.reserve(OPERATOR, 1)
            )
            before_mb = resident_mb()
            began = time.perf_counter()
            await fill(broker)
            await follower.drain()
            gc.collect()
            print(f"{broker.groups.count:,} groups after {time.perf_counter() - began:.1f} s")
            print(f"memory: {resident_mb() - before_mb:.0f} MB more")
            look(broker)
            stop = asyncio.Event()
            watching = asyncio.create_task(longest_turn_s(stop))
            began = time.perf_counter()
            await broker.topics.delete(TOPIC)
            print(f"topic deleted: answered after {time.perf_counter() - began:.3f} s")
            await follower.drain()
            stop.set()
            worked_s, passed_s = await watching
            print(f"longest turn of the event loop: {worked_s * 1000:.1f} ms of processor time")
            print(f"on the clock, beside all that runs here: {passed_s * 1000:.1f} ms")
            print(f"SQLite followed after {time.perf_counter() - began:.3f} s")
            print(f"{broker.groups.count:,} groups are left")


if __name__ == "__main__":
    asyncio.run(main())
