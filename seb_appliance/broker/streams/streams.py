"""Topics as streams of the Durable Streams protocol: create, read, append, close, delete."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE, Actor
from seb_appliance.broker.append.appends import Appends
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.retry_results import Producer
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Duplicate, Writes
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.read.waiting import WaitingReaders
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.streams.admission import (
    PLAIN,
    Inherited,
    StreamAdmission,
    StreamAppend,
    StreamAppended,
    StreamExpiry,
    StreamView,
    WantedStream,
    inherited_of,
    media_type_of,
)
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.topics.topic import Topic, deleted_since, no_such_topic
from seb_appliance.errors import ForkRefusedError, SebError, TopicHeldError, TopicNotFoundError
from seb_appliance.tasks import Background, Supervisor


class Streams:
    """What streams add to topics; their records are read like those of any topic."""

    _sweeping: Background | None = None

    def __init__(
        self,
        catalog: Catalog,
        writes: Writes,
        appends: Appends,
        reads: Reads,
        waiting: WaitingReaders,
        log_clock: LogClock,
    ) -> None:
        self._catalog = catalog
        self._writes = writes
        self._appends = appends
        self._reads = reads
        self._waiting = waiting
        self._clock = writes.clock
        self._expiry = StreamExpiry(log_clock)
        self._some_expire = asyncio.Event()
        self._admission = StreamAdmission(writes, appends.decisions, self._expiry)
        appends.decisions.may_append_stream = self._admission.may_append

    # --- life ---

    def start(self, supervisor: Supervisor) -> None:
        """Begin to delete expired streams. Not at a standby."""
        self._expiry.knows_uses = True
        if self._mortal():
            self._some_expire.set()
        self._sweeping = supervisor.keep("streams", self._sweep)

    async def stop(self) -> None:
        if self._sweeping is not None:
            await self._sweeping.close()

    def applied(self, changed: Iterable[Topic]) -> None:
        """These topics have changed, by any API: that is a use of a stream."""
        for topic in changed:
            if topic.stream is not None and topic.stream.expires and not topic.deleted:
                self._expiry.touch(topic.topic_id, topic.stream)
                self._some_expire.set()

    # --- reading ---

    def get(self, name: str) -> StreamView:
        """Raises TopicNotFoundError, also for an expired stream."""
        return _view(self._living(name))

    def use(self, name: str) -> StreamView:
        """`get`, and a use of the stream."""
        topic = self._living(name)
        self._expiry.touch(topic.topic_id, topic.stream or PLAIN)
        return _view(topic)

    async def wait(self, view: StreamView, offset: int, seconds: float, owner: str) -> StreamView:
        """The stream once it has records from `offset` on or is closed, or after `seconds`. Raises
        TopicNotFoundError, also if it is deleted meanwhile; ShareExceededError, OverloadedError."""
        until_s = self._clock.monotonic_s() + seconds
        topic = self._living(view.topic)
        if topic.topic_id != view.topic_id:  # deleted and created again
            raise no_such_topic(view.topic)
        while topic.log_end_offset <= offset and not (topic.stream or PLAIN).closed:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0 or self._waiting.stopping:
                break
            await self._waiting.wait(topic, left_s, owner)
            if topic.deleted:
                raise no_such_topic(topic.name)
        self._expiry.touch(topic.topic_id, topic.stream or PLAIN)
        return _view(topic)

    # --- writing ---

    async def create(
        self,
        name: str,
        wanted: WantedStream,
        values: list[bytes],
        reservation: Reservation,
        by: Actor,
    ) -> tuple[StreamView, bool]:
        """The stream with its first records, and whether it was created now. An existing plain
        topic becomes a stream. Takes `reservation` over.

        Raises StreamConflictError if another stream has this name, BadNameError, and what
        `Appends.append` raises.
        """
        try:
            inherited = await self._make_room(name, wanted)
            if inherited is not None:
                reservation.grow(sum(map(len, inherited.prefix)))
        except BaseException:
            reservation.release()
            raise
        stored = await self._appends.store(
            lambda: self._admission.admit_created(name, wanted, values, by, inherited),
            reservation,
            len(values),
        )
        return _view(self._as_stored(name)), not isinstance(stored, Duplicate)

    async def _make_room(self, name: str, wanted: WantedStream) -> Inherited | None:
        """Delete an expired stream of this name. Returns what a new fork takes from its parent."""
        if self._admission.is_there(check_topic_name(name)):
            return None
        await self._writes.operate(self._expired(name))
        if wanted.fork is None:
            return None
        try:
            return await inherited_of(self._reads, self.get(wanted.fork.topic), wanted.fork)
        except TopicHeldError as error:
            raise ForkRefusedError(error.detail) from error

    async def append(
        self,
        name: str,
        asked: StreamAppend,
        reservation: Reservation,
        by: Actor = THE_APPLIANCE,
    ) -> StreamAppended:
        """Store an append. Takes `reservation` over. Raises TopicNotFoundError, StreamClosedError,
        StreamConflictError, and what `Appends.append` raises."""
        stored = await self._appends.store(
            lambda: self._admission.admit_appended(name, asked, by),
            reservation,
            len(asked.values),
        )
        topic = self._as_stored(name)
        stream = topic.stream or PLAIN
        self._expiry.touch(topic.topic_id, stream)
        newest_seq = self._newest_seq(topic, asked)
        replayed = isinstance(stored, Duplicate)
        if isinstance(stored, Duplicate):
            placed, closed = stored.produced[-1] if stored.produced else None, stream.closed
        else:
            placed, closed = stored.admitted, asked.close
        end = topic.log_end_offset if placed is None else placed.offset + placed.count
        return StreamAppended(end, closed, newest_seq, replayed)

    def takes(self, name: str, content_type: str) -> bool:
        """Whether an open stream has that content type; if so, that is a use of it."""
        topic = self._catalog.find(name)
        if topic is None or self._is_over(topic):
            return False
        stream = topic.stream or PLAIN
        if stream.closed:
            return False
        if media_type_of(stream.content_type) != media_type_of(content_type):
            return False
        self._expiry.touch(topic.topic_id, stream)
        return True

    async def delete(self, name: str, by: Actor) -> None:
        """Delete the stream and its records. Raises TopicNotFoundError."""

        def admit(window: Window) -> None:
            self._admission.living(name)
            self._admission.admit_deleted(window, name, by)

        await self._writes.operate(admit, owner=by.owner)

    async def reopen(self, name: str, by: Actor) -> None:
        """Let a closed stream take records again; other topics stay as they are. Raises
        TopicNotFoundError."""
        if not await self._writes.operate(
            lambda window: self._admission.admit_reopened(window, name, by), owner=by.owner
        ):
            await self._writes.once_stored(self._writes.admission.changed_in(name))

    def producer_epoch(self, name: str, stamp: ProducerStamp) -> int | None:
        """The current epoch of an idempotent producer; None if it is unknown."""
        topic = self._catalog.find(name)
        known = topic and self._producer(topic, stamp)
        return known.epoch if known else None

    # --- inside ---

    def _living(self, name: str) -> Topic:
        topic = self._catalog.topic(name)
        if self._is_over(topic):
            raise no_such_topic(name)
        return topic

    def _as_stored(self, name: str) -> Topic:
        """After a change of it. Raises OutcomeUnknownError."""
        try:
            return self._living(name)
        except TopicNotFoundError as gone:
            raise deleted_since(name) from gone

    def _is_over(self, topic: Topic) -> bool:
        """Whether it has expired, for readers and writers: not while records of it are not
        stored yet."""
        if topic.stream is None:
            return False
        known = self._writes.admission.find(topic.name)
        in_use = known is not None and known.topic_id == topic.topic_id and known.is_appended_to
        return self._expiry.is_over(topic.topic_id, topic.stream, in_use=in_use)

    def _newest_seq(self, topic: Topic, asked: StreamAppend) -> int | None:
        if asked.producer is None:
            return None
        known = self._producer(topic, asked.producer)
        if known is None or known.epoch != asked.producer.epoch:  # it only closed the stream
            return asked.producer.seq
        return max(known.next_seq - 1, asked.producer.seq)

    def _producer(self, topic: Topic, stamp: ProducerStamp) -> Producer | None:
        return self._catalog.producers.find(topic.topic_id, stamp.producer_id, stamp.name)

    async def _sweep(self) -> None:
        """Delete expired streams; they are invisible before. Sleeps while no stream can expire."""
        while not self._writes.stopping:
            await self._some_expire.wait()
            await self._clock.sleep(limits.STREAM_SWEEP_S)
            mortal = self._mortal()
            self._expiry.forget({topic.topic_id for topic in mortal})
            for topic in mortal:
                if self._is_over(topic):
                    # A refused deletion is tried again in the next round.
                    with contextlib.suppress(SebError):
                        await self._writes.operate(self._expired(topic.name))
            if not self._mortal():
                self._some_expire.clear()

    def _mortal(self) -> list[Topic]:
        return [t for t in self._catalog.topics() if t.stream is not None and t.stream.expires]

    def _expired(self, name: str) -> Callable[[Window], bool]:
        def admit(window: Window) -> bool:
            known = self._writes.admission.find(name)
            if known is None or not self._admission.is_over(known):
                return False
            self._admission.admit_deleted(window, name, THE_APPLIANCE)
            return True

        return admit


def _view(topic: Topic) -> StreamView:
    stream = topic.stream or PLAIN
    return StreamView(
        topic.name, topic.topic_id, stream, topic.log_start_offset, topic.log_end_offset
    )
