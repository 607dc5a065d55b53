"""Reading topics from their beginning to their end, and checking each record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.bench.accounts import Account, Findings, TopicCheck
from seb_appliance.bench.connecting import BenchError, Caller, close_all, connect
from seb_appliance.bench.plan import Plan
from seb_appliance.bench.targets import Read, Target
from seb_appliance.errors import SebError

_AT_ONCE: Final = 8
_BUSY: Final = (429, 503)
_TRIES: Final = 50
_PAUSE_S: Final = 0.2


async def read_back(
    target: Target, plan: Plan, topics: Sequence[str], accounts: Sequence[Account]
) -> Findings:
    """Everything in these topics against what was acknowledged. Raises BenchError."""
    found = Findings()

    async def check(caller: Caller, index: int) -> None:
        topic = TopicCheck(index, topics[index], plan.records_per_request, len(accounts))
        offset = 0
        while True:
            read = await ask_records(caller, target, topics[index], offset)
            if isinstance(read, str):
                topic.findings.wrong_one(read)
                break
            topic.take(read.values, read.offsets)
            if read.next_offset == offset:
                break
            offset = read.next_offset
        found.add(topic.settle(accounts))

    await for_each(target, range(len(topics)), check)
    return found


async def ask_records(
    caller: Caller, target: Target, topic: str, offset: int, wait_ms: int = 0
) -> Read | str:
    """Records of a topic from `offset` on, or what is wrong with the answer. Asks again for a while
    when the target says that it has too much to do. Raises BenchError."""
    most = limits.BENCH_RECORDS_PER_READ
    request = target.read(topic, "batch", offset, most, wait_ms)
    for _ in range(_TRIES):
        answer = await caller.ask(request)
        if answer.status not in _BUSY:
            break
        await asyncio.sleep(_PAUSE_S)
    if not answer.is_good:
        raise BenchError(answer.words())
    try:
        return target.records("batch", offset, answer.head, answer.body)
    except (ValueError, SebError) as error:
        return f"{topic}: the answer for offset {offset} cannot be read ({error})"


async def for_each(
    target: Target,
    numbers: Sequence[int],
    act: Callable[[Caller, int], Awaitable[None]],
    at_once: int = _AT_ONCE,
) -> None:
    """`act` for each number, a few at a time, each with a connection. Raises what it raises."""
    callers = await connect(target.address, lambda _: Caller(), min(at_once, len(numbers)))
    left = iter(numbers)

    async def work(caller: Caller) -> None:
        for number in left:
            await act(caller, number)

    try:
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(work(caller))
    except* Exception as failures:
        raise failures.exceptions[0] from failures
    finally:
        close_all(callers)
