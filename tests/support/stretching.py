"""Windows of a running appliance, as linger = auto has them where few records come."""

from __future__ import annotations

import asyncio

from seb_appliance import limits
from tests.support.appliance import RunningAppliance


def stretch(seb: RunningAppliance) -> None:
    """As the upkeep of the cost does."""
    seb.appliance.broker.linger.default_ms = limits.LINGER_AUTO_MS_DEFAULT
    seb.appliance.broker.linger.enough = 1_000


async def relax(seb: RunningAppliance) -> None:
    """As the settings say; what is open closes."""
    sequencer = seb.appliance.broker._sequencer
    seb.appliance.broker.linger.default_ms = seb.appliance.broker.linger.shortest_ms
    sequencer.flush()
    while not sequencer.is_idle:
        await asyncio.sleep(0)
    sequencer._flushing = False


async def open_for_s(seb: RunningAppliance, callers: int = 1) -> float:
    """For how long the window that so many wait for stays open."""
    sequencer = seb.appliance.broker._sequencer
    async with asyncio.timeout(20):
        while (window := sequencer._open) is None or window.callers < callers:
            await asyncio.sleep(0)
    return round(window.deadline_s - window.opened_s, 3)
