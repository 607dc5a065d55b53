"""Where a part of the proof takes place: a bucket, the appliances on it, the crowd at their doors,
what is done to them, and the history that is judged in the end."""

from __future__ import annotations

import asyncio
import pickle
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from seb_appliance.errors import BadBatchError
from seb_appliance.formats import entry
from seb_appliance.state.tables import state_digest
from seb_appliance.storage.layout import Mode
from tests.crash.arena import Arena, Place, directory_arena, s3_arena
from tests.proof import contending, kafka, queues, workers
from tests.proof.calling import Caller, Crowd
from tests.proof.check_state import PROGRESS_S
from tests.proof.checker import require
from tests.proof.history import Commit, Read, Rebuilt, TakeOver
from tests.proof.judges import judging
from tests.proof.lake import SETTINGS, TABLES, Lake
from tests.support.process import SebProcess
from tests.support.producer import Doors
from tests.support.servers.s3_server import free_port

FENCED = 75
EAGER = ("--tidy-bytes", "1KiB", "--tidy-young", "0ms", "--garbage-grace", "0ms")
"""A tidier that merges and compacts whatever there is, at once."""
START_S = 120.0
"""How long a start may take while others use the machine; recovery has a part of its own."""

_BUCKET_DID = {
    "drop_reply": "answer of the bucket lost",
    "reset": "request to the bucket lost",
    "late": "request lands after its sender gave up",
    "hang": "bucket hangs",
    "status": "bucket refuses",
    "slow": "bucket is slow",
    "truncate": "answer cut short",
    "flip": "bit of an answer flipped",
    "lie412": "412 although it was stored",
}


class Ground:
    """`seb` is the appliance in force. `faults`: what was done, by kind; those of the proxy are
    counted there. A history that a judge refuses is kept."""

    def __init__(self, arena: Arena, seed: str) -> None:
        self.arena = arena
        self.crowd = Crowd(Doors("", []), workers.empty_history(), seed)
        self.faults: Counter[str] = Counter()
        self.seb: SebProcess
        self.flags: tuple[str, ...] = ()
        """Of every appliance that starts from now on."""
        self.start_s = START_S
        """How long each of them may take to be ready."""
        self._tasks: list[asyncio.Task[None]] = []
        self.may_fail: set[int] = set()
        """Ports of processes that had no memory or no disk: they may print what they died of."""
        self.lake: Lake | None = None
        self.opinions: list[judging.Opinion] = []
        """Of other projects' judges on the history, in the end."""
        self._topics: tuple[str, ...] = (*workers.TOPICS, workers.KEYED)
        self._kafka = False

    async def begin(
        self,
        crew: dict[workers.Worker, int] | None = None,
        *,
        tables: bool = False,
        queue_workers: int = 0,
        by_kafka: bool = False,
    ) -> None:
        """The first appliance is ready, its topics are there, the crowd has begun. `tables`: some
        topics are lake tables. `queue_workers`: so many share a queue. `by_kafka`: some come by the
        Kafka protocol."""
        if by_kafka:
            self._kafka, self._topics = True, (*self._topics, *kafka.OUTPUTS)
        self.seb = self._start("first", take_over=True)
        await self.seb.ready(self.start_s)
        self.crowd.doors.key = self.seb.admin_key
        for topic in self._topics:
            settings: dict[str, Any] = {}
            if topic == workers.KEYED:
                settings |= {"cleanup": "compact", "dirty_ratio": 0.01}
            if tables and topic in TABLES:
                settings |= SETTINGS
            await self.asked("PUT", f"/v1/topics/{topic}", settings)
        self.serve_from(self.seb)
        self._tasks = workers.start(self.crowd, crew)
        if crew is None:
            self._tasks += workers.start(self.crowd, contending.CREW)
        if by_kafka and crew is None:
            self._tasks += workers.start(self.crowd, kafka.CREW)
        if queue_workers:
            await self.asked("PUT", f"/v1/queues/{queues.QUEUE}", queues.SETTINGS)
            self._tasks += workers.start(self.crowd, {queues.work: queue_workers})
        await self.crowd.until_acked(10)
        if tables:
            self.lake = Lake(self)
            await self.lake.begin()
            self._tasks.append(asyncio.create_task(self.lake.watch()))

    def _start(self, name: str, *, fresh: bool = False, take_over: bool = False) -> SebProcess:
        port = free_port()
        flags = (*self.flags, "--kafka-port", str(port)) if self._kafka else self.flags
        started = self.arena.start(name, *flags, fresh=fresh, take_over=take_over)
        self.crowd.kafka_ports[started.port] = port
        return started

    def add(self, tasks: list[asyncio.Task[None]]) -> None:
        """More of the crowd."""
        self._tasks += tasks

    def serve_from(self, *running: SebProcess) -> None:
        self.crowd.doors.ports[:] = [seb.port for seb in running]

    async def asked(self, method: str, path: str, body: Any = None) -> Any:
        """A good answer of the appliance in force."""
        door = Crowd(Doors(self.crowd.doors.key, [self.seb.port]), self.crowd.history, "")
        caller = Caller(door, "", timeout_s=START_S)
        try:
            found = await caller.make(Read(*caller.begin()), method, path, body)
        finally:
            caller.close()
        assert found is not None, (method, path, dict(self.crowd.answers), self.seb.shown)
        return found

    def require_workers(self) -> None:
        """Raises what a worker ended with."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def restart(self, *, fresh: bool) -> None:
        """The next appliance, on the same data directory or without one, is ready."""
        self.require_workers()
        if fresh:
            shutil.rmtree(self.seb.data, ignore_errors=True)
        self.seb = self._start(self.seb.data.name, fresh=fresh)
        self.serve_from(self.seb)
        await self.seb.ready(self.start_s)

    async def kill(self, *, fresh: bool) -> None:
        """Kill -9, with or without the loss of the disk; the next one has acknowledged."""
        self.faults["kill -9, disk gone" if fresh else "kill -9"] += 1
        self.seb.kill()
        await self.restart(fresh=fresh)
        await self.crowd.until_acked(1)

    async def pause(self, seconds: float) -> None:
        """SIGSTOP for a while."""
        self.faults["paused"] += 1
        self.seb.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.seb.send(signal.SIGCONT)

    async def take_over(self, *, paused: bool) -> None:
        """Another appliance takes the bucket while the first one runs, or sleeps, or wakes up."""
        self.require_workers()
        self.faults["taken over while paused" if paused else "taken over"] += 1
        old = self.seb
        if paused:
            old.send(signal.SIGSTOP)
        claimed_s = time.monotonic()
        name = "second" if old.data.name == "first" else "first"
        self.seb = self._start(name, take_over=True)
        self.serve_from(old, self.seb)
        await self.seb.ready(self.start_s)
        self.serve_from(self.seb)
        await self._acked_by(self.seb.port)
        self.crowd.history.take_overs.append(TakeOver(old.port, claimed_s, time.monotonic()))
        self.serve_from(old, self.seb)
        old.send(signal.SIGCONT)
        try:
            code = await old.ended(START_S / 2)
        except AssertionError:
            require(self.crowd.history)  # if it goes on acknowledging, that comes first
            raise
        assert code == FENCED, (code, old.shown)
        self.serve_from(self.seb)

    async def _acked_by(self, port: int) -> None:
        at, until_s = len(self.crowd.history.writes), time.monotonic() + START_S
        while not any(
            call.outcome == "ok" and call.port == port for call in self.crowd.history.writes[at:]
        ):
            assert time.monotonic() < until_s, (dict(self.crowd.answers), self.seb.shown)
            await asyncio.sleep(0.01)

    async def calm(self) -> None:
        """No faults from now on; every worker makes progress (P13), or its time is over."""
        if self.arena.proxy is not None:
            self.arena.proxy.clear()
            for action, count in self.arena.proxy.faults.items():
                self.faults[_BUCKET_DID[action]] += count
        history = self.crowd.history
        history.calm_s = calm_s = time.monotonic()
        everybody = {call.worker for call in history.calls} - history.gone_home
        while time.monotonic() < calm_s + PROGRESS_S:
            self.require_workers()
            done = {c.worker for c in history.calls if c.outcome == "ok" and c.answered_s > calm_s}
            if done >= everybody:
                return
            await asyncio.sleep(0.1)
        require(history)  # which says who is stuck, before anything waits for them

    async def verdict(self) -> None:
        """The crowd goes home; the log, the groups and the state are held against the history.
        Raises AssertionError with what does not hold."""
        await self.calm()
        self.crowd.stopping.set()
        await asyncio.gather(*self._tasks)
        history = self.crowd.history
        if history.queue_calls:  # before the logs are read: what is compacted later was settled
            await queues.finish(self)
        if self.flags == EAGER:
            await self._compacted()
        ids = {}
        for topic in self._topics:
            history.logs[topic] = await self._read_all(topic)
            ids[(await self.asked("GET", f"/v1/topics/{topic}"))["topic_id"]] = topic
        await self._look_at_groups()
        if self.lake is not None:
            await self.lake.look_last()
        if self.arena.server is not None:
            history.durable_s = _durable_s(
                self.arena.server.objects, self.arena.server.stored_s, ids
            )
        self.seb.process.terminate()
        assert await self.seb.ended(START_S) == 0, self.seb.shown
        for seb in self.arena.processes:
            assert seb.port in self.may_fail or "Traceback" not in seb.shown, seb.shown
        live = state_digest(self.seb.data / "state.sqlite")
        for beginning, digest in (await self.arena.rebuilt_states()).items():
            history.rebuilt.append(Rebuilt(f"the state {beginning}", live, digest))
        try:
            require(history)
            self.opinions = await asyncio.to_thread(judging.opinions, history)
            judging.require(self.opinions)
        except AssertionError:
            (self.arena.folder / "history.pickle").write_bytes(pickle.dumps(history))
            raise
        await self.arena.require_sound(self.seb)

    async def _compacted(self) -> None:
        """Wait until compaction has been over all that there is."""
        async with asyncio.timeout(START_S):
            while True:
                tidier = (await self.asked("GET", "/v1/status"))["tidier"]
                if tidier["compacted_bytes"] and not tidier["dirty_bytes"]:
                    return
                await asyncio.sleep(0.1)

    async def _read_all(self, topic: str) -> list[Any]:
        found: list[Any] = []
        offset, end = 0, 1
        while offset < end:
            query = f"offset={offset}&max_records=10000&max_bytes=8MiB"
            page = await self.asked("GET", f"/v1/topics/{topic}/records?{query}")
            found += workers.records_of(page)
            offset, end = page["next_offset"], page["log_end_offset"]
        return found

    async def _look_at_groups(self) -> None:
        places = {(call.group, call.topic) for call in self.crowd.history.commits}
        caller = Caller(self.crowd, "the end")
        self.crowd.history.gone_home.add("the end")
        for group, topic in sorted(places):
            look = Commit(*caller.begin(), group=group, topic=topic, kind="look")
            path = f"/v1/groups/{group}/topics/{topic}/records?max_records=1"
            page = await caller.make(look, "GET", path)
            assert page is not None, look
            look.offset = page["committed_offset"] or 0
            self.crowd.history.commits.append(look)
        caller.close()


def _durable_s(
    objects: dict[str, bytes], stored_s: dict[str, float], topics: dict[int, str]
) -> dict[tuple[str, int], float]:
    """When the bucket had each offset first, from the journal entries that are still in it."""
    found: dict[tuple[str, int], float] = {}
    for key, body in objects.items():
        if "journal/" not in key:
            continue
        try:
            sections = entry.decode(body).contents.sections
        except BadBatchError:
            continue
        for section in sections:
            topic = topics.get(section.topic_id, "")
            for offset in range(section.base_offset, section.last_offset + 1):
                found[topic, offset] = min(stored_s[key], found.get((topic, offset), stored_s[key]))
    return found


@asynccontextmanager
async def ground(
    mode: Mode, folder: Path, seed: str, place: Place = s3_arena, **settings: str
) -> AsyncIterator[Ground]:
    """On a small S3 server behind a proxy, or on a directory; nothing of it runs on."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    async with place(mode, folder, **settings) as arena:
        made = Ground(arena, seed)
        try:
            yield made
        finally:
            made.crowd.stopping.set()
            made.crowd.doors.ports[:] = made.crowd.doors.ports or [1]
            for task in made._tasks:
                task.cancel()
            await asyncio.gather(*made._tasks, return_exceptions=True)


PLACES: dict[str, Place] = {"S3": s3_arena, "directory": directory_arena}
