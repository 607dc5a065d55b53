"""How far tables are behind their topics, and how far they may be."""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.broker.append.window import Linger
from seb_appliance.broker.lake.table import LakeTable
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.formats.topic_settings import TopicSettings


class TableLags:
    """Counts in monotonic time for how long records of a topic have waited for its table."""

    def __init__(
        self, catalog: Catalog, clock: LogClock, linger: Linger, settings: BrokerSettings
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._linger = linger
        self._settings = settings
        self._since_s: dict[str, float] = {}

    def records(self, table: LakeTable) -> int:
        """How many offsets of the topic the table does not cover yet."""
        topic = self._catalog.find_id(table.head.definition.topic_id)
        if topic is None:
            return 0
        return topic.log_end_offset - max(table.head.next_offset, topic.log_start_offset)

    def seconds(self, table: LakeTable) -> float:
        """For how long records have waited for the table; 0 if none do."""
        since_s = self._since_s.get(table.head.table_id)
        return 0.0 if since_s is None else max(0.0, self._clock.monotonic_s() - since_s)

    def wanted_s(self, settings: TopicSettings) -> float:
        """How long records should wait for the table of a topic with these settings, as set: its
        `table_lag`, or the default, as long as the budget makes it."""
        lag_ms = self._settings.effective(settings).table_lag_ms
        assert lag_ms is not None
        if settings.table_lag_ms is not None:
            return lag_ms / 1_000
        return min(lag_ms * self._linger.stretch, limits.TABLE_LAG_MS_STRETCHED) / 1_000

    def is_late(self, table: LakeTable, settings: TopicSettings) -> bool:
        """Whether records wait for much longer than they should."""
        return self.seconds(table) > 2 * self.wanted_s(settings) + 60

    def note(self, table: LakeTable) -> None:
        """The wait begins or ends, also of a table that nothing may be added to now: retention
        waits for it, too."""
        topic = self._catalog.find_id(table.head.definition.topic_id)
        if topic is not None and topic.settings.table_formats and self.records(table) > 0:
            self._since_s.setdefault(table.head.table_id, self._clock.monotonic_s())
        else:
            self._since_s.pop(table.head.table_id, None)

    def is_due(self, table: LakeTable, topic: Topic) -> bool:
        """Whether records, of which there are some, have waited long enough. The first commit of a
        table is due at once."""
        is_first = table.head.newest is None
        return is_first or self.seconds(table) >= self.wanted_s(topic.settings)

    def since_s(self, table_id: str) -> float:
        """From when on records wait; only while they do."""
        return self._since_s[table_id]

    def wait_from(self, table: LakeTable, since_s: float) -> None:
        """Count the wait from this monotonic time on, if records wait."""
        if self.records(table) > 0:
            self._since_s[table.head.table_id] = since_s
        else:
            self._since_s.pop(table.head.table_id, None)
