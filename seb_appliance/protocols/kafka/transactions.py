"""Transactions of Kafka producers: gathered in memory, and stored as one entry when they commit.

Nothing of an open or aborted transaction reaches the log, so a reader needs no isolation level. A
restart aborts what is open: its producer is told that its producer id is not known any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.transactions import Held, Transaction
from seb_appliance.broker.append.writes import UNTIL_KNOWN_MS
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.clock import Timer
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.records.incoming import SEQUENCES

Identity: TypeAlias = tuple[int, int]  # producer id and epoch
_EPOCH_MAX: Final = (1 << 15) - 2


@dataclass(slots=True)
class _Open:
    """A transactional id. `held`: its open transaction, None if there is none. `ended`: how the
    last one ended, so that EndTxn may be repeated. `storing`: what stores it. `sequences`: which
    comes next, by topic, also after a transaction that was aborted."""

    producer_id: int
    epoch: int
    timeout_s: float
    used_s: float
    held: Held | None = None
    timer: Timer | None = None
    ended: bool | None = None
    storing: asyncio.Task[None] | None = None
    partitions: set[str] = field(default_factory=set)
    sequences: dict[str, int] = field(default_factory=dict)


def _is_repeated(held: Held, topic: str, stamp: ProducerStamp, count: int) -> bool:
    known = held.topics.get(topic)
    return known is not None and any(
        (one.stamp.seq, one.number) == (stamp.seq, count) for one in known.requests
    )


class Transactions:
    """By API key and transactional id: two API keys may use the same id."""

    def __init__(self, broker: Broker, new_producer_id: Callable[[], int]) -> None:
        self._broker = broker
        self._new_producer_id = new_producer_id
        self._by_id = dict[tuple[str, str], _Open]()
        self.room = broker.shares.declare(
            "kafka_transactions", limits.KAFKA_TRANSACTIONS_MAX, "Kafka transactional ids"
        )
        self.committed = self.aborted = 0

    @property
    def open(self) -> int:
        return sum(one.held is not None for one in self._by_id.values())

    def begin(
        self, key: ApiKeyView, transactional_id: str, timeout_ms: int, given: Identity
    ) -> Identity:
        """A producer begins with the id: an older one with it is fenced, and its transaction
        aborted. `given`: what the producer had before, -1 for none. Raises KafkaError, SebError."""
        if not 0 < timeout_ms <= limits.KAFKA_TRANSACTION_MS_MAX:
            text = f"A transaction may take {limits.KAFKA_TRANSACTION_MS_MAX} ms at most."
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)
        place = key.api_key_id, transactional_id
        known = self._by_id.get(place)
        now_s = self._broker.clock.monotonic_s()
        if known is None:
            self._forget_one(key.api_key_id)
            self.room.take(key.api_key_id, 1)
            known = self._by_id[place] = _Open(self._new_producer_id(), -1, 0.0, now_s)
        elif known.storing is not None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "A transaction is being stored.")
        elif given[0] >= 0 and given != (known.producer_id, known.epoch):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "A newer producer has this id.")
        self._abandon(known)
        known.epoch += 1
        if known.epoch > _EPOCH_MAX:
            known.producer_id, known.epoch = self._new_producer_id(), 0
        known.sequences.clear()
        known.timeout_s, known.used_s, known.ended = timeout_ms / 1000, now_s, None
        return known.producer_id, known.epoch

    def add_partitions(
        self, key: ApiKeyView, transactional_id: str, producer: Identity, topics: set[str]
    ) -> None:
        """Raises KafkaError."""
        found = self._find(key, transactional_id, producer)
        self._open(found, key)
        found.partitions |= topics

    def hold(
        self,
        key: ApiKeyView,
        transactional_id: str,
        producer: Identity,
        topic: str,
        records: NewRecords,
        stamp: ProducerStamp,
    ) -> None:
        """Add records, unless they are there: the answer to a request may be lost. Raises
        KafkaError, SebError."""
        found = self._find(key, transactional_id, producer)
        if found.held is None or topic not in found.partitions:
            text = "The partition is not in the transaction."
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
        count, expected = len(records.values), found.sequences.get(topic, stamp.seq)
        if stamp.seq != expected:
            if _is_repeated(found.held, topic, stamp, count):
                return
            text = f"The sequence {expected} comes next, not {stamp.seq}."
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        self._broker.appends.hold(key, found.held, topic, records, stamp)
        found.sequences.pop(topic, None)
        found.sequences[topic] = (expected + count) % SEQUENCES
        if len(found.sequences) > limits.TRANSACTION_TOPICS_MAX:
            del found.sequences[next(iter(found.sequences))]

    def commit_offsets(
        self, key: ApiKeyView, transactional_id: str, producer: Identity, commit: Commit
    ) -> None:
        """Raises KafkaError, SebError."""
        found = self._find(key, transactional_id, producer)
        self._open(found, key).commit(commit)

    async def end(
        self,
        key: ApiKeyView,
        transactional_id: str,
        producer: Identity,
        *,
        commits: bool,
        address: str = "",
    ) -> None:
        """Store the transaction in one entry, or drop it. Raises KafkaError, SebError; after
        OutcomeUnknownError the producer may be told only once it is known."""
        found = self._find(key, transactional_id, producer)
        held = found.held
        if held is None:
            if found.ended is commits:
                return  # it is repeated: its answer was lost
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "There is no open transaction.")
        if not commits or not (held.topics or held.commits):
            self._abandon(found)
            found.ended = commits
            self.committed += commits
            return
        self._stop_timer(found)
        found.storing = asyncio.create_task(self._store(key, found, held, address))
        # Its error is told to who waits, if anybody still does.
        found.storing.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(found.storing)  # also if this client goes away

    async def _store(self, key: ApiKeyView, found: _Open, held: Held, address: str) -> None:
        """Waits until the outcome is known. Raises SebError."""
        stored = False
        try:
            await self._broker.appends.transact(
                key,
                Transaction({}, held=held),
                held.reservation,
                UNTIL_KNOWN_MS,
                address=address,
            )
            stored = True
        finally:
            found.held, found.storing = None, None
            found.partitions.clear()
            found.ended = True if stored else None
            self.committed += stored
            self.aborted += not stored

    def topics_to_commit(self, group: str) -> set[str]:
        """On which open transactions commit offsets of the group."""
        return {
            topic
            for one in self._by_id.values()
            if one.held is not None and group in one.held.commits
            for topic in one.held.commits[group].offsets
        }

    def close(self) -> None:
        """The appliance stops: what is open is aborted."""
        for one in self._by_id.values():
            if one.storing is None:
                self._abandon(one)

    # --- inside ---

    def _find(self, key: ApiKeyView, transactional_id: str, producer: Identity) -> _Open:
        """Raises KafkaError."""
        found = self._by_id.get((key.api_key_id, transactional_id))
        if found is None or found.producer_id != producer[0]:
            text = "The producer id is not that of the transactional id, perhaps after a restart."
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
        if found.epoch != producer[1]:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "A newer producer has this id.")
        if found.storing is not None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "A transaction is being stored.")
        found.used_s = self._broker.clock.monotonic_s()
        return found

    def _open(self, found: _Open, key: ApiKeyView) -> Held:
        if found.held is None:
            found.held = Held(Reservation(self._broker.pending, key.api_key_id))
            found.ended = None
            found.timer = self._broker.clock.call_later(
                found.timeout_s, lambda: self._is_late(found)
            )
        return found.held

    def _is_late(self, found: _Open) -> None:
        """As in Kafka: the transaction is aborted and its producer fenced."""
        if found.storing is None and found.held is not None:
            self._abandon(found)
            found.epoch += 1

    def _abandon(self, found: _Open) -> None:
        self._stop_timer(found)
        if found.held is not None:
            found.held.reservation.release()
            found.held = None
            self.aborted += 1
        found.partitions.clear()

    @staticmethod
    def _stop_timer(found: _Open) -> None:
        if found.timer is not None:
            found.timer.cancel()
            found.timer = None

    def _forget_one(self, owner: str) -> None:
        """Make room: the id of the API key that was not used for longest, if it has no
        transaction."""
        if self.room.has_room(owner, 1):
            return
        own = [
            (one.used_s, place)
            for place, one in self._by_id.items()
            if place[0] == owner and one.held is None and one.storing is None
        ]
        if own:
            del self._by_id[min(own)[1]]
            self.room.give_back(owner, 1)
