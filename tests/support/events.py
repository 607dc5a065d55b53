"""A live stream as a client of HTTP sees it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2

from seb_appliance import limits


class Events:
    """The events of one stream: (name, id, data). Comments have the name ":"."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, Any] | None:
        """None at the end of the stream. Fails when it takes as long as from ping to ping."""
        async with asyncio.timeout(limits.FOLLOWER_PING_S / 2):
            return await self._next()

    async def _next(self) -> dict[str, Any] | None:
        found: dict[str, Any] = {"event": "message"}
        async for line in self._lines:
            if not line:
                if len(found) > 1 and "retry" not in found:
                    return found
                found = {"event": "message"}
            elif line.startswith(":"):
                found = {"event": ":", "data": line[2:]}
            else:
                name, _, content = line.partition(": ")
                found[name] = json.loads(content) if name == "data" else content
        return None

    async def some(self, count: int) -> list[dict[str, Any]]:
        """Fails when the stream ends before there are so many."""
        found = [await self.next() for _ in range(count)]
        assert all(found), found
        return [event for event in found if event is not None]

    async def values(self, count: int) -> list[Any]:
        return [event["data"]["value"] for event in await self.some(count)]
