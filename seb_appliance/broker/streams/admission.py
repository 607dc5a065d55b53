"""Decisions about Durable Streams, each against all that was admitted before.

What must survive goes into the same window as the records it belongs to, so into one entry: a
stream's last records and its end are stored together, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Action, Actor
from seb_appliance.broker.append.admission import Admission, AdmittedTopic, Refusal
from seb_appliance.broker.append.appends import Admitted, Appending
from seb_appliance.broker.append.deduplication import Earlier, ProducerStamp
from seb_appliance.broker.append.prepared import Prepared
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.streams.values import (
    PLAIN,
    StreamAppend,
    StreamExpiry,
    StreamView,
    WantedFork,
    WantedStream,
    is_json,
    media_type_of,
)
from seb_appliance.broker.values import From, NewRecords, ReadRequest
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    BadParameterError,
    SequenceGapError,
    StaleEpochError,
    StreamConflictError,
)
from seb_appliance.formats.durable_streams import ClosedBy, StreamFork, StreamState
from seb_appliance.formats.topic_settings import TopicSettings

# What a fork of a stream is made of: an offset of its parent, and perhaps the beginning of the
# record that lies there, which becomes its own first record.


@dataclass(frozen=True, slots=True)
class Past:
    """Of the topic `parent_id`. `offset` None: the parent's end as of admission. `prefix`: at most
    one record."""

    parent_id: int
    offset: int | None
    prefix: list[bytes]


async def past_of(reads: Reads, parent: StreamView, asked: WantedFork) -> Past:
    """Raises BadParameterError for what lies beyond the parent's records, and as `Reads.read`."""
    offset = parent.log_end_offset if asked.offset is None else asked.offset
    counts_records = is_json(parent.state.content_type)
    if offset + (asked.sub_offset if counts_records else 0) > parent.log_end_offset:
        raise _beyond()
    if asked.sub_offset == 0:
        return Past(parent.topic_id, asked.offset, [])
    if counts_records:
        return Past(parent.topic_id, offset + asked.sub_offset, [])
    result = await reads.read(parent.topic, ReadRequest(From(offset=offset), max_records=1))
    value = b""
    for piece in result.slices:
        value = piece.batch.columns.values.get(piece.begin) or b""
    if len(value) < asked.sub_offset:
        raise _beyond()
    return Past(parent.topic_id, offset, [value[: asked.sub_offset]])


def _beyond() -> BadParameterError:
    return BadParameterError("The fork would begin beyond what its parent has there.")


class StreamAdmission:
    """Each `admit_…` adds to the open window, or raises `Refusal` and changes nothing."""

    def __init__(
        self,
        admission: Admission,
        appending: Appending,
        sequencer: Sequencer,
        expiry: StreamExpiry,
        linger: Linger,
        clock: Clock,
    ) -> None:
        self._admission = admission
        self._appending = appending
        self._sequencer = sequencer
        self._expiry = expiry
        self._linger = linger
        self._clock = clock

    def living(self, name: str) -> AdmittedTopic:
        """The topic, unless its time as a stream is up. Raises Refusal."""
        known = self._admission.find(name)
        if known is None or self.is_over(known):
            raise self._admission.missing(name)
        return known

    def is_over(self, known: AdmittedTopic) -> bool:
        """Whether its time as a stream is up; records that are on their way are a use of it."""
        if known.stream is None:
            return False
        return self._expiry.is_over(known.topic_id, known.stream, in_use=known.is_appended_to)

    # --- made ---

    def is_there(self, name: str) -> bool:
        """Whether a stream, or another topic, has this name; not one whose time is up."""
        known = self._admission.find(name)
        return known is not None and not self.is_over(known)

    def admit_created(
        self, name: str, wanted: WantedStream, values: list[bytes], by: Actor, past: Past | None
    ) -> Admitted | Earlier:
        """`past`: what a fork is made of. `Earlier` when there is such a stream: it had its first
        records then. A topic that nobody made a stream becomes one, and gets `values` behind what
        it holds."""
        known = self._admission.find(name)
        if known is not None:
            return self._admit_existing(name, known, wanted, values, by)
        self._admission.check_room_for(1, by.owner)
        parent = None if wanted.fork is None else self.living(wanted.fork.topic)
        settings = TopicSettings() if parent is None else parent.settings
        stream = wanted.state if parent is None else self._forked(name, wanted, parent, past)
        effective = self._admission.effective(settings)
        own = values if past is None else [*past.prefix, *values]
        records = self._split(own, stream, effective)
        prepared = [self._prepare(records, effective)] if records else []
        admitted, now_us = self._begin(settings), self._clock.wall_us()
        if wanted.fork is None:
            self._admission.admit_topic_created(admitted.window, name, settings, now_us, by.owner)
        else:
            at = None if past is None else past.offset
            self._admission.admit_topic_forked(
                admitted.window, name, wanted.fork.topic, at, None, now_us, by.owner
            )
        self._admission.admit_stream_set(admitted.window, name, stream)
        made = self._admission.find(name)
        note = audit.note_topic_created if parent is None else audit.note_topic_forked
        note(admitted.window, by, now_us, name, made)
        assert made is not None, name
        self._expiry.touch(made.topic_id, stream)
        for each in prepared:
            self._admission.place(admitted.window, name, each, now_us)
        return admitted

    def _forked(
        self, name: str, wanted: WantedStream, parent: AdmittedTopic, past: Past | None
    ) -> StreamState:
        """A fork has what it does not ask for from its parent. Raises Refusal."""
        assert wanted.fork is not None, name
        if past is not None and past.parent_id != parent.topic_id:
            error = StreamConflictError(
                f"{wanted.fork.topic!r} was made anew meanwhile.", topic=wanted.fork.topic
            )
            raise Refusal(error, parent.changed_in)
        of = parent.stream or PLAIN
        asked = wanted.content_type or of.content_type
        if media_type_of(asked) != media_type_of(of.content_type):
            error = StreamConflictError(
                f"{wanted.fork.topic!r} is of {of.content_type!r}, and so are its forks.",
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
    ) -> Admitted | Earlier:
        if known.stream is not None:
            if wanted.is_like(known.stream):
                return Earlier(None, known.changed_in)
            raise self._differs(name, known)
        if wanted.fork is not None:
            raise self._differs(name, known)
        if wanted.closed:
            raise self._no_stream(name, known)
        records = self._split(values, wanted.state, known.effective)
        prepared = [self._prepare(records, known.effective)] if records else []
        admitted, now_us = self._begin(known.settings), self._clock.wall_us()
        self._admission.admit_stream_set(admitted.window, name, wanted.state)
        self._expiry.touch(known.topic_id, wanted.state)
        action = Action("stream_set", "topic", name, after={"stream": wanted.state})
        audit.note(admitted.window, by, now_us, action)
        for each in prepared:
            self._admission.place(admitted.window, name, each, now_us)
        return admitted

    def _differs(self, name: str, known: AdmittedTopic) -> Refusal:
        error = StreamConflictError(
            f"{name!r} is there with another content type, expiry, end or origin.", topic=name
        )
        return Refusal(error, known.changed_in)

    def _no_stream(self, name: str, known: AdmittedTopic) -> Refusal:
        error = StreamConflictError(
            f"{name!r} is a plain topic. PUT makes it a stream, which can be closed and has a "
            "Stream-Seq.",
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

    # --- appended to ---

    def admit_appended(self, name: str, asked: StreamAppend, by: Actor) -> Admitted | Earlier:
        known = self.living(name)
        stream = known.stream or PLAIN
        if stream.closed:
            return self._repeat_of_the_end(name, known, stream, asked)
        earlier = self._appending.earlier_append(name, asked.producer)
        if earlier is not None:
            return earlier
        self._check_terms(name, known, stream, asked)
        self._expiry.touch(known.topic_id, stream)  # not only once it is stored
        records = self._split(asked.values, stream, known.effective)
        prepared = [self._prepare(records, known.effective)] if records else []
        admitted = self._begin(known.settings, early_flush=bool(known.effective.early_flush))
        for each in prepared:
            placed = self._admission.place(admitted.window, name, each, self._clock.wall_us())
            admitted.appends[name] = placed
            if asked.producer is not None:
                self._appending.note_producer(admitted.window, placed, asked.producer)
        after = self._after(stream, asked)
        if after != stream:
            self._admission.admit_stream_set(admitted.window, name, after)
        if asked.close:
            closed = Action("stream_closed", "topic", name)
            audit.note(admitted.window, by, self._clock.wall_us(), closed)
        return admitted

    def _repeat_of_the_end(
        self, name: str, known: AdmittedTopic, stream: StreamState, asked: StreamAppend
    ) -> Earlier:
        """What was the end of the stream, or came before it, was done. Raises Refusal for all else;
        an old epoch is told so."""
        done = Earlier(None, known.changed_in)
        if asked.producer is None:
            if asked.values:
                raise self._admission.closed(name)
            return done
        closed_by = stream.closed_by
        if closed_by is not None and closed_by.producer_id == asked.producer.producer_id:
            if asked.producer == _stamp(closed_by):
                return done
            if asked.producer.epoch < closed_by.epoch:
                error = StaleEpochError(
                    f"Epoch {closed_by.epoch} closed the stream; {asked.producer.epoch} is over.",
                    current_epoch=closed_by.epoch,
                )
                raise Refusal(error, known.changed_in)
        try:
            earlier = self._appending.earlier_append(name, asked.producer)
        except Refusal as refusal:
            if isinstance(refusal.error, SequenceGapError):
                raise self._admission.closed(name) from None
            raise
        if earlier is None:
            raise self._admission.closed(name)
        return earlier

    def _check_terms(
        self, name: str, known: AdmittedTopic, stream: StreamState, asked: StreamAppend
    ) -> None:
        """Raises Refusal."""
        if known.stream is None and (asked.close or asked.seq is not None):
            raise self._no_stream(name, known)  # what makes a stream is for who manages the topic
        given = asked.content_type
        if given is not None and media_type_of(given) != media_type_of(stream.content_type):
            error = StreamConflictError(
                f"{name!r} is of {stream.content_type!r}, not of {given!r}.", topic=name
            )
            raise Refusal(error, known.changed_in)
        if asked.seq is not None and stream.last_seq is not None and asked.seq <= stream.last_seq:
            error_of_seq = StreamConflictError(
                f"Stream-Seq {asked.seq!r} is not above {stream.last_seq!r}, byte by byte."
            )
            raise Refusal(error_of_seq, known.changed_in)

    def _after(self, stream: StreamState, asked: StreamAppend) -> StreamState:
        """The stream as the append leaves it."""
        if asked.seq is not None:
            stream = replace(stream, last_seq=asked.seq)
        if asked.close:
            by = asked.producer
            closed_by = None if by is None else ClosedBy(by.producer_id, by.epoch, by.seq)
            stream = replace(stream, closed=True, closed_by=closed_by)
        return stream

    # --- inside ---

    def _begin(self, settings: TopicSettings, *, early_flush: bool = False) -> Admitted:
        linger_ms = self._linger.of(settings)
        return Admitted(self._sequencer.open_window(), linger_ms=linger_ms, early_flush=early_flush)

    def _prepare(self, values: list[bytes], effective: TopicSettings) -> Prepared:
        assert effective.max_record_bytes is not None
        records = NewRecords(list[bytes | None](values))
        now_us = self._clock.wall_us()
        return self._admission.prepare(records, effective.max_record_bytes, now_us)

    def _split(
        self, values: list[bytes], stream: StreamState, effective: TopicSettings
    ) -> list[bytes]:
        """The values as records: bytes that are too many for one record become several, which a
        read joins again."""
        most = effective.max_record_bytes
        assert most is not None
        if is_json(stream.content_type) or all(len(value) <= most for value in values):
            return values
        return [
            value[at : at + most] for value in values for at in range(0, len(value), most) if value
        ]


def _stamp(closed_by: ClosedBy) -> ProducerStamp:
    return ProducerStamp(closed_by.producer_id, closed_by.epoch, closed_by.seq)
