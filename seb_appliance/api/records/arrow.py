"""`GET /v1/topics/{topic}/records` as an Arrow stream: a range of a topic as columns.

The answer goes to the log end as of the request (or to `until`), whatever its length: it is read,
encoded and sent part by part, so it costs the memory of one part. A failure on the way ends the
connection before the stream's end, which Arrow's readers notice.
"""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import replace
from typing import Final

from litestar.types import Message, Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.api.answers import ARROW, Headers
from seb_appliance.api.auth import look_again
from seb_appliance.api.records.live_answers import HEAD_STATE, body_event, disconnected
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.topic import no_such_topic
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError, NotAcceptableError

_PART: Final = ReadRequest(
    From(earliest=True), max_records=limits.FETCH_RECORDS_MAX, max_bytes=limits.ARROW_PART_BYTES
)
_NOT_ARROW: Final = ("wait", "max_bytes", "values")
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow stream


def is_installed() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def not_installed() -> NotAcceptableError:
    return NotAcceptableError(
        "Arrow needs the package pyarrow beside the appliance (pip install "
        "'seb-appliance[arrow]'); it is not there. JSON and record batches come without."
    )


class ArrowRecords:
    """An ASGI application that sends the records from `first` on, up to `until` (exclusive), `left`
    of them at most."""

    def __init__(self, broker: Broker, first: ReadResult, until: int, left: int) -> None:
        self._broker = broker
        self._first = first
        self._until = until
        self._left = left
        self._gone = False

    @classmethod
    async def of(
        cls, broker: Broker, topic: str, query: dict[str, str], wanted: ReadRequest
    ) -> ArrowRecords:
        """`wanted`: what the query says. Raises BadParameterError, what `Broker.read` raises."""
        for name in _NOT_ARROW:
            if name in query:
                raise BadParameterError(
                    f"{name} has no meaning in an Arrow stream, which goes to the log end as of "
                    "now, with values as bytes."
                )
        left = wanted.max_records if "max_records" in query else limits.OFFSET_MAX
        until = wanted.until
        if until is not None and until.offset is None:  # a time
            found = await broker.read(topic, replace(wanted, start=until, max_records=1))
            begins = (
                found.slices[0].batch.offsets()[found.slices[0].begin] if found.slices else None
            )
            until = From(offset=found.next_offset if begins is None else begins)
        part = replace(_PART, start=wanted.start, until=until, topic_id=wanted.topic_id)
        first = await broker.read(topic, replace(part, max_records=min(left, part.max_records)))
        end = limits.OFFSET_MAX if until is None or until.offset is None else until.offset
        return cls(broker, first, min(end, first.log_end_offset), left)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = [
            (b"content-type", ARROW),
            (b"cache-control", b"no-store"),
            (b"vary", b"Accept, Accept-Encoding, Authorization"),
            (b"seb-topic-id", str(self._first.topic_id).encode()),
            (b"seb-log-end-offset", str(self._first.log_end_offset).encode()),
        ]
        if self._left == limits.OFFSET_MAX:
            headers.append((b"seb-next-offset", str(self._until).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if not scope["state"].get(HEAD_STATE):
            leaving = asyncio.create_task(disconnected(receive, self._leave))
            try:
                await self._send(send, scope)
            finally:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
        await send(body_event(b"", more=False))

    def _leave(self) -> None:
        self._gone = True

    async def _send(self, send: Send, scope: Scope) -> None:
        await self._send_part(send, await asyncio.to_thread(_schema))
        result = self._first
        while result.slices and not self._gone:
            self._left -= sum(piece.end - piece.begin for piece in result.slices)
            await self._send_part(send, await asyncio.to_thread(_encoded, result))
            if self._left == 0 or result.next_offset >= self._until:
                break
            result = await self._next(result)
            look_again(scope)
        await send(_part(_END))

    async def _next(self, before: ReadResult) -> ReadResult:
        result = await self._broker.read(
            before.topic,
            replace(
                _PART,
                start=From(offset=before.next_offset),
                until=From(offset=self._until),
                max_records=min(self._left, _PART.max_records),
            ),
        )
        if result.topic_id != before.topic_id:  # made anew meanwhile
            raise no_such_topic(before.topic)
        return result

    async def _send_part(self, send: Send, part: bytes) -> None:
        with self._broker.reading.reserve(len(part)):
            await send(_part(part))


def _part(content: bytes) -> Message:
    return body_event(content, more=True)


def _schema() -> bytes:
    from seb_appliance.formats import arrow  # here: pyarrow may not be there

    return arrow.encoded_schema()


def _encoded(result: ReadResult) -> bytes:
    from seb_appliance.formats import arrow

    pieces = [(piece.batch, piece.begin, piece.end) for piece in result.slices]
    return arrow.encoded_batch(result.topic, pieces)
