"""The two ways in which a Go broker's files come into force: as they lie there, or copied.

Part of the composition root, like importing.py.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Final

from seb_appliance.app.assembly import Appliance
from seb_appliance.broker.adopting import Adopting
from seb_appliance.clock import SystemClock
from seb_appliance.errors import OverloadedError
from seb_appliance.formats.batch_v1 import BatchV1
from seb_appliance.formats.operations import StoredObject, StoredSection
from seb_appliance.storage.checked_objects import CheckedObjects
from seb_appliance.storage.object_making import Naming, ObjectMaker
from seb_appliance.storage.old_log import OldFile
from seb_appliance.storage.patience import START_PATIENCE_S, Patience

_FILES_PER_ENTRY: Final = 1_000
_BEHIND_S: Final = 0.1


class InPlace:
    """Each file becomes a section where it is."""

    def __init__(self, appliance: Appliance) -> None:
        self._adopting = appliance.broker.adopting
        self._topic_id = 0
        self._created_us = 0
        self._objects: list[StoredObject] = []

    def begin_topic(self, topic_id: int) -> None:
        """The files that come are of this topic."""
        self._topic_id, self._created_us = topic_id, 0

    def take(self, one: OldFile, _found: BatchV1) -> None:
        """The topic's next file. In any thread, one at a time."""
        self._created_us = max(self._created_us, one.created_us)
        section = StoredSection(
            self._topic_id,
            one.base_offset,
            one.end_offset - 1,
            one.count,
            0,
            one.length,
            one.crc,
            self._created_us,
            one.created_us,
        )
        self._objects.append(StoredObject(one.key, one.length, (section,)))

    async def adopt_if_many(self) -> None:
        """Put whole lots in force."""
        while len(self._objects) >= _FILES_PER_ENTRY:
            await self._adopt_some()

    async def adopt(self) -> None:
        """Put everything in force that was taken."""
        while self._objects:
            await self._adopt_some()

    async def _adopt_some(self) -> None:
        await _adopt(self._adopting, self._objects[:_FILES_PER_ENTRY])
        del self._objects[:_FILES_PER_ENTRY]


class Copied:
    """Their records are stored in objects of ours."""

    def __init__(self, appliance: Appliance) -> None:
        journal, settings = appliance.journal, appliance.settings
        self._adopting = appliance.broker.adopting
        patience = Patience(SystemClock(), random.random, give_up_after_s=START_PATIENCE_S)
        self._store = CheckedObjects(appliance.store.used_for("tidier"), patience)
        naming = Naming(journal.bucket_id, journal.epoch, os.urandom)
        self._maker = ObjectMaker(
            naming,
            object_bytes=settings.segment_bytes,
            compress=settings.compression == "zstd",
        )
        self.begin_topic = self._maker.begin_topic
        self.take = self._maker.take

    async def adopt_if_many(self) -> None:
        """Put a whole object in force."""
        if self._maker.is_full:
            await self.adopt()

    async def adopt(self) -> None:
        """Put everything in force that was taken."""
        stored = await self._maker.store(self._store)
        if stored is not None:
            await _adopt(self._adopting, [stored])


async def _adopt(adopting: Adopting, objects: Sequence[StoredObject]) -> None:
    """Once SQLite has come after, which has more to do for an object than we have."""
    while True:
        try:
            await adopting.adopt(objects)
        except OverloadedError:
            await asyncio.sleep(_BEHIND_S)
        else:
            return
