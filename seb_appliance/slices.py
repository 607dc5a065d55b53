"""Long work on the event loop, in slices: everybody else has a turn every few milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_S: Final = 0.002


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """`items`, with a pause for others once the work since the last pause has taken SLICE_S.

    What the items are taken from may change in a pause: pass a list where that matters.
    """
    loop = asyncio.get_running_loop()
    pause_s = loop.time() + SLICE_S
    for item in items:
        yield item
        if loop.time() >= pause_s:
            await asyncio.sleep(0)
            pause_s = loop.time() + SLICE_S
