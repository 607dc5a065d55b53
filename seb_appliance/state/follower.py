"""Projects applied entries into SQLite, after their acknowledgement. Fulfils `broker.ports.State`.

While SQLite fails, entries wait here, in order, and are tried again. The broker admits no appends
while more than `limits.STATE_LAG_ENTRIES_MAX` entries or `STATE_LAG_BYTES_MAX` bytes wait.
A transaction takes some milliseconds, whatever its size, because each statement waits for the
interpreter's lock; so the next one begins `STATE_GATHER_S` after the last, unless a caller waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery, AuditRow, DelayedTopic, DelayRange, Span
from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError, OverloadedError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.entry import Entry
from seb_appliance.state.database import StateDatabase
from seb_appliance.tasks import Supervisor

_RETRY_S_FIRST: Final = 0.1
_RETRY_S_MAX: Final = 5.0


class StateFollower:
    """Made on the running event loop; `close` ends its task (the database stays open). `failure`:
    why SQLite does not follow, "" while it does."""

    def __init__(
        self,
        database: StateDatabase,
        *,
        clock: Clock,
        failpoints: Failpoints,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.failure = ""
        self.load = database.load
        self.index_page = database.index_page
        self.index_page_at = database.index_page_at
        self._database = database
        self._clock = clock
        self._failpoints = failpoints
        self._behind: deque[Entry] = deque()
        self._behind_bytes = 0
        self._arrived = asyncio.Event()
        self._hurry = asyncio.Event()  # do not gather longer; until the next attempt
        self._committed_s = -limits.STATE_GATHER_S  # on the clock
        self._tried = asyncio.Event()  # set, and replaced, after each attempt to commit
        supervisor = supervisor or Supervisor(clock)
        self._task = supervisor.keep("state-follower", self._run, is_essential=True)

    def follow(self, entry: Entry) -> None:
        """Take an applied entry, to be projected soon, in order."""
        self._behind.append(entry)
        self._behind_bytes += entry.header.contents_bytes
        self._arrived.set()
        if len(self._behind) >= limits.STATE_GATHER_ENTRIES:
            self._hurry.set()

    @property
    def lag_entries(self) -> int:
        """Entries taken and not yet committed."""
        return len(self._behind)

    @property
    def pause_s(self) -> float:
        """See `broker.ports.State`."""
        above_half = 2 * self._behind_part() - 1
        return max(0.0, min(above_half, 1.0)) * limits.STATE_PAUSE_S_MAX

    @property
    def is_far_behind(self) -> bool:
        """See `broker.ports.State`."""
        return self._behind_part() >= 1

    def _behind_part(self) -> float:
        """The backlog as a fraction of its limit."""
        return max(
            len(self._behind) / limits.STATE_LAG_ENTRIES_MAX,
            self._behind_bytes / limits.STATE_LAG_BYTES_MAX,
        )

    @property
    def paged_seq(self) -> int:
        """The last entry whose sections are committed in pages of the index."""
        return self._database.paged_seq

    async def drain(self) -> None:
        """Wait until nothing is behind, or `failure` is set."""
        while self._behind and not self.failure:
            await self._next_attempt()

    async def audit(self, query: AuditQuery) -> list[AuditRow]:
        """Actions in all entries taken so far, newest first. Raises OverloadedError while SQLite
        does not follow."""
        await self._caught_up("the audit")
        return await self._database.audit(query)

    async def audited(self) -> list[tuple[str, str]]:
        """See `broker.ports.State`."""
        await self._caught_up("the audit")
        return await self._database.audited()

    async def delays_by_time(
        self, spans: Sequence[Span], after: tuple[int, int], most: int
    ) -> list[DelayRange]:
        """See `broker.ports.State`."""
        await self._caught_up("the index of delayed records")
        return await self._database.delays.by_time(spans, after, most)

    async def delays_by_offset(
        self, spans: Sequence[Span], offset: int, most: int
    ) -> list[DelayRange]:
        """See `broker.ports.State`."""
        await self._caught_up("the index of delayed records")
        return await self._database.delays.by_offset(spans, offset, most)

    async def delayed_topics(self) -> list[DelayedTopic]:
        """See `broker.ports.State`."""
        await self._caught_up("the index of delayed records")
        return await self._database.delays.sums()

    async def _caught_up(self, what: str) -> None:
        """All entries taken so far are committed."""
        taken_seq = self._behind[-1].header.seq if self._behind else 0
        while self._behind and self._behind[0].header.seq <= taken_seq:
            if self.failure:
                raise OverloadedError(f"SQLite cannot apply entries, so {what} cannot be read now.")
            await self._next_attempt()

    async def close(self) -> None:
        """Project the waiting entries, unless SQLite fails, and end."""
        await self.drain()
        await self._task.close()

    async def _run(self) -> None:
        retry_s = _RETRY_S_FIRST
        while True:
            while self._behind:
                await self._gather()
                if await self._commit_all_behind():
                    retry_s = _RETRY_S_FIRST
                else:
                    await self._clock.sleep(retry_s)
                    retry_s = min(retry_s * 2, _RETRY_S_MAX)
            self._arrived.clear()
            await self._arrived.wait()

    async def _next_attempt(self) -> None:
        self._hurry.set()
        await self._tried.wait()

    async def _gather(self) -> None:
        """Wait for more entries until `STATE_GATHER_S` after the last commit."""
        left_s = self._committed_s + limits.STATE_GATHER_S - self._clock.monotonic_s()
        if left_s > 0 and not self._hurry.is_set():
            timer = self._clock.call_later(left_s, self._hurry.set)
            await self._hurry.wait()
            timer.cancel()
        self._hurry.clear()

    async def _commit_all_behind(self) -> bool:
        entries = list(self._behind)
        try:
            await self._database.apply(entries, failpoints=self._failpoints)
        except Exception as error:  # any error: readiness shows it, the entries wait
            seq = entries[0].header.seq
            self.failure = f"the local state does not follow from entry {seq} on: {error}"
            if isinstance(error, CorruptObjectError):
                self.failure += ". A restart rebuilds it from the bucket"
        else:
            self.failure = ""
            self._committed_s = self._clock.monotonic_s()
            for _ in entries:
                self._behind_bytes -= self._behind.popleft().header.contents_bytes
        self._tried.set()
        self._tried = asyncio.Event()
        return not self.failure
