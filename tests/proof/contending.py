"""Workers who contend for the same few objects: one creates a topic and deletes it, takes a lease
and returns it, and moves a committed offset from where it found it, while another does the same."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.proof import workers
from tests.proof.calling import Caller, Crowd
from tests.proof.history import Commit, RegisterCall

TOPIC: Final = "contended"
GROUP: Final = "contended"
LEASED: Final = "leased"  # another group: while a lease is held, others may not commit
LEASE_S: Final = 2.0
_REST_S: Final = 0.05
_AGAIN: Final = 0.3  # of leases are renewed, as many are left alone, and the others returned


async def contend(crowd: Crowd, number: int) -> None:
    name = f"contender-{number}"
    caller, dice = Caller(crowd, name, number), workers.dice_of(crowd, name)
    generation = 0
    while not crowd.stopping.is_set():
        what = dice.choice(("topic", "lease", "offset"))
        if what == "topic":
            await _topic(caller, dice.choice(("PUT", "GET", "DELETE")))
        elif what == "offset":
            await _move(caller, dice.randint(1, 3))
        elif generation and dice.random() > _AGAIN:
            if dice.random() > _AGAIN:
                await _lease(caller, "release", generation)
            generation = 0
        else:
            generation = await _lease(caller, "take", 0)
        await asyncio.sleep(_REST_S)
    caller.close()


async def _make(
    call: RegisterCall, caller: Caller, method: str, path: str, body: Any = None
) -> Any:
    caller.crowd.history.register_calls.append(call)
    return await caller.make(call, method, path, body)


async def _topic(caller: Caller, method: str) -> None:
    kind = {"PUT": "create", "GET": "show", "DELETE": "delete"}[method]
    call = RegisterCall(*caller.begin(), register=f"topic {TOPIC}", kind=kind)
    told = await _make(
        call, caller, method, f"/v1/topics/{TOPIC}", {} if kind == "create" else None
    )
    call.number = told["topic_id"] if told else 0


async def _lease(caller: Caller, kind: str, generation: int) -> int:
    """The generation of a lease that was granted, or 0."""
    call = RegisterCall(
        *caller.begin(), register=f"lease of {LEASED}", kind=kind, number=generation
    )
    path = f"/v1/groups/{LEASED}/lease"
    if kind == "release":
        await _make(call, caller, "DELETE", f"{path}?generation={generation}")
        return 0
    body = {"holder": caller.name, "ttl_ms": round(LEASE_S * 1000)}
    told = await _make(call, caller, "POST", path, body)
    call.number = told["generation"] if told else 0
    return call.number


async def _move(caller: Caller, by: int) -> None:
    """By compare and set: who comes second is refused."""
    topic, history = workers.TOPICS[0], caller.crowd.history
    look = Commit(*caller.begin(), group=GROUP, topic=topic, kind="look")
    history.commits.append(look)
    page = await caller.make(
        look, "GET", f"/v1/groups/{GROUP}/topics/{topic}/records?max_records=1"
    )
    if page is None:
        return
    look.offset = page["committed_offset"] or 0
    to = min(page["log_end_offset"], look.offset + by)
    if to > look.offset:
        move = Commit(*caller.begin(), group=GROUP, topic=topic, offset=to, expected=look.offset)
        history.commits.append(move)
        body = {"offsets": {topic: to}, "expected": {topic: page["committed_offset"]}}
        await caller.make(move, "PUT", f"/v1/groups/{GROUP}/offsets", body)


CREW: Final[dict[workers.Worker, int]] = {contend: 2}
