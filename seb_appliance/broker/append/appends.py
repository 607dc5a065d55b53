"""Appends and transactions: admitted whole or refused whole, answered when they are stored.

All checks come first, against everything admitted so far; then records are placed and offsets
committed, which cannot fail. A request lies in one window, so in one entry, so it is atomic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.append.admission import Admission, AdmittedAppend, AdmittedTopic, Refusal
from seb_appliance.broker.append.deduplication import Earlier, ProducerStamp, Repeats, RequestStamp
from seb_appliance.broker.append.prepared import Prepared
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.groups.admission import Commit, GroupAdmission
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.streams.values import StreamExpiry
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import ApiKeyView, NewBatches, NewRecords
from seb_appliance.clock import Clock
from seb_appliance.errors import BadRequestError, PreconditionFailedError
from seb_appliance.formats.contents import Produced, ProducerAppend, RequestResult
from seb_appliance.formats.operations import CommittedOffset
from seb_appliance.formats.topic_settings import TopicSettings


@dataclass(frozen=True, slots=True)
class Conditions:
    """What makes an append safe to repeat, or conditional; each may be absent.

    `expected_offset`: the log must end there.
    """

    request: RequestStamp | None = None
    producer: ProducerStamp | None = None
    expected_offset: int | None = None


NO_CONDITIONS = Conditions()
_NO_TOPIC = 0  # an id that no topic has


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records to topics and offsets of one group, in one entry or not at all. Every offset must
    go forward, whatever `commit` says, so that a blind retry is refused."""

    produce: Mapping[str, NewRecords | NewBatches]
    commit: Commit | None = None
    request: RequestStamp | None = None


@dataclass(frozen=True, slots=True)
class Transacted:
    """`produced` in the order of the request; `committed` by topic name."""

    produced: dict[str, Produced]
    committed: dict[str, int]
    durability: str
    replayed: bool = False


@dataclass(slots=True)
class Admitted:
    """What was admitted, in `window`, which may stay open for `linger_ms`."""

    window: Window
    linger_ms: int
    appends: dict[str, AdmittedAppend] = field(default_factory=dict)
    early_flush: bool = False

    @property
    def produced(self) -> dict[str, Produced]:
        return {
            topic: Produced(placed.topic_id, placed.offset, placed.count, placed.timestamp_us)
            for topic, placed in self.appends.items()
        }


AtOnce = tuple[Window, AdmittedAppend, int, bool]  # with linger in ms, and early flush


class Appending:
    """The decisions; `Broker` does the waiting."""

    def __init__(
        self,
        sequencer: Sequencer,
        admission: Admission,
        repeats: Repeats,
        groups: GroupAdmission,
        authorizer: Authorizer,
        settings: BrokerSettings,
        linger: Linger,
        expiry: StreamExpiry,
        clock: Clock,
    ) -> None:
        self._sequencer = sequencer
        self._admission = admission
        self._repeats = repeats
        self._groups = groups
        self._authorizer = authorizer
        self._settings = settings
        self._linger = linger
        self._expiry = expiry
        self._clock = clock

    def append(
        self,
        key: ApiKeyView,
        topic: str,
        records: NewRecords | NewBatches,
        conditions: Conditions,
        address: str,
    ) -> Admitted | Earlier:
        """`address`: the producer's, for the audit of a topic that is made for the records.
        Raises Refusal, BadNameError."""
        earlier = self._earlier(conditions.request, (topic,), is_append=True)
        if earlier is not None:
            return earlier
        earlier = self._before_the_end(topic, conditions.producer)
        if earlier is not None:
            return earlier
        admitted = self._begin()
        max_record_bytes = self._open(key, topic, admitted)
        earlier = self.earlier_append(topic, conditions.producer)
        if earlier is not None:
            return earlier
        self._check_end(topic, conditions.expected_offset)
        prepared = {topic: self._prepare(records, max_record_bytes)}
        self._place(admitted, prepared, Actor.of_key(key, address))
        placed = admitted.appends[topic]
        if conditions.producer is not None:
            self.note_producer(admitted.window, placed, conditions.producer)
        self._remember(admitted, conditions.request)
        return admitted

    def append_at_once(
        self, topic: str, records: bytes | NewRecords | NewBatches, now_us: int
    ) -> AtOnce | None:
        """Admit records without conditions (bytes: one that is nothing but its value) to a topic
        that is there; None, and nothing is changed, where that is not possible: `append` then
        says why, or makes the topic."""
        known = self._admission.find(topic)
        if known is None or known.is_closed or not self._used(known):
            return None
        settings = known.effective
        assert settings.max_record_bytes is not None
        window = self._sequencer.open_window()
        if isinstance(records, bytes):
            if len(records) > settings.max_record_bytes:
                return None
            placed = self._admission.place_value(window, known, records, now_us)
        else:
            try:
                prepared = self._admission.prepare(records, settings.max_record_bytes, now_us)
            except Refusal:
                return None
            placed = self._admission.place(window, topic, prepared, now_us)
        return window, placed, self._linger.of(known.settings), settings.early_flush is True

    def transact(
        self, key: ApiKeyView, transaction: Transaction, address: str
    ) -> Admitted | Earlier:
        """`address`: as in `append`. Raises Refusal, BadNameError, BadRequestError."""
        if not transaction.produce and transaction.commit is None:
            raise BadRequestError("A transaction produces, commits, or both.")
        if len(transaction.produce) > limits.TRANSACTION_TOPICS_MAX:
            raise BadRequestError(
                f"A transaction writes to {limits.TRANSACTION_TOPICS_MAX} topics at most, not "
                f"{len(transaction.produce)}."
            )
        earlier = self._earlier(transaction.request, transaction.produce, is_append=False)
        if earlier is not None:
            return earlier
        admitted, by = self._begin(), Actor.of_key(key, address)
        prepared = {
            topic: self._prepare(records, self._open(key, topic, admitted))
            for topic, records in transaction.produce.items()
        }
        offsets: tuple[CommittedOffset, ...] = ()
        commit = transaction.commit
        if commit is not None:
            forward = replace(commit, allow_backward=False, strictly_forward=True)
            offsets = self._groups.check_commit(forward, self._clock.monotonic_s(), by)
            if not prepared:
                admitted.linger_ms = self._linger.default_ms
        missing = sum(self._admission.find(topic) is None for topic in prepared)
        self._admission.check_room_for(missing, by.owner)
        self._place(admitted, prepared, by)
        if commit is not None:
            self._groups.admit_checked(admitted.window, commit.group, offsets, by)
        self._remember(admitted, transaction.request)
        return admitted

    def _begin(self) -> Admitted:
        return Admitted(self._sequencer.open_window(), linger_ms=limits.LINGER_MS_MAX)

    def _open(self, key: ApiKeyView, topic: str, admitted: Admitted) -> int:
        """How many bytes a record of the topic may have. The topic is there, or may be made;
        `admitted` learns how long its window may wait for it."""
        known = self._admission.find(check_topic_name(topic))
        if known is None and not (
            self._settings.auto_create_topics
            and not self._admission.is_held(topic)
            and self._authorizer.may(key, "manage", topic)
        ):
            raise self._admission.missing(topic)
        if known is not None:
            self.check_takes(topic, known)
        as_set = known.settings if known else TopicSettings()
        settings = known.effective if known else self._settings.effective(as_set)
        assert settings.max_record_bytes is not None
        admitted.linger_ms = min(admitted.linger_ms, self._linger.of(as_set))
        admitted.early_flush |= bool(settings.early_flush)
        if known is None:
            self._admission.check_room_for(1, Actor.of_key(key).owner)
        return settings.max_record_bytes

    def check_takes(self, topic: str, known: AdmittedTopic) -> None:
        """It takes records: it is no stream that was closed, or whose time is up. Raises
        Refusal."""
        if known.is_closed:
            raise self._admission.closed(topic)
        if not self._used(known):
            raise self._admission.missing(topic)

    def _used(self, known: AdmittedTopic) -> bool:
        """An append is a use of a stream, whoever asks for it. False once its time is up: it is
        about to be deleted, and what was acknowledged now would go with it."""
        if known.stream is None:
            return True
        if self._expiry.is_over(known.topic_id, known.stream, in_use=known.is_appended_to):
            return False
        self._expiry.touch(known.topic_id, known.stream)
        return True

    def _prepare(self, records: NewRecords | NewBatches, max_record_bytes: int) -> Prepared:
        return self._admission.prepare(records, max_record_bytes, self._clock.wall_us())

    def _place(self, admitted: Admitted, prepared: Mapping[str, Prepared], by: Actor) -> None:
        now_us = self._clock.wall_us()
        window = admitted.window
        for topic, records in prepared.items():
            is_new = self._admission.find(topic) is None
            admitted.appends[topic] = self._admission.place(
                window, topic, records, now_us, by.owner
            )
            if is_new:
                made = self._admission.find(topic)
                audit.note_topic_created(window, by, now_us, topic, made)

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

    # --- repeats ---

    def _earlier(
        self, request: RequestStamp | None, topics: Iterable[str], *, is_append: bool
    ) -> Earlier | None:
        if request is None:
            return None
        topic_ids = [self._topic_id(topic) for topic in topics]
        return self._repeats.earlier(request, topic_ids, is_append=is_append)

    def earlier_append(self, topic: str, stamp: ProducerStamp | None) -> Earlier | None:
        """What a producer's request did, if it is none to come. Raises Refusal."""
        if stamp is None:
            return None
        return self._repeats.earlier_append(self._topic_id(topic) or _NO_TOPIC, stamp)

    def _before_the_end(self, topic: str, stamp: ProducerStamp | None) -> Earlier | None:
        """What a producer's request did before the stream was closed, which takes no new one."""
        known = self._admission.find(topic)
        if known is None or not known.is_closed:
            return None
        with contextlib.suppress(Refusal):
            return self.earlier_append(topic, stamp)
        return None

    def _topic_id(self, topic: str) -> int | None:
        known = self._admission.find(topic)
        return known.topic_id if known is not None else None

    def note_producer(self, window: Window, placed: AdmittedAppend, stamp: ProducerStamp) -> None:
        """The producer's request was placed in the window."""
        append = ProducerAppend(
            stamp.producer_id,
            stamp.epoch,
            stamp.numbered,
            placed.offset,
            placed.count,
            placed.timestamp_us,
        )
        self._repeats.note_append(window, placed.topic_id, append, self._clock.wall_us())

    def _remember(self, admitted: Admitted, request: RequestStamp | None) -> None:
        if request is None:
            return
        produced = list(admitted.produced.values())
        result = RequestResult(request.scope, request.body_hash, produced)
        self._repeats.remember(admitted.window, result)
