"""One seed from its beginning to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal
from unittest import mock

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.lake import commits, due, table
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.values import From, NewRecords, ReadRequest
from seb_appliance.errors import OffsetExpiredError, SebError, UnauthenticatedError
from seb_appliance.ops.jobs import snapshot_job as snapshot_keeper
from seb_appliance.ops.jobs.lake import keeper
from seb_appliance.storage.stores import store_probe as store_test
from tests.simulation.clients import Clients, Failed, is_refusal, rows_of
from tests.simulation.clock import START_US
from tests.simulation.doors import Doors, simulated_doors
from tests.simulation.doors_nemesis import DoorsNemesis
from tests.simulation.fold import folded
from tests.simulation.history import Call, Row
from tests.simulation.kafka import Copier, copied
from tests.simulation.log import Log, read_log
from tests.simulation.loop import DeadlockError, running
from tests.simulation.nemesis import Nemesis
from tests.simulation.process import Process
from tests.simulation.projected import differences, project_anew
from tests.simulation.queues import Workers
from tests.simulation.sqlite_state import SqliteDisk
from tests.simulation.streams import StreamClients
from tests.simulation.tables import Onlooker, Promises, unsettled
from tests.simulation.trace import Trace
from tests.simulation.upkeep import out_of_order
from tests.simulation.verdict import catalog_digest, violations
from tests.simulation.world import Machine, World

Kind = Literal["plain", "sqlite", "streams", "doors"]
"""Local state is entries in plain Python, or the product's SQLite files; or streams are opened and
closed, with local state in plain Python and without the Kafka protocol. `doors`: as that, with
those who come in by other doors instead of streams (`doors.py`), a network that is cut in parts,
and slow disks."""

BUSY_S: dict[Kind, float] = {"plain": 12.0, "sqlite": 8.0, "streams": 12.0, "doors": 20.0}
DOORS_WITH_SQLITE = 10  # one of so many seeds: they take eight times as long
CALLBACKS_MAX = 400_000
KINDS: tuple[Kind, ...] = ("plain", "sqlite", "streams", "doors")
TABLES_WITHIN_S = 60.0
RECOVERS_WITHIN_S = 240.0  # once nothing goes wrong any more


@dataclass(frozen=True)
class Outcome:
    """`digest`: of all that happened. `violations`: sentences, none when all is well."""

    seed: int
    digest: str
    violations: tuple[str, ...]
    callbacks: int
    requests: int
    faults: Counter[str]  # by kind
    virtual_s: float
    calls: int
    starts: int
    trace: tuple[str, ...] = ()


def run_seed(
    seed: int,
    *,
    keep_trace: bool = False,
    mode: str | None = None,
    machines: int | None = None,
    kind: Kind = "plain",
    copies: bool = True,
) -> Outcome:
    """The same seed gives the same outcome, on any machine and in any process. `mode`, `machines`:
    instead of what the seed would draw. `copies`: with a transactional producer of Kafka."""
    draws = Random(seed)
    trace = Trace(kept=keep_trace)
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        _without_garbage_collection(),
        _bugs_logged() as bugs,
    ):
        world = World(
            seed,
            Path(folder),
            mode=mode or draws.choice("AB"),
            in_order=draws.random() < 0.3,
            trace=trace,
            machines=machines or draws.choice([1, 2, 2, 2, 3]),
            sqlite=kind == "sqlite" or (kind == "doors" and seed % DOORS_WITH_SQLITE == 0),
            doors=kind == "doors",
        )
        run = _Run(world, BUSY_S[kind], copies=copies, streams=kind == "streams")
        with small_limits(), _local_state(world, seed):
            try:
                with running(world.loop):
                    found = run.to_the_end()
                    callbacks, ended_s = world.loop.callbacks_run, world.loop.time()
            finally:
                world.loop.end(world.owners)
    return Outcome(
        seed,
        trace.digest,
        (*found, *bugs),
        callbacks,
        world.network.requests,
        world.network.faults,
        ended_s,
        len(world.history.calls),
        sum(machine.starts for machine in world.machines),
        tuple(trace.lines),
    )


class _Bugs(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.found.append("bug: " + self.format(record))


@contextlib.contextmanager
def _bugs_logged() -> Iterator[list[str]]:
    """What keepers survive, and log as a bug of ours. Nothing is logged elsewhere meanwhile."""
    log, bugs = logging.getLogger("seb_appliance"), _Bugs()
    log.addHandler(bugs)
    log.propagate = False
    try:
        yield bugs.found
    finally:
        log.removeHandler(bugs)
        log.propagate = True


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """When it runs, it runs code, at a moment that no seed decides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # killed processes await nothing any more
        gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def _local_state(world: World, seed: int) -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        if not world.sqlite:
            read = mock.patch.object(snapshot_keeper, "prepare", world.copies.read)
            patches.enter_context(read)
        else:  # a transaction costs the most here
            patches.enter_context(mock.patch.object(limits, "INDEX_PAGE_ENTRIES", 16))
            patches.enter_context(mock.patch.object(limits, "STATE_GATHER_S", 0.5))
        if world.doors:
            patches.enter_context(simulated_doors(seed))
        yield


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """What takes hours in production takes seconds here, and a handful is many."""
    small = {
        "SNAPSHOT_INTERVAL_S_MIN": 3,
        "TIDY_EVERY_S": 0.7,
        "RETENTION_EVERY_S": 4.0,
        "ENTRIES_PER_JOB_MIN": 5,
        "SMALL_OBJECTS_MAX": 3,
        "REPACK_BYTES_MIN": 200,
        "OWN_SEGMENT_BYTES_MIN": 1_000,
        "TABLE_EVERY_S": 0.3,
        "TABLE_LOOK_EVERY_S": 4.0,
        "TABLE_MERGED_MIN": 3,
        "TABLE_JOB_BYTES": 1_500,
        "TABLE_MANIFESTS_MAX": 4,
        "TABLE_METADATA_LOG": 5,
        "TABLE_REMOVED_MS_MAX": 5_000,
    }
    with contextlib.ExitStack() as patches:
        for name, value in small.items():
            patches.enter_context(mock.patch.object(limits, name, value))
        for place, name, value in (
            (due, "_HOUR_US", 4_000_000),
            (due, "MANIFEST_FILES_MAX", 3),
            (table, "MANIFEST_FILES_MAX", 3),
            (commits, "_ROWS_AT_ONCE", 2),
            (keeper, "_AFTER_FAILURE_S", 1.0),
            (keeper, "_STRAYS_EVERY_S", 3.0),
        ):
            patches.enter_context(mock.patch.object(place, name, value))
        patches.enter_context(mock.patch.object(store_test, "RACE_KEYS", 1))
        patches.enter_context(mock.patch.object(store_test, "RACE_WRITERS", 2))
        patches.enter_context(mock.patch.object(store_test, "LIST_ROUNDS_AT_ONCE", 1))
        yield


class _Run:
    def __init__(self, world: World, busy_s: float, *, copies: bool, streams: bool) -> None:
        self._world = world
        self._busy_s = busy_s
        self._found: list[str] = []
        self._clients = Clients(world)
        self._tables = Onlooker(world)
        self._workers = Workers(world)
        self._copier = Copier(world) if copies and not (streams or world.doors) else None
        self._streams = StreamClients(world) if streams else None
        self._doors = Doors(world) if world.doors else None

    def to_the_end(self) -> list[str]:
        main = self._world.loop.task_of(None, self._main())
        try:
            while not main.done():
                self._world.loop._run_once()
                if self._world.loop.callbacks_run > CALLBACKS_MAX:
                    return [f"P13 no end after {CALLBACKS_MAX} callbacks"]
        except DeadlockError:
            return ["P13 nothing can run any more"]
        if (error := main.exception()) is not None:
            return ["bug: " + "".join(traceback.format_exception(error))]
        return [*self._found, *self._world.known.differences, *self._world.loop.failures]

    async def _main(self) -> None:
        world = self._world
        if self._doors is not None:
            self._doors.begin()
        world.machines[0].boot()
        nemesis = DoorsNemesis(world) if world.doors else Nemesis(world)
        await self._clients.make_topics()
        await self._workers.make_queue()
        if len(world.machines) > 1 and world.draws.random() < 0.6:
            world.machines[1].boot(standby=True)
        keeping = nemesis.start(self._busy_s)
        tasks = self._clients.start()
        tasks.append(world.loop.task_of(None, self._tables.look()))
        tasks += [world.loop.task_of(None, self._workers.work(name)) for name in ("w0", "w1")]
        if self._copier is not None:
            tasks.append(world.loop.task_of(None, self._copier.work()))
        if (streams := self._streams) is not None:
            works = [
                streams.make(),
                streams.look(),
                *(streams.write(name) for name in ("d0", "d1")),
            ]
            tasks += [world.loop.task_of(None, work) for work in works]
        if self._doors is not None:
            tasks += [world.loop.task_of(None, work) for work in self._doors.works()]
        await asyncio.sleep(self._busy_s)
        nemesis.calm()
        world.note("nemesis", "is calm")
        await asyncio.sleep(2.0)
        world.over = True
        await asyncio.gather(*tasks, *keeping)
        writer = await self._recovered()
        if writer is None:
            ends = {m.name: m.process.ended for m in world.machines if m.process is not None}
            self._found.append(
                f"P13 nobody writes {RECOVERS_WITHIN_S:.0f} s after the last fault: {ends}"
            )
            return
        await self._judge(writer)

    async def _recovered(self) -> Machine | None:
        """A machine whose process stores something again, after all that was late has landed."""
        world = self._world
        until_s = world.loop.time() + RECOVERS_WITHIN_S
        await asyncio.sleep(world.network.latest_s - world.loop.time() + 1.0)
        while world.doors and world.loop.time() < until_s and world.somebody_starts:
            await asyncio.sleep(0.5)  # on a slow disk, to take over whoever writes
        while world.loop.time() < until_s:
            for machine in world.machines:
                if machine.process is None or machine.process.standby or not machine.runs:
                    continue
                if await self._stores(machine):
                    return machine
            if not any(m.runs and not m.process.standby for m in world.machines if m.process):
                idle = [machine for machine in world.machines if not machine.runs]
                standby = [machine for machine in world.machines if machine.runs]
                if idle:
                    idle[0].boot(take_over=True)
                elif standby and standby[0].process is not None:
                    standby[0].process.ask_to_stop()
            await asyncio.sleep(1.0)
        return None

    async def _stores(self, machine: Machine) -> bool:
        world = self._world
        mark = b"last:%d" % int(world.loop.time() * 1000)
        call = Call("orders", (mark,), world.loop.time())
        world.history.calls.append(call)
        try:
            await self._clients.append_once(call, NewRecords([mark + b" "]), machine=machine)
        except Failed as error:
            call.outcome = "refused" if is_refusal(error) else "unknown"
            return False
        return True

    async def _judge(self, machine: Machine) -> None:
        """Stop the writer as its operator would, begin anew from the bucket alone, and compare."""
        world = self._world
        process = machine.process
        assert process is not None
        assert process.broker is not None
        live = catalog_digest(process.broker._catalog)
        live_position = process.broker._catalog.position
        await self._ended(process)
        for other in world.machines:  # a start would take the bucket over from the next one
            is_starting = other.process is not None and other.process.broker is None
            if other.process is not None and other.runs and (world.doors or is_starting):
                await self._ended(other.process)
        ours = machine.disk.entries
        of_log = [e for e in ours if e.header.seq <= live_position.seq]
        _compare(self._found, "memory", live, catalog_digest(Catalog(folded(of_log), _still)))
        rebuilt = Machine("R", world)
        fresh = rebuilt.boot(take_over=True)
        while fresh.runs and not fresh.writes:
            await asyncio.sleep(0.5)
        if fresh.broker is None:
            self._found.append(f"P14 nothing can be rebuilt from the bucket: {fresh.ended}")
            return
        theirs = rebuilt.disk.entries
        if [e.header for e in theirs[: len(ours)]] != [e.header for e in ours]:
            self._found.append("P14 what the bucket has is another log than its writer's")
        try:
            log = read_log(world.bucket, theirs, world.mode)
        except KeyError as missing:
            self._found.append(f"P1 {missing} is on the log, and was never stored")
            return
        except SebError as error:
            self._found.append(f"P1 the log cannot be read: {error}")
            return
        readable = await self._read_all(fresh.broker)
        if self._doors is not None:
            self._doors.told(fresh.broker)
        self._found += violations(world.history, log, readable)
        self._found += copied(fresh.broker, log)
        if self._streams is not None:
            self._found += self._streams.violations(log, fresh.broker)
        if self._doors is not None:
            self._found += self._doors.violations(log, fresh.broker)
        self._found += await self._settle_tables(fresh.broker)
        self._found += await self._workers.finish(fresh.broker)
        left = await self._read_all(fresh.broker)  # a compaction may have been at work
        self._found += self._workers.violations(log, left)
        self._check_time(log)
        if world.bucket.overwritten:
            self._found.append(f"P2 overwritten: {world.bucket.overwritten}")
        self._check_groups(fresh.broker)
        self._check_keys(fresh.broker)
        await self._ended(fresh)
        # Its tidier was at work, too, while all was read.
        wrong = out_of_order(world.bucket.steps, rebuilt.disk.entries, world.mode)
        self._found += [f"upkeep: {step}" for step in wrong]
        self._check_files(machine, rebuilt)
        log = read_log(world.bucket, rebuilt.disk.entries, world.mode)
        self._found += Promises(rebuilt.disk.entries, log).violations(self._tables.seen, readable)
        self._found += [f"P17 foreign: {key}" for key in self._tables.foreign.values()]

    async def _settle_tables(self, broker: Broker) -> list[str]:
        """Wait until tables are as they should be, and read them then. Sentences, if never."""
        until_s, calm = self._world.loop.time() + TABLES_WITHIN_S, 0
        for one in broker.tables.all():
            with contextlib.suppress(SebError):
                await broker.table_commits.pause(one.head.table_id, THE_APPLIANCE, paused=False)
        waits = ""
        while calm < 4:
            waits = unsettled(broker)
            calm = 0 if waits else calm + 1
            if self._world.loop.time() > until_s:
                return [f"P17 {waits}, {TABLES_WITHIN_S:.0f} s after the last fault"]
            if calm < 4:
                await asyncio.sleep(0.5)
        self._tables.look_last(broker)
        return []

    async def _ended(self, process: Process) -> None:
        process.ask_to_stop()
        while process.runs:
            await asyncio.sleep(0.5)

    async def _read_all(self, broker: Broker) -> dict[int, list[Row]]:
        readable: dict[int, list[Row]] = {}
        for topic in broker.topics.all():
            rows: list[Row] = readable.setdefault(topic.topic_id, [])
            start = From(earliest=True)
            while True:
                try:
                    result = await broker.read(topic.name, ReadRequest(start, max_records=100))
                except OffsetExpiredError:  # retention was at work meanwhile
                    rows.clear()
                    start = From(earliest=True)
                    continue
                except SebError as error:
                    self._found.append(f"P1 {topic.name} cannot be read from {start}: {error}")
                    break
                rows += rows_of(result)
                if result.next_offset == result.log_end_offset:
                    break
                start = From(offset=result.next_offset)
        return readable

    def _check_files(self, *machines: Machine) -> None:
        """P14 of SQLite: the files of the writer, and of who began from the bucket, are what the
        log alone makes. The second one's log goes on where the first one's ends."""
        anew, done = self._world.folder / "anew.sqlite", 0
        for machine in machines:
            if isinstance(machine.disk, SqliteDisk):
                entries = machine.disk.entries
                project_anew(anew, entries[done:])
                done = len(entries)
                self._found += differences(machine.disk.path, anew)

    def _check_time(self, log: Log) -> None:
        """P19: `created` is about right, whichever clocks were wrong meanwhile. A machine's clock
        is believed as long as it is within ten minutes of the store's."""
        least_us = START_US - limits.CLOCK_JUMP_US_MAX
        most_us = START_US + int(limits.LOG_CLOCK_FASTEST * self._world.loop.time() * 1e6)
        if not least_us <= log.oldest_us <= log.newest_us <= most_us + limits.CLOCK_JUMP_US_MAX:
            ends = ((us - START_US) / 1e6 for us in (log.oldest_us, log.newest_us))
            self._found.append(f"P19 entries were created from {next(ends)} s to {next(ends)} s")

    def _check_groups(self, broker: Broker) -> None:
        commits = [c for c in self._world.history.commits if c.group == "readers"]
        least = max((c.offset for c in commits if c.outcome == "acked"), default=0)
        possible = {c.offset for c in commits if c.outcome != "refused"}
        group = broker._catalog.groups.get("readers")
        offset = next((item.offset for item in group.offsets.values()), 0) if group else 0
        if offset < least or (offset and offset not in possible):
            self._found.append(f"P11 the group is at {offset}; committed were {least}, {possible}")

    def _check_keys(self, broker: Broker) -> None:
        for token in sorted(self._world.history.revoked | self._world.history.tokens):
            try:
                broker.access.authenticate(token)
                works = True
            except UnauthenticatedError:
                works = False
            if works != (token in self._world.history.tokens):
                self._found.append(f"P16 API key {token[:14]} works: {works}")


def _still() -> float:
    return 0.0


def _compare(
    found: list[str], what: str, live: dict[str, object], of_log: dict[str, object]
) -> None:
    for name, item in live.items():
        if item != of_log[name]:
            found.append(f"P14 {what} and the log differ in {name}: {item} and {of_log[name]}")
