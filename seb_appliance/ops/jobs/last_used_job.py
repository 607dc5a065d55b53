"""Saves when API keys were last used: at most once a minute, and only after requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from seb_appliance import limits
from seb_appliance.broker.access.api_keys import LastUsed
from seb_appliance.clock import Clock, Timer
from seb_appliance.state.local import LocalFile


class LastUsedKeeper:
    """Created by `open`. `failure`: why the last write failed (it is tried again with the next
    one), or ""."""

    def __init__(self, file: LocalFile, known_us: dict[str, int], clock: Clock) -> None:
        """For `open` only."""
        self.last_used = LastUsed(known_us, clock, self._arm)
        self.failure = ""
        self._file = file
        self._clock = clock
        self._timer: Timer | None = None
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, api_key_ids: Collection[str], clock: Clock) -> LastUsedKeeper:
        """With what `path` knows of these keys; it is made if there is none. Raises
        ConfigurationError if the machine does not let us use it."""
        file = LocalFile(path)
        known_us = await file.load_last_used(api_key_ids)
        return cls(file, known_us, clock)

    async def close(self) -> None:
        """Write what was not written yet."""
        if self._writing is not None:
            await self._writing
        await self._write()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        """Something changed that was written, or never was: it is written within a minute."""
        self._timer = self._clock.call_later(limits.LAST_USED_WRITTEN_EVERY_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write(), name="last-used")

    async def _write(self) -> None:
        changed = self.last_used.take_changed()
        if not changed:
            return
        try:
            await self._file.save_last_used(changed)
        except Exception as error:  # whatever it is: shown, and what was taken is tried again
            self.failure = f"when API keys were last used cannot be written down: {error}"
            self.last_used.not_written(changed)
        else:
            self.failure = ""
