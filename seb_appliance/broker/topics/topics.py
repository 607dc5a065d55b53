"""Topics as operators see and change them. Each change is an audited event of the journal."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import THE_APPLIANCE, Action, Actor, AuditedWrites
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.retry_results import Producer
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.topics.catalog import Catalog, Totals
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.topics.topic import Topic, deleted_since
from seb_appliance.broker.values import ForkOf, TopicView
from seb_appliance.clock import Clock
from seb_appliance.errors import BadRequestError, TopicDiffersError, TopicNotFoundError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import in_slices

_GROUPS_AT_ONCE: Final = 500  # names
_LAGGING: Final = 10
_SEQ: Final = re.compile("[1-9][0-9]{0,15}(?=-)")


@dataclass(frozen=True, slots=True)
class Readers:
    """How many groups have an offset on a topic, and those with the largest lags: records and
    name."""

    groups: int = 0
    lagging: Sequence[tuple[int, str]] = ()

    @property
    def largest_lag(self) -> int:
        return self.lagging[0][0] if self.lagging else 0


class Topics:
    def __init__(
        self,
        catalog: Catalog,
        index: SectionIndex,
        writes: Writes,
        settings: BrokerSettings,
        linger: Linger,
        clock: Clock,
    ) -> None:
        self.body_of = catalog.body_of
        self.no_tables = settings.no_tables
        self._catalog = catalog
        self._index = index
        self._admission = writes.admission
        self._writes = AuditedWrites(writes)
        self._settings = settings
        self._linger = linger
        self._clock = clock

    def get(self, name: str) -> TopicView:
        """Raises TopicNotFoundError."""
        return self._view(self._catalog.topic(name))

    def exists(self, name: str) -> bool:
        return self._catalog.find(name) is not None

    def name_of(self, topic_id: int) -> str | None:
        """The topic with this id; None if there is none."""
        topic = self._catalog.find_id(topic_id)
        return None if topic is None or topic.deleted else topic.name

    def is_entry(self, text: str) -> bool | None:
        """Whether an entry of this journal has the text (`EntryRef.text`); None if the journal ends
        before it."""
        found = _SEQ.match(text)
        if found is None:
            return False
        seq = int(found[0])
        if seq > self._catalog.position.seq:
            return None
        return self._catalog.entry_ref(seq).text == text

    def above(self, name: str) -> list[str]:
        """The topics that it was forked from, its parent first, deleted ones too."""
        topic = self._catalog.find(name)
        found = []
        while topic is not None and topic.parent is not None:
            topic = topic.parent
            found.append(topic.name)
        return found

    def all(self) -> list[TopicView]:
        """All topics, by name."""
        return [self._view(topic) for topic in self._catalog.topics()]

    def some(self, names: Iterable[str]) -> Iterator[TopicView]:
        """The topics of these names that exist, in their order."""
        return map(self._view, self.held(names))

    def held(self, names: Iterable[str]) -> Iterator[Topic]:
        """As `some`, as the catalog holds them: to go through all of them."""
        return filter(None, map(self._catalog.find, names))

    def record_bytes_of(self, name: str) -> int:
        """How long a value may be; also of a topic that will be made by its first append."""
        topic = self._catalog.find(name)
        effective = self.with_defaults(TopicSettings() if topic is None else topic.settings)
        assert effective.max_record_bytes is not None
        return effective.max_record_bytes

    def compacts(self, name: str) -> bool:
        """Whether the topic is there and keeps the newest record of each record key."""
        topic = self._catalog.find(name)
        return topic is not None and topic.settings.compacts

    def effective(self, settings: TopicSettings) -> TopicSettings:
        """As `with_defaults`. Raises BadRequestError for a setting out of its range."""
        self._settings.check(settings)
        return self.with_defaults(settings)

    def with_defaults(self, settings: TopicSettings) -> TopicSettings:
        """A topic's settings, with the current defaults filled in."""
        linger_ms = self._linger.of(settings)
        return msgspec.structs.replace(self._settings.effective(settings), linger_ms=linger_ms)

    async def create(
        self, name: str, settings: TopicSettings, by: Actor = THE_APPLIANCE
    ) -> tuple[TopicView, bool]:
        """The topic, and whether it was created now. Raises TopicDiffersError (it exists with other
        settings), BadNameError, BadRequestError."""
        check_topic_name(name)
        self._settings.check(settings)

        def admit(window: Window) -> bool:
            now_us = self._clock.wall_us()
            return self._admission.admit_topic_created(window, name, settings, now_us, by.owner)

        return await self._make(name, admit, by)

    async def fork(
        self,
        name: str,
        parent: str,
        offset: int | None = None,
        settings: TopicSettings | None = None,
        by: Actor = THE_APPLIANCE,
    ) -> tuple[TopicView, bool]:
        """A topic `name` that shares the records of `parent` below `offset`, and whether it was
        created now. Nothing is copied. `offset` None: the parent's log end; `settings` None: the
        parent's; if the fork exists, None matches anything. Raises TopicNotFoundError,
        NameHeldError, TopicDiffersError (another topic has the name), OffsetOutOfRangeError,
        OffsetExpiredError, ForkRefusedError, BadNameError, BadRequestError."""
        check_topic_name(name)
        if settings is not None:
            self._settings.check(settings)

        def admit(window: Window) -> bool:
            now_us = self._clock.wall_us()
            return self._admission.admit_topic_forked(
                window, name, parent, offset, settings, now_us, by.owner
            )

        return await self._make(name, admit, by)

    async def _make(
        self, name: str, admit: Callable[[Window], bool], by: Actor
    ) -> tuple[TopicView, bool]:
        def admit_new(window: Window) -> Action | None:
            if not admit(window):
                return None
            return audit.topic_created(name, self._admission.find(name))

        made = await self._writes.store(admit_new, by, lambda: self._admission.changed_in(name))
        return self._as_stored(name), made

    async def make_on_first_use(self, name: str, by: Actor) -> None:
        """Create the topic if it is missing and `auto_create_topics` is on. Raises as `create`."""
        is_free = self._catalog.find(name) is None and not self._admission.is_held(name)
        if self._settings.auto_create_topics and is_free:
            with contextlib.suppress(TopicDiffersError):  # it was created meanwhile
                await self.create(name, TopicSettings(), by)

    async def change(
        self, name: str, changes: dict[str, int | bool | str | None], by: Actor = THE_APPLIANCE
    ) -> TopicView:
        """Change the settings named in `changes`; None restores the default."""

        def admit(window: Window) -> Action:
            known = self._admission.find(name)
            if known is None:
                raise self._admission.missing(name)
            settings = msgspec.structs.replace(known.settings, **changes)
            self._settings.check(settings)
            if settings.table_columns != known.settings.table_columns:
                self._check_schemas(known.topic_id)
            versions = [audit.of_topic(known.topic_id, s) for s in (known.settings, settings)]
            self._admission.admit_topic_changed(window, name, settings)
            return Action("topic_changed", "topic", name, *versions)

        await self._writes.store(admit, by)
        return self._as_stored(name)

    def _check_schemas(self, topic_id: int) -> None:
        """Whether its table can have another schema: all of them are kept. Raises Refusal."""
        table, most = self._catalog.tables.of_topic(topic_id), limits.TABLE_SCHEMAS_MAX
        if table is not None and len(table.head.schemas) >= most:
            text = (
                f"The table of the topic has had {most} schemas, which is the most. Set table to "
                "none, drop the table, and set both anew."
            )
            raise Refusal(BadRequestError(text), None)

    async def delete(self, name: str, by: Actor = THE_APPLIANCE) -> None:
        """Delete the topic and its records. While it has forks, the records that they share stay,
        and its name stays taken."""

        def admit(window: Window) -> Action:
            known = self._admission.find(name)
            self._admission.admit_topic_deleted(window, name)
            assert known is not None, name
            before = audit.of_topic(known.topic_id, known.settings)
            return Action("topic_deleted", "topic", name, before)

        await self._writes.store(admit, by)

    async def delete_together(self, names: Sequence[str], by: Actor) -> None:
        """As `delete`, of several topics in one entry. Raises TopicNotFoundError if one of them is
        not there; then none is deleted."""

        def admit(window: Window) -> Action | None:
            known = [self._admission.find(name) for name in names]
            for name, topic in zip(names, known, strict=True):
                if topic is None:
                    raise self._admission.missing(name)
            for name, topic in zip(names, known, strict=True):
                assert topic is not None, name
                before = audit.of_topic(topic.topic_id, topic.settings)
                self._admission.admit_topic_deleted(window, name)
                action = Action("topic_deleted", "topic", name, before)
                if name == names[-1]:
                    return action
                audit.note(window, by, self._clock.wall_us(), action)
            return None

        await self._writes.store(admit, by)

    async def trim(self, name: str, before: int, by: Actor = THE_APPLIANCE) -> TopicView:
        """Make the records below the offset `before` unreadable; their bytes are removed later.
        Does nothing when the log starts there or later. Raises TopicNotFoundError,
        OffsetOutOfRangeError (`before` is beyond the log end)."""

        def admit(window: Window) -> Action | None:
            known = self._admission.find(name)
            start = known.log_start_offset if known is not None else 0
            if not self._admission.admit_topic_trimmed(window, name, before):
                return None
            ends = ({"log_start_offset": offset} for offset in (start, before))
            return Action("topic_trimmed", "topic", name, *ends)

        await self._writes.store(admit, by, lambda: self._admission.changed_in(name))
        return self._as_stored(name)

    def _as_stored(self, name: str) -> TopicView:
        """After a change of it. Raises OutcomeUnknownError."""
        try:
            return self.get(name)
        except TopicNotFoundError as gone:
            raise deleted_since(name) from gone

    def _view(self, topic: Topic) -> TopicView:
        return TopicView(
            topic.name,
            topic.topic_id,
            topic.created_us,
            topic.settings,
            self.with_defaults(topic.settings),
            topic.log_start_offset,
            topic.log_end_offset,
            topic.size_bytes,
            self._catalog.last_entry(topic).text,
            ForkOf(topic.parent.name, topic.fork_offset) if topic.parent is not None else None,
            len(topic.forks),
            topic.stream is not None and topic.stream.closed,
        )

    async def totals(self) -> Totals:
        """Of all topics."""
        return await self._catalog.totals()

    def names(self) -> list[str]:
        """Of all topics, in order."""
        return self._catalog.topic_names()

    async def last_write_us(self, name: str) -> int | None:
        """When the newest readable record was stored (once merged: the newest of its section); None
        when there is none. Raises TopicNotFoundError, CorruptObjectError."""
        topic = self._catalog.topic(name)
        newest = topic.log_end_offset - 1
        if newest < topic.log_start_offset:
            return None
        _, rows, _ = await self._index.rows_of(topic, newest)
        return rows.created_us[rows.row_of(newest)]

    def producers(self, name: str) -> Iterator[Producer]:
        """The idempotent producers of the topic that are remembered, the longest idle first. Raises
        TopicNotFoundError."""
        return self._catalog.producers.of_topic(self._catalog.topic(name).topic_id)

    async def readers(self, names: Collection[str]) -> dict[str, Readers]:
        """By name of those of these topics that have some. Examines all groups, in slices."""
        topics = {topic.topic_id: topic for topic in self.held(names)}
        lags = defaultdict[int, list[tuple[int, str]]](list)
        await asyncio.sleep(0)
        after = ""
        while some := self._catalog.groups.names(after, _GROUPS_AT_ONCE):
            async for name in in_slices(some):
                offsets = self._catalog.groups.offsets(name)
                for topic_id in offsets.keys() & topics.keys():  # iterates over the smaller set
                    end = topics[topic_id].log_end_offset
                    lags[topic_id].append((end - offsets[topic_id].offset, name))
            after = some[-1]
        return {
            topics[topic_id].name: Readers(len(found), nlargest(_LAGGING, found))
            async for topic_id, found in in_slices(lags.items())
        }
