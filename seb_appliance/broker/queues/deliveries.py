"""Which records of a queue are out, wait, or may be handed out next.

A record from the log is *new* until it is met. Then it is in one of these: `out` with a worker,
`waiting` for its retry, `ready` to be handed out again, `parked` behind an earlier one of its
record key, `doomed` (to become a dead letter), or settled. A delayed one is passed over, and is
`due` before it is met, once its time has come. Nothing here knows the log or a clock.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from seb_appliance.broker.queues.by_place import ByPlace, Place
from seb_appliance.broker.queues.due import DueTimes
from seb_appliance.broker.queues.progress import Progress
from seb_appliance.formats.queues.queues import FailedDelivery, QueueSettings

Outcome = Literal["acked", "rejected", "lost"]
# How a lease stands: it is the live one; its record is settled; or it has ended.
Standing = Literal["live", "settled", "ended"]
TOO_MANY_DELIVERIES: Final = "max_deliveries"


class Aside(msgspec.Struct, gc=False):
    """A record that is not out. `attempts`: deliveries that failed; `first_us`: the first one, 0 if
    there was none. `due_s`: of one that waits. `reason`: of a doomed one."""

    key: bytes | None
    attempts: int = 0
    first_us: int = 0
    due_s: float = 0.0
    reason: str = ""


class Out(msgspec.Struct, gc=False):
    """A record that is out: the `attempt`-th delivery, under `lease`, until `ends_s`."""

    key: bytes | None
    attempt: int
    first_us: int
    lease: int
    ends_s: float


class _Reading(msgspec.Struct):
    """New records of a topic begin at `cursor`."""

    progress: Progress
    cursor: int = 0


class Deliveries:
    def __init__(self, settings: QueueSettings, progress: Mapping[int, Progress]) -> None:
        """`progress` by topic id; it is copied, and is ahead of the journal from then on."""
        self.settings = settings
        self.out = ByPlace[Out]()
        self.waiting = ByPlace[Aside]()
        self.ready = ByPlace[Aside]()
        self.doomed = ByPlace[Aside]()
        self.due = ByPlace[Aside]()
        self._parked = ByPlace[None]()
        self._topics = {i: _Reading(one.copy()) for i, one in progress.items()}
        # About how many records have failed before, and are not met yet.
        self.unmet = sum(len(one.failed) for one in progress.values())
        self._leases = DueTimes[Place]()
        self._retries = DueTimes[Place]()
        self._is_ordered = settings.ordering == "key"
        # By topic id: the record keys of records that are met and not settled, and what is parked
        # behind them.
        self._keys: defaultdict[int, dict[bytes, deque[int] | None]] = defaultdict(dict)

    def __len__(self) -> int:
        """Records that are met and not settled."""
        return len(self.out) + self.aside + len(self.doomed)

    def all_progress(self) -> list[Progress]:
        return [one.progress for one in self._topics.values()]

    @property
    def parked(self) -> int:
        return len(self._parked)

    def holds(self, place: Place) -> bool:
        """It is met and not settled, or is `due`."""
        places = (self.out, self.waiting, self.ready, self.due, self.doomed, self._parked)
        return any(place in one for one in places)

    @property
    def aside(self) -> int:
        return len(self.waiting) + len(self.ready) + self.parked + len(self.due)

    def progress(self, topic_id: int) -> Progress:
        """With what is not stored yet."""
        return self._reading(topic_id).progress

    def known_on(self, topic_id: int) -> Progress:
        """As `progress`; nothing is added for a topic on which nothing has happened."""
        reading = self._topics.get(topic_id)
        return Progress() if reading is None else reading.progress

    def _reading(self, topic_id: int) -> _Reading:
        found = self._topics.get(topic_id)
        if found is None:
            found = self._topics[topic_id] = _Reading(Progress())
        return found

    def forget_topic(self, topic_id: int) -> Iterator[None]:
        """The topic is deleted: from now on nothing of it is handed out, and no lease on it is
        live. To free the memory of 100,000 records takes many milliseconds: go through what is
        returned in slices."""
        failed = self.progress(topic_id).failed
        del self._topics[topic_id]
        if self.unmet:
            self.unmet = min(self.unmet, sum(len(one.failed) for one in self.all_progress()))
        out, waiting = self.out.forget(topic_id), self.waiting.forget(topic_id)
        others = (self.ready, self.doomed, self.due, self._parked)
        rest = [*(one.forget(topic_id) for one in others), self._keys.pop(topic_id, {}), failed]
        return self._freed(topic_id, out, waiting, rest)

    def _freed(
        self,
        topic_id: int,
        out: dict[int, Out],
        waiting: dict[int, Aside],
        rest: Sequence[dict[Any, Any]],
    ) -> Iterator[None]:
        while out:
            offset, delivery = out.popitem()
            self._leases.discard(Place(topic_id, offset), delivery.ends_s)
            yield
        while waiting:
            offset, aside = waiting.popitem()
            self._retries.discard(Place(topic_id, offset), aside.due_s)
            yield
        for things in rest:
            while things:
                things.popitem()
                yield

    def forget_all(self) -> Iterator[None]:
        """As `forget_topic` of all topics, the next one when the one before is gone."""
        for topic_id in list(self._topics):
            yield from self.forget_topic(topic_id)

    # --- new records ---

    def new(self, topic_id: int, end: int) -> tuple[int, int] | None:
        """The next offsets below `end` (exclusive) that were not met and are not settled."""
        reading = self._topics.get(topic_id)
        if reading is None:  # nothing is kept of a topic without records
            return (0, end) if end else None
        found = reading.progress.settled.gap(reading.cursor, end)
        reading.cursor = end if found is None else found[0]
        return found

    def lose(self, topic_id: int, end: int) -> list[tuple[int, int]]:
        """The topic has no more new records below `end`: settle them, and return their ranges."""
        reading = self._reading(topic_id)
        gone = list(reading.progress.settled.gaps(reading.cursor, end))
        failed = len(reading.progress.failed)
        for begin, until in gone:
            reading.progress.lost += reading.progress.settle(begin, until)
        self.unmet = max(0, self.unmet - (failed - len(reading.progress.failed)))
        reading.cursor = max(reading.cursor, end)
        return gone

    def meet(self, place: Place, key: bytes | None, now: tuple[float, int]) -> bool:
        """The record is in the log: whether it may be handed out now; it is `ready` then. `now`:
        monotonic seconds, and µs since the epoch."""
        self._reading(place.topic_id).cursor = place.offset + 1
        return self.arrive(place, key, now)

    def cursor(self, topic_id: int) -> int:
        """New records begin at this offset."""
        return self._reading(topic_id).cursor

    def pass_over(self, topic_id: int, end: int) -> None:
        """What is new below `end` is delayed: it is not met, and not settled."""
        self._reading(topic_id).cursor = end

    def come_due_later(self, place: Place) -> None:
        """A record that was passed over is due now."""
        self.due.add(place, Aside(None))

    def arrive(self, place: Place, key: bytes | None, now: tuple[float, int]) -> bool:
        """As `meet`, of a record that was passed over before."""
        if self._is_ordered and key is not None:
            keys = self._keys[place.topic_id]
            if key in keys:
                behind = keys[key]
                if behind is None:
                    behind = keys[key] = deque()
                behind.append(place.offset)
                self._parked.add(place, None)
                return False
            keys[key] = None
        else:
            key = None
        return self._begin(place, key, now)

    def _begin(self, place: Place, key: bytes | None, now: tuple[float, int]) -> bool:
        """Nothing is before the record: whether it is ready."""
        failure = self._topics[place.topic_id].progress.failed.get(place.offset)
        aside = Aside(key)
        if failure is not None:
            self.unmet = max(0, self.unmet - 1)
            aside.attempts, aside.first_us = failure.attempts, failure.first_us
            if aside.attempts >= self.settings.max_deliveries:
                aside.reason = TOO_MANY_DELIVERIES
                self.doomed.add(place, aside)
                return False
            if failure.due_us > now[1]:
                self._wait(place, aside, now[0] + (failure.due_us - now[1]) / 1_000_000)
                return False
        self.ready.add(place, aside)
        return True

    def _wait(self, place: Place, aside: Aside, due_s: float) -> None:
        aside.due_s = due_s
        self.waiting.add(place, aside)
        self._retries.add(place, due_s)

    # --- handing out ---

    def hand_out(self, place: Place, lease: int, ends_s: float, now_us: int) -> Out:
        """A ready record goes out."""
        aside = self.ready.pop(place)
        first_us = aside.first_us or now_us
        out = Out(aside.key, aside.attempts + 1, first_us, lease, ends_s)
        self.out.add(place, out)
        self._leases.add(place, ends_s)
        return out

    def standing(self, place: Place, lease: int) -> Standing:
        out = self.out.get(place)
        if out is not None and out.lease == lease:
            return "live"
        reading = self._topics.get(place.topic_id)
        is_settled = reading is not None and place.offset in reading.progress.settled
        return "settled" if is_settled else "ended"

    def extend(self, place: Place, ends_s: float) -> None:
        """The live lease ends at `ends_s` instead."""
        out = self.out[place]
        self._leases.remove(place, out.ends_s)
        self._leases.add(place, ends_s)
        out.ends_s = ends_s

    def take_back(self, place: Place) -> Out:
        """The record is not out any more; one of `settle`, `fail` and `doom` follows."""
        out = self.out.pop(place)
        self._leases.remove(place, out.ends_s)
        return out

    def undo(self, place: Place) -> None:
        """The record never reached a worker: it is ready as before, and no delivery counts."""
        out = self.take_back(place)
        first_us = out.first_us if out.attempt > 1 else 0
        self.ready.add(place, Aside(out.key, out.attempt - 1, first_us))

    def fail(self, place: Place, out: Out, due: tuple[float, int]) -> FailedDelivery:
        """The delivery failed: the record waits until `due` (as `now`), or is doomed."""
        failure = FailedDelivery(place.offset, out.attempt, due[1], out.first_us)
        self._topics[place.topic_id].progress.failed[place.offset] = failure
        aside = Aside(out.key, out.attempt, out.first_us)
        if out.attempt >= self.settings.max_deliveries:
            aside.reason = TOO_MANY_DELIVERIES
            self.doomed.add(place, aside)
        else:
            self._wait(place, aside, due[0])
        return failure

    def doom(self, place: Place, out: Out, reason: str) -> None:
        self.doomed.add(place, Aside(out.key, out.attempt, out.first_us, reason=reason))

    def settle(self, place: Place, outcome: Outcome) -> None:
        """The record, which is in none of the dicts any more, is done. If it has a record key,
        `release` follows."""
        progress = self._topics[place.topic_id].progress
        new = progress.settle(place.offset, place.offset + 1)
        setattr(progress, outcome, getattr(progress, outcome) + new)

    def release(self, topic_id: int, key: bytes, now: tuple[float, int]) -> None:
        """The next record of the key of a settled one begins."""
        behind = self._keys[topic_id][key]
        if behind:
            following = Place(topic_id, behind.popleft())
            self._parked.pop(following)
            self._begin(following, key, now)
        else:
            del self._keys[topic_id][key]

    # --- time ---

    def is_due(self, now_s: float) -> bool:
        """Whether `ended` or `come_due` has something to do."""
        return self._leases.is_due(now_s) or self._retries.is_due(now_s)

    def ended(self, now_s: float) -> Iterator[tuple[Place, Out]]:
        """Take back what was out for longer than its lease."""
        for place in self._leases.due(now_s):
            if place in self.out:  # else its topic is being forgotten
                yield place, self.out.pop(place)

    def come_due(self, now_s: float) -> Iterator[Place]:
        """What has waited becomes ready."""
        for place in self._retries.due(now_s):
            if place in self.waiting:  # as above
                self.ready.add(place, self.waiting.pop(place))
                yield place

    @property
    def next_s(self) -> float | None:
        """When `ended` or `come_due` has something to do next."""
        times = [t for t in (self._leases.next_s, self._retries.next_s) if t is not None]
        return min(times, default=None)
