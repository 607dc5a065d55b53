"""Requests that are made side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def together(work: Iterable[Coroutine[Any, Any, _T]], at_once: int) -> list[_T]:
    """What each of them returns, in order. The first error ends the others, and is raised as it
    is."""
    gate = asyncio.Semaphore(at_once)

    async def turn(one: Coroutine[Any, Any, _T]) -> _T:
        async with gate:
            return await one

    coroutines = list(work)
    tasks = [asyncio.create_task(turn(one)) for one in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in coroutines:
            one.close()  # those whose turn never came
