"""P21: a stream that is told or shown as closed has the same end for ever. A producer that repeats
an append to it is told what became of the append.

Streams come and go. Producers append to them until they are closed by one of several that try; a
reader looks at them wherever it is answered, at a standby, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Final

from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.streams.admission import StreamAppend, StreamAppended, WantedStream
from seb_appliance.broker.streams.streams import StreamView
from seb_appliance.errors import StreamClosedError
from tests.simulation.clients import Failed, is_refusal
from tests.simulation.history import Call
from tests.simulation.log import Log
from tests.simulation.world import World

WANTED: Final = WantedStream(content_type="text/plain")
_APPENDS_BEFORE_END: Final = (0, 1, 4)

_Work = Callable[[Broker], Awaitable[StreamView]]


class StreamClients:
    """`ends`: by topic id, each end that somebody was told or shown of a closed stream."""

    def __init__(self, world: World) -> None:
        self.ends: dict[int, set[int]] = {}
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._now = "s0"

    async def make(self) -> None:
        """One stream after another; some are deleted once they are closed."""
        number = 0
        while not self._world.over:
            name = f"s{number}"
            mark = b"%s:first" % name.encode()
            call = self._call(name, mark)
            # PUT is repeated until it is answered: the same stream is created once.
            if not await self._until_answered(
                call,
                lambda b, n=name, m=mark: _create(b, n, m),  # type: ignore[misc]
            ):
                return
            self._now = name
            await self._pause(4.0)
            number += 1
            if self._draws.random() < 0.3:
                try:
                    await self._world.ask(lambda b, n=name: b.streams.delete(n, THE_APPLIANCE))  # type: ignore[misc]
                except Failed:
                    continue

    async def write(self, who: str) -> None:
        """Append some records to the stream of the day, and at last close it with one more."""
        while not self._world.over:
            name, left = self._now, self._draws.choice(_APPENDS_BEFORE_END)
            producer = f"{who}-{name}"
            for seq in range(left + 1):
                await self._pause(1.0)
                call = self._call(name, b"%s:%s:%d" % (name.encode(), who.encode(), seq))
                asked = StreamAppend(
                    [call.marks[0] + b" "],
                    WANTED.content_type,
                    ProducerStamp(producer, 0, seq),
                    close=seq == left,
                )
                if not await self._until_answered(
                    call,
                    lambda b, n=name, a=asked: _append(b, n, a),  # type: ignore[misc]
                ):
                    break
            while self._now == name and not self._world.over:
                await self._pause(0.5)

    async def look(self) -> None:
        while not self._world.over:
            await self._pause(0.5)
            name, machine = self._now, self._draws.choice(self._world.machines)
            try:
                view, by = await self._world.ask(lambda b, n=name: _look(b, n), machine)  # type: ignore[misc]
            except Failed:
                continue
            if view.state.closed:
                self._world.note(by.name, "shows closed", name, view.log_end_offset)
                self._ended(view)

    def violations(self, log: Log, broker: Broker) -> Iterator[str]:
        """`broker`: of a start from the bucket alone."""
        for topic_id, ends in self.ends.items():
            end, topic = len(log.of(topic_id)), broker._catalog.find_id(topic_id)
            if ends != {end}:
                yield f"P21 stream {topic_id} was closed at {ends}, and has {end} records"
            if topic is not None and not (topic.stream is not None and topic.stream.closed):
                yield f"P21 stream {topic_id} was closed at {ends}, and is open again"

    def _call(self, name: str, mark: bytes) -> Call:
        call = Call(name, (mark,), self._world.loop.time(), offset=-1)
        self._world.history.calls.append(call)
        return call

    async def _until_answered(self, call: Call, work: _Work) -> bool:
        """Whether it was stored. Whoever is told that the stream is closed knows that it was not,
        also if an earlier attempt had no answer."""
        maybe = False
        while True:
            try:
                view, by = await self._world.ask(work)
            except Failed as error:
                maybe = maybe or not is_refusal(error)
                self._world.note(call.topic, "is told", call.marks, type(error).__name__)
                if isinstance(error, StreamClosedError):
                    maybe = False
                if self._world.over or not getattr(error, "retryable", True):
                    call.outcome = "unknown" if maybe else "refused"
                    return False
                await self._pause(0.5)
            else:
                call.outcome, call.answered_s = "acked", self._world.loop.time()
                self._world.note(by.name, "acks", call.topic, call.marks)
                if view.state.closed:
                    self._ended(view)
                return True

    def _ended(self, view: StreamView) -> None:
        self.ends.setdefault(view.topic_id, set()).add(view.log_end_offset)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._draws.random())


async def _create(broker: Broker, name: str, mark: bytes) -> StreamView:
    room = broker.pending.reserve(OPERATOR, 100)
    view, _ = await broker.streams.create(name, WANTED, [mark + b" "], room, THE_APPLIANCE)
    return view


async def _append(broker: Broker, name: str, asked: StreamAppend) -> StreamView:
    room = broker.pending.reserve(OPERATOR, 100)
    appended: StreamAppended = await broker.streams.append(name, asked, room)
    view = broker.streams.get(name)
    assert view.state.closed >= appended.closed
    return view


async def _look(broker: Broker, name: str) -> StreamView:
    return broker.streams.get(name)
