"""Objects that are in the bucket already continue the logs of topics: no record is appended.

For who brings a whole log along (`seb import`). Checked against the view ahead of the catalog, as
appends are.
"""

from __future__ import annotations

from collections.abc import Sequence

from seb_appliance import limits
from seb_appliance.broker.append.admission import Admission, AdmittedTopic, Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.errors import ImportRefusedError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import OBJECTS_PER_SWITCH_MAX, ObjectsAdopted, StoredObject


class Adopting:
    def __init__(self, catalog: Catalog, admission: Admission, writes: Writes) -> None:
        self._catalog = catalog
        self._admission = admission
        self._writes = writes
        self._known_keys: set[str] | None = None  # of objects in force, once it was asked for

    async def adopt(self, objects: Sequence[StoredObject]) -> None:
        """Put `objects` in force (at most 1,024): each section begins where the log of its topic
        ends. Nobody else puts objects in force meanwhile. Raises ImportRefusedError, and as every
        write; nothing was changed then."""
        event = ObjectsAdopted(objects=tuple(objects))
        size_bytes = encoded_bytes(event)
        assert len(objects) <= OBJECTS_PER_SWITCH_MAX, len(objects)
        assert size_bytes <= limits.SWITCH_BYTES_MAX, size_bytes

        def admit(window: Window) -> None:
            for topic, end_offset in self._checked(objects):
                topic.next_offset = end_offset
                topic.appended_in = window
            window.add_event(event, size_bytes)

        await self._writes.operate(admit, 0)
        if self._known_keys is not None:
            self._known_keys.update(one.key for one in objects)

    def _checked(self, objects: Sequence[StoredObject]) -> list[tuple[AdmittedTopic, int]]:
        """Each topic, and where its log ends afterwards. Raises Refusal."""
        garbage = self._catalog.stored.garbage
        if self._known_keys is None:
            self._known_keys = self._catalog.stored.keys()
        ends: dict[int, int] = {}
        topics: dict[int, AdmittedTopic] = {}
        for one in objects:
            if one.key in self._known_keys or one.key in garbage:
                raise _refusal(f"{one.key} is, or was, in force already")
            for section in one.sections:
                if section.topic_id not in topics:
                    topics[section.topic_id] = topic = self._topic(section.topic_id)
                    ends[section.topic_id] = topic.next_offset
                if section.base_offset != ends[section.topic_id]:
                    raise _refusal(
                        f"{one.key} begins at offset {section.base_offset}, but the log ends at "
                        f"{ends[section.topic_id]}"
                    )
                ends[section.topic_id] = section.last_offset + 1
        return [(topics[topic_id], end) for topic_id, end in ends.items()]

    def _topic(self, topic_id: int) -> AdmittedTopic:
        applied = self._catalog.find_id(topic_id)
        known = self._admission.find(applied.name) if applied is not None else None
        if applied is None or known is None or known.topic_id != topic_id:
            raise _refusal(f"there is no topic of the id {topic_id}")
        if applied.had_entries or applied.log_end_offset != known.next_offset:
            raise _refusal(f"topic {applied.name!r} has records in journal entries")
        if known.is_closed:
            raise _refusal(f"topic {applied.name!r} is a stream that was closed")
        return known


def _refusal(why: str) -> Refusal:
    return Refusal(ImportRefusedError(f"Nothing was imported: {why}."), None)
