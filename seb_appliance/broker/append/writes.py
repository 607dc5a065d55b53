"""Writes: decided at once, against all that was admitted before; answered when they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Action, Actor
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.append.acknowledgement import Acknowledger, Together, Told
from seb_appliance.broker.append.admission import Admission, Refusal
from seb_appliance.broker.append.appends import (
    Admitted,
    Appending,
    Conditions,
    Transacted,
    Transaction,
)
from seb_appliance.broker.append.deduplication import Earlier, Repeats
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.groups.admission import GroupAdmission
from seb_appliance.broker.groups.consumer_groups import check_commit
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.ports import State
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR, AllShares, Reservation, Shares
from seb_appliance.broker.streams.values import StreamExpiry
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import ApiKeyView, Appended, NewBatches, NewRecords
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    OutcomeUnknownError,
    OverloadedError,
    SebError,
    ShuttingDownError,
    StoreUnavailableError,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.contents import Produced


class Writes:
    """`admission` and `group_admission` are the views ahead of the catalog; nothing else changes
    them. `appending`: the decisions about records. `expiry`: which streams are over. `stopping`:
    nothing is taken any more."""

    def __init__(
        self,
        catalog: Catalog,
        next_topic_id: int,
        sequencer: Sequencer,
        state: State,
        settings: BrokerSettings,
        linger: Linger,
        authorizer: Authorizer,
        *,
        durability: str,
        clock: Clock,
        log_clock: LogClock,
        counters: Counters,
        failpoints: Failpoints,
        pending: Shares,
        shares: AllShares,
    ) -> None:
        self.stopping = False
        self._pending = pending
        self._together: Together | None = None  # of the window that was open last
        self.admission = Admission(
            catalog, next_topic_id, settings.effective, log_clock.created_us, shares
        )
        self.group_admission = GroupAdmission(self.admission, catalog.groups, clock)
        self._catalog = catalog
        self._sequencer = sequencer
        self._state = state
        self._linger = linger
        self._durability = durability
        self._failpoints = failpoints
        self._clock = clock
        self._acknowledger = Acknowledger(
            clock=clock,
            counters=counters,
            longest_wait_ms=settings.ack_timeout_ms,
            durability=durability,
        )
        self.expiry = StreamExpiry(log_clock)
        self.appending = Appending(
            sequencer,
            self.admission,
            Repeats(catalog.requests, catalog.producers),
            self.group_admission,
            authorizer,
            settings,
            linger,
            self.expiry,
            clock,
        )

    async def append(
        self,
        key: ApiKeyView,
        topic: str,
        records: NewRecords | NewBatches,
        reservation: Reservation,
        timeout_ms: int | None,
        conditions: Conditions,
        address: str,
    ) -> Appended:
        """See `Broker.append`."""
        decided = await self._decide(
            lambda: self.appending.append(key, topic, records, conditions, address),
            reservation,
            _count(records),
        )
        if isinstance(decided, Earlier):
            await self._acknowledger.once_stored(decided.after, timeout_ms)
            return self._appended_before(topic, decided)
        acknowledged = self._acknowledger.appended(
            decided.window, topic, decided.appends[topic], reservation
        )
        self._let_close(decided)
        return await self._acknowledger.by_deadline(acknowledged, timeout_ms)

    def append_at_once(
        self,
        owner: str,
        topic: str,
        records: bytes | NewRecords | NewBatches,
        size_bytes: int,
        now_us: int,
        told: Told,
    ) -> bool:
        """See `Broker.append_at_once`; `now_us` is on the wall clock."""
        held_bytes = limits.PENDING_REQUEST_BYTES + size_bytes
        if type(records) is NewRecords:
            held_bytes += len(records.values) * limits.PENDING_RECORD_BYTES
        if not (self._may_admit() and self._pending.try_take(owner, held_bytes)):
            return False
        admitted = self.appending.append_at_once(topic, records, now_us)
        if admitted is None:
            self._pending.give_back(owner, held_bytes)
            return False
        window, append, linger_ms, early = admitted
        self._failpoints.reach("K2")
        now_s = self._clock.monotonic_s()
        self._tell_later(window, told, append, owner, held_bytes, now_s)
        self._sequencer.close_within(window, linger_ms / 1000, early=early, now_s=now_s)
        return True

    def operate_at_once(
        self, owner: str, admit: Callable[[Window], object], linger_ms: int, told: Told
    ) -> bool:
        """As `operate`, without waiting: `told` hears of what `admit` gave. False, and nothing
        happened, where `operate` would refuse; it says why."""
        if not (self._may_admit() and self._pending.has_room(owner, limits.PENDING_REQUEST_BYTES)):
            return False
        window = self._sequencer.open_window()
        before_bytes = window.size_bytes
        try:
            admitted = admit(window)
        except Refusal:
            return False
        held_bytes = limits.PENDING_REQUEST_BYTES + window.size_bytes - before_bytes
        self._pending.take_anyway(owner, held_bytes)
        now_s = self._clock.monotonic_s()
        self._tell_later(window, told, admitted, owner, held_bytes, now_s)
        self._sequencer.close_within(window, linger_ms / 1000, now_s=now_s)
        return True

    async def transact(
        self,
        key: ApiKeyView,
        transaction: Transaction,
        reservation: Reservation,
        timeout_ms: int | None,
        address: str,
    ) -> Transacted:
        """See `Broker.transact`."""

        def decide() -> Admitted | Earlier:
            if transaction.commit is not None:
                check_commit(transaction.commit)
            return self.appending.transact(key, transaction, address)

        count = sum(map(_count, transaction.produce.values()))
        decided = await self.store(decide, reservation, timeout_ms, count=count)
        committed = dict(transaction.commit.offsets) if transaction.commit is not None else {}
        if isinstance(decided, Earlier):
            assert decided.produced is not None
            produced = dict(zip(transaction.produce, decided.produced, strict=True))
            return Transacted(produced, committed, self._durability, replayed=True)
        return Transacted(decided.produced, committed, self._durability)

    async def store(
        self,
        decide: Callable[[], Admitted | Earlier],
        reservation: Reservation,
        timeout_ms: int | None = None,
        *,
        count: int,
    ) -> Admitted | Earlier:
        """What `decide` admitted, or found to be done before, once it is stored. Takes
        `reservation` over; `count`: of the records in it that are no batches. Raises what
        `Broker.append` raises, and the refusals of `decide`."""
        decided = await self._decide(decide, reservation, count)
        if isinstance(decided, Earlier):
            await self._acknowledger.once_stored(decided.after, timeout_ms)
            return decided
        done = self._acknowledger.done(decided.window)
        decided.window.when_done(lambda _: reservation.release(), lambda _: reservation.release())
        self._let_close(decided)
        await self._acknowledger.by_deadline(done, timeout_ms)
        return decided

    async def operate(
        self,
        admit: Callable[[Window], bool | None],
        linger_ms: int | None = None,
        owner: str = OPERATOR,
    ) -> bool:
        """Admit events and wait until they are applied, an operator's (`linger_ms` None) soon.
        `admit` says False when it had nothing to add; then nothing is waited for. The events are
        held in `pending` for `owner` until their window is done."""
        self._check_writable()
        window = self._sequencer.open_window()
        before_bytes = window.size_bytes
        reservation = self._pending.reserve(owner, limits.PENDING_CALL_BYTES)
        try:
            is_added = admit(window) is not False
        except Refusal as refusal:
            reservation.release()
            raise await self._settled(refusal) from None
        except BaseException:
            reservation.release()
            raise
        if not is_added:
            reservation.release()
            return False
        reservation.grow_anyway(window.size_bytes - before_bytes)
        window.when_done(lambda _: reservation.release(), lambda _: reservation.release())
        if linger_ms is None:
            linger_ms = min(limits.OPERATOR_LINGER_MS, self._linger.default_ms)
        done = self._acknowledger.done(window)
        self._sequencer.close_within(window, linger_ms / 1000)
        await self._acknowledger.by_deadline(done)
        return True

    async def once_stored(self, window: Window | None) -> None:
        """Wait until what was admitted in a window is applied. Raises as it fails."""
        await self._acknowledger.once_stored(window)

    # --- inside ---

    def _check_writable(self) -> None:
        if self.stopping:
            raise ShuttingDownError("The appliance is stopping; nothing was stored.")
        if isinstance(self._sequencer.failure, SebError):
            raise self._sequencer.failure.again()
        if self._state.is_far_behind:
            raise OverloadedError(
                f"SQLite is {self._state.lag_entries} entries behind; nothing was stored."
            )

    def _may_admit(self) -> bool:
        return (
            not self.stopping and self._sequencer.failure is None and not self._state.is_far_behind
        )

    def _tell_later(
        self,
        window: Window,
        told: Told,
        admitted: object,
        owner: str,
        held_bytes: int,
        now_s: float,
    ) -> None:
        if self._together is None or self._together.window is not window:
            self._together = self._acknowledger.together(window, self._pending)
        self._together.add(told, admitted, owner, held_bytes, now_s)

    async def _decide(
        self, decide: Callable[[], Admitted | Earlier], reservation: Reservation, count: int
    ) -> Admitted | Earlier:
        """The decision; unless something was admitted, `reservation` is released."""
        try:
            self._check_writable()
            self._pending.check(reservation.owner, 0)  # the body alone may fill a share
            reservation.grow_anyway(limits.PENDING_CALL_BYTES + count * limits.PENDING_RECORD_BYTES)
            decided = decide()
        except Refusal as refusal:
            reservation.release()
            raise await self._settled(refusal) from None
        except BaseException:
            reservation.release()
            raise
        if isinstance(decided, Earlier):
            reservation.release()
        else:
            self._failpoints.reach("K2")
        return decided

    def _let_close(self, admitted: Admitted) -> None:
        linger_s = admitted.linger_ms / 1000
        self._sequencer.close_within(admitted.window, linger_s, early=admitted.early_flush)

    def _appended_before(self, topic: str, earlier: Earlier) -> Appended:
        if earlier.produced is None:
            topic_id = self._catalog.topic(topic).topic_id
            return Appended(topic, topic_id, None, 0, 0, self._durability, 0.0, 0.0, replayed=True)
        (done,) = earlier.produced
        return Appended(
            topic,
            done.topic_id,
            done.offset,
            done.count,
            done.timestamp_us,
            self._durability,
            window_s=0.0,
            put_s=0.0,
            replayed=True,
        )

    async def _settled(self, refusal: Refusal) -> SebError:
        """The refusal's error, once what it rests on is stored; or why it never will be."""
        try:
            await self._acknowledger.once_stored(refusal.after)
        except OutcomeUnknownError:
            return StoreUnavailableError(
                "The answer rests on a change that the bucket has not taken yet; try again."
            )
        return refusal.error


def _count(records: NewRecords | NewBatches) -> int:
    """Of the records that lie in memory one by one."""
    return len(records.values) if isinstance(records, NewRecords) else 0


# Records that an operator stores by hand, each time with a note in the audit.
#
# What programs produce is too much to be noted; what a person puts into a log is what somebody will
# ask about.


class ByHand:
    """Goes through the same admission, window and budget as every append."""

    def __init__(self, writes: Writes, clock: Clock) -> None:
        self._writes = writes
        self._clock = clock

    async def append(
        self,
        topic: str,
        records: NewRecords,
        by: Actor,
        told: Mapping[str, Any] | None = None,
    ) -> Produced:
        """All records, in order, in one entry with the note, which holds `told` too. Returns when
        the bucket has them.

        Raises TopicNotFoundError (no topic is made), RecordTooLargeError, BadRequestError,
        OverloadedError, ShuttingDownError, FencedError, OutcomeUnknownError.
        """
        check_topic_name(topic)
        placed: list[Produced] = []

        def admit(window: Window) -> None:
            admission = self._writes.admission
            known = admission.find(topic)
            if known is None:
                raise admission.missing(topic)
            self._writes.appending.check_takes(topic, known)
            now_us = self._clock.wall_us()
            assert known.effective.max_record_bytes is not None
            prepared = admission.prepare(records, known.effective.max_record_bytes, now_us)
            done = admission.place(window, topic, prepared, now_us)
            placed.append(Produced(done.topic_id, done.offset, done.count, done.timestamp_us))
            after = {"offset": done.offset, "records": done.count, **(told or {})}
            action = Action("records_appended", "topic", topic, after=after)
            audit.note(window, by, now_us, action)

        await self._writes.operate(admit)
        return placed[0]
