"""Topics as Durable Streams: their values, their expiry, and the decisions about their writes.

A stream's state goes into the same window as the records it belongs to, so into one entry: its
last records and its end are stored together, or not at all.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Action, Actor
from seb_appliance.broker.append.admission import AdmittedTopic, Refusal
from seb_appliance.broker.append.deciding import Decisions
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Admitted, Duplicate, Writes
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.values import From, NewRecords, Prepared, ReadRequest
from seb_appliance.errors import (
    BadParameterError,
    SequenceGapError,
    StaleEpochError,
    StreamConflictError,
)
from seb_appliance.formats.durable_streams import ClosedBy, StreamFork, StreamState
from seb_appliance.formats.topic_settings import TopicSettings

PLAIN: Final = StreamState("application/octet-stream")  # of a topic that nobody made a stream


def media_type_of(content_type: str) -> str:
    """Two content types are compared by this: lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Whether each record is a JSON value, so that a read returns a list of them."""
    return media_type_of(content_type) == "application/json"


@dataclass(frozen=True, slots=True)
class StreamView:
    """A topic as a stream, as of the last applied entry."""

    topic: str
    topic_id: int
    state: StreamState
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class WantedFork:
    """Which topic to fork, at which offset (None: its end), and what else to take over:
    `sub_offset` further records of a JSON stream, or bytes of the next record of another one."""

    topic: str
    offset: int | None
    sub_offset: int


@dataclass(frozen=True, slots=True)
class WantedStream:
    """A stream to create. None: as the parent of the fork has it; without a parent,
    `content_type` is that of bytes."""

    content_type: str | None = None
    ttl_s: int | None = None
    expires_us: int | None = None
    closed: bool = False
    fork: WantedFork | None = None

    @property
    def state(self) -> StreamState:
        """The state of a stream that is not a fork."""
        return StreamState(
            self.content_type or PLAIN.content_type, self.ttl_s, self.expires_us, self.closed
        )

    def is_like(self, there: StreamState) -> bool:
        """Whether an existing stream is what is wanted. What a fork inherits is not compared."""
        if self.closed != there.closed or not self._is_same_fork(there):
            return False
        inherits = self.fork is not None and self.ttl_s is None and self.expires_us is None
        if not inherits and (self.ttl_s, self.expires_us) != (there.ttl_s, there.expires_us):
            return False
        if self.content_type is None and self.fork is not None:
            return True
        return media_type_of(self.state.content_type) == media_type_of(there.content_type)

    def _is_same_fork(self, there: StreamState) -> bool:
        if self.fork is None or there.fork_of is None:
            return self.fork is None and there.fork_of is None
        return (
            self.fork.topic == there.fork_of.topic
            and self.fork.offset in (None, there.fork_of.offset)
            and self.fork.sub_offset == there.fork_of.sub_offset
        )


@dataclass(frozen=True, slots=True)
class StreamAppend:
    """An append to a stream. `values` may be empty if it is to `close`; `content_type` None: not
    given."""

    values: list[bytes]
    content_type: str | None = None
    producer: ProducerStamp | None = None
    seq: str | None = None
    close: bool = False


@dataclass(frozen=True, slots=True)
class StreamAppended:
    """An acknowledged append. `next_offset`: after its last record. `newest_seq`: of its producer.
    `replayed`: the request was a duplicate."""

    next_offset: int
    closed: bool
    newest_seq: int | None = None
    replayed: bool = False


class StreamExpiry:
    """Decides when streams expire: at a time, or so long after their last use.

    Uses are kept in memory only, so that they cost no PUT. A restart and a jump of the wall clock
    count as a use: a stream may live longer than asked, and never shorter. A standby hears of no
    uses, so no stream expires there for lack of them.
    """

    def __init__(self, clock: LogClock) -> None:
        self.knows_uses = False  # from `Streams.start` on
        self._clock = clock
        self._used_s: dict[int, float] = {}  # by topic id, of those that have a time to live

    def touch(self, topic_id: int, state: StreamState) -> None:
        """The stream was read or appended to."""
        if state.ttl_s is not None and self.knows_uses:
            self._used_s[topic_id] = self._clock.monotonic_s()

    def is_over(self, topic_id: int, state: StreamState, *, in_use: bool = False) -> bool:
        """Whether the stream has expired. `in_use`: it is used right now."""
        if state.expires_us is not None and self._clock.wall_us() >= state.expires_us:
            return True
        if state.ttl_s is None or in_use or not self.knows_uses:
            return False
        now_s = self._clock.monotonic_s()
        # A stream without a use since the start counts as used now.
        return now_s - self._used_s.setdefault(topic_id, now_s) >= state.ttl_s

    def forget(self, living: Container[int]) -> None:
        """Forget the uses of all other topics."""
        self._used_s = {i: used_s for i, used_s in self._used_s.items() if i in living}


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a fork takes from its parent: the records below `offset` (None: the parent's end at
    admission), and `prefix`, the beginning of the next record, which becomes the fork's first."""

    parent_id: int
    offset: int | None
    prefix: list[bytes]


async def inherited_of(reads: Reads, parent: StreamView, asked: WantedFork) -> Inherited:
    """Raises BadParameterError for what lies beyond the parent's records, and as `Reads.read`."""
    offset = parent.log_end_offset if asked.offset is None else asked.offset
    counts_records = is_json(parent.state.content_type)
    if offset + (asked.sub_offset if counts_records else 0) > parent.log_end_offset:
        raise _beyond()
    if asked.sub_offset == 0:
        return Inherited(parent.topic_id, asked.offset, [])
    if counts_records:
        return Inherited(parent.topic_id, offset + asked.sub_offset, [])
    result = await reads.read(parent.topic, ReadRequest(From(offset=offset), max_records=1))
    value = b""
    for piece in result.slices:
        value = piece.batch.columns.values.get(piece.begin) or b""
    if len(value) < asked.sub_offset:
        raise _beyond()
    return Inherited(parent.topic_id, offset, [value[: asked.sub_offset]])


def _beyond() -> BadParameterError:
    return BadParameterError("The fork would begin after the end of the parent stream.")


class StreamAdmission:
    """Each `admit_…` adds to the open window, or raises `Refusal` and changes nothing."""

    def __init__(self, writes: Writes, steps: Decisions, expiry: StreamExpiry) -> None:
        self._admission = writes.admission
        self._steps = steps
        self._sequencer = writes.sequencer
        self._expiry = expiry
        self._linger = writes.linger
        self._clock = writes.clock

    def living(self, name: str) -> AdmittedTopic:
        """The topic, unless it has expired as a stream. Raises Refusal."""
        known = self._admission.find(name)
        if known is None or self.is_over(known):
            raise self._admission.missing(name)
        return known

    def is_over(self, known: AdmittedTopic) -> bool:
        """Whether it has expired as a stream; records that are not stored yet are a use of it."""
        if known.stream is None:
            return False
        return self._expiry.is_over(known.topic_id, known.stream, in_use=known.is_appended_to)

    def may_append(self, known: AdmittedTopic) -> bool:
        """An append by any API is a use of a stream. False once it has expired: it is about to be
        deleted, and what was acknowledged now would go with it."""
        if known.stream is None or self.is_over(known):
            return False
        self._expiry.touch(known.topic_id, known.stream)
        return True

    # --- create ---

    def is_there(self, name: str) -> bool:
        """Whether a topic has this name and has not expired."""
        known = self._admission.find(name)
        return known is not None and not self.is_over(known)

    def admit_created(
        self,
        name: str,
        wanted: WantedStream,
        values: list[bytes],
        by: Actor,
        inherited: Inherited | None,
    ) -> Admitted | Duplicate:
        """A stream with its first records. `Duplicate` if the same stream exists: it got its first
        records then. A plain topic becomes a stream, and `values` are appended to it."""
        known = self._admission.find(name)
        if known is not None:
            return self._admit_existing(name, known, wanted, values, by)
        self._admission.check_room_for(1, by.owner)
        parent = None if wanted.fork is None else self.living(wanted.fork.topic)
        settings = TopicSettings() if parent is None else parent.settings
        stream = wanted.state if parent is None else self._forked(name, wanted, parent, inherited)
        own = values if inherited is None else [*inherited.prefix, *values]
        prepared = self._prepare(own, stream, self._admission.effective(settings))
        window, now_us = self._sequencer.open_window(), self._clock.wall_us()
        if wanted.fork is None:
            self._admission.admit_topic_created(window, name, settings, now_us, by.owner)
        else:
            at = None if inherited is None else inherited.offset
            self._admission.admit_topic_forked(
                window, name, wanted.fork.topic, at, None, now_us, by.owner
            )
        self._admission.admit_stream_set(window, name, stream)
        made = self._admission.find(name)
        audit.note(window, by, now_us, audit.topic_created(name, made))
        assert made is not None, name
        self._expiry.touch(made.topic_id, stream)
        if prepared is not None:
            self._admission.place(window, name, prepared, now_us)
        return Admitted(window, None, self._linger.of(settings))

    def _forked(
        self, name: str, wanted: WantedStream, parent: AdmittedTopic, inherited: Inherited | None
    ) -> StreamState:
        """A fork has what it does not ask for from its parent. Raises Refusal."""
        assert wanted.fork is not None, name
        if inherited is not None and inherited.parent_id != parent.topic_id:
            error = StreamConflictError(
                f"{wanted.fork.topic!r} was deleted and created again during the request.",
                topic=wanted.fork.topic,
            )
            raise Refusal(error, parent.changed_in)
        of = parent.stream or PLAIN
        asked = wanted.content_type or of.content_type
        if media_type_of(asked) != media_type_of(of.content_type):
            error = StreamConflictError(
                f"{wanted.fork.topic!r} has the content type {of.content_type!r}; its forks must "
                "have the same.",
                topic=wanted.fork.topic,
            )
            raise Refusal(error, parent.changed_in)
        inherits = wanted.ttl_s is None and wanted.expires_us is None
        offset = parent.next_offset if wanted.fork.offset is None else wanted.fork.offset
        return StreamState(
            asked,
            of.ttl_s if inherits else wanted.ttl_s,
            of.expires_us if inherits else wanted.expires_us,
            wanted.closed,
            fork_of=StreamFork(wanted.fork.topic, offset, wanted.fork.sub_offset),
        )

    def _admit_existing(
        self,
        name: str,
        known: AdmittedTopic,
        wanted: WantedStream,
        values: list[bytes],
        by: Actor,
    ) -> Admitted | Duplicate:
        if known.stream is not None:
            if wanted.is_like(known.stream):
                return Duplicate(None, known.changed_in)
            raise self._differs(name, known)
        # Records that were stored without an end stay: PUT asks for what may be there already.
        holds = known.next_offset > known.log_start_offset
        ends = (wanted.ttl_s, wanted.expires_us) != (None, None)
        if wanted.fork is not None or (ends and holds):
            raise self._differs(name, known)
        if wanted.closed:
            raise self._no_stream(name, known)
        prepared = self._prepare(values, wanted.state, known.effective)
        window, now_us = self._sequencer.open_window(), self._clock.wall_us()
        self._admission.admit_stream_set(window, name, wanted.state)
        self._expiry.touch(known.topic_id, wanted.state)
        action = Action("stream_set", "topic", name, after={"stream": wanted.state})
        audit.note(window, by, now_us, action)
        if prepared is not None:
            self._admission.place(window, name, prepared, now_us)
        return Admitted(window, None, self._linger.of(known.settings))

    def _differs(self, name: str, known: AdmittedTopic) -> Refusal:
        error = StreamConflictError(
            f"The stream {name!r} exists with another content type, expiry, closed state or "
            "parent.",
            topic=name,
        )
        return Refusal(error, known.changed_in)

    def _no_stream(self, name: str, known: AdmittedTopic) -> Refusal:
        error = StreamConflictError(
            f"{name!r} is a plain topic, which cannot be closed and has no Stream-Seq. Make it a "
            "stream with PUT.",
            topic=name,
        )
        return Refusal(error, known.changed_in)

    def admit_reopened(self, window: Window, name: str, by: Actor) -> bool:
        """Whether the stream is opened now; False for what is not closed."""
        known = self.living(name)
        if known.stream is None or not known.stream.closed:
            return False
        opened = replace(known.stream, closed=False, closed_by=None)
        self._admission.admit_stream_set(window, name, opened)
        audit.note(window, by, self._clock.wall_us(), Action("stream_reopened", "topic", name))
        return True

    def admit_deleted(self, window: Window, name: str, by: Actor) -> None:
        known = self._admission.find(name)
        self._admission.admit_topic_deleted(window, name)
        assert known is not None, name
        before = audit.of_topic(known.topic_id, known.settings)
        now_us = self._clock.wall_us()
        audit.note(window, by, now_us, Action("topic_deleted", "topic", name, before))

    # --- append ---

    def admit_appended(self, name: str, asked: StreamAppend, by: Actor) -> Admitted | Duplicate:
        known = self.living(name)
        stream = known.stream or PLAIN
        if stream.closed:
            return self._repeat_of_the_end(name, known, stream, asked)
        duplicate = self._steps.find_append(name, asked.producer)
        if duplicate is not None:
            return duplicate
        self._check_terms(name, known, stream, asked)
        self._expiry.touch(known.topic_id, stream)  # not only once it is stored
        prepared = self._prepare(asked.values, stream, known.effective)
        window, now_us = self._sequencer.open_window(), self._clock.wall_us()
        placed = None
        if prepared is not None:
            placed = self._admission.place(window, name, prepared, now_us)
            if asked.producer is not None:
                self._steps.note_producer(window, placed, asked.producer)
        after = self._after(stream, asked)
        if after != stream:
            self._admission.admit_stream_set(window, name, after)
        if asked.close:
            audit.note(window, by, now_us, Action("stream_closed", "topic", name))
        early_flush = bool(known.effective.early_flush)
        return Admitted(window, placed, self._linger.of(known.settings), early_flush)

    def _repeat_of_the_end(
        self, name: str, known: AdmittedTopic, stream: StreamState, asked: StreamAppend
    ) -> Duplicate:
        """What was the end of the stream, or came before it, was done. Raises Refusal for all else;
        an old epoch is told so."""
        done = Duplicate(None, known.changed_in)
        if asked.producer is None:
            if asked.values:
                raise self._admission.closed(name)
            return done
        closed_by = stream.closed_by
        stamp = asked.producer
        if closed_by is not None and closed_by.producer_id in {stamp.producer_id, stamp.name}:
            if (stamp.epoch, stamp.seq) == (closed_by.epoch, closed_by.seq):
                return done
            if asked.producer.epoch < closed_by.epoch:
                error = StaleEpochError(
                    f"Epoch {closed_by.epoch} of the producer closed the stream; requests of "
                    f"epoch {asked.producer.epoch} are refused.",
                    current_epoch=closed_by.epoch,
                )
                raise Refusal(error, known.changed_in)
        try:
            duplicate = self._steps.find_append(name, asked.producer)
        except Refusal as refusal:
            if isinstance(refusal.error, SequenceGapError):
                raise self._admission.closed(name) from None
            raise
        if duplicate is None:
            raise self._admission.closed(name)
        return duplicate

    def _check_terms(
        self, name: str, known: AdmittedTopic, stream: StreamState, asked: StreamAppend
    ) -> None:
        """Raises Refusal."""
        if known.stream is None and (asked.close or asked.seq is not None):
            raise self._no_stream(name, known)  # what makes a stream is for who manages the topic
        given = asked.content_type
        if given is not None and media_type_of(given) != media_type_of(stream.content_type):
            error = StreamConflictError(
                f"{name!r} has the content type {stream.content_type!r}, not {given!r}.", topic=name
            )
            raise Refusal(error, known.changed_in)
        if asked.seq is not None and stream.last_seq is not None and asked.seq <= stream.last_seq:
            error_of_seq = StreamConflictError(
                f"Stream-Seq {asked.seq!r} must be greater than {stream.last_seq!r} in byte order."
            )
            raise Refusal(error_of_seq, known.changed_in)

    def _after(self, stream: StreamState, asked: StreamAppend) -> StreamState:
        """The stream as the append leaves it."""
        if asked.seq is not None:
            stream = replace(stream, last_seq=asked.seq)
        if asked.close:
            closed_by = None if asked.producer is None else _closed_by(asked.producer)
            stream = replace(stream, closed=True, closed_by=closed_by)
        return stream

    # --- inside ---

    def _prepare(
        self, values: list[bytes], stream: StreamState, effective: TopicSettings
    ) -> Prepared | None:
        records = self._split(values, stream, effective)
        if not records:
            return None
        return self._steps.prepare(NewRecords(list[bytes | None](records)), effective)

    def _split(
        self, values: list[bytes], stream: StreamState, effective: TopicSettings
    ) -> list[bytes]:
        """The values as records: a value that is too large for one record becomes several, which
        a read joins again."""
        most = effective.max_record_bytes
        assert most is not None
        if is_json(stream.content_type) or all(len(value) <= most for value in values):
            return values
        return [
            value[at : at + most] for value in values for at in range(0, len(value), most) if value
        ]


def _closed_by(stamp: ProducerStamp) -> ClosedBy:
    return ClosedBy(stamp.producer_id, stamp.epoch, stamp.seq)
