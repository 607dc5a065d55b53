"""Producers that number and chain what they send, and write down what became of each call.

A record is `{"producer": p, "n": n, "prev": sha256 of the record before it}`. Every call takes
fresh numbers, whatever became of the last one: a number that comes twice is the appliance's doing.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tests.support.load import Connection, LostError, NotSentError, Response

Outcome = Literal["acked", "refused", "unknown"]
_PAUSE_S = 0.02  # after a refusal
_RECORDS_MAX = 4


@dataclass
class Call:
    """One produce request. `offset` is that of its first record once it is acked; `answer`: the
    status, the problem's code, or how the connection broke. Times are monotonic seconds."""

    topic: str
    producer: int
    values: tuple[bytes, ...]
    sent_s: float
    port: int
    answered_s: float = float("inf")
    outcome: Outcome = "unknown"
    offset: int = -1
    answer: str = ""


@dataclass
class Doors:
    """Where the producers knock: they go to the next port when a call was not acknowledged."""

    key: str
    ports: list[int]


@dataclass
class Load:
    """What a crowd of producers did so far."""

    doors: Doors
    topics: tuple[str, ...]
    seed: int = 0
    timeout_s: float = 5.0
    padding: int = 0
    calls: list[Call] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def start(self, producers: int) -> None:
        self._stopping.clear()
        self._tasks += [asyncio.create_task(self._produce()) for _ in range(producers)]

    async def stop(self) -> None:
        """Let every call under way end, then no more."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        self._tasks.clear()

    @property
    def acked(self) -> int:
        return sum(call.outcome == "acked" for call in self.calls)

    @property
    def answers(self) -> Counter[str]:
        return Counter(call.answer for call in self.calls)

    def acked_since(self, at: int, port: int | None = None) -> int:
        """Calls acknowledged, of those from number `at` on (and, if given, by the one on `port`).

        A call that was under way at `at` stands before it."""
        return sum(
            call.outcome == "acked" and port in {None, call.port} for call in self.calls[at:]
        )

    async def until_acked(self, more: int, port: int | None = None, within_s: float = 60.0) -> None:
        """Wait until `more` further calls were acknowledged."""
        at, until_s = len(self.calls), time.monotonic() + within_s
        while self.acked_since(at, port) < more:
            assert time.monotonic() < until_s, f"no progress: {Counter(self.answers)}"
            await asyncio.sleep(0.005)

    async def _produce(self) -> None:
        number = next(self._numbers)
        dice = random.Random(f"{self.seed}/{number}")
        door, n, previous = number, 0, ""
        connection = Connection(0)
        while not self._stopping.is_set():
            values = []
            for _ in range(dice.choice((1, 1, 1, _RECORDS_MAX))):
                record = {"producer": number, "n": n, "prev": previous, "pad": "x" * self.padding}
                values.append(json.dumps(record, separators=(",", ":")).encode())
                previous = hashlib.sha256(values[-1]).hexdigest()
                n += 1
            port = self.doors.ports[door % len(self.doors.ports)]
            if connection.port != port:
                connection.close()
                connection = Connection(port, self.doors.key)
            call = Call(dice.choice(self.topics), number, tuple(values), time.monotonic(), port)
            self.calls.append(call)
            await self._send(call, connection)
            if call.outcome != "acked":
                door += 1
                await asyncio.sleep(_PAUSE_S)
        connection.close()

    async def _send(self, call: Call, connection: Connection) -> None:
        body, headers = call.values[0], {"Content-Type": "application/octet-stream"}
        if len(call.values) > 1:
            lines = [json.dumps({"value": value.decode()}) for value in call.values]
            body, headers = "\n".join(lines).encode(), {"Content-Type": "application/x-ndjson"}
        path = f"/v1/topics/{call.topic}/records"
        try:
            answer = await connection.request("POST", path, body, headers, self.timeout_s)
        except NotSentError:
            call.answer, call.outcome = "not sent", "refused"
        except LostError:
            call.answer, call.outcome = "lost", "unknown"
        else:
            _note(call, answer)
        call.answered_s = time.monotonic()


def _note(call: Call, answer: Response) -> None:
    call.answer = answer.code
    if answer.status == 201:
        told = answer.json()
        call.outcome, call.offset = "acked", told["offset"]
        assert told["count"] == len(call.values), (told, call)
    elif call.answer != str(answer.status) and answer.json()["side_effects"] == "none":
        call.outcome = "refused"  # a problem document says so; anything else says nothing
