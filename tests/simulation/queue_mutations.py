"""Bugs of work queues planted in the product, as in mutations.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

from seb_appliance.broker.queues import work_queues
from seb_appliance.broker.queues.deliveries import Deliveries
from seb_appliance.broker.queues.live_queue import LiveQueue
from seb_appliance.broker.queues.progress import Progress, Queue
from seb_appliance.broker.queues.work_queues import WorkQueues
from seb_appliance.errors import SebError


def queue_acks_before_they_are_stored() -> contextlib.AbstractContextManager[Any]:
    """An acknowledgement is answered at once, and stored with what comes next."""

    async def end(self: WorkQueues, name: str, tokens: Any, owner: str, how: Any) -> list[Any]:
        live = await self._open(name)
        results: list[Any] = []
        admit = work_queues.partial(self._admit_ends, live, tokens, how, results)
        self._writes.operate_nowait(admit, 1_000, owner, work_queues.NOBODY)
        return results

    return mock.patch.object(WorkQueues, "_end", end)


def queue_leases_end_early() -> contextlib.AbstractContextManager[Any]:
    """A lease is over at once."""
    hand_out = Deliveries.hand_out

    def early(self: Deliveries, place: Any, lease: int, ends_s: float, now_us: int) -> Any:
        return hand_out(self, place, lease, ends_s - 14.99, now_us)

    return mock.patch.object(Deliveries, "hand_out", early)


def queue_forgets_the_order_of_keys() -> contextlib.AbstractContextManager[Any]:
    """A later record of a record key is handed out beside an earlier one."""
    meet = Deliveries.meet

    def free(self: Deliveries, place: Any, key: bytes | None, now: Any) -> bool:
        return meet(self, place, None, now)

    return mock.patch.object(Deliveries, "meet", free)


def queue_goes_on_before_it_is_stored() -> contextlib.AbstractContextManager[Any]:
    """The next record of a key is handed out when the one before is done in memory."""
    real = LiveQueue._settled

    def at_once(self: LiveQueue, window: Any, place: Any, key: bytes | None, outcome: Any) -> None:
        real(self, window, place, None, outcome)
        if key is not None:
            self.deliveries.release(place.topic_id, key, self.now)

    return mock.patch.object(LiveQueue, "_settled", at_once)


def queue_settles_a_neighbour() -> contextlib.AbstractContextManager[Any]:
    """What a start loads has the record behind each settled range as settled, too."""
    begin = work_queues.LiveQueue

    def one_more(queue: Queue, topics: Iterable[Any], tools: Any) -> Any:
        progress = {}
        for topic_id, one in queue.progress.items():
            progress[topic_id] = more = Progress.copy(one)
            for _, end in list(one.settled):
                more.settle(end, end + 1)
        return begin(
            Queue(queue.name, queue.settings, queue.owner, queue.set_us, progress), topics, tools
        )

    return mock.patch.object(work_queues, "LiveQueue", one_more)


def queue_refusals_settle() -> contextlib.AbstractContextManager[Any]:
    """An acknowledgement that could not be stored is told as done."""
    real = WorkQueues._end

    async def done(self: WorkQueues, name: str, tokens: Any, owner: str, how: Any) -> list[Any]:
        try:
            return await real(self, name, tokens, owner, how)
        except SebError:
            return ["ok"] * len(tokens)

    return mock.patch.object(WorkQueues, "_end", done)


OF_QUEUES: list[Callable[[], contextlib.AbstractContextManager[Any]]] = [
    queue_acks_before_they_are_stored,
    queue_leases_end_early,
    queue_forgets_the_order_of_keys,
    queue_goes_on_before_it_is_stored,
    queue_settles_a_neighbour,
    queue_refusals_settle,
]
