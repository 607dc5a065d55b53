"""The delayed records of one queue.

The queue reads the log in order and passes over what is not due. What was passed over is looked up
by time once it is due. Both are read from SQLite, a page at a time; only these pages are in memory.
A record may be found twice, for the wall clock may be set: the queue knows what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.delays.delays import Delays
from seb_appliance.broker.ports import DelayRange, State
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.deliveries import Deliveries
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.clock import Clock

_ROWS_MIN: Final = 2
_Key: TypeAlias = tuple[int, int]  # µs and first offset of a range; the order of time


@dataclass(slots=True)
class _View:
    """Of one topic. `page`: what has come due and was not taken, with all up to `read`, the first
    one last; `at`: where that goes on. `later_us`: nothing behind `read` that was passed over is
    due before; None if there is nothing. `ahead`: delays by offset, all below `ahead_until`, the
    first one last."""

    topic: Topic
    read: _Key
    page: list[DelayRange] = field(default_factory=list)
    at: int = 0
    later_us: int | None = None
    ahead: list[DelayRange] = field(default_factory=list)
    ahead_until: int = 0

    @property
    def next_us(self) -> int | None:
        return self.page[-1].due_us if self.page else self.later_us

    def come_later(self, one: DelayRange) -> None:
        """It was passed over, or is not due any more."""
        if one[:2] <= self.read:
            first = min([one, *self.page])
            self.page.clear()
            self.at, self.read = 0, (first.due_us, first.first - 1)
            self.later_us = first.due_us
        elif self.later_us is None or one.due_us < self.later_us:
            self.later_us = one.due_us


class QueueDelays:
    """One call of `collect` or `before` at a time."""

    def __init__(self, delays: Delays, state: State, clock: Clock) -> None:
        self._delays = delays
        self._state = state
        self._clock = clock
        self._views: dict[int, _View] = {}
        self._now_us = 0

    def __bool__(self) -> bool:
        """Whether the queue reads a topic with delayed records."""
        return bool(self._views)

    @property
    def _rows_at_once(self) -> int:
        """Fewer of each topic where there are many, for all of them stay in memory."""
        return max(_ROWS_MIN, limits.DELAYS_PAGE // max(1, len(self._views)))

    def count(self, topic: Topic) -> int:
        """How many records of the topic are delayed, or were until lately."""
        return self._delays.of(topic)

    def forget(self, topic_id: int) -> None:
        """The topic is deleted."""
        self._views.pop(topic_id, None)

    def needed(self) -> Iterator[tuple[int, int]]:
        """Topic ids, and from which time on what is due of the topic is still to be read."""
        for view in list(self._views.values()):
            if (needed_us := view.next_us) is not None:
                for topic_id, _ in self._delays.spans(view.topic):
                    yield topic_id, needed_us

    # --- what comes due ---

    def next_s(self, now: tuple[float, int]) -> float | None:
        """When to look again, on the monotonic clock; None if nothing comes due later. `now`: as of
        Deliveries. The wall clock may be set, so that it is looked at from time to time."""
        due = (view.next_us for view in self._views.values())
        next_us = min((at for at in due if at is not None and at > now[1]), default=None)
        if next_us is None:
            return None
        return now[0] + min((next_us - now[1]) / 1e6, limits.DELAYS_LOOK_S)

    def is_due(self, now_us: int) -> bool:
        due = (view.next_us for view in self._views.values())
        return any(at is not None and at <= now_us for at in due)

    async def collect(self, deliveries: Deliveries, room: int) -> None:
        """At most `room` records that were passed over and are due now get into `deliveries.due`.
        Where there are more, the queue must take them before it reads on in the log. Raises
        OverloadedError."""
        self._now_us = self._clock.wall_us()
        for view in list(self._views.values()):
            while room and (one := await self._first_due(view)) is not None:
                topic_id = view.topic.topic_id
                # What the queue has not passed over yet it finds in the log.
                end = min(one.end, deliveries.cursor(topic_id))
                for place in _passed_over(deliveries, topic_id, max(one.first, view.at), end):
                    if room == 0:
                        view.at = place.offset
                        return
                    deliveries.come_due_later(place)
                    room -= 1
                view.at = 0
                view.page.pop()

    async def _first_due(self, view: _View) -> DelayRange | None:
        """The first range of `page`."""
        if not view.page and view.later_us is not None and view.later_us <= self._now_us:
            spans = self._delays.spans(view.topic)
            most = self._rows_at_once
            rows = await self._state.delays_by_time(spans, view.read, most)
            due = [row for row in rows if row.due_us <= self._now_us]
            view.page = due[::-1]
            if due:
                view.read = due[-1][:2]
            left = rows[len(due) :] or (due[-1:] if len(due) == most else ())
            view.later_us = left[0].due_us if left else None
        if view.page and view.page[-1].due_us > self._now_us:  # the clock was set back
            view.come_later(view.page[-1])
        return view.page[-1] if view.page else None

    # --- what is not due ---

    def concern(self, topic: Topic) -> bool:
        """Whether some of its records are delayed."""
        known = self._views.get(topic.topic_id)
        if not self._delays.spans(topic):
            if known is not None and known.next_us is None:
                del self._views[topic.topic_id]
            return False
        if known is None:
            # Nothing was passed over yet: what is due now is found in the log.
            self._views[topic.topic_id] = _View(topic, (self._now_us, limits.OFFSET_MAX))
        return True

    async def before(
        self, topic: Topic, new: tuple[int, int], deliveries: Deliveries
    ) -> tuple[int, int] | None:
        """The first offsets of `new` (exclusive end) that are not delayed; None where it begins
        with delayed ones, which are passed over now. After `collect`. Raises OverloadedError."""
        view = self._views[topic.topic_id]
        begin, end = new
        if begin >= view.ahead_until:
            spans = self._delays.spans(topic)
            most = self._rows_at_once
            rows = await self._state.delays_by_offset(spans, begin, most)
            view.ahead = rows[::-1]
            view.ahead_until = rows[-1].end if len(rows) == most else end
        end, ahead, behind = min(end, view.ahead_until), view.ahead, begin
        while ahead and ahead[-1].first <= behind < end:
            one = ahead[-1]
            if one.end > behind:
                if one.due_us <= self._now_us:
                    break
                view.come_later(one)
                behind = min(one.end, end)
            if one.end <= behind:
                ahead.pop()
        if behind > begin:
            deliveries.pass_over(topic.topic_id, behind)
            return None
        delayed = (one.first for one in reversed(ahead) if one.due_us > self._now_us)
        return begin, min(next(delayed, end), end)


def _passed_over(deliveries: Deliveries, topic_id: int, begin: int, end: int) -> Iterator[Place]:
    for first, until in deliveries.progress(topic_id).settled.gaps(begin, end):
        for offset in range(first, until):
            place = Place(topic_id, offset)
            if not deliveries.holds(place):
                yield place
