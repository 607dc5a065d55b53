"""A standby's loop: it reads entries that another appliance wrote, and applies them here.

It reads continuously while there are entries, otherwise every `follow_poll`. It raises ReplayError
if it cannot follow the journal any more; the process then starts again from the bucket.
"""

from __future__ import annotations

import asyncio

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import State
from seb_appliance.clock import Clock
from seb_appliance.errors import StandbyError
from seb_appliance.storage.journal.followed import FollowedJournal


class StandbyKeeper:
    """`applied`: the entries put in force since the start."""

    def __init__(
        self, broker: Broker, journal: FollowedJournal, state: State, clock: Clock, poll_ms: int
    ) -> None:
        self.applied = 0
        self._broker = broker
        self._journal = journal
        self._state = state
        self._clock = clock
        self._poll_s = poll_ms / 1000
        self._known_us = self._applied_us = journal.position.created_us
        self._applied_seq = journal.position.seq
        self._epoch = journal.epoch
        self._task: asyncio.Task[None] | None = None

    @property
    def journal(self) -> FollowedJournal:
        return self._journal

    @property
    def lag_entries(self) -> int:
        """The number of known journal entries that are not applied here."""
        return self._journal.known_seq - self._applied_seq

    @property
    def lag_s(self) -> float:
        """The age difference between the newest known entry and the newest one applied here."""
        return (self._known_us - self._applied_us) / 1_000_000

    @property
    def seen_end_age_s(self) -> float | None:
        """How long ago all entries of the journal were applied here; None: never."""
        seen_s = self._journal.seen_end_s
        return None if seen_s is None else self._clock.monotonic_s() - seen_s

    def start(self) -> asyncio.Task[None]:
        """Take no writes, and begin to follow; the task ends only by an error."""
        self._broker.stand_by(_refusal(self._journal))
        self._task = asyncio.create_task(self._run(), name="standby")
        return self._task

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def step(self) -> bool:
        """Read the next entries and apply them; whether there were any."""
        entries = await self._journal.read()
        if entries:
            self._known_us = entries[-1].header.created_us
        for entry in entries:
            await self._broker.replicate(entry)
            self._applied_seq, self._applied_us = entry.header.seq, entry.header.created_us
            self.applied += 1
            await asyncio.sleep(0)  # others have their turn
        if self._journal.epoch != self._epoch:
            self._epoch = self._journal.epoch
            self._broker.stand_by(_refusal(self._journal))
        return bool(entries)

    async def _run(self) -> None:
        while True:
            if self._state.is_far_behind:
                await self._state.drain()
            if self._state.is_far_behind or not await self.step():
                await self._broker.tidying.measure()  # here no tidier does it
                await self._clock.sleep(self._poll_s)


def _refusal(journal: FollowedJournal) -> StandbyError:
    """The refusal of a write to a standby. The bucket does not have the writer's address."""
    writer = journal.writer_id.hex()
    return StandbyError(
        f"This appliance is a standby and takes no writes. Send them to the one that it follows "
        f"(epoch {journal.epoch}, writer {writer[:8]}…), or make this one the writer: seb promote.",
        epoch=journal.epoch,
        writer=writer,
    )
