"""Who works at the Kafka port: an idempotent producer with five requests in flight, a reader, and a
transactional worker that reads, writes and commits in one transaction.

They retry as clients do. A producer sends all that is not acknowledged again, in order. A
transaction that failed is begun anew from what the group has committed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.wire.codec import Message
from tests.proof import workers
from tests.proof.calling import Crowd
from tests.proof.history import Commit, Part, Read, Record, Write
from tests.proof.kafka_calls import KafkaCaller
from tests.support.kafka_client import offsets, to, values
from tests.support.load import LostError
from tests.unit.protocols.kafka.record_sets import Sent, made

OUTPUT: Final = "transformed"
OUTPUTS: Final = (OUTPUT, f"{OUTPUT}.kafka-1")  # its partitions, as topics
INPUT: Final = workers.TOPICS[0]
_IN_FLIGHT: Final = 5  # of a producer, as many as the log remembers
_ABORTED: Final = 0.25  # of all transactions
_GOES_ON: Final = 0.6  # of transactions that failed: it aborts and goes on as the same producer
_AGAIN: Final = 0.1  # of requests in a transaction are sent twice
_ENDS: Final = 3  # attempts of EndTxn
_STORED: Final = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
_FENCED: Final = {
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
_NOTHING_HAPPENED: Final = _FENCED | {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}
_NOBODY: Final = (-1, -1)


class _RefusedError(Exception):
    """An answer with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = code


def _count(crowd: Crowd, what: str, code: int) -> None:
    crowd.answers[f"kafka {what}: {ErrorCode(code).name if code else 'ok'}"] += 1


def _check(crowd: Crowd, what: str, code: int) -> None:
    """Raises _RefusedError."""
    _count(crowd, what, code)
    if code:
        raise _RefusedError(code)


@dataclass
class _Batch:
    """Records that are sent until they are acknowledged. `calls`: each time."""

    topic: str
    seq: int
    records: tuple[Record, ...]
    calls: list[Write] = field(default_factory=list)
    is_stored: bool = False


async def produce(crowd: Crowd, number: int) -> None:
    name = f"kafka-{number}"
    caller = KafkaCaller(crowd, name, number)
    dice, chain = workers.dice_of(crowd, name), workers.Chain(name)
    topic, batches, seq = workers.TOPICS[number % len(workers.TOPICS)], deque[_Batch](), 0
    identity: tuple[int, int] | None = None
    while not crowd.stopping.is_set():
        try:
            await caller.connect()
            identity = identity or await _new_producer(caller)
            for batch in batches:
                _send(caller, batch, identity)
            while not crowd.stopping.is_set():
                while len(batches) < _IN_FLIGHT:
                    records = tuple(Record(chain.next()) for _ in range(dice.choice((1, 1, 3))))
                    batches.append(_Batch(topic, seq, records))
                    seq += len(records)
                    _send(caller, batches[-1], identity)
                await _answered(caller, batches)
        except (LostError, _RefusedError):
            await caller.fail()
    caller.close()


async def _new_producer(caller: KafkaCaller, **given: Any) -> tuple[int, int]:
    """Raises LostError, _RefusedError."""
    nobody = {"producer_id": -1, "producer_epoch": -1, "transactional_id": None, **given}
    told = await caller.call("InitProducerId", **{"transaction_timeout_ms": 60_000, **nobody})
    _check(caller.crowd, "InitProducerId", told["error_code"])
    return told["producer_id"], told["producer_epoch"]


def _send(caller: KafkaCaller, batch: _Batch, identity: tuple[int, int]) -> None:
    part = Part(batch.topic, batch.records)
    call = Write(*caller.begin(), parts=(part,), sequence=(caller.name, 0, batch.seq))
    batch.calls.append(call)
    caller.crowd.history.writes.append(call)
    sent = made(*(Sent(record.value) for record in batch.records), producer=(*identity, batch.seq))
    caller.send("Produce", **to(batch.topic, sent))


async def _answered(caller: KafkaCaller, batches: deque[_Batch]) -> None:
    """The oldest batch is stored. Otherwise all answers are taken, and the batches that are not
    stored are left. Raises LostError, _RefusedError."""
    code = 0
    for batch in list(batches):
        told = await caller.answer("Produce")
        part = told["responses"][0]["partition_responses"][0]
        call, code = batch.calls[-1], part["error_code"]
        batch.is_stored = _note(caller.crowd, call, code)
        call.parts[0].offset = part["base_offset"]
        if batch.is_stored and batch is batches[0]:
            batches.popleft()
            await asyncio.sleep(caller.crowd.pace_s)
            return
    for batch in [batch for batch in batches if batch.is_stored]:
        batches.remove(batch)
    raise _RefusedError(code)


def _note(crowd: Crowd, call: Write, code: int) -> bool:
    """The outcome of a request. Returns whether its records are stored."""
    _count(crowd, "Produce", code)
    call.answer, call.answered_s = ErrorCode(code).name, time.monotonic()
    if code in _STORED:
        call.outcome = "ok"
        crowd.latencies_s.append(call.answered_s - call.sent_s)
    elif code in _NOTHING_HAPPENED:
        call.outcome = "refused"
    return code in _STORED


async def read(crowd: Crowd, number: int) -> None:
    """Follows a topic from its beginning on."""
    name, offset = f"kafka-reader-{number}", 0
    topic = workers.TOPICS[number % len(workers.TOPICS)]
    caller = KafkaCaller(crowd, name, number)
    while not crowd.stopping.is_set():
        try:
            await caller.connect()
            found = Read(*caller.begin(), topic=topic, offset=offset)
            crowd.history.reads.append(found)
            part = await caller.fetch(topic, offset, most_bytes=100_000, wait_ms=300)
            _check(crowd, "Fetch", part["error_code"])
        except (LostError, _RefusedError):
            await caller.fail()
            continue
        found.outcome, found.answered_s = "ok", time.monotonic()
        found.records = tuple(_records(part))
        offset = found.records[-1][0] + 1 if found.records else offset
        found.next_offset, found.log_end_offset = offset, part["high_watermark"]
        await asyncio.sleep(crowd.pace_s)
    caller.close()


def _records(part: Message) -> list[tuple[int, Record]]:
    """Of a topic without gaps."""
    found = values(part)
    first = offsets(part)[0] if found else 0
    return [(first + i, Record(value)) for i, value in enumerate(found)]


# --- transactions ---


async def transform(crowd: Crowd, number: int) -> None:
    name = f"kafka-transform-{number}"
    crowd.history.transforms[name] = OUTPUTS
    transformer = _Transformer(crowd, name, number)
    while not crowd.stopping.is_set():
        try:
            await transformer.begin()
            while not crowd.stopping.is_set():
                await transformer.transform_some()
        except LostError:
            await transformer.fail()
        except _RefusedError as error:
            await transformer.fail(error.code)
    transformer.caller.close()


class _Transformer:
    """The transactional id and the group are its name. `identity`: its producer id and epoch;
    `sequences`: which comes next, by partition; `offset`: of the input."""

    def __init__(self, crowd: Crowd, name: str, number: int) -> None:
        self.caller = KafkaCaller(crowd, name, number)
        self._dice, self._chain = workers.dice_of(crowd, name), workers.Chain(name)
        self._name = name
        self._identity = _NOBODY
        self._may_go_on = False
        self._sequences: list[int] = []
        self._offset = 0

    async def begin(self) -> None:
        """Abort what is open and go on, or begin again, as the same producer or as a new one; from
        the committed offset on. Raises LostError, _RefusedError."""
        await self.caller.connect()
        if self._may_go_on and self._dice.random() < _GOES_ON:
            self._check("EndTxn", await self._end(commits=False))
        else:
            producer_id, epoch = self._dice.choice((self._identity, _NOBODY))
            self._identity = await _new_producer(
                self.caller,
                transactional_id=self._name,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            self._sequences = [0] * len(OUTPUTS)
        self._may_go_on = True
        topics = [{"name": INPUT, "partition_indexes": [0]}]
        asked = [{"group_id": self._name, "topics": topics}]
        told = await self.caller.call("OffsetFetch", groups=asked, require_stable=True)
        part = told["groups"][0]["topics"][0]["partitions"][0]
        self._check("OffsetFetch", told["groups"][0]["error_code"] or part["error_code"])
        self._offset = max(0, part["committed_offset"])

    async def fail(self, code: int = 0) -> None:
        """After an answer with a code, or without one."""
        if code in _FENCED:
            self._identity, self._may_go_on = _NOBODY, False
        await self.caller.fail()

    async def transform_some(self) -> None:
        """One transaction, if there is something to read. Raises LostError, _RefusedError."""
        found = await self.caller.fetch(INPUT, self._offset, most_bytes=5_000, wait_ms=300)
        self._check("Fetch", found["error_code"])
        rows = _records(found)[: self._dice.randint(1, 40)]
        if not rows:
            return
        parts = self._parts([offset for offset, _ in rows])
        call = Write(*self.caller.begin(), outcome="refused", parts=tuple(parts.values()))
        self.caller.crowd.history.writes.append(call)
        await self._hold(parts)
        end = rows[-1][0] + 1
        await self._commit_offset(end)
        if self._dice.random() < _ABORTED:
            self._check("EndTxn", await self._end(commits=False))
            return
        await self._commit(call, end)
        self._offset = end

    def _parts(self, sources: list[int]) -> dict[int, Part]:
        """The records of each partition, one for each offset of the input."""
        found: dict[int, list[Record]] = {}
        for source in sources:
            records = found.setdefault(source % len(OUTPUTS), [])
            records.append(Record(self._chain.next(source=source)))
        return {i: Part(OUTPUTS[i], tuple(records)) for i, records in found.items()}

    async def _hold(self, parts: dict[int, Part]) -> None:
        topics = [{"name": OUTPUT, "partitions": list(parts)}]
        told = await self._ask("AddPartitionsToTxn", topics=topics)
        for one in told["results_by_topic"][0]["results_by_partition"]:
            self._check("AddPartitionsToTxn", one["partition_error_code"])
        for i, part in parts.items():
            stamp = (*self._identity, self._sequences[i])
            records = (Sent(record.value) for record in part.records)
            sent = made(*records, producer=stamp, in_txn=1)
            for _ in range(2 if self._dice.random() < _AGAIN else 1):
                body = to(OUTPUT, sent, i, transactional_id=self._name)
                self._may_go_on = False  # without an answer, the next sequence is not known
                told = await self.caller.call("Produce", **body)
                self._may_go_on = True
                answer = told["responses"][0]["partition_responses"][0]
                self._check("Produce in a transaction", answer["error_code"])
            self._sequences[i] += len(part.records)

    async def _commit_offset(self, end: int) -> None:
        told = await self._ask("AddOffsetsToTxn", group_id=self._name)
        self._check("AddOffsetsToTxn", told["error_code"])
        part = {"partition_index": 0, "committed_offset": end}
        topics = [{"name": INPUT, "partitions": [part]}]
        told = await self._ask(
            "TxnOffsetCommit", group_id=self._name, generation_id=-1, topics=topics
        )
        self._check("TxnOffsetCommit", told["topics"][0]["partitions"][0]["error_code"])

    async def _commit(self, call: Write, end: int) -> None:
        """Note what became of the transaction. Raises LostError, _RefusedError."""
        commit = Commit(*self.caller.begin(), group=self._name, topic=INPUT, offset=end)
        self.caller.crowd.history.commits.append(commit)
        call.outcome = "unknown"
        try:
            code = await self._end(commits=True)
            call.answered_s = commit.answered_s = time.monotonic()
            call.answer = commit.answer = ErrorCode(code).name
            if not code:
                call.outcome = "ok"
                self.caller.crowd.latencies_s.append(call.answered_s - commit.sent_s)
            elif code in _FENCED:  # an unknown producer may have been stored before a restart
                call.outcome = "refused"
            self._check("EndTxn", code)
        finally:
            commit.outcome = call.outcome
        await asyncio.sleep(self.caller.crowd.pace_s)

    async def _end(self, *, commits: bool) -> int:
        """The answer, also to a later attempt at the same appliance. Raises LostError."""
        code, lost = 0, False
        for _ in range(_ENDS):
            try:
                await self.caller.connect()
                code = (await self._ask("EndTxn", committed=commits))["error_code"]
            except LostError:
                lost = True
            else:
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
            await asyncio.sleep(self.caller.crowd.refused_s)
        else:
            raise LostError("EndTxn was not answered")
        if code and lost:  # of a first attempt nothing is known
            raise LostError(ErrorCode(code).name)
        return code

    async def _ask(self, name: str, **body: Any) -> Message:
        names = {"producer_id": self._identity[0], "producer_epoch": self._identity[1]}
        return await self.caller.call(name, transactional_id=self._name, **names, **body)

    def _check(self, what: str, code: int) -> None:
        _check(self.caller.crowd, what, code)


CREW: Final[dict[workers.Worker, int]] = {produce: 2, read: 1, transform: 1}
