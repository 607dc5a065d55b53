"""Records that an operator stores by hand, each time with a note in the audit.

What programs produce is too much to be noted; what a person puts into a log is what somebody will
ask about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seb_appliance.broker import audit
from seb_appliance.broker.audit import Action, Actor
from seb_appliance.broker.names import check_topic_name
from seb_appliance.broker.values import NewRecords
from seb_appliance.broker.window import Window
from seb_appliance.broker.writes import Writes
from seb_appliance.clock import Clock
from seb_appliance.formats.contents import Produced


class ByHand:
    """Goes through the same admission, window and budget as every append."""

    def __init__(self, writes: Writes, clock: Clock) -> None:
        self._writes = writes
        self._clock = clock

    async def append(
        self,
        topic: str,
        records: NewRecords,
        by: Actor,
        told: Mapping[str, Any] | None = None,
    ) -> Produced:
        """All records, in order, in one entry with the note, which holds `told` too. Returns when
        the bucket has them.

        Raises TopicNotFoundError (no topic is made), RecordTooLargeError, BadRequestError,
        OverloadedError, ShuttingDownError, FencedError, OutcomeUnknownError.
        """
        check_topic_name(topic)
        placed: list[Produced] = []

        def admit(window: Window) -> None:
            admission = self._writes.admission
            known = admission.find(topic)
            if known is None:
                raise admission.missing(topic)
            self._writes.appending.check_takes(topic, known)
            now_us = self._clock.wall_us()
            assert known.effective.max_record_bytes is not None
            prepared = admission.prepare(records, known.effective.max_record_bytes, now_us)
            done = admission.place(window, topic, prepared, now_us)
            placed.append(Produced(done.topic_id, done.offset, done.count, done.timestamp_us))
            after = {"offset": done.offset, "records": done.count, **(told or {})}
            action = Action("records_appended", "topic", topic, after=after)
            audit.note(window, by, now_us, action)

        await self._writes.operate(admit)
        return placed[0]
