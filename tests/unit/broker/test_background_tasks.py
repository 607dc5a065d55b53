"""What goes on beside the log in the broker survives a bug."""

from __future__ import annotations

import asyncio
from typing import Any

from seb_appliance import limits
from tests.unit.broker.conftest import House


async def test_the_sweep_of_streams_and_the_key_index_survive_a_bug(
    house: House,
) -> None:
    broker, clock = house.broker, house.clock
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    swept: list[float] = []

    def mortal() -> list[Any]:
        swept.append(clock.monotonic_s())
        if len(swept) == 1:
            raise ZeroDivisionError("a bug of ours")
        return []

    broker.streams._mortal = mortal  # type: ignore[method-assign]
    broker.streams._some_expire.set()
    broker.record_keys.indexing._due[17] = None

    async def round_of() -> None:
        broker.record_keys.indexing._due.clear()
        if not swept[1:]:
            raise ZeroDivisionError("another one")

    broker.record_keys.indexing._round = round_of  # type: ignore[method-assign]
    broker.record_keys.indexing._arrived.set()
    await clock.advance(3 * limits.STREAM_SWEEP_S + 10)
    assert len(swept) > 1
    assert {context["background"] for context in seen} == {"streams", "key-index"}
    failures = {task.name: task.failures for task in broker._supervisor.tasks}
    assert failures == {
        "callbacks": 0,
        "streams": 1,
        "queues": 0,
        "delays": 0,
        "key-index": 1,
    }
    assert (await broker.readiness()).problems == []
