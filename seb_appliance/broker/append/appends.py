"""Appends and transactions: admitted whole or refused whole, acknowledged when they are stored.

All checks come first, against everything admitted so far; then records are placed and offsets
committed, which cannot fail. A request lies in one window, so in one entry, so it is atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Action, Actor
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.append.acknowledgement import AckCallback, Stored
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.deciding import Decisions
from seb_appliance.broker.append.deduplication import Deduplication, ProducerStamp, RequestStamp
from seb_appliance.broker.append.transactions import Held, Transacted, Transaction, too_many_topics
from seb_appliance.broker.append.window import Placeable, Window
from seb_appliance.broker.append.writes import Admitted, Duplicate, Writes
from seb_appliance.broker.groups.admission import GroupAdmission
from seb_appliance.broker.groups.consumer_groups import check_commit
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import ApiKeyView, Appended, NewBatches, NewRecords
from seb_appliance.errors import BadRequestError, SebError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.contents import Produced


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """What makes an append safe to repeat, or conditional. `expected_offset`: the log must end
    there."""

    request: RequestStamp | None = None
    producer: ProducerStamp | None = None
    expected_offset: int | None = None


NO_CONDITIONS = Conditions()


class Appends:
    """`decisions`: the steps of which what is done here consists."""

    def __init__(
        self,
        catalog: Catalog,
        writes: Writes,
        deduplication: Deduplication,
        groups: GroupAdmission,
        authorizer: Authorizer,
        settings: BrokerSettings,
        note_use: Callable[[str, int], None],
        *,
        durability: str,
        failpoints: Failpoints,
    ) -> None:
        """`note_use`: of an API key (its id) at a time."""
        self.decisions = Decisions(catalog, writes, deduplication, authorizer, settings)
        self._catalog = catalog
        self._writes = writes
        self._admission = writes.admission
        self._sequencer = writes.sequencer
        self._groups = groups
        self._linger = writes.linger
        self._pending = writes.pending
        self._note_use = note_use
        self._durability = durability
        self._clock = writes.clock
        self._failpoints = failpoints

    # --- one topic ---

    async def append(
        self,
        key: ApiKeyView,
        topic: str,
        records: NewRecords | NewBatches,
        reservation: Reservation,
        timeout_ms: int | None = None,
        conditions: Conditions = NO_CONDITIONS,
        *,
        address: str = "",
        patience_ms: int | None = None,
    ) -> Appended:
        """Store the records, all of them, in order, in one entry. `address`: the producer's, for
        the audit of a topic that is created for the records. `patience_ms`: see `Writes.submit`.

        Takes `reservation` over: it is held until the window is done. Raises TopicNotFoundError,
        RecordTooLargeError, BadBatchError, OverloadedError, ShuttingDownError, FencedError;
        OutcomeUnknownError after `timeout_ms`; for `conditions` IdempotencyMismatchError,
        SequenceGapError, StaleEpochError, PreconditionFailedError.
        """
        stored = await self.store(
            lambda: self._admit(key, topic, records, conditions, address),
            reservation,
            _count(records),
            timeout_ms,
            patience_ms=patience_ms,
        )
        if not isinstance(stored, Duplicate):
            return self._appended(topic, stored.admitted, stored.window_s, stored.put_s)
        if stored.produced is not None:
            return self._appended(topic, stored.produced[0], replayed=True)
        topic_id = self._catalog.topic(topic).topic_id
        return Appended(topic, topic_id, None, 0, 0, self._durability, 0.0, 0.0, replayed=True)

    def _appended(
        self,
        topic: str,
        done: Produced,
        window_s: float = 0.0,
        put_s: float = 0.0,
        *,
        replayed: bool = False,
    ) -> Appended:
        return Appended(
            topic,
            done.topic_id,
            done.offset,
            done.count,
            done.timestamp_us,
            self._durability,
            window_s,
            put_s,
            replayed,
        )

    def append_told(
        self,
        key: ApiKeyView,
        topic: str,
        records: NewRecords | NewBatches,
        size_bytes: int,
        on_done: AckCallback,
        conditions: Conditions = NO_CONDITIONS,
        *,
        address: str = "",
        patience_ms: int | None = None,
    ) -> None:
        """`append`, decided before this returns, so in the order of the calls. `on_done` is told
        once, perhaps before this returns: `stored` gets the `Produced`, or the `Duplicate` of what
        was sent before; `failed` gets what `append` would raise. `size_bytes`: of the request's
        body, which the caller holds no more."""
        now_us = self._clock.wall_us()
        owner = key.api_key_id
        self._note_use(owner, now_us)
        reservation = Reservation(self._pending, owner)
        held_bytes = limits.PENDING_REQUEST_BYTES + size_bytes
        held_bytes += _count(records) * limits.PENDING_RECORD_BYTES
        try:
            if not reservation.try_grow(held_bytes):  # which takes half the time
                reservation.grow(held_bytes)
        except SebError as error:
            on_done.failed(error)
            return

        def command() -> Admitted | Duplicate:
            decided = None
            if conditions.request is None and conditions.expected_offset is None:
                decided = self._admit_plain(topic, records, now_us, conditions.producer)
            return decided or self._admit(key, topic, records, conditions, address)

        self._writes.tell(command, reservation, on_done, patience_ms=patience_ms)

    def append_nowait(
        self,
        key: ApiKeyView,
        topic: str,
        records: bytes | NewRecords | NewBatches,
        size_bytes: int,
        on_done: AckCallback,
    ) -> bool:
        """`append` for the fast lane, of records without conditions (bytes: one record that is
        nothing but its value) to a topic that exists: admitted when this returns True, and
        `on_done` gets a `Produced`. `size_bytes`: of the request's body.

        False: nothing happened; `append` gives the reason, or creates the topic.
        """
        count = len(records.values) if type(records) is NewRecords else 0
        command = partial(self._admit_plain, topic, records)
        return self._submit_nowait(key, command, size_bytes, count, on_done)

    def transact_nowait(
        self,
        key: ApiKeyView,
        produce: Mapping[str, NewRecords],
        size_bytes: int,
        on_done: AckCallback,
    ) -> bool:
        """As `append_nowait`, of records to several topics, which lie in one entry."""
        transaction, by = Transaction(produce), Actor.of_key(key)
        count = sum(map(_count, produce.values()))
        command = lambda _: self._admit_transaction(key, transaction, by)  # noqa: E731
        return self._submit_nowait(key, command, size_bytes, count, on_done)

    def _submit_nowait(
        self,
        key: ApiKeyView,
        command: Callable[[int], Admitted | Duplicate | None],
        size_bytes: int,
        count: int,
        on_done: AckCallback,
    ) -> bool:
        now_us = self._clock.wall_us()
        self._note_use(key.api_key_id, now_us)
        held_bytes = limits.PENDING_REQUEST_BYTES + size_bytes + count * limits.PENDING_RECORD_BYTES
        owner, pending = key.api_key_id, self._pending
        if not pending.try_take(owner, held_bytes):
            return False
        reservation = Reservation(pending, owner, held_bytes)
        try:
            return self._writes.submit(partial(command, now_us), reservation, on_done) is not None
        except (Refusal, SebError):
            return False

    def _admit_plain(
        self,
        topic: str,
        records: bytes | NewRecords | NewBatches,
        now_us: int,
        stamp: ProducerStamp | None = None,
    ) -> Admitted | Duplicate | None:
        """The short way: records to a topic that exists and takes them. None: not here."""
        known = self._admission.find(topic)
        if known is None or (known.stream is not None and not self.decisions.takes(known)):
            return None
        effective = known.effective
        window = self._sequencer.open_window()
        if isinstance(records, bytes):
            assert effective.max_record_bytes is not None
            if len(records) > effective.max_record_bytes:
                return None
            placed = self._admission.place_value(window, known, records, now_us)
        else:
            if stamp is not None:
                duplicate = self.decisions.find_append(topic, stamp, records.count)
                if duplicate is not None:
                    return duplicate
            prepared = self._admission.prepare(records, effective, now_us)
            placed = self._admission.place(window, topic, prepared, now_us)
            if stamp is not None:
                self.decisions.note_producer(window, placed, stamp)
        self._failpoints.reach("K2")
        return Admitted(
            window, placed, self._linger.of(known.settings), effective.early_flush is True
        )

    def _admit(
        self,
        key: ApiKeyView,
        topic: str,
        records: NewRecords | NewBatches,
        conditions: Conditions,
        address: str,
    ) -> Admitted | Duplicate:
        steps, stamp, count = self.decisions, conditions.producer, records.count
        duplicate = steps.find_request(
            conditions.request, (topic,), is_append=True
        ) or steps.find_before_close(topic, stamp, count)
        if duplicate is not None:
            return duplicate
        draft = steps.draft(Actor.of_key(key, address))
        effective = steps.check_topic(key, topic, draft)
        duplicate = steps.find_append(topic, stamp, count)
        if duplicate is not None:
            return duplicate
        steps.check_end(topic, conditions.expected_offset)
        steps.place(draft, {topic: steps.prepare(records, effective)})
        placed = draft.placed[topic]
        if stamp is not None:
            steps.note_producer(draft.window, placed, stamp)
        steps.remember(draft, conditions.request)
        return Admitted(draft.window, placed, draft.linger_ms, draft.early_flush)

    async def admin_produce(
        self, topic: str, records: NewRecords, by: Actor, details: Mapping[str, Any] | None = None
    ) -> Produced:
        """Store records of an operator, in one entry with a note in the audit that holds `details`
        too. (What programs produce is too much for the audit.)

        Raises TopicNotFoundError (no topic is created), RecordTooLargeError, BadRequestError,
        OverloadedError, ShuttingDownError, FencedError, OutcomeUnknownError.
        """
        check_topic_name(topic)
        placed: list[Produced] = []

        def admit(window: Window) -> None:
            known = self._admission.find(topic)
            if known is None:
                raise self._admission.missing(topic)
            self.decisions.check_takes(topic, known)
            now_us = self._clock.wall_us()
            prepared = self.decisions.prepare(records, known.effective)
            done = self._admission.place(window, topic, prepared, now_us)
            placed.append(done)
            after = {"offset": done.offset, "records": done.count, **(details or {})}
            audit.note(window, by, now_us, Action("records_appended", "topic", topic, after=after))

        await self._writes.operate(admit)
        return placed[0]

    # --- several topics ---

    async def transact(
        self,
        key: ApiKeyView,
        transaction: Transaction,
        reservation: Reservation,
        timeout_ms: int | None = None,
        *,
        address: str = "",
        patience_ms: int | None = None,
    ) -> Transacted:
        """Store records to several topics and groups' offsets, in one entry or not at all.
        `address`, `patience_ms`: as in `append`. Takes `reservation` over (of what is held, its
        own). Raises what `append` and `ConsumerGroups.commit` raise, and BadRequestError."""
        produce = transaction.produce
        stored = await self.store(
            lambda: self._admit_transaction(key, transaction, Actor.of_key(key, address)),
            reservation,
            sum(map(_count, produce.values())),
            timeout_ms,
            is_held=transaction.held is not None,
            patience_ms=patience_ms,
        )
        committed: dict[str, int] = {}
        for commit in transaction.commits:
            committed |= commit.offsets
        if not isinstance(stored, Duplicate):
            return Transacted(stored.admitted, committed, self._durability)
        assert stored.produced is not None
        produced = dict(zip(produce, stored.produced, strict=True))
        return Transacted(produced, committed, self._durability, replayed=True)

    def hold(
        self,
        key: ApiKeyView,
        held: Held,
        topic: str,
        records: NewRecords | NewBatches,
        stamp: ProducerStamp | None = None,
    ) -> None:
        """Check records, and add them to an open transaction. The stamps of its producer are in
        order; seqs may be missing, which abandoned transactions took. Raises what `append` raises
        before it waits, and what `Held.add` raises; nothing is added then."""
        steps = self.decisions
        try:
            effective = steps.check_topic(key, topic, steps.draft(Actor.of_key(key)))
            if stamp is not None:
                steps.check_later(topic, stamp)
            held.add(topic, steps.prepare(records, effective), stamp)
        except Refusal as refusal:
            raise refusal.error from None

    def _admit_transaction(
        self, key: ApiKeyView, transaction: Transaction, by: Actor
    ) -> Admitted | Duplicate:
        steps, produce, ack = self.decisions, transaction.produce, transaction.ack
        held = transaction.held.topics if transaction.held is not None else {}
        commits = transaction.commits
        for commit in commits:
            check_commit(commit)
        if not produce and not held and not commits and ack is None:
            raise BadRequestError("A transaction needs produce, commit or ack.")
        if len(produce) > limits.TRANSACTION_TOPICS_MAX:
            raise too_many_topics(len(produce))
        duplicate = steps.find_request(transaction.request, produce, is_append=False)
        if duplicate is not None:
            return duplicate
        draft = steps.draft(by)
        prepared: dict[str, Placeable] = {
            topic: steps.prepare(records, steps.check_topic(key, topic, draft))
            for topic, records in produce.items()
        }
        for topic, one in held.items():
            steps.check_topic(key, topic, draft)
            if one.requests:
                steps.check_later(topic, one.requests[0].stamp)
            prepared[topic] = one.records
        now_s = self._clock.monotonic_s()
        checked = [(one.group, self._groups.check_commit(one, now_s, by)) for one in commits]
        if ack is not None:
            ack.check()
        if not prepared:
            draft.linger_ms = self._linger.default_ms
        steps.check_room_for(prepared, by)
        steps.place(draft, prepared)
        for topic, one in held.items():
            steps.note_held(draft, topic, one)
        for group, offsets in checked:
            self._groups.admit_checked(draft.window, group, offsets, by)
        if ack is not None:
            ack.admit(draft.window)
        steps.remember(draft, transaction.request)
        return draft.admitted()

    async def store(
        self,
        admit: Callable[[], Admitted | Duplicate],
        reservation: Reservation,
        count: int,
        timeout_ms: int | None = None,
        *,
        is_held: bool = False,
        patience_ms: int | None = None,
    ) -> Stored | Duplicate:
        """`Writes.store` of a request whose body `reservation` holds; `count` records of it are
        decoded one by one. `is_held`: the memory of all of it was reserved before."""

        def command() -> Admitted | Duplicate:
            if not is_held:  # the body alone may fill a share
                self._pending.check(reservation.owner, 0)
            reservation.grow_anyway(limits.PENDING_CALL_BYTES + count * limits.PENDING_RECORD_BYTES)
            decided = admit()
            if isinstance(decided, Admitted):
                self._failpoints.reach("K2")
            return decided

        stored = await self._writes.store(command, reservation, timeout_ms, patience_ms)
        assert stored is not None
        return stored


def _count(records: NewRecords | NewBatches) -> int:
    """How many records are held in memory one by one."""
    return len(records.values) if isinstance(records, NewRecords) else 0
