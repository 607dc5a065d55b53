"""Topics as streams of the Durable Streams protocol: made, read, appended to, closed, deleted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE, Actor
from seb_appliance.broker.append.appends import Admitted
from seb_appliance.broker.append.deduplication import Earlier
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.read.waiting import WaitingReaders
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.streams.admission import Past, StreamAdmission, past_of
from seb_appliance.broker.streams.values import (
    PLAIN,
    StreamAppend,
    StreamAppended,
    StreamView,
    WantedStream,
    media_type_of,
)
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.topics.topic import Topic, no_such_topic
from seb_appliance.clock import Clock
from seb_appliance.errors import ForkRefusedError, SebError, TopicHeldError
from seb_appliance.tasks import Background, Supervisor


class Streams:
    """What a stream is that a topic has no need of; its records are read as every topic's."""

    _sweeping: Background | None = None

    def __init__(
        self,
        catalog: Catalog,
        writes: Writes,
        reads: Reads,
        sequencer: Sequencer,
        waiting: WaitingReaders,
        linger: Linger,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._writes = writes
        self._reads = reads
        self._waiting = waiting
        self._clock = clock
        self._expiry = writes.expiry
        self._some_expire = asyncio.Event()
        self._admission = StreamAdmission(
            writes.admission, writes.appending, sequencer, self._expiry, linger, clock
        )

    # --- life ---

    def start(self, supervisor: Supervisor) -> None:
        """Begin to delete streams whose time is up. Not at a standby."""
        self._expiry.knows_uses = True
        if self._mortal():
            self._some_expire.set()
        self._sweeping = supervisor.keep("streams", self._sweep)

    async def stop(self) -> None:
        if self._sweeping is not None:
            await self._sweeping.close()

    def applied(self, changed: Iterable[Topic]) -> None:
        """These topics have changed: what came by any other door is a use, too."""
        for topic in changed:
            if topic.stream is not None and topic.stream.expires and not topic.deleted:
                self._expiry.touch(topic.topic_id, topic.stream)
                self._some_expire.set()

    # --- reading ---

    def get(self, name: str) -> StreamView:
        """Raises TopicNotFoundError, also for one whose time is up."""
        return _view(self._living(name))

    def use(self, name: str) -> StreamView:
        """As `get`, and its time to live begins anew."""
        topic = self._living(name)
        self._expiry.touch(topic.topic_id, topic.stream or PLAIN)
        return _view(topic)

    async def wait(self, view: StreamView, offset: int, seconds: float, owner: str) -> StreamView:
        """The stream as soon as it goes beyond `offset` or is closed, or after `seconds`. Raises
        TopicNotFoundError, also if it is deleted meanwhile; ShareExceededError, OverloadedError."""
        give_up_s = self._clock.monotonic_s() + seconds
        topic = self._living(view.topic)
        if topic.topic_id != view.topic_id:  # made anew since
            raise no_such_topic(view.topic)
        while topic.log_end_offset <= offset and not (topic.stream or PLAIN).closed:
            left_s = give_up_s - self._clock.monotonic_s()
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
        """The stream with its first records, and whether it was made now. A topic that is there and
        nobody made a stream becomes one. Takes `reservation` over.

        Raises StreamConflictError when there is another one, BadNameError, and what `Broker.append`
        raises.
        """

        try:
            past = await self._make_room(name, wanted)
        except BaseException:
            reservation.release()
            raise
        decided = await self._writes.store(
            lambda: self._admission.admit_created(name, wanted, values, by, past),
            reservation,
            count=len(values),
        )
        return self.get(name), isinstance(decided, Admitted)

    async def _make_room(self, name: str, wanted: WantedStream) -> Past | None:
        """One whose time is up makes room. What a fork that is not there yet will be made of."""
        if self._admission.is_there(check_topic_name(name)):
            return None
        await self._writes.operate(self._expired(name))
        if wanted.fork is None:
            return None
        try:
            return await past_of(self._reads, self.get(wanted.fork.topic), wanted.fork)
        except TopicHeldError as error:
            raise ForkRefusedError(error.detail) from error

    async def append(
        self,
        name: str,
        asked: StreamAppend,
        reservation: Reservation,
        by: Actor = THE_APPLIANCE,
    ) -> StreamAppended:
        """Admit, and answer when the bucket has it. Takes `reservation` over. Raises
        TopicNotFoundError, StreamClosedError, StreamConflictError, and what
        `Broker.append` raises."""
        decided = await self._writes.store(
            lambda: self._admission.admit_appended(name, asked, by),
            reservation,
            count=len(asked.values),
        )
        topic = self._living(name)
        stream = topic.stream or PLAIN
        self._expiry.touch(topic.topic_id, stream)
        newest_seq = self._newest_seq(topic, asked)
        if isinstance(decided, Earlier):
            end = topic.log_end_offset
            for done in decided.produced or ():
                end = done.offset + done.count
            return StreamAppended(end, stream.closed, newest_seq, replayed=True)
        placed = decided.appends.get(name)
        end = topic.log_end_offset if placed is None else placed.offset + placed.count
        return StreamAppended(end, asked.close, newest_seq)

    def takes(self, name: str, content_type: str) -> bool:
        """Whether there is an open stream of that type; if so it is used now."""
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
        """The stream and its records are gone. Raises TopicNotFoundError."""

        def admit(window: Window) -> None:
            self._admission.living(name)
            self._admission.admit_deleted(window, name, by)

        await self._writes.operate(admit, owner=by.owner)

    async def reopen(self, name: str, by: Actor) -> None:
        """A closed stream takes records again; any other topic stays as it is. Raises
        TopicNotFoundError."""
        if not await self._writes.operate(
            lambda window: self._admission.admit_reopened(window, name, by), owner=by.owner
        ):
            await self._writes.once_stored(self._writes.admission.changed_in(name))

    def producer_epoch(self, name: str, producer_id: str) -> int | None:
        """The epoch in force of an idempotent producer; None when it is not known."""
        topic = self._catalog.find(name)
        known = topic and self._catalog.producers.get(topic.topic_id, producer_id)
        return known.epoch if known else None

    # --- inside ---

    def _living(self, name: str) -> Topic:
        topic = self._catalog.topic(name)
        if self._is_over(topic):
            raise no_such_topic(name)
        return topic

    def _is_over(self, topic: Topic) -> bool:
        """Whether its time is up, for readers as for those who write: not while records of it are
        on their way."""
        if topic.stream is None:
            return False
        known = self._writes.admission.find(topic.name)
        in_use = known is not None and known.topic_id == topic.topic_id and known.is_appended_to
        return self._expiry.is_over(topic.topic_id, topic.stream, in_use=in_use)

    def _newest_seq(self, topic: Topic, asked: StreamAppend) -> int | None:
        if asked.producer is None:
            return None
        known = self._catalog.producers.get(topic.topic_id, asked.producer.producer_id)
        if known is None or known.epoch != asked.producer.epoch:  # it only closed the stream
            return asked.producer.seq
        return max(known.next_seq - 1, asked.producer.seq)

    async def _sweep(self) -> None:
        """Streams whose time is up are deleted; they are not there for anybody already. Sleeps for
        good while there are none that could be."""
        while not self._writes.stopping:
            await self._some_expire.wait()
            await self._clock.sleep(limits.STREAM_SWEEP_S)
            mortal = self._mortal()
            self._expiry.forget({topic.topic_id for topic in mortal})
            for topic in mortal:
                if self._is_over(topic):
                    # What is refused now is tried again in the next round.
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
