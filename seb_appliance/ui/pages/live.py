"""A topic followed in a browser: rows as records are stored, sent as `text/event-stream`.

A person reads slower than programs write: twice a second come the newest rows, fifty at most, and
how many records were left out between. Nobody is kept logged in by it, and it ends with the log-in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, HTTPResponseBodyEvent, Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.broker.read.waiting import Follower
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import FollowerTooSlowError, OffsetExpiredError, SebError
from seb_appliance.ui.page_context import AnyRequest, Desk, Visit
from seb_appliance.ui.pages.records import rows
from seb_appliance.ui.pages.topic import topic_of

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect a buffer full first
    (b"connection", b"close"),  # the end of the answer is the end of the connection
]
_PING = b": ping\n\n"
_VALUE_CHARACTERS = 300


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/topics/{topic:str}/live")
    async def show(request: AnyRequest) -> ASGIApp:
        visit, topic = desk.enter(request), topic_of(request)
        return desk.page(visit, "live", view=desk.broker.topics.get(topic))

    @get("/topics/{topic:str}/live/rows")
    async def follow(request: AnyRequest) -> ASGIApp:
        visit, topic = desk.enter(request), topic_of(request)
        return LiveRows(desk, visit, topic, desk.broker.topics.get(topic).log_end_offset)

    return [show, follow]


class LiveRows:
    """An ASGI application that sends one stream, of what is stored from `offset` on."""

    def __init__(self, desk: Desk, visit: Visit, topic: str, offset: int) -> None:
        self._desk = desk
        self._visit = visit
        self._topic = topic
        self._offset = offset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._desk.broker.follow(self._topic, OPERATOR) as follower:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            leaving = asyncio.create_task(_disconnected(receive, follower.leave))
            last = b""
            try:
                if not scope["state"].get("seb_head"):
                    last = await self._stream(follower, send)
            finally:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
        # Its place is free: however long the client takes to hear this, it holds nothing.
        await send(_body(last, more=False))

    async def _stream(self, follower: Follower, send: Send) -> bytes:
        """Sends until there is a reason to end; what the client is told of it."""
        rings = -1
        try:
            while not (follower.left or follower.stopping) and self._is_logged_in():
                if follower.log_end_offset > self._offset:
                    await self._send(send, await self._rows(follower.log_end_offset))
                    await self._desk.clock.sleep(limits.LIVE_PAUSE_S)
                elif rings != follower.rings:
                    await self._send(send, _PING)
                    rings = follower.rings
                else:
                    await follower.wait()
        except SebError as error:  # the topic is gone, or the client takes nothing
            return _event("ended", error.detail)
        return b""

    def _is_logged_in(self) -> bool:
        return self._desk.sessions.find(self._visit.token, used=False) is not None

    async def _rows(self, end: int) -> bytes:
        begin = max(self._offset, end - limits.LIVE_ROWS_AT_ONCE)
        wanted = ReadRequest(From(offset=begin), From(offset=end))
        try:
            result = await self._desk.broker.read(self._topic, wanted)
        except OffsetExpiredError:  # trimmed meanwhile
            self._offset = end
            return _PING
        skipped, self._offset = begin - self._offset, result.next_offset
        shown = rows(result, "text", _VALUE_CHARACTERS)
        return _event(
            "rows",
            self._desk.fragment(
                self._visit, "live_rows", rows=shown[::-1], skipped=skipped, topic=self._topic
            ),
        )

    async def _send(self, send: Send, content: bytes) -> None:
        """Returns when the client has taken nearly all of it. Raises OverloadedError,
        FollowerTooSlowError."""
        followers = self._desk.broker.followers
        with followers.budget.reserve(OPERATOR, len(content)):
            try:
                async with asyncio.timeout(limits.FOLLOWER_STALLED_S_MAX):
                    await send(_body(content, more=True))
                    await send(_body(b"", more=True))  # returns when the buffers have emptied
            except TimeoutError:
                followers.cut += 1
                raise FollowerTooSlowError(
                    f"Nothing was taken for {limits.FOLLOWER_STALLED_S_MAX} s; load the page again."
                ) from None


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n".encode()


def _body(content: bytes, *, more: bool) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def _disconnected(receive: Receive, leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
