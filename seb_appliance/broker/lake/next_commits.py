"""Which table gets the next commit, where one process writes all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from seb_appliance import limits
from seb_appliance.broker.lake.commits import Rests, TableCommits
from seb_appliance.broker.lake.jobs import WriteJob
from seb_appliance.broker.lake.table import LakeTable, TableHead
from seb_appliance.broker.lake.tables import LakeTables
from seb_appliance.broker.lake.turns import Turns
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.errors import CorruptObjectError, TopicNotFoundError
from seb_appliance.formats.topic_settings import TopicSettings

# Is told of a table (id) that its next commit cannot be made, and why.
Failed = Callable[[str, str], None]
# Of an owner: new records (True), or upkeep.
Work = tuple[str, bool]

T = TypeVar("T")


class NextCommits:
    """Those who made the topics of tables take turns, and of each of them new records and upkeep:
    one whose commits take long delays others by one of these."""

    def __init__(self, tables: LakeTables, commits: TableCommits) -> None:
        self._tables = tables
        self._commits = commits
        self._turns = Turns()

    async def next_job(self, rests: Rests, failed: Failed) -> WriteJob | None:
        """The commit that is due next."""
        due = await self._appends(rests, failed)
        before_s = min((one[0] for one in due), default=inf)
        if (job := await self._upkeep(rests, failed, before_s)) is not None:
            return job
        for _, _, table, topic, settings in sorted(due, key=lambda one: one[:2]):
            making = self._commits.append_of(table, topic, settings)
            if (job := await _tried(table, failed, making)) is not None:
                return job
        return None

    def had_turn(self, job: WriteJob, seconds: float) -> None:
        self._turns.had(self._work(job.head, is_append=job.op == "append"), seconds)

    def _work(self, head: TableHead, *, is_append: bool) -> Work:
        return self._commits.owner_of(head.definition), is_append

    async def _appends(
        self, rests: Rests, failed: Failed
    ) -> list[tuple[float, float, LakeTable, Topic, TopicSettings]]:
        """Of new records that are due: whose turn it is, and since when they wait."""
        lags, due = self._commits.lags, []
        for table in self._tables.all():
            lags.note(table)
        for table, topic, settings in self._commits.writable(rests):
            lags.note(table)  # records may have come since
            if lags.records(table) <= 0 or len(table.files) >= limits.TABLE_FILES_MAX:
                continue
            is_due = lags.is_due(table, topic)
            if not is_due:
                counting = self._commits.waiting_bytes(table, topic)
                assert settings.table_file_bytes is not None
                waiting = await _tried(table, failed, counting) or 0
                is_due = waiting >= settings.table_file_bytes
            if is_due:
                place_s = self._turns.place_s(self._work(table.head, is_append=True))
                due.append((place_s, lags.since_s(table.head.table_id), table, topic, settings))
        return due

    async def _upkeep(self, rests: Rests, failed: Failed, before_s: float) -> WriteJob | None:
        """If some is due whose turn is before that."""
        writable = [
            (self._turns.place_s(self._work(one[0].head, is_append=False)), one)
            for one in self._commits.writable(rests)
        ]
        for place_s, (table, topic, settings) in sorted(writable, key=lambda one: one[0]):
            if place_s >= before_s:
                break
            making = self._commits.upkeep_of(table, topic, settings)
            if (job := await _tried(table, failed, making)) is not None:
                return job
        return None


async def _tried(table: LakeTable, failed: Failed, making: Awaitable[T]) -> T | None:
    """None if the topic was deleted meanwhile, or its index has a hole: others do not wait."""
    try:
        return await making
    except TopicNotFoundError:
        return None
    except CorruptObjectError as error:
        failed(table.head.table_id, error.detail)
        return None
