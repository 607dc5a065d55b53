"""Transactions of Kafka producers: gathered in memory, and stored as one entry when they commit.

Nothing of an open or aborted transaction reaches the log, so a reader needs no isolation level. A
restart aborts what is open. Its producer is told so before it can go on: what it sends next may
belong to the same transaction, of which a part is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.transactions import Held, Transaction, too_many_topics
from seb_appliance.broker.append.writes import UNTIL_KNOWN_MS
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.clock import Timer
from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.records.incoming import SEQUENCES
from seb_appliance.protocols.kafka.transactional_ids import (
    Holder,
    Identity,
    Place,
    TransactionalIds,
)

_log = logging.getLogger(__name__)

_EPOCH_MAX: Final = (1 << 15) - 2


@dataclass(slots=True)
class _Open:
    """A transactional id. `holder` None: it is stored first. `held`: its open transaction, None if
    there is none. `ended`: how the last one ended, so that EndTxn may be repeated. `is_lost`: a
    transaction was dropped, perhaps, and its producer has not said that it knows. `storing`: what
    stores the holder or the transaction. `sequences`: which comes next, by topic, also after a
    transaction that was aborted; `knows_all`: those of every topic since the epoch began."""

    used_s: float
    holder: Holder | None = None
    timeout_s: float = kafka_limits.TRANSACTION_MS_MAX / 1000
    held: Held | None = None
    timer: Timer | None = None
    ended: bool | None = None
    is_lost: bool = False
    storing: asyncio.Task[None] | None = None
    partitions: set[str] = field(default_factory=set)
    sequences: dict[str, int] = field(default_factory=dict)
    knows_all: bool = False


def _next(holder: Holder | None, given: Identity, new_producer_id: Callable[[], int]) -> Holder:
    """Who has the id when a producer begins that had `given`. Raises KafkaError."""
    if holder is None:
        return Holder(new_producer_id(), 0)
    before = given if given[0] >= 0 else None
    if before is not None and before != holder.identity:
        if before == holder.before:
            return holder  # its answer was lost
        raise KafkaError(ErrorCode.PRODUCER_FENCED, "A newer producer has this id.")
    if holder.epoch >= _EPOCH_MAX:
        return Holder(new_producer_id(), 0, before)
    return Holder(holder.producer_id, holder.epoch + 1, before)


def _is_repeated(held: Held, topic: str, stamp: ProducerStamp, count: int) -> bool:
    known = held.topics.get(topic)
    return known is not None and any(
        (one.stamp.seq, one.number) == (stamp.seq, count) for one in known.requests
    )


class Transactions:
    def __init__(self, broker: Broker, new_producer_id: Callable[[], int]) -> None:
        self._broker = broker
        self._new_producer_id = new_producer_id
        self._by_id = dict[Place, _Open]()
        self.room = broker.shares.declare(
            "kafka_transactions", kafka_limits.TRANSACTIONS_MAX, "Kafka transactional ids"
        )
        self.committed = self.aborted = 0
        self._is_closed = False
        self._ids = TransactionalIds(broker)
        now_s = broker.clock.monotonic_s()
        for place, holder, is_lost in self._ids.load():
            self.room.take_anyway(place[0], 1)
            self._by_id[place] = _Open(now_s, holder, is_lost=is_lost)

    @property
    def open(self) -> int:
        return sum(one.held is not None for one in self._by_id.values())

    async def begin(
        self, key: ApiKeyView, transactional_id: str, timeout_ms: int, given: Identity
    ) -> Identity:
        """A producer begins with the id: an older one with it is fenced, and its transaction
        aborted, once the bucket has it. `given`: what the producer had before, -1 for none. Raises
        KafkaError, SebError."""
        if not 0 < timeout_ms <= kafka_limits.TRANSACTION_MS_MAX:
            text = f"A transaction may take {kafka_limits.TRANSACTION_MS_MAX} ms at most."
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)
        place = key.api_key_id, transactional_id
        self._check_runs()
        known = self._by_id.get(place)
        if known is not None and known.storing is not None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "Something is being stored.")
        holder = _next(None if known is None else known.holder, given, self._new_producer_id)
        if known is None:
            self._forget_one(key.api_key_id)
            self.room.take(key.api_key_id, 1)
            known = self._by_id[place] = _Open(self._broker.clock.monotonic_s())
        elif known.holder == holder and known.held is not None:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "The producer has gone on since.")
        await self._store_alone(known, self._begin(place, known, holder, timeout_ms / 1000))
        return holder.identity

    async def _begin(self, place: Place, known: _Open, holder: Holder, timeout_s: float) -> None:
        """Raises SebError, and has changed nothing then."""
        try:
            if holder != known.holder:
                await self._ids.keep(place, holder)
        except BaseException:
            known.storing = None
            if known.holder is None:
                del self._by_id[place]
                self.room.give_back(place[0], 1)
            elif known.held is not None and known.timer is None:
                self._is_late(known)
            raise
        known.storing = None
        self._abandon(known)
        known.holder, known.timeout_s = holder, timeout_s
        known.used_s = self._broker.clock.monotonic_s()
        known.ended, known.is_lost = None, False
        known.sequences.clear()
        known.knows_all = True

    @staticmethod
    async def _store_alone(known: _Open, work: Coroutine[Any, Any, None]) -> None:
        """It goes on if this client goes away."""
        known.storing = asyncio.create_task(work)
        # Its error is told to who waits, if anybody still does.
        known.storing.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(known.storing)

    def add_partitions(
        self, key: ApiKeyView, transactional_id: str, producer: Identity, topics: set[str]
    ) -> None:
        """Raises KafkaError."""
        self._check_runs()
        found = self._find(key, transactional_id, producer)
        wanted = found.partitions | topics
        if len(wanted) > limits.TRANSACTION_TOPICS_MAX:
            error = too_many_topics(len(wanted))
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.detail)
        self._open(found, key, ErrorCode.UNKNOWN_PRODUCER_ID)
        found.partitions = wanted

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
        count = len(records.values)
        expected = found.sequences.get(topic, 0 if found.knows_all else stamp.seq)
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
            found.knows_all = False

    def commit_offsets(
        self, key: ApiKeyView, transactional_id: str, producer: Identity, commit: Commit
    ) -> None:
        """Raises KafkaError, SebError."""
        self._check_runs()
        found = self._find(key, transactional_id, producer)
        # Of TxnOffsetCommit, clients take only codes about the group for a reason to abort.
        self._open(found, key, ErrorCode.ILLEGAL_GENERATION).commit(commit)

    async def end(
        self,
        key: ApiKeyView,
        transactional_id: str,
        producer: Identity,
        *,
        commits: bool,
        address: str = "",
    ) -> None:
        """Store the transaction in one entry, or drop it. Raises KafkaError; SebError if it is
        as it was, so that EndTxn may be repeated."""
        self._check_runs()
        found = self._find(key, transactional_id, producer)
        held = found.held
        if held is None:
            self._end_nothing(found, commits=commits)
            return
        if not commits or not (held.topics or held.commits):
            self._abandon(found)
            found.ended = commits
            self.committed += commits
            return
        self._stop_timer(found)
        await self._store_alone(found, self._store(key, found, held, address))

    def _end_nothing(self, found: _Open, *, commits: bool) -> None:
        """There is no open transaction. Raises KafkaError."""
        if found.ended is commits and not found.is_lost:
            return  # it is repeated: its answer was lost
        if not found.is_lost and found.knows_all:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "There is no open transaction.")
        if commits:
            raise _lost(ErrorCode.UNKNOWN_PRODUCER_ID)
        found.is_lost, found.ended = False, False

    async def _store(self, key: ApiKeyView, found: _Open, held: Held, address: str) -> None:
        """Waits until the outcome is known. Raises KafkaError, SebError; see `end`."""
        size_bytes = held.reservation.held
        try:
            await self._broker.appends.transact(
                key,
                Transaction({}, held=held),
                held.reservation,
                UNTIL_KNOWN_MS,
                address=address,
            )
        except SebError as error:
            if error.retryable and error.side_effects == "none":
                held.reservation.grow_anyway(size_bytes)  # which the refusal has released
                self._start_timer(found)
                raise
            self._drop(found)
            # It cannot be stored, so its producer is to abort it.
            found.is_lost = True
            raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, error.detail) from error
        except BaseException:
            self._drop(found)
            found.is_lost = True
            raise
        else:
            found.held, found.ended = None, True
            found.partitions.clear()
            self.committed += 1
        finally:
            found.storing = None

    def topics_to_commit(self, group: str) -> set[str]:
        """On which open transactions commit offsets of the group."""
        return {
            topic
            for one in self._by_id.values()
            if one.held is not None and group in one.held.commits
            for topic in one.held.commits[group].offsets
        }

    def close(self) -> None:
        """The appliance stops: what is not being stored can only be asked for again later."""
        self._is_closed = True

    async def stop(self) -> None:
        """After `close`: what is open is aborted, and who had nothing open goes on later."""
        open_ = [
            place
            for place, one in self._by_id.items()
            if one.is_lost or one.held is not None or one.storing is not None
        ]
        try:
            if self._by_id:
                await self._ids.stop(open_)
        except SebError as error:
            _log.warning("producers with transactional ids have to abort once: %s", error.detail)
        for one in self._by_id.values():
            if one.storing is None:
                self._abandon(one)

    # --- inside ---

    def _find(self, key: ApiKeyView, transactional_id: str, producer: Identity) -> _Open:
        """Raises KafkaError."""
        found = self._by_id.get((key.api_key_id, transactional_id))
        if found is None or found.holder is None or found.holder.producer_id != producer[0]:
            text = "The producer id is not that of the transactional id."
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
        if found.holder.epoch != producer[1]:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "A newer producer has this id.")
        if found.storing is not None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "Something is being stored.")
        found.used_s = self._broker.clock.monotonic_s()
        return found

    def _check_runs(self) -> None:
        """Raises KafkaError."""
        if self._is_closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The appliance is stopping.")

    def _open(self, found: _Open, key: ApiKeyView, if_lost: ErrorCode) -> Held:
        """Raises KafkaError with `if_lost`."""
        if found.is_lost:
            raise _lost(if_lost)
        if found.held is None:
            found.held = Held(Reservation(self._broker.pending, key.api_key_id))
            found.ended = None
            self._start_timer(found)
        return found.held

    def _start_timer(self, found: _Open) -> None:
        found.timer = self._broker.clock.call_later(found.timeout_s, lambda: self._is_late(found))

    def _is_late(self, found: _Open) -> None:
        """As in Kafka: the transaction is aborted and its producer fenced."""
        found.timer = None
        if found.storing is None and found.held is not None:
            assert found.holder is not None
            self._abandon(found)
            found.holder = Holder(found.holder.producer_id, found.holder.epoch + 1)

    def _abandon(self, found: _Open) -> None:
        self._stop_timer(found)
        if found.held is not None:
            found.held.reservation.release()
            self._drop(found)

    def _drop(self, found: _Open) -> None:
        found.held = None
        found.partitions.clear()
        self.aborted += 1

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
            place = min(own)[1]
            del self._by_id[place]
            self._ids.forget(place)
            self.room.give_back(owner, 1)


def _lost(code: ErrorCode) -> KafkaError:
    text = "What the producer had open may be lost, so it has to abort, or to begin again."
    return KafkaError(code, text)
