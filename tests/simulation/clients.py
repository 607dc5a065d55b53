"""What uses the appliances meanwhile: producers, readers, groups, operators.

Each works until the world is over, asks whoever answers, and notes what it was told. Who is told
"refused" knows that nothing happened; who is told nothing knows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp, RequestStamp
from seb_appliance.broker.append.transactions import Transaction
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit as GroupCommit
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest, ReadResult
from seb_appliance.errors import CorruptObjectError, OffsetExpiredError, SebError
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.topic_settings import TopicSettings
from tests.simulation.history import Call, Commit, Row
from tests.simulation.process import NotServingError
from tests.simulation.world import Machine, NoAnswerError, World

ADMIN = ApiKeyView("test", "test", (Grant(operation="admin"),), 0)

# `orders` keeps all (of a day), `copied` what a transactional producer copies of it, `state` is
# compacted, `feed` loses what is old; `temp` comes and goes.
COPIED = "copied"
TOPICS = {
    COPIED: TopicSettings(retention_ms=86_400_000, linger_ms=10),
    "orders": TopicSettings(retention_ms=86_400_000, linger_ms=10, table="iceberg"),
    "state": TopicSettings(
        cleanup="compact",
        dirty_ratio=0.05,
        tombstone_retention_ms=8_000,
        linger_ms=10,
        table="iceberg",
        table_snapshots=2,
    ),
    "feed": TopicSettings(
        retention_ms=12_000, linger_ms=10, table="iceberg", table_retention_ms=9_000
    ),
}
TEMP = TopicSettings(table="iceberg")
TIMEOUTS_MS = [None, None, None, 150]  # how long a producer lets the broker wait for the bucket
KEYS = [b"a", b"b", b"c", b"d"]

Failed = (SebError, NotServingError, NoAnswerError)


def is_refusal(error: Exception) -> bool:
    """Whether it is a promise that nothing happened."""
    if isinstance(error, SebError):
        return error.side_effects == "none"
    return isinstance(error, NotServingError)


class Clients:
    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._transactions = 0

    def start(self) -> list[asyncio.Task[Any]]:
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            lambda: self.produce("p0", "orders", numbered=True),
            lambda: self.produce("p1", self._draws.choice(["orders", "feed"]), numbered=False),
            lambda: self.produce("k0", "state", numbered=True),
            self.transact,
            lambda: self.read("orders"),
            lambda: self.read(self._draws.choice(["state", "feed"])),
            self.commit,
            self.operate,
            self.manage_tables,
        ]
        return [self._world.loop.task_of(None, work()) for work in works]

    # --- producers ---

    async def make_topics(self) -> None:
        """Each of them is there afterwards. Tries until it is."""
        for name, settings in TOPICS.items():
            while True:
                try:
                    await self._world.ask(lambda b, n=name, s=settings: b.topics.create(n, s))  # type: ignore[misc]
                except Failed:
                    await self._pause(0.3)
                else:
                    break

    async def produce(self, name: str, topic: str, *, numbered: bool) -> None:
        """`numbered`: an idempotent producer, that repeats a request until it is answered."""
        number = seq = 0
        while not self._world.over:
            await self._pause(2.0)
            count = self._draws.choice([1, 1, 2, 3])
            marks = [b"%s:%d" % (name.encode(), number + i) for i in range(count)]
            number += count
            # One of them counts its records, the others their requests.
            counts = name == "p0"
            stamp = ProducerStamp(name, 0, seq, counts_records=counts) if numbered else None
            call = Call(topic, tuple(marks), self._world.loop.time())
            self._world.history.calls.append(call)
            await self._append(call, self._records(topic, marks), stamp)
            seq += count if counts else 1
            if numbered and call.outcome != "acked":
                return  # the world is over

    def _records(self, topic: str, marks: list[bytes]) -> NewRecords:
        if topic != "state":
            padding = b"." * self._draws.choice([0, 10, 200])
            return NewRecords([mark + b" " + padding for mark in marks])
        keys = [self._draws.choice(KEYS) for _ in marks]
        values = [mark + b" " if self._draws.random() < 0.75 else None for mark in marks]
        # A tombstone has no value to be known by: its header says who sent it.
        headers = [b"\x81\xa1m\xc4" + bytes([len(mark)]) + mark for mark in marks]
        return NewRecords(values, keys=list(keys), headers=headers)

    async def _append(self, call: Call, records: NewRecords, stamp: ProducerStamp | None) -> None:
        """Once, or with a stamp until it is answered."""
        maybe = False
        while True:
            try:
                await self.append_once(call, records, stamp)
            except Failed as error:
                maybe = maybe or not is_refusal(error)
                if stamp is None or self._world.over:
                    call.outcome = "unknown" if maybe else "refused"
                    return
                await self._pause(0.5)
            else:
                return

    async def append_once(
        self,
        call: Call,
        records: NewRecords,
        stamp: ProducerStamp | None = None,
        machine: Machine | None = None,
    ) -> None:
        """Ask, and note the acknowledgement. Raises what `World.ask` raises."""
        conditions = Conditions(producer=stamp)
        timeout_ms = self._draws.choice(TIMEOUTS_MS)

        def work(broker: Broker) -> Coroutine[Any, Any, Any]:
            room = broker.pending.reserve(OPERATOR, 100)
            return broker.appends.append(ADMIN, call.topic, records, room, timeout_ms, conditions)

        appended, process = await self._world.ask(work, machine)
        call.outcome, call.epoch = "acked", process.epoch
        call.answered_s = self._world.loop.time()
        call.topic_id, call.offset = appended.topic_id, appended.offset
        self._world.note(process.name, "acks", call.topic, call.offset, call.marks)
        self._world.history.acked(call, process.name)

    async def transact(self) -> None:
        """Records to two topics, and an offset, under one Idempotency-Key."""
        number = 0
        while not self._world.over:
            await self._pause(4.0)
            marks = {
                topic: [b"t%s:%d" % (topic[:1].encode(), number)] for topic in ("orders", "feed")
            }
            number += 1
            self._transactions += 1
            stamp = RequestStamp(b"%016d" % number, bytes(16), b"%016d" % number)
            now_s = self._world.loop.time()
            calls = [
                Call(topic, tuple(of), now_s, together=self._transactions)
                for topic, of in marks.items()
            ]
            self._world.history.calls += calls
            produce = {topic: self._records(topic, of) for topic, of in marks.items()}
            commit = GroupCommit("transacted", {"orders": number})
            await self._transact(calls, Transaction(produce, commit, stamp))

    async def _transact(self, calls: list[Call], transaction: Transaction) -> None:
        maybe = False
        while True:
            timeout_ms = self._draws.choice(TIMEOUTS_MS)

            def work(broker: Broker, ms: int | None = timeout_ms) -> Coroutine[Any, Any, Any]:
                return broker.appends.transact(
                    ADMIN, transaction, broker.pending.reserve(OPERATOR, 100), ms
                )

            try:
                done, process = await self._world.ask(work)
            except Failed as error:
                maybe = maybe or not is_refusal(error)
                if self._world.over or not getattr(error, "retryable", True):
                    for call in calls:
                        call.outcome = "unknown" if maybe else "refused"
                    return
                await self._pause(0.5)
            else:
                for call in calls:
                    produced = done.produced[call.topic]
                    call.outcome, call.epoch = "acked", process.epoch
                    call.answered_s = self._world.loop.time()
                    call.topic_id, call.offset = produced.topic_id, produced.offset
                    self._world.note(process.name, "transacts", call.topic, call.offset)
                    self._world.history.acked(call, process.name)
                return

    # --- readers ---

    async def read(self, topic: str) -> None:
        """From the beginning on, as a consumer does, wherever it is answered."""
        position = 0
        while not self._world.over:
            await self._pause(1.5)
            machine = self._draws.choice(self._world.machines)
            process = machine.process
            if process is None or not process.serves:
                continue
            known = 0
            if process.writes:
                topic_id = next(
                    (
                        c.topic_id
                        for c in self._world.history.calls
                        if c.topic == topic and c.topic_id
                    ),
                    0,
                )
                known = self._world.history.end_known_to(topic_id, process.epoch, process.name)
            request = ReadRequest(From(offset=position), max_records=self._draws.choice([3, 50]))
            try:
                result, by = await self._world.ask(partial(_read, topic, request), machine)
            except OffsetExpiredError as error:
                position = int(str(error.data["log_start_offset"]))
                continue
            except CorruptObjectError as error:
                if self._world.is_newest_writer(process) and "not in the bucket" in error.detail:
                    self._world.history.violations.append(f"P7 {process.name}: {error}")
                continue
            except Failed:
                continue
            rows = rows_of(result)
            self._world.note(by.name, "serves", topic, position, len(rows), result.log_end_offset)
            self._check_read(topic, position, rows, result, by.name)
            if by is process and result.log_end_offset < known:
                self._world.history.violations.append(
                    f"P6 {by.name} says that {topic} ends at {result.log_end_offset}, and {known} "
                    "was acknowledged before"
                )
            position = result.next_offset

    def _check_read(
        self, topic: str, position: int, rows: list[Row], result: ReadResult, who: str
    ) -> None:
        violations = self._world.history.violations
        self._world.history.served_rows(result.topic_id, rows, who)
        offsets = [offset for offset, _, _ in rows]
        if offsets != sorted(set(offsets)) or (offsets and offsets[0] < position):
            violations.append(f"P7 {who} served {topic} from {position} as {offsets}")
        if topic != "state" and offsets and offsets != list(range(offsets[0], offsets[-1] + 1)):
            violations.append(f"P3 {who} served {topic} with a gap: {offsets}")
        if offsets and not offsets[-1] < result.next_offset <= result.log_end_offset:
            violations.append(
                f"P7 {who} served {topic} to {offsets[-1]}, next {result.next_offset}"
            )

    # --- groups and operators ---

    async def commit(self) -> None:
        while not self._world.over:
            await self._pause(3.0)
            ends = [call for call in self._world.history.calls if call.topic == "orders"]
            acked = [call for call in ends if call.outcome == "acked"]
            if not acked:
                continue
            call = self._draws.choice(acked)
            commit = Commit("readers", call.topic_id, call.offset)
            wanted = GroupCommit("readers", {"orders": call.offset}, allow_backward=False)
            self._world.history.commits.append(commit)
            try:
                await self._world.ask(
                    lambda b, w=wanted: b.groups.commit(w, b.pending.reserve(OPERATOR, 9))  # type: ignore[misc]
                )
            except Failed as error:
                commit.outcome = "refused" if is_refusal(error) else "unknown"
            else:
                commit.outcome = "acked"
                self._world.note("readers", "committed", call.offset)

    async def operate(self) -> None:
        """API keys, trims, leases, and a topic that comes and goes."""
        tokens: list[str] = []
        while not self._world.over:
            await self._pause(5.0)
            work = self._draws.choice(["key", "revoke", "trim", "temp", "lease", "key"])
            try:
                if work == "key":
                    grants = (Grant(operation="produce"),)
                    (_, token), _ = await self._world.ask(lambda b: b.access.create("k", grants))  # noqa: B023
                    tokens.append(token)
                    self._world.history.tokens.add(token)
                elif work == "revoke" and tokens:
                    await self._revoke(tokens.pop())
                elif work == "trim":
                    await self._trim()
                elif work == "lease":
                    holder = self._draws.choice(["one", "two"])
                    await self._world.ask(lambda b: b.groups.take_lease("leased", holder, 2_000))  # noqa: B023
                elif work == "temp":
                    await self._make_and_delete()
            except Failed:
                continue

    async def _revoke(self, token: str) -> None:
        history = self._world.history
        history.tokens.discard(token)
        await self._world.ask(lambda b: b.access.revoke(token.split("_")[1]))
        history.revoked.add(token)
        self._world.note("operator", "revoked", token[:8])

    async def _trim(self) -> None:
        acked = [c for c in self._world.history.calls if c.topic == "feed" and c.outcome == "acked"]
        ends = [call for call in acked if call.topic_id]  # the copier is told no offsets
        if ends:
            call = self._draws.choice(ends)
            await self._world.ask(lambda b: b.topics.trim("feed", call.offset))
            trimmed = self._world.history.trimmed
            trimmed[call.topic_id] = max(call.offset, trimmed.get(call.topic_id, 0))

    async def _make_and_delete(self) -> None:
        """Its records are told as any others, but for those of a topic that is gone."""
        (view, _), _ = await self._world.ask(lambda b: b.topics.create("temp", TEMP))
        for _ in range(self._draws.randrange(3)):
            mark = b"x%d:%d" % (view.topic_id, len(self._world.history.calls))
            call = Call("temp", (mark,), self._world.loop.time())
            self._world.history.calls.append(call)
            await self._append(call, NewRecords([mark + b" "]), None)
        if self._draws.random() < 0.7:
            self._world.history.doomed.add(view.topic_id)
            await self._world.ask(lambda b: b.topics.delete("temp"))

    async def manage_tables(self) -> None:
        """Tables are stopped, dropped and made anew; and `orders` is forked."""
        works = ["pause", "resume", "repair", "off", "on", "drop", "fork", "fork", "tidy up"]
        while not self._world.over:
            await self._pause(4.0)
            topic = self._draws.choice([*TOPICS, "copy"])
            work = self._draws.choice(works)
            try:
                await self._manage(work, topic)
            except Failed:
                continue
            self._world.note("operator", "did", work, topic)

    async def _manage(self, work: str, topic: str) -> None:
        ask = self._world.ask
        match work:
            case "pause" | "resume":
                paused = work == "pause"
                await ask(lambda b: b.table_commits.pause(topic, THE_APPLIANCE, paused=paused))
            case "repair":
                await ask(lambda b: b.table_commits.repair(topic, THE_APPLIANCE))
            case "on" | "off":
                to = "iceberg" if work == "on" else "none"
                await ask(lambda b: b.topics.change(topic, {"table": to}))
            case "drop":
                await ask(lambda b: b.topics.change(topic, {"table": "none"}))
                await ask(lambda b: b.table_commits.drop(topic, THE_APPLIANCE))
                await ask(lambda b: b.topics.change(topic, {"table": "iceberg"}))
            case "fork":
                await ask(lambda b: b.topics.fork("copy", "orders"))
                mark = b"c:%d" % len(self._world.history.calls)
                call = Call("copy", (mark,), self._world.loop.time())
                self._world.history.calls.append(call)
                await self._append(call, self._records("copy", [mark]), None)
            case _:
                await ask(_drop_detached)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._draws.random())


async def _drop_detached(broker: Broker) -> None:
    for table in broker.tables.all():
        if broker.table_commits.state(table) == "detached":
            await broker.table_commits.drop(table.head.table_id, THE_APPLIANCE)


async def _read(topic: str, request: ReadRequest, broker: Broker) -> ReadResult:
    return await broker.read(topic, request)


def rows_of(result: ReadResult) -> list[Row]:
    """What a read gave to one who is sent whole batches, as clients are: they cut the first and the
    last, and take all others as they are. The value of a tombstone is None."""
    rows: list[Row] = []
    for piece in result.slices:
        columns, count = piece.batch.columns, piece.batch.header.count
        keys = [None] * count if columns.keys is None else columns.keys.slice()
        rows += zip(piece.batch.offsets(), keys, columns.values.slice(), strict=True)
    begin = result.slices[0].batch.offsets()[result.slices[0].begin] if rows else 0
    return [row for row in rows if begin <= row[0] < result.next_offset]
