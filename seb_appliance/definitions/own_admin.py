"""The client of an appliance's own API, within its process: for a user of the admin page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

import msgspec

from seb_appliance.client import Admin, AsyncAdmin
from seb_appliance.client.failures import refusal

Json = dict[str, Any]


class OwnAnswer(NamedTuple):
    """`headers`: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Method, path with its query, and body.
Ask = Callable[[str, str, bytes], Awaitable[OwnAnswer]]


class OwnAdmin(AsyncAdmin):
    """As AsyncAdmin, but a request is a call of `ask`, and is made once."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def _get(self, path: str, query: Mapping[str, object] | None = None) -> Json:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return await self._send("GET", f"{path}?{urlencode(given)}" if given else path)

    async def _send(
        self,
        method: str,
        path: str,
        content: object = None,
        *,
        again: bool = False,  # noqa: ARG002 - nothing is repeated
    ) -> Json:
        body = b"" if content is None else msgspec.json.encode(content)
        answer = await self._ask(method, path, body)
        if not 200 <= answer.status < 300:
            raise refusal("the appliance", answer.status, answer.headers, answer.body)
        return msgspec.json.decode(answer.body or b"{}", type=Json)


def for_threads(admin: OwnAdmin, loop: asyncio.AbstractEventLoop) -> Admin:
    """The same for a thread beside the event loop `loop`: its methods wait for what they return."""
    return cast("Admin", _Waiting(admin, loop))


class _Waiting:
    def __init__(self, admin: OwnAdmin, loop: asyncio.AbstractEventLoop) -> None:
        self._admin = admin
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._admin, name)

        def wait(*args: Any, **members: Any) -> Any:
            work = method(*args, **members)
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()

        return wait
