"""One worker's calls by HTTP, and what became of each: written down before it is sent."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.proof.history import Call, History
from tests.support.load import Connection, LostError, NotSentError, Response
from tests.support.producer import Doors

CALL_S = 5.0


@dataclass
class Crowd:
    """What all workers share. `pace_s`: how long each rests after a call; a refusal costs
    `refused_s`. Answers are counted as `kind of call: answer`. `kafka_ports`: by the port for HTTP
    of the same appliance."""

    doors: Doors
    history: History
    seed: str
    pace_s: float = 0.01
    refused_s: float = 0.08
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    answers: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    """Of writes that were acknowledged."""
    kafka_ports: dict[int, int] = field(default_factory=dict)

    @property
    def acked(self) -> int:
        return len(self.latencies_s)

    async def until_acked(self, more: int, within_s: float = 60.0) -> None:
        """Wait until `more` further writes were acknowledged."""
        goal, until_s = self.acked + more, time.monotonic() + within_s
        while self.acked < goal:
            assert time.monotonic() < until_s, f"no progress: {dict(self.answers)}"
            await asyncio.sleep(0.005)


class Caller:
    """One worker's connection; it knocks at the next door when a call was not answered well."""

    def __init__(self, crowd: Crowd, name: str, door: int = 0, timeout_s: float = CALL_S) -> None:
        self.crowd, self.name = crowd, name
        self._door = door
        self._timeout_s = timeout_s
        self._connection = Connection(0)
        self._key = ""

    def close(self) -> None:
        self._connection.close()

    def connection(self, key: str | None) -> Connection:
        ports, wanted = self.crowd.doors.ports, key or self.crowd.doors.key
        port = ports[self._door % len(ports)]
        if (self._connection.port, self._key) != (port, wanted):
            self._connection.close()
            self._connection, self._key = Connection(port, wanted), wanted
        return self._connection

    def begin(self) -> tuple[str, int, float]:
        """The first fields of a call that is made now."""
        return self.name, self.connection(None).port, time.monotonic()

    async def make(
        self,
        call: Call,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Any:
        """As `ask`; the JSON of a good answer."""
        answer = await self.ask(call, method, path, body, headers, key)
        if answer is None:
            return None
        return answer.json() if answer.body else {}

    async def ask(
        self,
        call: Call,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Response | None:
        """Send it, note its outcome in `call`; a good answer, else None. `body` is JSON, unless it
        is bytes."""
        sent = b"" if body is None else body if isinstance(body, bytes) else _encode(body)
        named = {"Content-Type": "application/json", **(headers or {})}
        connection = self.connection(key)
        call.port, call.sent_s = connection.port, time.monotonic()
        try:
            answer = await connection.request(method, path, sent, named, self._timeout_s)
        except NotSentError:
            call.answer, call.outcome = "not sent", "refused"
        except LostError:
            call.answer, call.outcome = "lost", "unknown"
        else:
            call.answered_s = time.monotonic()
            _note(call, answer)
        self.crowd.answers[f"{type(call).__name__.lower()}: {call.answer}"] += 1
        if call.outcome == "ok":
            await asyncio.sleep(self.crowd.pace_s)
            return answer
        self._door += 1
        await asyncio.sleep(self.crowd.refused_s)
        return None


def _encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _note(call: Call, answer: Response) -> None:
    call.answer = answer.code
    if answer.status < 300:
        call.outcome = "ok"
    elif call.answer != str(answer.status) and answer.json()["side_effects"] == "none":
        call.outcome = "refused"  # a problem document says so; anything else says nothing
    else:
        call.outcome = "unknown"
