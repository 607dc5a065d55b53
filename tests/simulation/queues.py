"""P18: what a queue hands out, it hands out until it is settled, once at a time, in the order of
its keys; no acknowledgement is lost. The proof's checker decides here, too."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.record_keys.queries import key_of
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import SebError
from seb_appliance.formats.queues.queues import QueueSettings, RetryRule
from tests.proof.check_queues import check_queues
from tests.proof.history import NEVER, QueueCall
from tests.proof.queues import LEASE_S
from tests.simulation.clients import Failed
from tests.simulation.history import Row
from tests.simulation.log import Log
from tests.simulation.process import Process
from tests.simulation.world import World

QUEUE = "work"
SETTINGS = QueueSettings(
    topics=("orders", "state", "feed", "temp"),
    ordering="key",
    lease_ms=round(LEASE_S * 1000),
    max_deliveries=1_000,
    retry=RetryRule(min_ms=1, max_ms=50),
)
WHOLE = "orders"  # this topic loses no record
_FORGOTTEN_MS = 1_000
_ENDS: list[Literal["ack", "retry", "reject", "forget"]] = ["ack", "retry", "reject", "forget"]
_OFTEN = (85, 8, 4, 3)
_DONE_WITHIN_S = 60.0
Delivery = tuple[Place, str | None, str]  # record key, token


async def _take(broker: Broker, most: int) -> list[Delivery]:
    found = await broker.queues.take(QUEUE, most, 200, None, "test")
    made = []
    for one in found:
        offsets = one.piece.batch.offsets()
        for n, out in enumerate(one.deliveries):
            i = one.piece.begin + n
            place, key = Place(one.topic.topic_id, offsets[i]), key_of(one.piece, i)
            token = broker.queues.token(QUEUE, place, out.lease)
            made.append((place, None if key is None else key.decode(), token))
    return made


async def _is_there(broker: Broker, place: Place) -> bool:
    """Whether its topic still has the record."""
    for topic in broker.queues.read_by(QUEUE) or ():
        if topic.topic_id == place.topic_id:
            try:
                found = await broker.read(
                    topic.name, ReadRequest(From(place.offset), max_records=1)
                )
            except SebError:
                return False
            return any(piece.batch.offsets()[piece.begin] == place.offset for piece in found.slices)
    return False


async def _end(broker: Broker, kind: str, tokens: list[str]) -> list[Any]:
    queues = broker.queues
    if kind == "ack":
        return list(await queues.ack(QUEUE, tokens, "test"))
    if kind == "retry":
        return list(await queues.retry(QUEUE, tokens, None, "test"))
    if kind == "reject":
        return list(await queues.reject(QUEUE, tokens, "no use"))
    return list(await queues.extend(QUEUE, tokens, _FORGOTTEN_MS))


class Workers:
    """`calls`: what they asked and were told; `port` is the number of the process."""

    def __init__(self, world: World) -> None:
        self.calls: list[QueueCall] = []
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._ports: dict[str, int] = {}
        self._handed_out: defaultdict[tuple[int, str], set[Place]] = defaultdict(set)
        self._too_early: list[Place] = []  # not settled when the next one of its key was out

    async def make_queue(self) -> None:
        while True:
            try:
                await self._world.ask(lambda broker: broker.queues.put(QUEUE, SETTINGS))
            except Failed:
                await asyncio.sleep(0.3)
            else:
                return

    async def work(self, name: str) -> None:
        while not self._world.over:
            await asyncio.sleep(1.2 * self._draws.random())
            await self._some(name)

    async def _some(self, name: str) -> None:
        most, call = self._draws.randint(1, 12), self._begin(name, "take")
        try:
            taken, process = await self._world.ask(lambda broker: self._take(broker, most))
        except Failed:
            return
        self._answered(call, process)
        if call.port >= 0:  # else who was taken over may not know it yet
            call.records = tuple((str(place[0]), place[1], key) for place, key, _ in taken)
        ends: dict[str, list[Delivery]] = {}
        for one in taken:
            ends.setdefault(self._draws.choices(_ENDS, _OFTEN)[0], []).append(one)
        for kind, deliveries in ends.items():
            await self._ended(name, call.port, kind, deliveries)

    async def _take(self, broker: Broker, most: int) -> list[Delivery]:
        """When a record is handed out, those before it of its key are settled by what is stored, or
        compacted away."""
        taken = await _take(broker, most)
        progress = broker.queues.get(QUEUE).progress if taken else {}
        unsettled = list[Place]()
        for place, key, _ in taken:
            if key is not None:
                before = self._handed_out[place.topic_id, key]
                settled = progress[place.topic_id].settled if place.topic_id in progress else ()
                unsettled += [one for one in before if one < place and one.offset not in settled]
                before.add(place)
        for place in unsettled:
            if await _is_there(broker, place):
                self._too_early.append(place)
        return taken

    async def _ended(self, name: str, port: int, kind: str, deliveries: list[Delivery]) -> None:
        """Until it is answered."""
        tokens = [token for _, _, token in deliveries]
        while True:
            call = self._begin(name, kind, port)
            call.records = tuple((str(place[0]), place[1], key) for place, key, _ in deliveries)
            try:
                told, process = await self._world.ask(lambda broker: _end(broker, kind, tokens))
            except Failed:
                if self._world.over:
                    return
                await asyncio.sleep(0.5)
            else:
                self._answered(call, process)
                call.results = tuple(told)
                return

    def _begin(self, name: str, kind: Any, port: int = -1) -> QueueCall:
        call = QueueCall(name, port, self._world.loop.time(), kind=kind)
        self.calls.append(call)
        return call

    def _answered(self, call: QueueCall, process: Process) -> None:
        known = self._ports.setdefault(process.name, len(self._ports))
        # The leases of who stops, or may have been taken over, end.
        call.port = -1 if process.stopping or not self._is_alone(process) else known
        call.answered_s, call.outcome = self._world.loop.time(), "ok"

    def _is_alone(self, process: Process) -> bool:
        """Not so if it was taken over, even if the next one has ended: it may not know it yet."""
        if not self._world.is_newest_writer(process):
            return False
        others = (one.process for one in self._world.machines if one.process is not process)
        return not any(one is not None and one.runs and not one.standby for one in others)

    # --- in the end ---

    async def finish(self, broker: Broker) -> list[str]:
        """Take and acknowledge what is left, from a broker that nobody else asks. Sentences, if
        that is not possible."""
        try:
            return await self._finished(broker)
        except SebError as error:
            return [f"P18 the queue cannot be used in the end: {error}"]

    async def _finished(self, broker: Broker) -> list[str]:
        until_s = self._world.loop.time() + _DONE_WITHIN_S
        while (await broker.queues.describe(QUEUE)).waiting:
            if self._world.loop.time() > until_s:
                view = await broker.queues.describe(QUEUE)
                return [f"P18 {view.waiting} records wait for ever: {view}"]
            call = self._begin("last", "take", len(self._ports))
            try:
                taken = await _take(broker, 1_000)
            except SebError:  # retention or compaction was at work
                continue
            call.answered_s, call.outcome = self._world.loop.time(), "ok"
            call.records = tuple((str(place[0]), place[1], key) for place, key, _ in taken)
            tokens, end = [token for _, _, token in taken], self._begin("last", "ack", call.port)
            end.records = call.records
            end.results = tuple(await _end(broker, "ack", tokens)) if tokens else ()
            end.answered_s, end.outcome = self._world.loop.time(), "ok"
        return []

    def violations(self, log: Log, readable: dict[int, list[Row]]) -> Iterator[str]:
        """`readable`: what the log still had of each topic in the end; others are deleted, which
        ends all leases on them, also before it is stored and if it never is."""
        doomed = self._world.history.doomed
        readable = {i: rows for i, rows in readable.items() if i not in doomed}
        whole = [str(i) for i, name in log.names.items() if name == WHOLE and i in readable]
        logs = {str(i): [(row[0], None) for row in rows] for i, rows in readable.items()}
        for call in self.calls:
            kept = [i for i, record in enumerate(call.records) if int(record[0]) in readable]
            call.results = tuple(call.results[i] for i in kept if call.results)
            call.records = tuple(call.records[i] for i in kept)
        rejected = {  # there is no topic of dead letters
            (topic, offset)
            for call in self.calls
            if call.kind == "reject" and call.results
            for (topic, offset, _), result in zip(call.records, call.results, strict=True)
            if result == "ok"
        }
        evidence: Any = SimpleNamespace(
            history=SimpleNamespace(
                queue_calls=self.calls, logs=logs, dead_letters=rejected, transforms={}
            ),
            claimed_s={-1: NEVER},
            rows={name: dict(rows) for name, rows in logs.items()},
            whole=lambda name: name in whole,
        )
        for one in check_queues(evidence):
            yield f"P18 {one.sentence}"
        for place in self._too_early:
            yield f"P18 what settled {place} was not stored when the next of its key was handed out"
