"""The one function set that decides every write, in arrival order.

It looks at what is durable, what is in flight and what waits in open windows, all folded into one
view that is *ahead* of the catalog. What was admitted is never withdrawn, so a predecessor can fail
only by fencing, and everything behind it fails with it. A refusal that rests on something that is
not yet stored says so (`Refusal.after`): it is answered when that window is stored, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from seb_appliance import limits
from seb_appliance.broker.catalog import Catalog, no_such_topic
from seb_appliance.broker.compressing import Compressor, compressor_of
from seb_appliance.broker.prepared import RECORD_OVERHEAD_BYTES, Prepared, prepare
from seb_appliance.broker.values import NewBatches, NewRecords
from seb_appliance.broker.window import Window
from seb_appliance.errors import (
    BadRequestError,
    OffsetOutOfRangeError,
    RefusedError,
    TopicDiffersError,
)
from seb_appliance.formats.operations import (
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicSettings,
    TopicTrimmed,
)


class Refusal(Exception):  # noqa: N818 - not an error of its own: it carries one
    """`error` is the answer; when `after` is given, only once that window is stored."""

    def __init__(self, error: RefusedError, after: Window | None) -> None:
        super().__init__(error)
        self.error = error
        self.after = after if after is not None and not after.is_done else None


@dataclass(slots=True)
class AdmittedTopic:
    """A topic as it will be once everything admitted so far is stored."""

    topic_id: int
    settings: TopicSettings  # as set
    effective: TopicSettings  # with the defaults filled in
    next_offset: int
    log_start_offset: int = 0
    changed_in: Window | None = None  # the window that creates or last changes it
    appended_in: Window | None = None  # the window of its newest records
    compressor: Compressor | None = field(init=False)  # of what it gets from now on

    def __post_init__(self) -> None:
        self.compressor = compressor_of(self.effective)


class AdmittedAppend(msgspec.Struct, frozen=True, gc=False):
    """Made for every append, so of the kind that is cheapest to make."""

    topic_id: int
    offset: int
    count: int
    timestamp_us: int


class Admission:
    """The view ahead of the catalog. Each `admit_…` either adds to the window and changes the view,
    or raises `Refusal` and changes nothing."""

    def __init__(
        self,
        catalog: Catalog,
        next_topic_id: int,
        effective: Callable[[TopicSettings], TopicSettings],
    ) -> None:
        """`effective` fills in the defaults of a topic's settings."""
        self._effective = effective
        self._topics = {
            topic.name: AdmittedTopic(
                topic.topic_id,
                topic.settings,
                effective(topic.settings),
                topic.log_end_offset,
                topic.log_start_offset,
            )
            for topic in catalog.topics()
        }
        self._deleted_in: dict[str, Window] = {}
        self._next_topic_id = next_topic_id
        # The appliance's own record timestamps never go back, whatever the clock does.
        self._last_timestamp_us = catalog.position.created_us

    def find(self, name: str) -> AdmittedTopic | None:
        return self._topics.get(name)

    def names(self) -> dict[int, str]:
        """The names of all topics, by id."""
        return {topic.topic_id: name for name, topic in self._topics.items()}

    def changed_in(self, name: str) -> Window | None:
        """The window that makes or last changes the topic; None when that was long ago."""
        topic = self._topics.get(name)
        return topic.changed_in if topic is not None else None

    def deleted_in(self, name: str) -> Window | None:
        """The window that deletes the topic; None when that was long ago."""
        return self._deleted_in.get(name)

    def missing(self, name: str) -> Refusal:
        """The refusal for a topic that is not there, or will not be."""
        return Refusal(no_such_topic(name), self.deleted_in(name))

    # --- records ---

    def prepare(
        self, records: NewRecords | NewBatches, max_record_bytes: int, now_us: int
    ) -> Prepared:
        """Check records and give them timestamps; they are not placed yet. Raises Refusal."""
        self._last_timestamp_us = max(self._last_timestamp_us, now_us)
        try:
            return prepare(records, max_record_bytes, self._last_timestamp_us, now_us)
        except RefusedError as error:
            raise Refusal(error, None) from None

    def check_room_for(self, missing_topics: int) -> None:
        """Raises Refusal when so many topics more are too many."""
        if missing_topics and len(self._topics) + missing_topics > limits.TOPICS_MAX:
            raise Refusal(BadRequestError(f"There are {limits.TOPICS_MAX} topics already."), None)

    def place(self, window: Window, name: str, prepared: Prepared, now_us: int) -> AdmittedAppend:
        """The offsets of prepared records; a missing topic is created before them in the window.
        Never refuses: all checks were made."""
        topic = self._topics.get(name) or self._create(window, name, TopicSettings(), now_us)
        offset = topic.next_offset
        runs = window.runs_of(topic.topic_id, offset, topic.compressor)
        if isinstance(prepared.records, NewBatches):
            runs.add_batches(prepared.records.batches)
        else:
            runs.add_plain(prepared.records, prepared.timestamps_us)
        window.size_bytes += prepared.size_bytes
        topic.next_offset += prepared.count
        topic.appended_in = window
        return AdmittedAppend(topic.topic_id, offset, prepared.count, prepared.timestamp_us)

    def place_value(
        self, window: Window, topic: AdmittedTopic, value: bytes, now_us: int
    ) -> AdmittedAppend:
        """`prepare` and `place` of one record that is nothing but its value, no longer than the
        topic allows."""
        if now_us > self._last_timestamp_us:
            self._last_timestamp_us = now_us
        offset = topic.next_offset
        runs = window.runs_of(topic.topic_id, offset, topic.compressor)
        runs.add_value(value, self._last_timestamp_us)
        window.size_bytes += len(value) + RECORD_OVERHEAD_BYTES
        topic.next_offset = offset + 1
        topic.appended_in = window
        return AdmittedAppend(topic.topic_id, offset, 1, self._last_timestamp_us)

    # --- topics ---

    def admit_topic_created(
        self, window: Window, name: str, settings: TopicSettings, now_us: int
    ) -> bool:
        """Whether the topic is made now; False when an equal one is there, perhaps not yet stored
        (`find(name).changed_in`)."""
        found = self._topics.get(name)
        if found is not None:
            if found.settings != settings:
                error = TopicDiffersError(
                    f"Topic {name!r} exists with other settings; change them with PATCH.",
                    topic=name,
                )
                raise Refusal(error, found.changed_in)
            return False
        self.check_room_for(1)
        self._create(window, name, settings, now_us)
        return True

    def _create(
        self, window: Window, name: str, settings: TopicSettings, now_us: int
    ) -> AdmittedTopic:
        topic_id = self._next_topic_id
        self._next_topic_id += 1
        topic = self._topics[name] = AdmittedTopic(
            topic_id, settings, self._effective(settings), 0, changed_in=window
        )
        self._deleted_in.pop(name, None)
        window.add_event(
            TopicCreated(topic_id=topic_id, name=name, created_us=now_us, settings=settings)
        )
        return topic

    def admit_topic_changed(self, window: Window, name: str, settings: TopicSettings) -> None:
        topic = self._topics[name]  # who changes it has just looked at it
        topic.settings = settings
        topic.effective = self._effective(settings)
        topic.compressor = compressor_of(topic.effective)
        topic.changed_in = window
        window.add_event(TopicChanged(topic_id=topic.topic_id, settings=settings))

    def admit_topic_trimmed(self, window: Window, name: str, before: int) -> bool:
        """Whether the log start offset moves now; False when it is there already, perhaps not yet
        stored (`find(name).changed_in`)."""
        topic = self._topics.get(name)
        if topic is None:
            raise self.missing(name)
        if before > topic.next_offset:
            error = OffsetOutOfRangeError(
                f"Offset {before} is beyond the log end {topic.next_offset} of {name!r}.",
                log_end_offset=topic.next_offset,
            )
            raise Refusal(error, topic.appended_in)
        if before <= topic.log_start_offset:
            return False
        topic.log_start_offset = before
        topic.changed_in = window
        window.add_event(TopicTrimmed(topic_id=topic.topic_id, log_start_offset=before))
        return True

    def admit_topic_deleted(self, window: Window, name: str) -> None:
        topic = self._topics.get(name)
        if topic is None:
            raise self.missing(name)
        del self._topics[name]
        self._deleted_in = {
            gone: within for gone, within in self._deleted_in.items() if not within.is_done
        }
        self._deleted_in[name] = window
        window.add_event(TopicDeleted(topic_id=topic.topic_id))
