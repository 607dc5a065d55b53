"""One queue at work: hands records out, takes them back, and keeps takers waiting.

It is made on first use from the applied progress, and is ahead of the journal from then on. One
taker at a time looks for records; the others wait, and cost nothing until something changes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.delays.queue_delays import QueueDelays
from seb_appliance.broker.queues.admission import QueueAdmission
from seb_appliance.broker.queues.by_place import ByPlace, Place
from seb_appliance.broker.queues.deliveries import Aside, Deliveries, Outcome
from seb_appliance.broker.queues.progress import Progress, Queue
from seb_appliance.broker.queues.takers import Lent, Taken, Takers
from seb_appliance.broker.read.reads import Reads, bytes_of
from seb_appliance.broker.record_keys.queries import key_of, pick, runs
from seb_appliance.broker.shares import Shares
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.clock import Clock, Timer
from seb_appliance.errors import (
    OffsetExpiredError,
    OffsetOutOfRangeError,
    SebError,
    TopicNotFoundError,
    TopicReplacedError,
)
from seb_appliance.formats.queues.queues import FailedDelivery
from seb_appliance.tasks import in_slices, run_in_slices

_AT_ONCE: Final = 500  # leases that end, or retries that come due, without a break
_TOPICS_NOWAIT: Final = 100  # that are looked at without a break
_READS_PER_TAKE: Final = 32  # so that a taker whose records are all parked answers some day

# The topic was trimmed, deleted or replaced meanwhile.
_GONE: Final = (OffsetExpiredError, OffsetOutOfRangeError, TopicNotFoundError, TopicReplacedError)


@dataclass(frozen=True, slots=True)
class Tools:
    """What all queues share. `log_us`: the log's time. By it a restart knows when a retry is due,
    for the wall clock may have been wrong. `shares` count deliveries that are not settled,
    `waiters` those who wait. `flush`: store what a queue has to write."""

    reads: Reads
    admission: QueueAdmission
    shares: Shares
    waiters: Shares
    clock: Clock
    log_us: Callable[[], int]
    delayed: Callable[[], QueueDelays]
    next_lease: Callable[[], int]
    flush: Callable[[LiveQueue], None]
    bury: Callable[[LiveQueue], None]


class LiveQueue:
    def __init__(self, queue: Queue, topics: Iterable[Topic], tools: Tools) -> None:
        self.name, self.owner = queue.name, queue.owner
        self.settings = queue.settings
        self.patterns = Patterns(queue.settings.topics)
        self.deliveries = Deliveries(queue.settings, queue.progress)
        self.delayed = tools.delayed()
        self.topics = {topic.topic_id: topic for topic in topics}
        self.closed = False
        self.failure = ""  # why dead letters could not be stored lately
        self.rests_until_s = 0.0
        self.buried: dict[Place, asyncio.Future[bool]] = {}  # rejections that are waited for
        # Topics that may have new records, by id.
        self._fresh: OrderedDict[int, None] = OrderedDict.fromkeys(self.topics)
        # Topic ids and record keys of what is settled in windows that are not stored yet.
        self._unstored: dict[Window, list[tuple[int, bytes]]] = {}
        # To be stored with whatever comes next: losses and failures that nobody waits for.
        self.lost: list[tuple[int, int, int]] = []
        self.failed: list[tuple[int, FailedDelivery]] = []
        self._tools = tools
        self.takers = Takers(tools.clock, tools.waiters, self.wake)
        self._is_looking = False
        self._again = False  # something came while a taker was looking
        self._timer: Timer | None = None
        self._timer_s = float("inf")
        self._counted = 0  # in the shares

    @property
    def now(self) -> tuple[float, int]:
        return self._tools.clock.monotonic_s(), self._tools.log_us()

    def close(self) -> None:
        """The queue was changed or deleted: all leases end, and takers look again."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._tools.shares.give_back(self.owner, self._counted)
        self._counted = 0
        self.takers.wake_all()
        self.tell_buried(self.buried, stored=False)
        run_in_slices(self.deliveries.forget_all())

    # --- topics ---

    def changed(self, topic: Topic) -> None:
        """A topic that it reads has changed."""
        if topic.deleted:
            if self.topics.pop(topic.topic_id, None) is not None:
                self._fresh.pop(topic.topic_id, None)
                run_in_slices(self.deliveries.forget_topic(topic.topic_id))
                self.delayed.forget(topic.topic_id)
                theirs = (place for place in self.buried if place.topic_id == topic.topic_id)
                self.tell_buried(theirs, stored=False)
                self.lost = [one for one in self.lost if one[0] != topic.topic_id]
                self.failed = [one for one in self.failed if one[0] != topic.topic_id]
                self.adjust()
            return
        self._fresh[topic.topic_id] = None
        self.wake()

    # --- taking ---

    async def take(self, most: int, wait_s: float, lease_s: float, owner: str) -> list[Taken]:
        """At most so many records, none after `wait_s` seconds or once it is closed. Raises
        CorruptObjectError, StoreError, ShareExceededError, OverloadedError."""
        give_up_s = self._tools.clock.monotonic_s() + wait_s
        while not self.closed:
            if not self._is_looking:
                self._is_looking, self._again = True, False
                try:
                    found = await self._look(most, lease_s)
                except BaseException:
                    self._is_looking = False
                    self.takers.wake_one()
                    raise
                self._is_looking = False
                self.adjust()
                if found:
                    if self._again or self.deliveries.ready or self.deliveries.due:
                        self.takers.wake_one()
                    return found
                if self._again:
                    await asyncio.sleep(0)
                    continue
            left_s = give_up_s - self._tools.clock.monotonic_s()
            if left_s <= 0:
                break
            await self.takers.wait(left_s, owner)
        return []

    def wake(self) -> None:
        """There may be something to take."""
        if self._is_looking:
            self._again = True
        else:
            self.takers.wake_one()

    async def _look(self, most: int, lease_s: float) -> list[Taken]:
        self.pass_time()
        room = min(most, self.settings.max_in_flight - len(self.deliveries.out))
        if room <= 0:
            return []
        has_room = self.deliveries.unmet > 0 or self._tools.shares.has_room(self.owner, room)
        found: list[Taken] = []
        left_bytes = limits.FETCH_BYTES_DEFAULT
        for _ in range(_READS_PER_TAKE):
            try:
                picked = await self._look_once(room, left_bytes, has_room=has_room)
            except SebError:
                if found:
                    break  # the next taker gets the error
                raise
            except BaseException:
                self.undo(found)
                raise
            if picked is None or self.closed:
                break
            for topic, piece in picked:
                left_bytes -= bytes_of(piece)
                room -= piece.end - piece.begin
                found.append(self._hand_out(topic, piece, lease_s, self.now))
            if room <= 0 or left_bytes <= 0:
                self._again = True  # for the next taker
                break
        else:
            self._again = True  # it has only seen records that nobody may have yet
        self._write()
        if not (found or has_room):
            self._tools.shares.check(self.owner, room)
        return found

    async def _look_once(
        self, room: int, left_bytes: int, *, has_room: bool
    ) -> list[tuple[Topic, BatchSlice]] | None:
        """Records that are `ready`; None when there is nothing to be looked at. `has_room`: the
        share has, for new ones."""
        if self.deliveries.ready:
            return await self._read_again(self.deliveries.ready, room, left_bytes)
        if self.deliveries.aside >= limits.QUEUE_ASIDE_MAX or not has_room:
            return None
        await self.delayed.collect(self.deliveries, max(0, room - len(self.deliveries.due)))
        if self.deliveries.due:
            return await self._read_again(self.deliveries.due, room, left_bytes)
        async for fresh in in_slices(self._new_ones()):
            if fresh is None:
                continue
            topic, new = fresh
            if self.delayed.concern(topic):
                passed = await self.delayed.before(topic, new, self.deliveries)
                if passed is None or topic.topic_id not in self.topics:
                    continue
                new = passed
            try:
                result = await self._tools.reads.read(
                    topic.name, _request(topic, new, room, left_bytes)
                )
            except _GONE:
                return []  # trimmed or deleted meanwhile: the next look tells
            return self._meet(topic, result, new[1], self.now)
        return None

    def _new_ones(self) -> Iterator[tuple[Topic, tuple[int, int]] | None]:
        """Where new records are (exclusive end); None for a topic that has none. The topics take
        turns."""
        while self._fresh and not self.closed:
            topic_id = next(iter(self._fresh))
            topic = self.topics[topic_id]
            new = self.deliveries.new(topic_id, topic.log_end_offset)
            if new is not None and new[0] < topic.log_start_offset:
                self._lose(topic_id, topic.log_start_offset)
                new = self.deliveries.new(topic_id, topic.log_end_offset)
            if new is None:
                del self._fresh[topic_id]
                yield None
            else:
                self._fresh.move_to_end(topic_id)
                yield topic, new

    def _meet(
        self, topic: Topic, result: ReadResult, end: int, now: tuple[float, int]
    ) -> list[tuple[Topic, BatchSlice]]:
        """The new records below `end` that may be handed out now."""
        if topic.topic_id not in self.topics or self.closed:
            return []
        ready = list[tuple[Topic, BatchSlice]]()
        for piece in result.slices:
            offsets, begun = piece.batch.offsets(), list[int]()
            for i in range(piece.begin, piece.end):
                place = Place(topic.topic_id, offsets[i])
                self._lose(topic.topic_id, place.offset)  # compacted away
                if self.deliveries.meet(place, key_of(piece, i), now):
                    begun.append(i)
            ready += [(topic, run) for run in runs(piece, begun)]
        self._lose(topic.topic_id, min(result.next_offset, end))
        self._look_at_doomed()
        return ready

    def take_nowait(self, most: int, most_bytes: int, lease_s: float) -> list[Taken]:
        """New records of one topic that are in memory; none where it is needed to wait or to look
        elsewhere. Raises what `take` raises."""
        if self.closed or self._is_looking or self.delayed:
            return []
        now = self.pass_time()
        room = min(most, self.settings.max_in_flight - len(self.deliveries.out))
        if room <= 0 or self.deliveries.ready or self.deliveries.aside >= limits.QUEUE_ASIDE_MAX:
            return []
        self._tools.shares.check(self.owner, room)
        some = islice(self._new_ones(), _TOPICS_NOWAIT)
        if (fresh := next(filter(None, some), None)) is None or self.delayed.concern(fresh[0]):
            return []
        topic, new = fresh
        try:
            result = self._tools.reads.read_nowait(
                topic.name, _request(topic, new, room, most_bytes)
            )
        except _GONE:
            return []
        if result is None:
            return []
        met = self._meet(topic, result, new[1], now)
        found = [self._hand_out(of, piece, lease_s, now) for of, piece in met]
        self._write()
        self.adjust()
        if self._fresh or self.deliveries.ready:
            self.takers.wake_one()
        return found

    async def _read_again(
        self, places: ByPlace[Aside], room: int, left_bytes: int
    ) -> list[tuple[Topic, BatchSlice]] | None:
        """Records that are `ready`, or `due`, of the topic whose turn it is."""
        topic_id, offsets_of = places.turn()
        wanted = sorted(islice(offsets_of, room))
        topic = self.topics[topic_id]
        try:
            slices, handled = await pick(self._tools.reads, topic, wanted, left_bytes)
        except TopicNotFoundError:
            return []
        if topic_id not in self.topics or self.closed:
            return []
        there = {o for piece in slices for o in piece.batch.offsets()[piece.begin : piece.end]}
        for offset in wanted[:handled]:
            if offset not in there:
                place = Place(topic_id, offset)
                self._settle_lost(place, places.pop(place))
        if places is self.deliveries.ready:
            return [(topic, piece) for piece in slices]
        now, ready = self.now, list[tuple[Topic, BatchSlice]]()
        for piece in slices:
            offsets, begun = piece.batch.offsets(), list[int]()
            for i in range(piece.begin, piece.end):
                place = Place(topic_id, offsets[i])
                places.pop(place)
                if self.deliveries.arrive(place, key_of(piece, i), now):
                    begun.append(i)
            ready += [(topic, run) for run in runs(piece, begun)]
        self._look_at_doomed()
        return ready

    def _hand_out(
        self, topic: Topic, piece: BatchSlice, lease_s: float, now: tuple[float, int]
    ) -> Taken:
        now_s, now_us = now
        offsets = list(piece.batch.offsets()[piece.begin : piece.end])
        lease = self._tools.next_lease()
        places = [Place(topic.topic_id, offset) for offset in offsets]
        out = [self.deliveries.hand_out(p, lease, now_s + lease_s, now_us) for p in places]
        return Taken(topic, offsets, out, piece)

    def undo(self, taken: Iterable[Lent]) -> None:
        """The taker has left: its records go to others."""
        for one in taken:
            lease = one.deliveries[0].lease
            for offset in one.offsets:
                place = Place(one.topic.topic_id, offset)
                if self.deliveries.standing(place, lease) == "live":
                    self.deliveries.undo(place)
        self.moved()

    # --- what nobody waits for ---

    def _lose(self, topic_id: int, end: int) -> None:
        for begin, until in self.deliveries.lose(topic_id, end):
            self.lost.append((topic_id, begin, until))

    def _settle_lost(self, place: Place, aside: Aside) -> None:
        self.deliveries.settle(place, "lost")
        if aside.key is not None:
            self.deliveries.release(place.topic_id, aside.key, self.now)
        self.lost.append((place.topic_id, place.offset, place.offset + 1))

    def pass_time(self) -> tuple[float, int]:
        """Leases end, and retries come due. Returns `now`."""
        now = self.now
        if self.deliveries.is_due(now[0]):
            for place, out in islice(self.deliveries.ended(now[0]), _AT_ONCE):
                self.failed.append((place.topic_id, self.deliveries.fail(place, out, now)))
            for _ in islice(self.deliveries.come_due(now[0]), _AT_ONCE):
                pass
            self._arm()
        self._look_at_doomed()
        self._write()
        return now

    def write_into(self, window: Window) -> bool:
        """Add what is to be stored; whether there was anything."""
        admission = self._tools.admission
        written = False
        for topic_id, begin, end in self.lost:
            if admission.lives(topic_id):
                admission.add_range(window, self.name, topic_id, "lost", begin, end)
                written = True
        for topic_id, failure in self.failed:
            if admission.lives(topic_id):
                admission.add_failure(window, self.name, topic_id, failure)
                written = True
        self.lost, self.failed = [], []
        return written

    def _write(self) -> None:
        if (self.lost or self.failed) and not self.closed:
            self._tools.flush(self)

    # --- taking back ---

    def settle_out(self, window: Window, place: Place, outcome: Outcome) -> None:
        """The lease on `place` is live."""
        out = self.deliveries.take_back(place)
        self._settled(window, place, out.key, outcome)

    def settle_doomed(self, window: Window, place: Place, outcome: Outcome) -> None:
        aside = self.deliveries.doomed.pop(place)
        self._settled(window, place, aside.key, outcome)

    def _settled(self, window: Window, place: Place, key: bytes | None, outcome: Outcome) -> None:
        self.deliveries.settle(place, outcome)
        add = self._tools.admission.add_range
        add(window, self.name, place.topic_id, outcome, place.offset, place.offset + 1)
        if key is None:
            return
        if window not in self._unstored:
            self._unstored[window] = []
            window.when_done(lambda _: run_in_slices(self._release(window)), lambda _: None)
        self._unstored[window].append((place.topic_id, key))

    def _release(self, window: Window) -> Iterator[None]:
        """What settles these records is stored: now the next ones of their record keys begin. If
        they began earlier, a kill could bring an earlier record back after a later one."""
        for topic_id, key in self._unstored.pop(window):
            if topic_id in self.topics and not self.closed:
                self.deliveries.release(topic_id, key, self.now)
            yield
        self.moved()

    def fail_out(self, window: Window, place: Place, delay_ms: int) -> None:
        """The lease on `place` is live; its record waits for `delay_ms`."""
        now_s, now_us = self.now
        out = self.deliveries.take_back(place)
        due = (now_s + delay_ms / 1_000, now_us + delay_ms * 1_000)
        failure = self.deliveries.fail(place, out, due)
        self._tools.admission.add_failure(window, self.name, place.topic_id, failure)

    def doom_out(self, place: Place, reason: str) -> asyncio.Future[bool]:
        """The lease on `place` is live; what is returned is done when the record is a dead letter,
        which is True, or when the queue or the topic is gone."""
        self.deliveries.doom(place, self.deliveries.take_back(place), reason)
        waiting = self.buried[place] = asyncio.get_running_loop().create_future()
        return waiting

    def tell_buried(self, places: Iterable[Place], *, stored: bool) -> None:
        """They are stored as dead letters, or their queue or topic is gone."""
        for place in list(places):
            waiting = self.buried.pop(place, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(stored)

    def moved(self) -> None:
        """Deliveries were taken back or extended."""
        self.adjust()
        self._look_at_doomed()
        if self.takers and (
            self.deliveries.ready or self._fresh or self.delayed.is_due(self._tools.clock.wall_us())
        ):
            self.wake()

    def progress(self, topic_id: int) -> Progress:
        return self.deliveries.progress(topic_id)

    def _look_at_doomed(self) -> None:
        if self.deliveries.doomed:
            self._tools.bury(self)

    def adjust(self) -> None:
        """The shares count what is there now."""
        if self.closed:
            return
        grown = len(self.deliveries) + self.deliveries.unmet - self._counted
        if grown > 0:
            self._tools.shares.take_anyway(self.owner, grown)
        elif grown:
            self._tools.shares.give_back(self.owner, -grown)
        self._counted += grown
        self._arm()

    def _arm(self) -> None:
        """One timer, for the first lease or retry. A later one is left to fire for nothing."""
        next_s = self.deliveries.next_s
        if self.delayed and (delayed_s := self.delayed.next_s(self.now)) is not None:
            next_s = delayed_s if next_s is None else min(next_s, delayed_s)
        if self.closed or next_s is None or next_s >= self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = next_s
        delay_s = max(0.0, next_s - self._tools.clock.monotonic_s())
        self._timer = self._tools.clock.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_s = None, float("inf")
        self.pass_time()
        is_due = self.delayed.is_due(self.now[1])
        self.adjust()
        if self.deliveries.ready or is_due:
            self.wake()


def _request(topic: Topic, new: tuple[int, int], room: int, most_bytes: int) -> ReadRequest:
    begin, end = From(offset=new[0]), From(offset=new[1])
    return ReadRequest(begin, end, room, most_bytes, topic_id=topic.topic_id)
