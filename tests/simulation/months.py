"""`python -m tests.simulation.months`: what months of the appliance cost, beside other services.

The real broker, journal, snapshots and tidier run on the simulated loop with their settings of S3
and calm weather. Requests to the bucket are counted over a span of virtual time, after a while that
is left out, and scaled to a month. `--count` counts (some minutes) and stores `months.json`;
without it the table of docs/COST.md is computed from that file and printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

import msgspec

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.errors import SebError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.cost.bill import GB, Bill, bill
from seb_appliance.ops.cost.budget import stretched
from seb_appliance.ops.cost.competitors import COMPETITORS, MONTH_S, Load
from seb_appliance.ops.cost.ledger import SECOND_US, Ledger, Month, Observed, Totals
from seb_appliance.ops.cost.prices import PROVIDERS
from seb_appliance.ops.jobs import snapshot_job
from seb_appliance.storage import layout
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.object_store import ObjectStore, WrappedStore
from tests.simulation import process
from tests.simulation.bucket import Bucket, BucketClient
from tests.simulation.clients import ADMIN
from tests.simulation.loop import running
from tests.simulation.trace import Trace
from tests.simulation.world import World

COUNTS: Final = Path(__file__).with_name("months.json")
RECORD_BYTES: Final = 250
SHORTEST_MS, LONGEST_MS = 1_000, limits.LINGER_AUTO_MS_DEFAULT
S3_ENTRY_S: Final = 0.01  # how long an entry takes to replay, as a start on S3 assumes
HOUR_S: Final = 3_600.0
PARTS_AT_ONCE: Final = 500
# Which prices, and the fencing mode that the provider's conditional requests allow.
MODES: Final = {"aws": "A", "r2": "A", "tigris": "A", "gcs": "B", "b2": "B", "hetzner": "B"}
# Records a second: the span that is counted, and the time before it, in seconds.
SPANS: Final[dict[float, tuple[float, float]]] = {
    0.0: (24 * HOUR_S, HOUR_S),
    1 / 60: (24 * HOUR_S, 4 * HOUR_S),
    0.1: (8 * HOUR_S, 4 * HOUR_S),
    1.0: (4 * HOUR_S, 2 * HOUR_S),
    10.0: (HOUR_S, HOUR_S),
    100.0: (900.0, 600.0),
    1_000.0: (60.0, 80.0),
    10_000.0: (15.0, 70.0),
}
TOPICS: Final = (1, 10_000)  # in all
RATE_OF_ALL_TOPICS: Final = 1_000.0
ACKS_ALONE_UP_TO: Final = 10.0  # records a second; above, one for what was stored together
VALUES: Final = Random(1).randbytes(1 << 20)


class Forgetful(Bucket):
    """Keeps only what is there."""

    def put(self, key: str, body: bytes) -> None:
        super().put(key, body)
        self.first_stored.clear()
        self.steps.clear()


class Cached(WrappedStore):
    """Entries are read once, by the tidier, from the cache on the machine's disk."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._entries: dict[str, bytes] = {}

    async def create(self, key: str, body: bytes) -> None:
        await super().create(key, body)
        self._keep(key, body)

    async def put(self, key: str, body: bytes) -> None:
        await super().put(key, body)
        self._keep(key, body)

    async def get(self, key: str) -> bytes:
        body = self._entries.pop(key, None)
        return await super().get(key) if body is None else body

    def _keep(self, key: str, body: bytes) -> None:
        if layout.parse_entry(key) is not None:
            self._entries[key] = body


class Silent(Trace):
    def note(self, now_s: float, who: str, what: str, *details: object) -> None:
        """Too much would be noted."""


class Traffic:
    """Records at random moments, to one topic after another; each is acknowledged by a group."""

    def __init__(self, world: World, broker: Broker, rate: float, topics: int) -> None:
        self._world, self._broker = world, broker
        self._draws = Random(1)
        # At high rates, several come at once: as many as in a hundredth of a second.
        self._at_once = max(1, round(rate / 100))
        self._every_s = self._at_once / rate
        self._topics = [f"t{number}" for number in range(topics)]
        self.records, self.over = 0, False
        self._ends: dict[str, int] = {}
        self._acks_alone = rate <= ACKS_ALONE_UP_TO
        self._acking = False

    def begin(self) -> None:
        self._world.loop.later(self._draws.expovariate(1 / self._every_s), self._send)

    def _send(self) -> None:
        if self.over:
            return
        for _ in range(self._at_once):
            at = self._draws.randrange(len(VALUES) - RECORD_BYTES)
            topic = self._topics[self.records % len(self._topics)]
            taken = self._broker.appends.append_nowait(
                ADMIN, topic, VALUES[at : at + RECORD_BYTES], RECORD_BYTES, self
            )
            assert taken, "the broker takes it"
            self.records += 1
        self.begin()

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        """A reader gets it, and acknowledges it a little later."""
        topic, end = self._topics[admitted.topic_id - 1], admitted.offset + admitted.count
        if self._acks_alone:
            self._world.loop.later(0.1, self._ack, {topic: end})
        else:
            self._ends[topic] = end
            if not self._acking:
                self._acking = True
                self._world.loop.later(0.1, self._ack_all)

    def failed(self, error: SebError) -> None:
        assert self.over, error

    def _ack_all(self) -> None:
        ends, self._ends, self._acking = list(self._ends.items()), {}, False
        for at in range(0, len(ends), PARTS_AT_ONCE):
            self._ack(dict(ends[at : at + PARTS_AT_ONCE]))

    def _ack(self, offsets: dict[str, int]) -> None:
        self._world.loop.task_of(None, self._commit(offsets))

    async def _commit(self, offsets: dict[str, int]) -> None:
        room = self._broker.pending.reserve("reader", 100)
        await self._broker.groups.commit(Commit("g", offsets, allow_backward=True), room)


def enough(provider: str) -> int | None:
    """Of `linger = auto` at this provider."""
    ledger = Ledger.begun(0)
    seen = {"journal PUT": 100, "journal LIST": 100 if MODES[provider] == "B" else 0}
    for at_s in (1, 2):
        ledger.note(at_s * SECOND_US, Observed(seen, 0, 1.0, 0, {}, {}))
    return stretched(
        ledger,
        PROVIDERS[provider],
        None,
        ledger.until_us,
        shortest_ms=SHORTEST_MS,
        longest_ms=LONGEST_MS,
    ).enough


def name_of(mode: str, most: int | None, rate: float, topics: int) -> str:
    """Where a window holds enough at its first look, it does not matter how many that are."""
    matters = most is not None and rate * SHORTEST_MS / 1000 < 2 * most
    return f"{mode} {most if matters else 'any'} {rate:.3g}/s {topics}"


@contextlib.contextmanager
def _as_on_s3(world: World) -> Iterator[list[CountedStore]]:
    """The product's settings, and the store of each process counted."""
    stores: list[CountedStore] = []

    def counted(*args: Any) -> Cached:
        stores.append(CountedStore(BucketClient(*args), world.loop.time))
        return Cached(stores[-1])

    with contextlib.ExitStack() as patches:
        for name, value in (
            ("SETTINGS", BrokerSettings(linger_ms=SHORTEST_MS)),
            ("ENTRY_S", S3_ENTRY_S),
            ("BucketClient", counted),
        ):
            patches.enter_context(mock.patch.object(process, name, value))
        patches.enter_context(mock.patch.object(snapshot_job, "prepare", world.copies.read))
        yield stores


def counted(
    mode: str, most: int, rate: float, topics: int, span: tuple[float, float]
) -> dict[str, float]:
    """Requests a second by kind, `entries` of the journal, and `records`, over the first number of
    seconds of `span`, after the second. `most`: `enough` of `linger = auto`."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(1, Path(folder), mode=mode, in_order=True, trace=Silent(), machines=1)
        world.bucket = Forgetful(creates_only_if_absent=mode == "A")
        world.network._bucket = world.bucket
        with _as_on_s3(world) as stores, running(world.loop):
            main = world.loop.task_of(None, _month(world, stores, most, rate, topics, span))
            while not main.done():
                world.loop._run_once()
            found, seconds = main.result(), span[0]
        world.loop.end(world.owners)
        assert not world.loop.failures, world.loop.failures
    return {name: count / seconds for name, count in sorted(found.items())}


async def _month(
    world: World,
    stores: list[CountedStore],
    most: int | None,
    rate: float,
    topics: int,
    span: tuple[float, float],
) -> Counter[str]:
    running_process = world.machines[0].boot()
    while not running_process.writes:
        assert running_process.runs, running_process.ended
        await asyncio.sleep(0.1)
    broker = running_process.broker
    assert broker is not None
    for at in range(0, topics, PARTS_AT_ONCE):
        part = range(at, min(topics, at + PARTS_AT_ONCE))
        await asyncio.gather(*[broker.topics.create(f"t{n}", TopicSettings()) for n in part])
    if most is not None:
        broker.linger.default_ms, broker.linger.enough = LONGEST_MS, most
    traffic = Traffic(world, broker, rate, topics) if rate else None
    if traffic is not None:
        traffic.begin()
    await asyncio.sleep(span[1])
    before = _so_far(stores, broker, traffic)
    await asyncio.sleep(span[0])
    found = _so_far(stores, broker, traffic) - before
    if traffic is not None:
        traffic.over = True
    return found


def _so_far(stores: list[CountedStore], broker: Broker, traffic: Traffic | None) -> Counter[str]:
    records = traffic.records if traffic is not None else 0
    found = Counter({"entries": broker.counters.entries, "records": records})
    for row in stores[0].counts.rows:
        found[row.kind] += row.requests
    return found


# --- the table ---

Counts = dict[str, dict[str, float]]


def counted_topics(mode: str, rate: float, topics: int) -> int:
    """Requests are counted with one topic, and at one rate with all."""
    return topics if mode == "A" and rate == RATE_OF_ALL_TOPICS else 1


def wanted() -> list[tuple[str, int, float, int]]:
    """What is counted. Where requests cost nothing, none are."""
    ways = {(mode, most) for name, mode in MODES.items() if (most := enough(name)) is not None}
    return sorted(
        {
            (mode, most, rate, counted_topics(mode, rate, topics))
            for mode, most in ways
            for rate in SPANS
            for topics in TOPICS
        }
    )


def requests_cost(counts: Counts, provider: str, rate: float, topics: int) -> float:
    """Of a month at a provider."""
    return _bill(counts, provider, rate, topics).requests_amount


def cost(counts: Counts, provider: str, rate: float, topics: int) -> float:
    """Of a month at a provider: requests, a day's records, the fee; no egress."""
    return _bill(counts, provider, rate, topics).total


def _bill(counts: Counts, provider: str, rate: float, topics: int) -> Bill:
    mode = MODES[provider]
    name = name_of(mode, enough(provider), rate, counted_topics(mode, rate, topics))
    stored_bytes = _load(rate, topics).stored_gb * GB
    return bill_of(counts.get(name, {}), provider, stored_bytes=stored_bytes)


def bill_of(
    used: dict[str, float], provider: str, *, days: int = 30, stored_bytes: float = 0.0
) -> Bill:
    """Of a month with what `counted` found."""
    seconds = days * 24 * 3600
    requests = {
        f"any {kind}": round(count * seconds)
        for kind, count in used.items()
        if kind not in ("entries", "records")
    }
    totals = Totals(requests, byte_seconds=stored_bytes * seconds)
    return bill(PROVIDERS[provider], totals, Month("", 0, seconds * SECOND_US))


def upkeep(counts: Counts, rate: float) -> float:
    """What all requests but the PUTs of entries cost a month at AWS."""
    used = counts[name_of("A", enough("aws"), rate, 1)]
    asked = {f"any {kind}": used.get(kind, 0.0) * MONTH_S for kind in ("LIST", "GET", "HEAD")}
    asked["any PUT"] = (used.get("PUT", 0.0) - used.get("entries", 0.0)) * MONTH_S
    requests = {name: round(count) for name, count in asked.items()}
    return bill(PROVIDERS["aws"], Totals(requests), Month("", 0, MONTH_S * SECOND_US)).total


def _load(rate: float, topics: int) -> Load:
    return Load(rate * MONTH_S, RECORD_BYTES, topics)


def table(counts: Counts) -> str:
    """As in docs/COST.md. A service that costs less than `aws` is marked."""
    names = [*MODES, *COMPETITORS]
    heads = [f"`{name}`" for name in MODES] + list(COMPETITORS)
    lines = [f"| records/s | topics | {' | '.join(heads)} |", "|---|---|" + "---|" * len(names)]
    for rate in SPANS:
        for topics in TOPICS if rate else TOPICS[:1]:
            load, ours = _load(rate, topics), cost(counts, "aws", rate, topics)
            cells = [_money(cost(counts, name, rate, topics)) for name in MODES]
            for price in COMPETITORS.values():
                theirs = price(load)
                is_less = theirs < ours and _money(theirs) != _money(ours)
                cells.append(f"**{_money(theirs)}**" if is_less else _money(theirs))
            words = {0.0: "none", 1 / 60: "1 a minute"}.get(rate, f"{rate:,g}")
            lines.append(f"| {words} | {topics:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _money(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.months", description=__doc__)
    parser.add_argument("--count", action="store_true", help="count anew what is not in the file")
    counts: Counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    if parser.parse_args().count:
        for mode, most, rate, topics in wanted():
            name = name_of(mode, most, rate, topics)
            if name not in counts:
                counts[name] = counted(mode, most, rate, topics, SPANS[rate])
                body = msgspec.json.format(msgspec.json.encode(counts, order="deterministic"))
                COUNTS.write_bytes(body + b"\n")
    print(table(counts))


if __name__ == "__main__":
    main()
