"""Fetch: records of many partitions, which waits at their ends until there are enough.

There are no fetch sessions: every request names all partitions, and every answer is complete.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.read.waiting import Waiter
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.clock import Timer
from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.apis.cluster import name_of
from seb_appliance.protocols.kafka.errors import NO_ROOM, ErrorCode, code_of
from seb_appliance.protocols.kafka.partitions import topic_of
from seb_appliance.protocols.kafka.records.writing import batches_of
from seb_appliance.protocols.kafka.requests import Outcome, Request, handles
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each, listed
from seb_appliance.protocols.kafka.wire.repeats import FETCH
from seb_appliance.protocols.kafka.wire.templates import Template
from seb_appliance.protocols.kafka.wire.types import NO_UUID
from seb_appliance.tasks import Steps, in_slices

_RECORDS_MAX: Final = 10_000  # of a partition in an answer
_READ_HERE_BYTES: Final = 64 * limits.KIB  # encoded without a pause: a few hundred µs
_PARTS_HERE: Final = 64  # in less than a millisecond
_PART_BYTES: Final = 600  # of memory, with what the request says of it
_RETRY_S: Final = 0.1  # while there is no room
_RECORD_BYTES: Final = 40  # as many bytes take as long as a record beside its value

_READ: Final = True  # instead of an answer: it takes long, or waits for the bucket
_Looked: TypeAlias = Message | Literal[True] | None


@dataclass(slots=True)
class _Part:
    """A partition that is asked for, and what is found. `topic`: ours, "" if that is refused."""

    index: int
    offset: int
    max_bytes: int
    topic: str = ""
    code: ErrorCode = ErrorCode.NONE
    ends: tuple[int, int] = (-1, -1)  # log start offset, log end offset
    records: list[bytes] = field(default_factory=list)

    def refuse(self, error: SebError) -> None:
        """Clients know no time-out of Fetch: they would show it to the application."""
        code = code_of(error)
        is_known = code is not ErrorCode.REQUEST_TIMED_OUT
        self.code = code if is_known else ErrorCode.KAFKA_STORAGE_ERROR

    def found(self, result: ReadResult) -> None:
        self.ends = (result.log_start_offset, result.log_end_offset)

    def message(self) -> Message:
        start, end = self.ends
        return {
            "partition_index": self.index,
            "error_code": self.code,
            "high_watermark": end,
            "last_stable_offset": end,
            "log_start_offset": start,
            "aborted_transactions": None,
            "records": self.records,
        }


@handles(FETCH)
def fetch(server: Server, request: Request) -> Outcome:
    body, caller = request.body, request.caller
    before, caller.standing = caller.standing, None
    if before is not None:
        if request.is_repeated and before.repeat(request):
            return None
        before.leave()
    count = sum(len(one["partitions"]) for one in body["topics"])
    if count > kafka_limits.FETCH_PARTITIONS_MAX:
        return {"error_code": ErrorCode.INVALID_REQUEST}
    if body["session_id"] and body["session_epoch"] > 0:
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
    return _Fetch(server, request, in_slices=count > _PARTS_HERE).look()


def _size_of(part: BatchSlice) -> int:
    """Bytes of its values, record keys and headers, and a few for each record."""
    columns = part.batch.columns
    size_bytes = _RECORD_BYTES * (part.end - part.begin)
    for column in (columns.values, columns.keys, columns.headers):
        if column is not None:
            size_bytes += column.starts[part.end] - column.starts[part.begin]
    return size_bytes


def _wait_ms(body: Message) -> int:
    return min(max(0, int(body["max_wait_ms"])), kafka_limits.FETCH_WAIT_MS_MAX)


class _Fetch:
    """It is at the ends of its partitions from `_wait` to `leave`. Where a consumer repeats its
    request because it got nothing, that stays so: nothing is looked up again.

    `in_slices`: there are many partitions; others have turns while these are gone through."""

    def __init__(self, server: Server, request: Request, *, in_slices: bool) -> None:
        self._in_slices = in_slices
        self._server = server
        self._broker = server.broker
        self._request = request
        self._owner = request.caller.key.api_key_id
        body = request.body
        self._wait_s = _wait_ms(body) / 1000
        self._until_s = self._broker.clock.monotonic_s() + self._wait_s
        self._most_bytes = max(1, min(body["max_bytes"], kafka_limits.FETCH_BYTES_MAX))
        self._topics = list[tuple[Message, list[_Part]]]()
        self._all = list[_Part]()
        self._waiters = list[Waiter]()
        self._timer: Timer | None = None
        self._found_bytes = 0
        self._nothing: Template | None = None  # the answer when the time is over
        self._waiting = Reservation(server.waiting, self._owner)

    def _parts(self, asked: Message) -> Iterable[_Part]:
        name, code = asked["topic"], ErrorCode.NONE
        if asked["topic_id"] != NO_UUID:
            name = name_of(self._server, asked["topic_id"])
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else code
        if name is not None and not self._request.may("consume", name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for one in asked["partitions"]:
            part = _Part(one["partition"], one["fetch_offset"], max(1, one["partition_max_bytes"]))
            part.code = code
            part.topic = "" if code else topic_of(name, part.index)
            yield part

    def look(self) -> Outcome:
        """The answer, if it is complete without waiting for anything; None: it follows."""
        steps = Steps(self._look())
        if self._in_slices:
            return self._look_on(steps)
        for _ in steps:
            pass
        return self._read() if steps.result is _READ else steps.result

    async def _look_on(self, steps: Steps[None, _Looked]) -> Message | None:
        async for _ in in_slices(steps):
            pass
        return await self._read() if steps.result is _READ else steps.result

    def _look(self) -> Generator[None, None, _Looked]:
        """Each step is of one partition."""
        if not self._topics:
            for asked in self._request.body["topics"]:
                parts = list[_Part]()
                self._topics.append((asked, parts))
                for part in self._parts(asked):
                    parts.append(part)
                    yield
                self._all += parts
        if not (yield from self._read_here()):
            return _READ
        if self._is_enough or not self._may_wait:
            return self._answer()
        yield from self._wait()
        return None

    @property
    def _is_enough(self) -> bool:
        return (
            self._found_bytes >= self._request.body["min_bytes"]
            or any(part.code for part in self._all)
            or self._broker.clock.monotonic_s() >= self._until_s
            or self._broker.stopping
        )

    @property
    def _may_wait(self) -> bool:
        """Whether there is memory for it meanwhile; all that is released by `leave`."""
        more = (len(self._all) - _PARTS_HERE) * _PART_BYTES - self._waiting.held
        return more <= 0 or self._waiting.try_grow(more)

    # --- reading ---

    def _read_here(self) -> Generator[None, None, bool]:
        """Returns False if it takes long, or is not in memory."""
        left_bytes, self._found_bytes = _READ_HERE_BYTES, 0
        for part in self._all:
            yield
            part.records = []
            if not part.topic:
                continue
            part.code = ErrorCode.NONE  # of an earlier look
            room_bytes = min(part.max_bytes, self._most_bytes - self._found_bytes)
            try:
                asked = self._asked(part, room_bytes)
                result = self._broker.read_nowait(part.topic, asked, waits=False)
            except SebError as error:
                part.refuse(error)
                continue
            if result is None:
                return False
            part.found(result)
            if result.slices:
                left_bytes -= sum(map(_size_of, result.slices))
                if left_bytes < 0:
                    return False
                part.records = [*batches_of(result.slices)]
                size_bytes = sum(map(len, part.records))
                if size_bytes > room_bytes:
                    return False
                self._found_bytes += size_bytes
        return True

    def _asked(self, part: _Part, left_bytes: int) -> ReadRequest:
        most_bytes = max(1, min(part.max_bytes, left_bytes))
        return ReadRequest(From(offset=part.offset), max_records=_RECORDS_MAX, max_bytes=most_bytes)

    async def _read(self) -> Message:
        """All that there is room for, with pauses for others."""
        held = Reservation(self._broker.reading, self._owner)
        self._request.acquired = held
        left_bytes = self._most_bytes
        async for part in in_slices(self._all):
            part.records = []
            if not part.topic:
                continue
            part.code = ErrorCode.NONE  # of an earlier look
            try:
                most_bytes = await self._room(held, min(left_bytes, max(1, part.max_bytes)))
                result = await self._broker.read(part.topic, self._asked(part, most_bytes))
                part.found(result)
                if most_bytes > 0:
                    # One record may exceed the limits, but only as the first of the answer.
                    first_bytes = None if left_bytes == self._most_bytes else left_bytes
                    batches = batches_of(result.slices, most_bytes, first_bytes)
                    async for batch in in_slices(batches):
                        part.records.append(batch)
                        left_bytes -= len(batch)
                # Only what is in the answer stays held, so that the next partition has room.
                held.shrink_to(min(held.held, self._most_bytes - left_bytes))
            except SebError as error:
                part.refuse(error)
        return self._answer()

    async def _room(self, held: Reservation, amount: int) -> int:
        """`amount`, once there is memory for it. 0 where there is none in time, or other partitions
        have records already: clients ask again, and would show an error to the application."""
        clock = self._broker.clock
        while amount > 0:
            try:
                held.grow(amount)
            except NO_ROOM:
                if held.held or clock.monotonic_s() >= self._until_s:
                    return 0
                await clock.sleep(_RETRY_S)
            else:
                break
        return amount

    # --- waiting ---

    def _wait(self) -> Iterator[None]:
        self._begin_to_wait()
        waiters = self._waiters
        for part in self._all:
            yield
            if self._waiters is not waiters:
                return  # it was woken, or its time is over
            if part.topic:
                end = part.ends[1]  # all up to there is read, or compacted away
                try:
                    waiter = self._broker.wait_at_end(
                        part.topic, end, None, self._owner, self._woken
                    )
                except NO_ROOM:
                    continue  # the time alone wakes it
                except SebError as error:
                    part.refuse(error)
                    waiter = None
                if waiter is None:
                    self._woken()
                    return
                waiters.append(waiter)

    def _begin_to_wait(self) -> None:
        self._request.interrupt = self._interrupt
        clock = self._broker.clock
        self._timer = clock.call_later(self._until_s - clock.monotonic_s(), self._interrupt)

    def _end_to_wait(self) -> bool:
        """False: it did not wait."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        self._request.interrupt = None
        return True

    def _interrupt(self) -> None:
        """The time is over. Nothing has changed since the last look: a waiter would have told."""
        if not self._end_to_wait():
            return
        request = self._request
        if request.is_repeated and not self._found_bytes and len(self._waiters) == len(self._all):
            request.caller.standing = self
        else:
            self.leave()
        if self._in_slices:
            request.caller.run(request, self._answer_on())
        elif request.caller.standing is None or request.caller.has_quotas:
            request.answer(self._answer())
        else:
            if self._nothing is None:
                self._nothing = Template(FETCH, request.version, lambda _: self._answer())
            request.answer(self._nothing.response(request.correlation_id))

    async def _answer_on(self) -> Message:
        return self._answer()

    def repeat(self, request: Request) -> bool:
        """Wait for it; False if something has changed. The bucket may still have a newer writer."""
        if not self._waiters:
            return False
        self._broker.look_for_newer_writer()
        self._request = request
        self._until_s = self._broker.clock.monotonic_s() + self._wait_s
        self._begin_to_wait()
        return True

    def _woken(self) -> None:
        """Something has changed: look again, once."""
        self.leave()
        if not self._end_to_wait():
            return
        caller = self._request.caller
        if not caller.holds_key:
            caller.end("the API key has changed or expired")
            return
        try:
            outcome = self.look()
        except Exception:
            caller.failed(self._request)
            return
        if isinstance(outcome, dict):
            self._request.answer(outcome)
        elif outcome is not None:
            caller.run(self._request, outcome)

    def leave(self) -> None:
        """Be at the ends no more."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.leave()
        self._waiting.release()

    def _answer(self) -> Message:
        many = Each if self._in_slices else listed

        def topic(one: tuple[Message, list[_Part]]) -> Message:
            asked, parts = one
            return {
                "topic": asked["topic"],
                "topic_id": asked["topic_id"],
                "partitions": many(parts, _Part.message),
            }

        return {"responses": many(self._topics, topic)}
