"""Appends and transactions: admitted whole or refused whole, acknowledged when they are stored.

All checks come first, against everything admitted so far; then records are placed and offsets
committed, which cannot fail. A request lies in one window, so in one entry, so it is atomic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Action, Actor
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.append.acknowledgement import AckCallback, Stored
from seb_appliance.broker.append.admission import AdmittedTopic, Refusal
from seb_appliance.broker.append.deduplication import Deduplication, ProducerStamp, RequestStamp
from seb_appliance.broker.append.transactions import Transacted, Transaction
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Admitted, Duplicate, Writes
from seb_appliance.broker.groups.admission import GroupAdmission
from seb_appliance.broker.groups.consumer_groups import check_commit
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import ApiKeyView, Appended, NewBatches, NewRecords, Prepared
from seb_appliance.errors import BadRequestError, PreconditionFailedError, SebError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.contents import Produced, ProducerAppend, RequestResult
from seb_appliance.formats.operations import CommittedOffset
from seb_appliance.formats.topic_settings import TopicSettings

_NO_TOPIC = 0  # an id that no topic has


@dataclass(frozen=True, slots=True)
class Conditions:
    """What makes an append safe to repeat, or conditional. `expected_offset`: the log must end
    there."""

    request: RequestStamp | None = None
    producer: ProducerStamp | None = None
    expected_offset: int | None = None


NO_CONDITIONS = Conditions()


@dataclass(slots=True)
class _Draft:
    """A request that is being decided: its window, and how soon its topics want that closed."""

    window: Window
    by: Actor
    linger_ms: int = limits.LINGER_MS_MAX
    early_flush: bool = False
    placed: dict[str, Produced] = field(default_factory=dict)

    def admitted(self) -> Admitted:
        return Admitted(self.window, self.placed, self.linger_ms, self.early_flush)


class Appends:
    """`may_append_stream`: whether a topic that is a stream takes records now, which counts as a
    use of it. The room of streams sets it."""

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
        self.may_append_stream: Callable[[AdmittedTopic], bool] = lambda _: True
        self._catalog = catalog
        self._writes = writes
        self._admission = writes.admission
        self._sequencer = writes.sequencer
        self._deduplication = deduplication
        self._groups = groups
        self._authorizer = authorizer
        self._settings = settings
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
    ) -> Appended:
        """Store the records, all of them, in order, in one entry. `address`: the producer's, for
        the audit of a topic that is created for the records.

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
        )
        if not isinstance(stored, Duplicate):
            return self._appended(topic, stored.admitted[topic], stored.window_s, stored.put_s)
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
        self, topic: str, records: bytes | NewRecords | NewBatches, now_us: int
    ) -> Admitted | None:
        known = self._admission.find(topic)
        if known is None or (
            known.stream is not None and (known.is_closed or not self.may_append_stream(known))
        ):
            return None
        effective = known.effective
        window = self._sequencer.open_window()
        if isinstance(records, bytes):
            assert effective.max_record_bytes is not None
            if len(records) > effective.max_record_bytes:
                return None
            placed = self._admission.place_value(window, known, records, now_us)
        else:
            prepared = self._admission.prepare(records, effective, now_us)
            placed = self._admission.place(window, topic, prepared, now_us)
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
        duplicate = self._find_request(
            conditions.request, (topic,), is_append=True
        ) or self._find_before_close(topic, conditions.producer)
        if duplicate is not None:
            return duplicate
        draft = self._draft(Actor.of_key(key, address))
        effective = self._check_topic(key, topic, draft)
        duplicate = self.find_append(topic, conditions.producer)
        if duplicate is not None:
            return duplicate
        self._check_end(topic, conditions.expected_offset)
        self._place(draft, {topic: self.prepare(records, effective)})
        if conditions.producer is not None:
            self.note_producer(draft.window, draft.placed[topic], conditions.producer)
        self._remember(draft, conditions.request)
        return draft.admitted()

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
            self._check_takes(topic, known)
            now_us = self._clock.wall_us()
            prepared = self.prepare(records, known.effective)
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
    ) -> Transacted:
        """Store records to several topics and a group's offsets, in one entry or not at all.
        `address`: as in `append`. Takes `reservation` over. Raises what `append` and
        `ConsumerGroups.commit` raise, and BadRequestError."""
        produce, commit = transaction.produce, transaction.commit
        stored = await self.store(
            lambda: self._admit_transaction(key, transaction, Actor.of_key(key, address)),
            reservation,
            sum(map(_count, produce.values())),
            timeout_ms,
        )
        committed = dict(commit.offsets) if commit is not None else {}
        if not isinstance(stored, Duplicate):
            return Transacted(stored.admitted, committed, self._durability)
        assert stored.produced is not None
        produced = dict(zip(produce, stored.produced, strict=True))
        return Transacted(produced, committed, self._durability, replayed=True)

    def _admit_transaction(
        self, key: ApiKeyView, transaction: Transaction, by: Actor
    ) -> Admitted | Duplicate:
        produce, commit = transaction.produce, transaction.commit
        if commit is not None:
            check_commit(commit)
        ack = transaction.ack
        if not produce and commit is None and ack is None:
            raise BadRequestError("A transaction needs produce, commit or ack.")
        if len(produce) > limits.TRANSACTION_TOPICS_MAX:
            raise BadRequestError(
                f"A transaction writes to {limits.TRANSACTION_TOPICS_MAX} topics at most, not "
                f"{len(produce)}."
            )
        duplicate = self._find_request(transaction.request, produce, is_append=False)
        if duplicate is not None:
            return duplicate
        draft = self._draft(by)
        prepared = {
            topic: self.prepare(records, self._check_topic(key, topic, draft))
            for topic, records in produce.items()
        }
        offsets: tuple[CommittedOffset, ...] = ()
        if commit is not None:
            forward = replace(commit, allow_backward=False, strictly_forward=True)
            offsets = self._groups.check_commit(forward, self._clock.monotonic_s(), by)
        if ack is not None:
            ack.check()
        if not prepared:
            draft.linger_ms = self._linger.default_ms
        missing = sum(self._admission.find(topic) is None for topic in prepared)
        self._admission.check_room_for(missing, by.owner)
        self._place(draft, prepared)
        if commit is not None:
            self._groups.admit_checked(draft.window, commit.group, offsets, by)
        if ack is not None:
            ack.admit(draft.window)
        self._remember(draft, transaction.request)
        return draft.admitted()

    async def store(
        self,
        admit: Callable[[], Admitted | Duplicate],
        reservation: Reservation,
        count: int,
        timeout_ms: int | None = None,
    ) -> Stored | Duplicate:
        """`Writes.store` of a request whose body `reservation` holds; `count` records of it are
        decoded one by one."""

        def command() -> Admitted | Duplicate:
            self._pending.check(reservation.owner, 0)  # the body alone may fill a share
            reservation.grow_anyway(limits.PENDING_CALL_BYTES + count * limits.PENDING_RECORD_BYTES)
            decided = admit()
            if isinstance(decided, Admitted):
                self._failpoints.reach("K2")
            return decided

        stored = await self._writes.store(command, reservation, timeout_ms)
        assert stored is not None
        return stored

    # --- steps of a decision ---

    def _draft(self, by: Actor) -> _Draft:
        return _Draft(self._sequencer.open_window(), by)

    def _check_topic(self, key: ApiKeyView, topic: str, draft: _Draft) -> TopicSettings:
        """The topic's effective settings. It exists and takes records, or may be created. Raises
        Refusal, BadNameError."""
        known = self._admission.find(check_topic_name(topic))
        if known is not None:
            self._check_takes(topic, known)
            as_set, effective = known.settings, known.effective
        else:
            may_create = self._settings.auto_create_topics and not self._admission.is_held(topic)
            if not (may_create and self._authorizer.may(key, "manage", topic)):
                raise self._admission.missing(topic)
            as_set = TopicSettings()
            effective = self._admission.effective(as_set)
        draft.linger_ms = min(draft.linger_ms, self._linger.of(as_set))
        draft.early_flush |= bool(effective.early_flush)
        if known is None:
            self._admission.check_room_for(1, draft.by.owner)
        return effective

    def _check_takes(self, topic: str, known: AdmittedTopic) -> None:
        """Raises Refusal for a stream that is closed or expired."""
        if known.is_closed:
            raise self._admission.closed(topic)
        if known.stream is not None and not self.may_append_stream(known):
            raise self._admission.missing(topic)

    def prepare(self, records: NewRecords | NewBatches, effective: TopicSettings) -> Prepared:
        return self._admission.prepare(records, effective, self._clock.wall_us())

    def _place(self, draft: _Draft, prepared: Mapping[str, Prepared]) -> None:
        now_us = self._clock.wall_us()
        window, by = draft.window, draft.by
        delayed = sum(one.count for records in prepared.values() for one in records.delays)
        if delayed:
            self._catalog.delays.shares.check(by.owner, delayed)
        for topic, records in prepared.items():
            is_new = self._admission.find(topic) is None
            draft.placed[topic] = self._admission.place(window, topic, records, now_us, by.owner)
            if is_new:
                created = self._admission.find(topic)
                audit.note(window, by, now_us, audit.topic_created(topic, created))

    def _check_end(self, topic: str, expected_offset: int | None) -> None:
        if expected_offset is None:
            return
        known = self._admission.find(topic)
        end = known.next_offset if known is not None else 0
        if end != expected_offset:
            error = PreconditionFailedError(
                f"The log of {topic!r} ends at {end}, not at {expected_offset}.",
                log_end_offset=end,
            )
            after = known.appended_in if known is not None else self._admission.deleted_in(topic)
            raise Refusal(error, after)

    # --- duplicates ---

    def _find_request(
        self, request: RequestStamp | None, topics: Iterable[str], *, is_append: bool
    ) -> Duplicate | None:
        if request is None:
            return None
        topic_ids = [self._topic_id(topic) for topic in topics]
        return self._deduplication.find_request(request, topic_ids, is_append=is_append)

    def find_append(self, topic: str, stamp: ProducerStamp | None) -> Duplicate | None:
        """What a producer's request did before; None if it is new. Raises Refusal."""
        if stamp is None:
            return None
        return self._deduplication.find_append(self._topic_id(topic) or _NO_TOPIC, stamp)

    def _find_before_close(self, topic: str, stamp: ProducerStamp | None) -> Duplicate | None:
        """What a producer's request did before its stream was closed."""
        known = self._admission.find(topic)
        if known is None or not known.is_closed:
            return None
        with contextlib.suppress(Refusal):
            return self.find_append(topic, stamp)
        return None

    def _topic_id(self, topic: str) -> int | None:
        known = self._admission.find(topic)
        return known.topic_id if known is not None else None

    def note_producer(self, window: Window, placed: Produced, stamp: ProducerStamp) -> None:
        """Remember that the producer's request was placed."""
        append = ProducerAppend(
            stamp.producer_id,
            stamp.epoch,
            stamp.numbered,
            placed.offset,
            placed.count,
            placed.timestamp_us,
        )
        self._deduplication.note_append(window, placed.topic_id, append, self._clock.wall_us())

    def _remember(self, draft: _Draft, request: RequestStamp | None) -> None:
        if request is not None:
            produced = list(draft.placed.values())
            result = RequestResult(request.scope, request.body_hash, produced)
            self._deduplication.remember(draft.window, result)


def _count(records: NewRecords | NewBatches) -> int:
    """How many records are held in memory one by one."""
    return len(records.values) if isinstance(records, NewRecords) else 0
