"""Operations on work queues: set, describe, take, acknowledge, retry, reject, extend.

A taker waits for no entry: leases are in memory. What ends a delivery is stored before it is
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import count

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE, Action, Actor, AuditedWrites
from seb_appliance.broker.append.acknowledgement import NOBODY, AckCallback
from seb_appliance.broker.append.admission import Admission
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.delays.queue_delays import QueueDelays
from seb_appliance.broker.groups.groups import Lag
from seb_appliance.broker.meeting import Meetings, Readers
from seb_appliance.broker.queues.acknowledging import AckTogether
from seb_appliance.broker.queues.admission import (
    Check,
    QueueAdmission,
    any_may,
    checked,
    no_such_queue,
    reads_alike,
)
from seb_appliance.broker.queues.burial import Burial
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.live_queue import LiveQueue, Tools
from seb_appliance.broker.queues.progress import AtRest, Queue
from seb_appliance.broker.queues.redriving import Redriving
from seb_appliance.broker.queues.takers import Lent, Taken
from seb_appliance.broker.queues.tokens import DeliveryTokens
from seb_appliance.broker.queues.views import (
    HeldRecord,
    QueueView,
    QueueViews,
    Result,
    held_records,
)
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.read.waiting import WaitingReaders
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import Patterns, check_topic_name
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import From
from seb_appliance.errors import (
    BadRequestError,
    OutcomeUnknownError,
    ShuttingDownError,
    TopicNotFoundError,
)
from seb_appliance.formats.queues.queues import QueueSettings
from seb_appliance.tasks import Supervisor, in_slices


class WorkQueues:
    def __init__(
        self,
        catalog: Catalog,
        admission: Admission,
        reads: Reads,
        waiting: WaitingReaders,
        writes: Writes,
        log_us: Callable[[], int],
        delayed: Callable[[], QueueDelays],
        shares: AllShares,
        random_bytes: Callable[[int], bytes],
        lag: Callable[[Topic, int, int], Awaitable[Lag]],
    ) -> None:
        self._catalog = catalog
        self._writes = writes
        self._audited = AuditedWrites(writes)
        self._random_bytes = random_bytes
        self._admission = QueueAdmission(admission, catalog.queues, shares)
        self._tokens = DeliveryTokens(random_bytes)
        self._burial = Burial(reads, admission, writes)
        self.redriving = Redriving(
            catalog,
            reads,
            admission,
            self._admission,
            self._audited,
            self._open,
            writes.clock.wall_us,
        )
        self._tools = Tools(
            reads,
            self._admission,
            shares.declare("deliveries", limits.DELIVERIES_MAX, "deliveries"),
            waiting.shares,
            writes.clock,
            log_us,
            delayed,
            count(1).__next__,
            self._flush,
            self._burial.add,
        )
        self._at_rest = AtRest(self._tools.shares, catalog.queues)
        self._live: dict[str, LiveQueue] = {}
        self.views = QueueViews(catalog, self._live, delayed, lag)
        self._read = self._admission.topics_read
        self._readers = Readers[LiveQueue](self._told)
        self._newest_id = 0  # of the topics that all live queues have met, or will soon
        self._meetings = Meetings(self._live.values, self._meet)

    # --- life ---

    def start(self, supervisor: Supervisor) -> None:
        self._burial.start(supervisor)

    def stop_waiting(self) -> None:
        """The appliance stops: takers get nothing more."""
        for live in list(self._live.values()):
            self._close(live)

    async def stop(self) -> None:
        await self._burial.close()

    def applied(self, changed: Iterable[Topic]) -> None:
        """These topics have changed."""
        if not self._live:
            return
        for topic in changed:
            if topic.topic_id > self._newest_id:
                self._newest_id = topic.topic_id
                self._meetings.add(topic)
            self._readers.changed(topic)

    def _meet(self, live: LiveQueue, topic: Topic) -> None:
        if live.closed or topic.deleted or topic.topic_id in live.topics:
            return
        if not live.patterns.cover(topic.name):
            return
        if not self._read.try_take(live.owner, 1):
            self._close(live)  # who opens it again is told why it cannot be
            return
        live.topics[topic.topic_id] = topic
        self._readers.add(live, topic.topic_id)
        live.changed(topic)

    def _told(self, live: LiveQueue, topic: Topic) -> None:
        if not live.closed:
            live.changed(topic)
            if topic.deleted:
                self._read.give_back(live.owner, 1)

    # --- settings ---

    def get(self, name: str) -> Queue:
        """As of the last applied entry. Raises QueueNotFoundError."""
        queue = self._catalog.queues.get(name)
        if queue is None:
            raise no_such_queue(name)
        return queue

    def all(self) -> list[Queue]:
        """By name."""
        return list(self._catalog.queues)

    async def reading(self, topic: str) -> list[str]:
        """The names of those that read it."""
        found = in_slices(self.all())
        return [one.name async for one in found if Patterns(one.settings.topics).cover(topic)]

    def live(self) -> list[LiveQueue]:
        """Those that are in use since the start."""
        return list(self._live.values())

    async def put(
        self, name: str, settings: QueueSettings, by: Actor = THE_APPLIANCE, check: Check = any_may
    ) -> bool:
        """Make or change it; whether it is new. All leases end where `topics` or `ordering` change.
        Raises BadNameError, BadParameterError, BadRequestError, ShareExceededError, as `check`."""
        check_topic_name(name, "queue")
        patterns = checked(settings)
        former = self._admission.find(name)
        before = Patterns(former.settings.topics if former is not None else ())
        matched, joined = 0, list[str]()
        async for topic in in_slices(self._catalog.topic_names()):
            if patterns.cover(topic):
                matched += 1
                if not before.cover(topic):
                    joined.append(topic)
        if matched > limits.QUEUE_TOPICS_MAX:
            most = limits.QUEUE_TOPICS_MAX
            raise BadRequestError(f"The queue would read {matched} topics; at most {most} can be.")
        made = False

        def admit(window: Window) -> Action:
            nonlocal made
            live, queue = self._live.get(name), self._catalog.queues.get(name)
            known = set(queue.progress if queue is not None else ())
            left = [
                topic_id
                for topic_id in known.union(live.topics if live is not None else ())
                if (topic := self._catalog.find_id(topic_id))
                and not patterns.cover(topic.name)
                and topic.name != settings.dead_letter  # it knows what was redriven
            ]
            made = self._admission.admit_set(window, name, settings, by.owner, joined, left, check)
            if live is not None:
                if reads_alike(live.settings, settings):
                    live.settings = live.deliveries.settings = settings
                    live.moved()
                else:
                    self._close(live)
            after = msgspec.to_builtins(settings)
            return Action("queue_created" if made else "queue_changed", "queue", name, None, after)

        await self._audited.store(admit, by)
        return made

    async def delete(self, name: str, by: Actor = THE_APPLIANCE) -> None:
        """Raises QueueNotFoundError."""

        def admit(window: Window) -> Action:
            self._admission.admit_deleted(window, name)
            if (live := self._live.get(name)) is not None:
                self._close(live)
            self._at_rest.remove(name)
            return Action("queue_deleted", "queue", name)

        await self._audited.store(admit, by)

    async def restart(
        self,
        name: str,
        start: From,
        topic: str | None,
        by: Actor = THE_APPLIANCE,
        *,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Read again from `start` on: one topic, or all that it reads. All leases end. Returns the
        first offset of each topic, also if nothing is done (`dry_run`). Raises QueueNotFoundError,
        TopicNotFoundError, and what reading raises."""
        topics = [one for one in await self._topics(name) if topic in (None, one.name)]
        if topic is not None and not topics:
            raise TopicNotFoundError(f"The queue reads no topic {topic[:100]!r}.")
        starts = {}
        for one in topics:
            offset = await self._tools.reads.resolve(one, start)
            starts[one.topic_id] = min(max(offset, one.log_start_offset), one.log_end_offset)

        def admit(window: Window) -> Action:
            self._admission.admit_restart(window, name, starts)
            if (live := self._live.get(name)) is not None:
                self._close(live)
            return Action("queue_restarted", "queue", name, None, named)

        named = {one.name: starts[one.topic_id] for one in topics}
        if not dry_run:
            await self._audited.store(admit, by)
        return named

    async def describe(self, name: str) -> QueueView:
        """With what is in memory. Raises QueueNotFoundError."""
        return (await self.views.of([self.get(name)]))[0]

    async def held(self, name: str, most: int) -> list[HeldRecord]:
        """At most `most` of each state. Raises QueueNotFoundError."""
        live = self._live.get(self.get(name).name)
        if live is None:
            return []
        return held_records(live.topics, live.deliveries, self._writes.clock.monotonic_s(), most)

    async def topics_of(self, name: str) -> list[str]:
        """The names of the topics that it reads. Raises QueueNotFoundError."""
        return [topic.name for topic in await self._topics(name)]

    async def _topics(self, name: str) -> list[Topic]:
        return list((await self.views.topics_of([self.get(name)]))[name].values())

    # --- work ---

    async def take(
        self, name: str, most: int, wait_ms: int, lease_ms: int | None, owner: str
    ) -> list[Taken]:
        """At most `most` records under a lease; waits for the first one. Raises
        QueueNotFoundError, and what reading raises."""
        clock = self._writes.clock
        give_up_s = clock.monotonic_s() + wait_ms / 1_000
        while True:
            self._check_writable()
            live = await self._open(name)
            lease_s = (lease_ms or live.settings.lease_ms) / 1_000
            left_s = give_up_s - clock.monotonic_s()
            found = await live.take(most, left_s, lease_s, owner)
            if found or not live.closed or left_s <= 0:
                return found

    def take_nowait(
        self, name: str, most: int, most_bytes: int, lease_ms: int | None
    ) -> list[Taken]:
        """As `take`, if nothing is to be waited for; else nothing. Raises what `take` raises."""
        self._check_writable()
        if (live := self._live.get(name)) is None:
            return []
        return live.take_nowait(most, most_bytes, (lease_ms or live.settings.lease_ms) / 1_000)

    def read_by(self, name: str) -> Collection[Topic] | None:
        """The topics that the queue reads, if it is at work."""
        live = self._live.get(name)
        return None if live is None else live.topics.values()

    def undo(self, name: str, taken: Sequence[Lent]) -> None:
        """They could not be sent to their taker."""
        if (live := self._live.get(name)) is not None:
            live.undo(taken)

    def token(self, name: str, place: Place, lease: int) -> str:
        """How a worker names the delivery."""
        return self._tokens.token(name.encode(), place, lease)

    async def ack(self, name: str, tokens: Sequence[str], owner: str) -> list[Result]:
        """One result for each; what is acknowledged is stored. Raises what an append raises."""
        return await self._end(name, tokens, owner, _ack)

    def ack_nowait(
        self, name: str, tokens: Sequence[str], owner: str, on_done: AckCallback
    ) -> bool:
        """As `ack`: `on_done` gets the results. False, and nothing happened, where `ack` would
        raise, or has nothing to store."""
        if (live := self._live.get(name)) is None:
            return False
        admit = partial(self._admit_ends, live, tokens, _ack, [])
        return self._writes.operate_nowait(admit, self._writes.linger.default_ms, owner, on_done)

    async def acknowledging(self, name: str, tokens: Sequence[str]) -> AckTogether:
        """For a transaction. Raises QueueNotFoundError."""
        return AckTogether(await self._open(name), tokens, self._standing)

    async def retry(
        self, name: str, tokens: Sequence[str], delay_ms: int | None, owner: str
    ) -> list[Result]:
        """Hand them out again, after `delay_ms` or as the queue's rule says. Raises as `ack`."""

        def retry(live: LiveQueue, window: Window, place: Place) -> None:
            attempt = live.deliveries.out[place].attempt
            chance = int.from_bytes(self._random_bytes(2), "big") / 65_536
            rule = live.settings.retry
            wait_ms = rule.delay_ms(attempt, chance) if delay_ms is None else delay_ms
            live.fail_out(window, place, wait_ms)

        return await self._end(name, tokens, owner, retry)

    async def reject(self, name: str, tokens: Sequence[str], reason: str) -> list[Result]:
        """They become dead letters, which are stored when this returns. Raises as `ack`."""
        self._check_writable()
        live = await self._open(name)
        waiting: dict[int, asyncio.Future[bool]] = {}
        results = list[Result]()
        for token in tokens:
            place, result = self._standing(live, token)
            if place is not None:
                waiting[len(results)] = live.doom_out(place, reason)
            results.append(result)
        live.moved()
        for i, future in waiting.items():
            if await asyncio.shield(future):
                continue
            if self._writes.stopping:
                raise OutcomeUnknownError("The appliance is stopping; the rejection may be stored.")
            results[i] = "lease_ended"
        await self._writes.once_stored(self._admission.changed_in(name))
        return results

    async def extend(self, name: str, tokens: Sequence[str], lease_ms: int) -> list[Result]:
        """Their leases end in `lease_ms`. Raises QueueNotFoundError."""
        live = await self._open(name)
        ends_s = self._writes.clock.monotonic_s() + lease_ms / 1_000
        results = list[Result]()
        for token in tokens:
            place, result = self._standing(live, token)
            results.append(result)
            if place is not None:
                live.deliveries.extend(place, ends_s)
        live.moved()
        return results

    # --- inside ---

    async def _end(
        self,
        name: str,
        tokens: Sequence[str],
        owner: str,
        end: Callable[[LiveQueue, Window, Place], None],
    ) -> list[Result]:
        live = await self._open(name)
        results = list[Result]()

        admit = partial(self._admit_ends, live, tokens, end, results)
        changed = await self._writes.operate(admit, self._writes.linger.default_ms, owner)
        if not changed:  # what was settled before may not be stored yet
            await self._writes.once_stored(self._admission.changed_in(name))
        return results

    def _admit_ends(
        self,
        live: LiveQueue,
        tokens: Sequence[str],
        end: Callable[[LiveQueue, Window, Place], None],
        results: list[Result],
        window: Window,
    ) -> list[Result] | bool:
        """The results, or False if nothing is to be stored."""
        for token in tokens:
            place, result = self._standing(live, token)
            results.append(result)
            if place is not None:
                end(live, window, place)
        live.moved()
        return "ok" in results and results

    def _standing(self, live: LiveQueue, token: str) -> tuple[Place | None, Result]:
        """The place, if the lease is live."""
        named = self._tokens.read(live.name.encode(), token)
        if named is None or live.closed or not self._admission.lives(named[0].topic_id):
            return None, "lease_ended"
        standing = live.deliveries.standing(*named)
        if standing == "live":
            return named[0], "ok"
        return None, "settled" if standing == "settled" else "lease_ended"

    def _check_writable(self) -> None:
        """What is handed out must be acknowledged here."""
        self._check_not_stopping()
        if (refusal := self._writes.sequencer.refusal) is not None:
            raise refusal.again()

    def _check_not_stopping(self) -> None:
        if self._writes.stopping:
            raise ShuttingDownError("The appliance is stopping; nothing was changed.")

    async def _open(self, name: str) -> LiveQueue:
        """The queue at work. Raises QueueNotFoundError, ShuttingDownError, what a share raises."""
        # Opened again after `stop_waiting` it would know no lease, and say that all have ended.
        self._check_not_stopping()
        while (live := self._live.get(name)) is None:
            # Its progress must be applied as far as it was admitted.
            await self._writes.once_stored(self._admission.changed_in(name))
            queue = self.get(name)
            settings, newest_id = queue.settings, self._newest_id
            patterns, topics = Patterns(settings.topics), dict[int, Topic]()
            async for topic in in_slices(self._catalog.topics()):
                newest_id = max(newest_id, topic.topic_id)
                if patterns.cover(topic.name):
                    topics[topic.topic_id] = topic
            changing = self._admission.changed_in(name) is not None
            if changing or name in self._live or self._catalog.queues.get(name) is not queue:
                continue
            for topic in self._catalog.with_rows():  # made meanwhile
                if topic.topic_id > newest_id and patterns.cover(topic.name):
                    topics[topic.topic_id] = topic
            living = [topic for topic in topics.values() if not topic.deleted]
            live = LiveQueue(queue, living, self._tools)
            if self._writes.sequencer.refusal is not None:
                return live  # another appliance writes: what is applied moves on without it
            self._add(live)
        return live

    def _add(self, live: LiveQueue) -> None:
        self._read.take(live.owner, len(live.topics))
        if not self._live:
            ids = (topic.topic_id for topic in self._catalog.with_rows())
            self._newest_id = max(ids, default=0)
        self._live[live.name] = live
        self._at_rest.remove(live.name)
        live.adjust()
        for topic_id in live.topics:
            self._readers.add(live, topic_id)

    def _close(self, live: LiveQueue) -> None:
        del self._live[live.name]
        self._readers.remove(live, live.topics)
        self._read.give_back(live.owner, len(live.topics))
        live.close()
        self._at_rest.add(live.name, live.owner, live.deliveries.all_progress())

    def _flush(self, live: LiveQueue) -> None:
        """Store what nobody waits for with whatever else is stored soon."""
        linger_ms = self._writes.linger.default_ms
        self._writes.operate_nowait(live.write_into, linger_ms, live.owner, NOBODY)


def _ack(live: LiveQueue, window: Window, place: Place) -> None:
    live.settle_out(window, place, "acked")
