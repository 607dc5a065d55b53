"""The work queue of a ground: two workers who acknowledge, retry, reject and forget what they take,
and what is left of the queue in the end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from tests.proof import workers
from tests.proof.calling import Caller, Crowd
from tests.proof.history import QueueCall

if TYPE_CHECKING:
    from tests.proof.ground import Ground

QUEUE: Final = "work"
DEAD: Final = "dead"  # the topic of its dead letters
LEASE_S: Final = 15.0  # longer than a call waits: an answer that is lost frees its records later
SETTINGS: Final = {
    "topics": [*workers.TOPICS, workers.KEYED],
    "ordering": "key",
    "lease_ms": round(LEASE_S * 1000),
    "max_deliveries": 1_000,
    "retry": {"min_ms": 1, "max_ms": 20},
    "dead_letter": DEAD,
}
FORGOTTEN_MS: Final = 1_000
_ENDS: Final = ("ack", "retry", "reject", "forget")
_OFTEN: Final = (85, 8, 4, 3)
_WITHIN_S: Final = 60.0


async def work(crowd: Crowd, number: int) -> None:
    """Takes a few records at a time and ends each delivery in one of four ways."""
    name = f"work-{number}"
    caller, dice = Caller(crowd, name, number), workers.dice_of(crowd, name)
    while not crowd.stopping.is_set():
        taken = await take(caller, dice.randint(1, 30), wait_ms=200)
        ends: dict[str, list[dict[str, Any]]] = {}
        for row in taken:
            ends.setdefault(dice.choices(_ENDS, _OFTEN)[0], []).append(row)
        for kind, rows in ends.items():
            await end(caller, kind, rows)
    caller.close()


async def take(caller: Caller, most: int, wait_ms: int) -> list[dict[str, Any]]:
    call = QueueCall(*caller.begin(), kind="take")
    caller.crowd.history.queue_calls.append(call)
    body = {"max": most, "wait_ms": wait_ms}
    found = await caller.make(call, "POST", f"/v1/queues/{QUEUE}/take", body)
    rows: list[dict[str, Any]] = [] if found is None else found["records"]
    call.records = tuple((row["topic"], row["offset"], row["key"]) for row in rows)
    return rows


async def end(caller: Caller, kind: str, rows: list[dict[str, Any]]) -> None:
    """Again and again, until there is an answer."""
    path = "extend" if kind == "forget" else kind
    body: dict[str, Any] = {"deliveries": [row["delivery"] for row in rows]}
    body |= {"lease_ms": FORGOTTEN_MS} if kind == "forget" else {}
    places = tuple((row["topic"], row["offset"], row["key"]) for row in rows)
    told = None
    while told is None and not caller.crowd.stopping.is_set():
        call = QueueCall(*caller.begin(), kind=kind, records=places)  # type: ignore[arg-type]
        caller.crowd.history.queue_calls.append(call)
        told = await caller.make(call, "POST", f"/v1/queues/{QUEUE}/{path}", body)
        call.results = () if told is None else tuple(told["results"])


async def finish(here: Ground) -> None:
    """Nobody else works any more: take and acknowledge what is left; note the dead letters."""
    door = Crowd(here.crowd.doors, here.crowd.history, "")
    here.crowd.history.gone_home.add("the last worker")
    caller, until_s = Caller(door, "the last worker"), time.monotonic() + _WITHIN_S
    while True:
        rows = await take(caller, 1_000, wait_ms=100)
        if rows:
            await end(caller, "ack", rows)
            continue
        queue = await here.asked("GET", f"/v1/queues/{QUEUE}")
        if not (queue["in_flight"] or any(topic["waiting"] for topic in queue["topics"])):
            break
        assert time.monotonic() < until_s, f"P18: records wait, and are not handed out: {queue}"
        await asyncio.sleep(0.05)
    caller.close()
    here.crowd.history.dead_letters = await _dead(here)


async def _dead(here: Ground) -> list[tuple[str, int]]:
    """Where the dead letters came from."""
    known = await here.asked("GET", "/v1/topics")
    if DEAD not in {topic["topic"] for topic in known["topics"]}:
        return []
    found: list[tuple[str, int]] = []
    offset, log_end = 0, 1
    while offset < log_end:
        page = await here.asked("GET", f"/v1/topics/{DEAD}/records?offset={offset}")
        for row in page["records"]:
            headers = row["headers"]
            found.append((headers["seb-dead-topic"], int(headers["seb-dead-offset"])))
        offset, log_end = page["next_offset"], page["log_end_offset"]
    return found
