"""A topic followed in a browser: rows as records are stored, sent as `text/event-stream`.

Twice a second, at most fifty of the newest rows are sent, and how many records were skipped; with a
filter, the first fifty that match, and nothing is skipped. The stream does not extend the session,
and ends with it.
"""

from __future__ import annotations

import asyncio

from litestar.types import ASGIApp, HTTPResponseBodyEvent, Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.broker.read.waiting import Follower
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From
from seb_appliance.errors import FollowerTooSlowError, OffsetExpiredError, SebError
from seb_appliance.tasks import disconnected
from seb_appliance.ui.page_context import Routes, Visit, link
from seb_appliance.ui.pages.topics.records import FILTER, filter_of
from seb_appliance.ui.records.rows import Look
from seb_appliance.ui.records.searching import Search

routes = Routes()
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # else nginx buffers the stream
    (b"connection", b"close"),  # the end of the answer is the end of the connection
]
_PING = b": ping\n\n"
_VALUE_CHARACTERS = 300


@routes.get("/topics/{topic:str}/live", FILTER)
async def show(visit: Visit, topic: str) -> ASGIApp:
    filter_of(visit.form)  # may refuse
    asked = {**FILTER, **visit.form.values}
    return visit.page(
        "live",
        view=visit.broker.topics.get(topic),
        asked=asked,
        rows_path=link(f"/ui/topics/{topic}/live/rows", **asked),
    )


@routes.get("/topics/{topic:str}/live/rows", FILTER)
async def follow(visit: Visit, topic: str) -> ASGIApp:
    look = Look("text", _VALUE_CHARACTERS)
    wanted = filter_of(visit.form)
    search = Search(visit.broker, topic, wanted, limits.LIVE_ROWS_AT_ONCE, look)
    return LiveRows(visit, search, visit.broker.topics.get(topic).log_end_offset)


class LiveRows:
    """An ASGI application that sends what `search` finds from `offset` on."""

    def __init__(self, visit: Visit, search: Search, offset: int) -> None:
        self._visit = visit
        self._search = search
        self._topic = search.topic
        self._offset = offset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._visit.broker.follow(self._topic, OPERATOR) as follower:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            leaving = asyncio.create_task(disconnected(receive, follower.leave))
            last = b""
            try:
                if not scope["state"].get("seb_head"):
                    last = await self._stream(follower, send)
            finally:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
        # The follower's place is already free while the client receives this.
        await send(_body(last, more=False))

    async def _stream(self, follower: Follower, send: Send) -> bytes:
        """Sends until the stream ends; returns the last event, which says why."""
        rings, sessions, token = -1, self._visit.desk.sessions, self._visit.token
        try:
            while not (follower.left or follower.stopping) and sessions.find(token, used=False):
                if follower.log_end_offset > self._offset:
                    await self._send(send, await self._rows(follower.log_end_offset))
                    await self._visit.options.clock.sleep(limits.LIVE_PAUSE_S)
                elif rings != follower.rings:
                    await self._send(send, _PING)
                    rings = follower.rings
                else:
                    await follower.wait()
        except SebError as error:  # the topic is gone, or the client takes nothing
            return _event("ended", error.detail)
        return b""

    async def _rows(self, end: int) -> bytes:
        begin = self._offset
        if self._search.wanted.is_empty:
            begin = max(begin, end - limits.LIVE_ROWS_AT_ONCE)
        try:
            found = await self._search.forwards(From(offset=begin), From(offset=end))
        except OffsetExpiredError:  # trimmed meanwhile
            self._offset = end
            return _PING
        skipped, self._offset = begin - self._offset, found.end
        if not found.rows and not skipped:
            return _PING
        needle = self._search.wanted.text.decode()
        model = {"rows": found.rows[::-1], "skipped": skipped, "topic": self._topic}
        return _event("rows", self._visit.fragment("live_rows", needle=needle, **model))

    async def _send(self, send: Send, content: bytes) -> None:
        """Raises OverloadedError, FollowerTooSlowError."""
        followers = self._visit.broker.followers
        with followers.budget.reserve(OPERATOR, len(content)):
            try:
                async with asyncio.timeout(limits.FOLLOWER_STALLED_S_MAX):
                    await send(_body(content, more=True))
                    await send(_body(b"", more=True))  # returns when the buffers have emptied
            except TimeoutError:
                followers.cut += 1
                raise FollowerTooSlowError(
                    f"No data was taken for {limits.FOLLOWER_STALLED_S_MAX} s; reload the page."
                ) from None


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n".encode()


def _body(content: bytes, *, more: bool) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": content, "more_body": more}
