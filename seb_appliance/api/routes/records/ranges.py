"""`GET /v1/topics/{topic}/records` as one answer of any length: Arrow, and NDJSON and CSV without a
limit.

Such an answer goes to the log end as of its start (or to `until`). It is read, encoded and sent
part by part, so it costs the memory of one part. It is complete or visibly cut: after a failure the
chunked body has no end, so that no client takes half of a topic for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final, cast

from litestar.types import Message, Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Headers, body_event, send_part
from seb_appliance.api.encoding.formats import Encoding
from seb_appliance.api.routes.records.live import HEAD_STATE
from seb_appliance.api.server.auth import Call, look_again, within_quota
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.read.reads import bytes_of
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.errors import SebError, ShuttingDownError
from seb_appliance.formats.columns import Bytes
from seb_appliance.tasks import disconnected

PART: Final = ReadRequest(
    From(earliest=True),
    max_records=limits.RANGE_PART_RECORDS,
    max_bytes=limits.RANGE_PART_BYTES,
)
_ROOM_S: Final = 0.05  # how often an answer looks for room in the budget
Read = Callable[[ReadRequest], Awaitable[ReadResult]]
# What follows a result; None behind the last one.
Next = Callable[[ReadResult], Awaitable[ReadResult | None]]


class RangeAnswer:
    """An ASGI application that sends `first` and the results that follow it."""

    def __init__(
        self,
        broker: Broker,
        call: Call,
        headers: Headers,
        encoding: Encoding,
        first: ReadResult,
        follow: Next,
    ) -> None:
        self._broker = broker
        self._call = call
        self._headers = headers
        self._encoding = encoding
        self._result: ReadResult | None = first  # the one that is being sent; no other is kept
        self._follow = follow
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._result is not None
        # Before anything is sent: it may still be refused.
        held = self._broker.reading.reserve(self._call.owner, _size_bytes(self._result))
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self._headers}
            await send(cast("Message", start))
            if not scope["state"].get(HEAD_STATE):
                leaving = asyncio.create_task(disconnected(receive, self._leave))
                try:
                    await self._send(scope, send, held)
                except SebError:
                    return  # the server says in its log that the answer has no end, and hangs up
                finally:
                    leaving.cancel()
                    await asyncio.gather(leaving, return_exceptions=True)
        finally:
            held.release()
        await send(body_event(b"", more=False))

    def _leave(self) -> None:
        self._gone = True

    def _is_over(self) -> bool:
        """The client has left, or the appliance is stopping."""
        return self._gone or self._broker.stopping

    async def _send(self, scope: Scope, send: Send, held: Reservation) -> None:
        await send(body_event(self._encoding.opening))
        while self._result is not None and not self._gone:
            await self._send_result(send, self._result, held)
            held.release()
            result, self._result = self._result, None
            await within_quota(scope, self._is_over)
            if self._broker.stopping:
                raise ShuttingDownError("The appliance is stopping; continue the read in a moment.")
            look_again(scope)
            self._result = await self._follow(result)
            if self._result is not None:
                await self._make_room(held, _size_bytes(self._result))
        await send(body_event(self._encoding.closing))

    async def _send_result(self, send: Send, result: ReadResult, held: Reservation) -> None:
        read_bytes = held.held  # and no more while it is sent, unless a part is longer
        parts = iter(self._encoding.parts(result))
        while not self._gone and (part := await self._next_part(parts)) is not None:
            await self._make_room(held, len(part) - read_bytes)
            await send_part(send, part)
            held.shrink_to(read_bytes)

    async def _next_part(self, parts: Iterator[Bytes]) -> Bytes | None:
        if self._encoding.in_thread:
            return await asyncio.to_thread(next, parts, None)
        await asyncio.sleep(0)  # others run between parts
        return next(parts, None)

    async def _make_room(self, held: Reservation, size_bytes: int) -> None:
        """An answer under way waits for its turn before it is cut. Raises OverloadedError,
        ShareExceededError."""
        if size_bytes <= 0:
            return
        for _ in range(int(limits.RANGE_ROOM_S_MAX / _ROOM_S)):
            if held.try_grow(size_bytes):
                return
            await asyncio.sleep(_ROOM_S)
        held.grow(size_bytes)


def _size_bytes(result: ReadResult) -> int:
    return sum(map(bytes_of, result.slices))


def part_of(call: Call) -> ReadRequest:
    """How many bytes to read at a time: for a key with a quota, about what it may read in a
    second."""
    per_second = call.key.quotas.bytes_out_per_second or PART.max_bytes
    return replace(PART, max_bytes=min(PART.max_bytes, per_second))


async def begin(
    read: Read, wanted: ReadRequest, part: ReadRequest, most: int | None
) -> tuple[ReadResult, int, Next]:
    """The first result of a range, where the range ends (exclusive), and what gives the results
    that follow. `most`: the largest number of records; None: all. Raises what `read` raises."""
    until = wanted.until
    if until is not None and until.offset is None:  # a time
        found = await read(replace(part, start=until, max_records=1, topic_id=wanted.topic_id))
        begins = [piece.batch.offsets()[piece.begin] for piece in found.slices]
        until = From(offset=begins[0] if begins else found.next_offset)
    left = limits.OFFSET_MAX if most is None else most
    part = replace(part, until=until)
    first = await read(
        replace(
            part,
            start=wanted.start,
            max_records=min(left, part.max_records),
            wait_ms=wanted.wait_ms,
            owner=wanted.owner,
            topic_id=wanted.topic_id,
        )
    )
    end = first.log_end_offset
    if until is not None and until.offset is not None:
        end = min(end, until.offset)

    async def follow(before: ReadResult) -> ReadResult | None:
        nonlocal left
        left -= sum(piece.end - piece.begin for piece in before.slices)
        if left == 0 or before.next_offset >= end:
            return None
        result = await read(
            replace(
                part,
                start=From(offset=before.next_offset),
                until=From(offset=end),
                max_records=min(left, part.max_records),
                topic_id=before.topic_id,  # else it was created again in the meantime
            )
        )
        assert result.next_offset > before.next_offset, (before.next_offset, end)
        return result

    return first, end, follow
