"""Dead letters: records that failed too often or were rejected go to a topic of their own.

The copy and what settles the record are in one entry, so there is never one without the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.append.admission import Admission
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.deliveries import Aside
from seb_appliance.broker.queues.live_queue import LiveQueue
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.record_keys.queries import pick
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import BatchSlice, NewRecords
from seb_appliance.errors import SebError, TopicNotFoundError
from seb_appliance.formats.queues.queues import DEAD_LETTER_HEADERS
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import Job

_AT_ONCE: Final = 100
_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class Burial(Job):
    name = "queues"

    def __init__(self, reads: Reads, admission: Admission, writes: Writes) -> None:
        self._reads = reads
        self._admission = admission
        self._writes = writes
        self._due: dict[LiveQueue, None] = {}
        self._wake = asyncio.Event()

    def add(self, queue: LiveQueue) -> None:
        """The queue has doomed records."""
        if queue not in self._due and queue.rests_until_s <= self._writes.clock.monotonic_s():
            self._due[queue] = None
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            while self._due:
                queue = next(iter(self._due))
                try:
                    await self._bury_some(queue)
                    queue.failure = ""
                except SebError as error:
                    self._rest(queue, str(error))
                self._due.pop(queue, None)
                if queue.deliveries.doomed and not queue.closed:
                    self.add(queue)  # behind the others
            await self._wake.wait()

    def _rest(self, queue: LiveQueue, failure: str) -> None:
        """Nothing is lost: the records stay doomed."""
        queue.failure = failure
        clock = self._writes.clock
        queue.rests_until_s = clock.monotonic_s() + limits.QUEUE_BURY_RETRY_S
        clock.call_later(limits.QUEUE_BURY_RETRY_S, lambda: self.add(queue))

    async def _bury_some(self, queue: LiveQueue) -> None:
        doomed = queue.deliveries.doomed
        if queue.closed or not doomed:
            return
        topic_id, of_topic = doomed.turn()
        offsets = sorted(islice(of_topic, _AT_ONCE))
        pieces: list[BatchSlice] = []
        if queue.settings.dead_letter is not None:
            topic = queue.topics[topic_id]
            try:
                pieces, handled = await pick(
                    self._reads, topic, offsets, limits.FETCH_BYTES_DEFAULT
                )
            except TopicNotFoundError:
                await asyncio.sleep(0)  # the queue forgets the topic soon
                return
            offsets = offsets[:handled]
        places = [Place(topic_id, offset) for offset in offsets]
        buried: list[Place] = []

        def admit(window: Window) -> bool:
            living = [p for p in places if p in doomed and self._admission.lives(topic_id)]
            if queue.closed or not living:
                return False
            there = set(living)
            if queue.settings.dead_letter is not None:
                there = self._store(window, queue, pieces, there)
            for place in living:
                queue.settle_doomed(window, place, "rejected" if place in there else "lost")
            buried.extend(living)
            return True

        await self._writes.operate(admit, self._writes.linger.default_ms, queue.owner)
        queue.tell_buried(buried, stored=True)
        queue.moved()

    def _store(
        self, window: Window, queue: LiveQueue, pieces: Sequence[BatchSlice], living: set[Place]
    ) -> set[Place]:
        """Append the records to the dead letters; those that the log had. Raises Refusal."""
        name, now_us = queue.settings.dead_letter, self._writes.clock.wall_us()
        assert name is not None
        records, there = NewRecords([], [], []), set[Place]()
        topic_id = next(iter(living)).topic_id
        topic = queue.topics[topic_id]
        for piece in pieces:
            offsets = piece.batch.offsets()
            for i in range(piece.begin, piece.end):
                place = Place(topic_id, offsets[i])
                if place in living:
                    there.add(place)
                    _add(records, piece, i, _told(queue, topic, place, now_us))
        if there:
            append(self._admission, window, name, records, now_us, queue.owner)
        return there


def append(
    admission: Admission, window: Window, name: str, records: NewRecords, now_us: int, owner: str
) -> None:
    """To a topic that is made if there is none. Raises Refusal, and then has added nothing."""
    known = admission.find(name)
    if known is None:
        admission.check_free(name, owner)
    elif known.is_closed:
        raise admission.closed(name)
    effective = admission.effective(TopicSettings()) if known is None else known.effective
    admission.place(window, name, admission.prepare(records, effective, now_us), now_us, owner)


def _add(records: NewRecords, piece: BatchSlice, i: int, told: dict[str, bytes]) -> None:
    columns = piece.batch.columns
    assert records.keys is not None, records
    assert records.headers is not None, records
    records.values.append(columns.values.get(i))
    records.keys.append(None if columns.keys is None else columns.keys.get(i))
    packed = b"" if columns.headers is None else columns.headers.get(i)
    # The limits of headers are for producers: what is added here may exceed them.
    headers = (_headers(packed) if packed else {}) | told
    records.headers.append(msgspec.msgpack.encode(headers))


def _told(queue: LiveQueue, topic: Topic, place: Place, now_us: int) -> dict[str, bytes]:
    """The headers that a dead letter has besides its own."""
    aside: Aside = queue.deliveries.doomed[place]
    members = {
        "queue": queue.name,
        "topic": topic.name,
        "offset": str(place.offset),
        "attempts": str(aside.attempts),
        "reason": aside.reason,
        "first-delivered-us": str(aside.first_us),
        "at-us": str(now_us),
    }
    return {DEAD_LETTER_HEADERS + name: text.encode() for name, text in members.items()}
