"""A consumer that follows a topic wherever it is served, and remembers what it was given."""

from __future__ import annotations

import asyncio

from tests.support.load import Connection, LostError, NotSentError
from tests.support.producer import Doors

_PAUSE_S = 0.05


class Consumer:
    """`reads`: (offset, value) of every record, in the order in which it was served."""

    def __init__(self, doors: Doors, topic: str) -> None:
        self.reads: list[tuple[int, bytes]] = []
        self._doors = doors
        self._topic = topic
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if not self._task.cancelled() and (error := self._task.exception()):
            raise error

    async def _follow(self) -> None:
        connection, door, offset = Connection(0), 0, 0
        while True:
            port = self._doors.ports[door % len(self._doors.ports)]
            if connection.port != port:
                connection.close()
                connection = Connection(port, self._doors.key)
            query = f"offset={offset}&wait=500ms&max_records=1000"
            try:
                path = f"/v1/topics/{self._topic}/records?{query}"
                page = await connection.request("GET", path, timeout_s=3)
            except (NotSentError, LostError):
                page = None
            if page is None or page.status != 200:
                door += 1  # dead, or one that was fenced and knows less
                await asyncio.sleep(_PAUSE_S)
                continue
            found = page.json()
            self.reads += [(r["offset"], r["value"].encode()) for r in found["records"]]
            offset = found["next_offset"]
