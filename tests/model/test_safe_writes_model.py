"""Retries, producers, commits and transactions against plain dictionaries: what was sent twice is
there once, also after restarts and lost disks."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp, RequestStamp
from seb_appliance.broker.append.retry_results import RECORD_SEQS
from seb_appliance.broker.append.transactions import Held, Transaction
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import OPERATOR, Reservation
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    CommitBackwardError,
    CommitBeyondEndError,
    IdempotencyMismatchError,
    PreconditionFailedError,
    SequenceGapError,
    StaleEpochError,
    TopicNotFoundError,
)
from tests.model.test_appliance_model import (
    ADMIN,
    HISTORIES,
    LogMachine,
    PlainPutStore,
    names,
)

groups = st.sampled_from(["g", "h"])
keys = st.sampled_from(["k", "l", "m"])
bodies = st.sampled_from([b"one", b"two"])


def stamp(key: str, *body: object) -> RequestStamp:
    return RequestStamp(_hash(key), bytes(16), _hash(repr(body)))


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@dataclass
class Sequence:
    """A producer on one topic: its epoch, and the first offset of each seq."""

    epoch: int
    offsets: list[int]


@dataclass
class Counted:
    """A producer that counts records on one topic: its epoch, and seq, count and first offset of
    each request."""

    epoch: int
    requests: list[tuple[int, int, int]]

    @property
    def next_seq(self) -> int:
        return sum(self.requests[-1][:2]) % RECORD_SEQS if self.requests else 0


class SafeWritesMachine(LogMachine):
    """Beside `model`: what was done by Idempotency-Key, the producers, and the committed offsets;
    all by topic id, since a topic takes them with it."""

    def __init__(self) -> None:
        self.done: dict[tuple[str, int], tuple[bytes, int]] = {}  # → body, offset
        self.steps: dict[str, tuple[Transaction, dict[str, int]]] = {}
        self.producers: dict[tuple[str, int], Sequence] = {}
        self.counted: dict[tuple[str, int], Counted] = {}
        self.committed: dict[tuple[str, int], int] = {}
        super().__init__()

    def topic_id(self, name: str) -> int:
        return self.broker.topics.get(name).topic_id if name in self.model else 0

    def end(self, name: str) -> int:
        return len(self.model.get(name, []))

    def sent(self, name: str, value: bytes, conditions: Conditions, count: int = 1):
        reservation = self.broker.pending.reserve(OPERATOR, 1)
        return self.broker.appends.append(
            ADMIN, name, NewRecords([value] * count), reservation, conditions=conditions
        )

    # --- Idempotency-Key ---

    @rule(name=names, key=keys, body=bodies, times=st.integers(1, 3))
    def append_once(self, name: str, key: str, body: bytes, times: int) -> None:
        conditions = Conditions(request=stamp(f"{key}/{name}", body))
        known = self.done.get((key, self.topic_id(name)))
        if known is not None and known[0] != body:
            with pytest.raises(IdempotencyMismatchError):
                self.run(self.sent(name, body, conditions))
            return
        offset = known[1] if known is not None else self.end(name)

        async def at_once() -> list:
            sending = (self.sent(name, body, conditions) for _ in range(times))
            return await asyncio.gather(*sending)

        answers = self.run(at_once())
        assert [answer.offset for answer in answers] == [offset] * times
        assert [answer.replayed for answer in answers].count(False) == (known is None)
        if known is None:
            self.model.setdefault(name, []).append(body)
            self.done[key, self.topic_id(name)] = body, offset

    # --- producers ---

    @rule(name=names, who=keys, back=st.integers(-2, 7), epochs=st.integers(-1, 1))
    def append_numbered(self, name: str, who: str, back: int, epochs: int) -> None:
        """`back`: how far from the next seq; `epochs`: how far from the current one."""
        known = self.producers.get((who, self.topic_id(name)), Sequence(0, []))
        epoch = max(0, known.epoch + epochs)
        offsets = known.offsets if epoch == known.epoch else []
        seq = max(0, len(offsets) - back)
        body = f"{who} {epoch} {seq}".encode()
        sending = self.sent(name, body, Conditions(producer=ProducerStamp(who, epoch, seq)))
        if epoch < known.epoch:
            with pytest.raises(StaleEpochError):
                self.run(sending)
        elif seq > len(offsets):
            with pytest.raises(SequenceGapError):
                self.run(sending)
        elif seq < len(offsets):
            remembered = len(offsets) - seq <= 5
            assert self.run(sending).offset == (offsets[seq] if remembered else None)
        else:
            assert self.run(sending).offset == self.end(name)
            offsets = [*offsets, self.end(name)]
            self.model.setdefault(name, []).append(body)
            self.producers[who, self.topic_id(name)] = Sequence(epoch, offsets)

    @rule(
        name=names, who=keys, count=st.integers(1, 3), back=st.integers(-1, 6), anew=st.booleans()
    )
    def append_counted(self, name: str, who: str, count: int, back: int, anew: bool) -> None:
        """`back`: how many requests before the next one; -1: a gap."""
        known = self.counted.get((who, self.topic_id(name)), Counted(0, []))
        if back == -2:
            known = Counted(known.epoch + 1, [])
        requests, seq, offset = known.requests, known.next_seq, self.end(name)
        remembered = True
        if back == -1:
            seq = (seq + 1) % RECORD_SEQS
        elif 0 < back <= len(requests):
            seq, count, offset = requests[-back]
            remembered = back <= 5
        body = f"{who} {known.epoch} {seq}".encode()
        stamp = ProducerStamp(f"{who} counts", known.epoch, seq, counts_records=True)
        sending = self.sent(name, body, Conditions(producer=stamp), count)
        if back == -1:
            with pytest.raises(SequenceGapError):
                self.run(sending)
            return
        answer = self.run(sending)
        assert answer.offset == (offset if remembered else None)
        if not answer.replayed:
            self.model.setdefault(name, []).extend([body] * count)
            known.requests.append((seq, count, offset))
            self.counted[who, self.topic_id(name)] = known

    @rule(who=keys, one=names, other=names, counts=st.lists(st.integers(1, 3), max_size=3))
    def transact_held(self, who: str, one: str, other: str, counts: list[int]) -> None:
        """Requests to two topics, gathered; of one before that was abandoned, seqs are missing."""
        held = Held(Reservation(self.broker.pending, OPERATOR))
        placed: dict[str, list[tuple[int, int, int]]] = {}
        skipped = len(counts)
        for count in counts:
            for name in {one, other}:
                known = self.counted.get((who, self.topic_id(name)), Counted(0, []))
                mine = placed.setdefault(name, [])
                seq, offset = (known.next_seq + skipped) % RECORD_SEQS, self.end(name)
                if mine:
                    seq, offset = mine[-1][0] + mine[-1][1], mine[-1][2] + mine[-1][1]
                stamp = ProducerStamp(f"{who} counts", known.epoch, seq, counts_records=True)
                records = NewRecords([f"{who} {known.epoch} {seq}".encode()] * count)
                self.broker.appends.hold(ADMIN, held, name, records, stamp)
                mine.append((seq, count, offset))
        if not counts:
            return
        self.transact(Transaction({}, held=held), held.reservation)
        for name, requests in placed.items():
            known = self.counted.get((who, self.topic_id(name)), Counted(0, []))
            for seq, count, _ in requests:
                body = f"{who} {known.epoch} {seq}".encode()
                self.model.setdefault(name, []).extend([body] * count)
            known.requests += requests
            self.counted[who, self.topic_id(name)] = known

    # --- an expected position ---

    @rule(name=names, body=bodies, off=st.sampled_from([0, 0, 1, -1]))
    def append_at(self, name: str, body: bytes, off: int) -> None:
        expected = max(0, self.end(name) + off)
        sending = self.sent(name, body, Conditions(expected_offset=expected))
        if expected != self.end(name):
            with pytest.raises(PreconditionFailedError) as refused:
                self.run(sending)
            assert refused.value.data == {"log_end_offset": self.end(name)}
            return
        assert self.run(sending).offset == expected
        self.model.setdefault(name, []).append(body)

    # --- commits and transactions ---

    @rule(group=groups, name=names, offset=st.integers(0, 30))
    def commit(self, group: str, name: str, offset: int) -> None:
        place = group, self.topic_id(name)
        sending = self.broker.groups.commit(
            Commit(group, {name: offset}), self.broker.pending.reserve(OPERATOR, 1)
        )
        error = self.refusal_of(name, offset, below=self.committed.get(place, 0))
        if error is not None:
            with pytest.raises(error):
                self.run(sending)
            return
        self.run(sending)
        self.committed[place] = offset

    @rule(group=groups, source=names, into=names, step=st.integers(0, 9), body=bodies)
    def read_process_write(
        self, group: str, source: str, into: str, step: int, body: bytes
    ) -> None:
        """One step of a loop, sent blindly twice: the second time it is refused."""
        place = group, self.topic_id(source)
        offset = self.committed.get(place, -1) + step
        asked = Transaction({into: NewRecords([body])}, Commit(group, {source: max(0, offset)}))
        error = self.refusal_of(source, max(0, offset), below=self.committed.get(place, -1) + 1)
        if error is not None:
            with pytest.raises(error):
                self.transact(asked)
            return
        assert self.transact(asked).produced[into].offset == self.end(into)
        with pytest.raises(CommitBackwardError):
            self.transact(asked)
        self.model.setdefault(into, []).append(body)
        self.committed[place] = max(0, offset)

    @rule(key=keys, one=names, other=names, body=bodies)
    def transact_once(self, key: str, one: str, other: str, body: bytes) -> None:
        produce = {name: NewRecords([body, name.encode()]) for name in (one, other)}
        asked = Transaction(produce, None, stamp(f"transaction/{key}", one, other, body))
        known = self.steps.get(key)
        if known is not None:
            same = known[0].request == asked.request
            same &= known[1] == {name: self.topic_id(name) for name in produce}
            if not same:
                with pytest.raises(IdempotencyMismatchError):
                    self.transact(asked)
                return
        answer = self.transact(asked)
        assert answer.replayed == (known is not None)
        if known is None:
            for name in produce:
                assert answer.produced[name].offset == self.end(name)
                self.model.setdefault(name, []).extend([body, name.encode()])
            self.steps[key] = asked, {name: self.topic_id(name) for name in produce}

    def transact(self, asked: Transaction, reservation: Reservation | None = None):
        reservation = reservation or self.broker.pending.reserve(OPERATOR, 1)
        return self.run(self.broker.appends.transact(ADMIN, asked, reservation))

    def refusal_of(self, name: str, offset: int, *, below: int) -> type[Exception] | None:
        if name not in self.model:
            return TopicNotFoundError
        if offset > self.end(name):
            return CommitBeyondEndError
        return CommitBackwardError if offset < below else None

    @invariant()
    def the_committed_offsets_are_the_model(self) -> None:
        living = {self.topic_id(name) for name in self.model}
        loaded = self.broker._catalog.groups
        for (group, topic_id), offset in self.committed.items():
            found = loaded.get(group)
            if topic_id in living:
                assert found is not None
                assert found.offsets[topic_id].offset == offset
            else:
                assert found is None or topic_id not in found.offsets

    @invariant()
    def nothing_is_held(self) -> None:
        assert self.broker.pending.used == 0


class PlainPutSafeWritesMachine(SafeWritesMachine):
    store_class = PlainPutStore


@pytest.mark.slow
@pytest.mark.parametrize("machine", [SafeWritesMachine, PlainPutSafeWritesMachine], ids=["A", "B"])
def test_what_is_sent_again_is_there_once(machine: type[SafeWritesMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=HISTORIES // 2,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
