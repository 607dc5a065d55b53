"""What live streams have in common: they begin, send what there is, sleep, ping, and end.

A stream holds no more than the part that it is sending. What is refused once it has begun comes as
an `error` event with the problem document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar

from litestar.types import Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.api.answers import SSE, Headers, body_event, send_part
from seb_appliance.api.auth import METER_STATE, Call, authenticated_again, within_quota
from seb_appliance.api.problems import REQUEST_ID_STATE, problem_body
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.following import Listener
from seb_appliance.broker.grants import grants_admin
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import FollowerTooSlowError, SebError

HEAD_STATE: Final = "seb_head"  # the client wants the headers only
_HEADERS: Final[Headers] = [
    (b"content-type", SSE + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"vary", b"Accept, Accept-Encoding, Authorization"),
    (b"x-accel-buffering", b"no"),  # nginx would collect a buffer full first
    (b"connection", b"close"),  # the end of the answer is the end of the connection
]
RETRY: Final = b"retry: 1000\n"  # ms after which an EventSource comes back
_PING: Final = b": ping\n\n"
_END: Final = b": end\n\n"
_STOPPING: Final = b": the appliance stops\n\n"

L = TypeVar("L", bound=Listener)


class LiveAnswer(Generic[L]):
    """An ASGI application that sends one stream. Who makes one says what is in it."""

    def __init__(self, broker: Broker, call: Call) -> None:
        self._broker = broker
        self._call = call
        self._key = call.key
        self._holds_until_us = broker.access.holds_until_us(call.key)

    # --- what the kinds of streams differ in ---

    _headers: ClassVar[Headers] = _HEADERS

    @property
    def _begins(self) -> Headers:
        """Headers that say where the stream begins."""
        raise NotImplementedError

    async def _follow(self) -> L:
        """Raises what `Broker.follow` raises."""
        raise NotImplementedError

    def _opening(self, follower: L) -> bytes:
        """What is sent first."""
        raise NotImplementedError

    async def _authorize(self, follower: L, key: ApiKeyView) -> None:
        """The API key has changed. Raises ForbiddenError."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether all that was asked for has been sent."""
        raise NotImplementedError

    async def _next_part(self, follower: L) -> bytes | None:
        """What comes next, and the stream has moved behind it; None when there is nothing now."""
        raise NotImplementedError

    # --- the stream ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with await self._follow() as follower:
            headers = [*self._headers, *self._begins]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["state"].get(HEAD_STATE):
                await send(body_event(b"", more=False))
                return
            leaving = asyncio.create_task(disconnected(receive, follower.leave))
            try:
                last = await self._stream(follower, scope, send)
            finally:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
        # Its place is free: however long the client takes to hear this, it holds nothing.
        await send(body_event(last, more=False))

    async def _stream(self, follower: L, scope: Scope, send: Send) -> bytes:
        """Sends until there is a reason to end; what the client is told of it."""
        try:
            await self._send(send, self._opening(follower))
            rings = follower.rings
            while not follower.left:
                if follower.stopping:
                    return _STOPPING
                await self._check_key(follower, scope)
                if self._is_over():
                    return _END
                part = await self._part_within_quota(follower, scope)
                if part is not None:
                    await self._send(send, part)
                elif rings != follower.rings:
                    self._broker.look_for_newer_writer()
                    await self._send(send, _PING)
                else:
                    await follower.wait()
                    continue
                rings = follower.rings
        except SebError as error:
            return self._told(scope, error)
        return b""

    async def _part_within_quota(self, follower: L, scope: Scope) -> bytes | None:
        """What comes next, once the API key may send it; None when there is nothing, or it is time
        for something else."""
        rings = follower.rings

        def is_over() -> bool:
            return follower.left or follower.stopping or rings != follower.rings

        await within_quota(scope, is_over, follower.wait)
        return None if is_over() else await self._next_part(follower)

    async def _check_key(self, follower: L, scope: Scope) -> None:
        """Raises UnauthenticatedError, ForbiddenError."""
        access = self._broker.access
        if access.still_holds(self._key, self._holds_until_us):
            return
        self._key = authenticated_again(self._broker, self._call)
        await self._authorize(follower, self._key)
        self._holds_until_us = access.holds_until_us(self._key)
        scope["state"][METER_STATE] = access.meters.of(self._key)

    async def _send(self, send: Send, content: bytes) -> None:
        """Returns when the client has taken `content`. Raises ShareExceededError, OverloadedError,
        FollowerTooSlowError."""
        with self._broker.followers.budget.reserve(self._call.owner, len(content)):
            try:
                async with asyncio.timeout(limits.FOLLOWER_STALLED_S_MAX):
                    await send_part(send, content)
            except TimeoutError:
                self._broker.followers.cut += 1
                raise FollowerTooSlowError(
                    f"Nothing was taken for {limits.FOLLOWER_STALLED_S_MAX} s; follow again with "
                    "Last-Event-ID."
                ) from None

    def _told(self, scope: Scope, error: SebError) -> bytes:
        request_id = str(scope["state"].get(REQUEST_ID_STATE, ""))
        document = problem_body(error, request_id, to_admin=grants_admin(self._key.grants))
        return b"event: error\ndata: %b\n" % document


async def disconnected(receive: Receive, leave: Callable[[], None]) -> None:
    """Calls `leave` once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
