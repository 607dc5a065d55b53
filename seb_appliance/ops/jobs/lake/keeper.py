"""The keeper of lake tables: commits what is due, prints its metadata, and cleans up.

It does one step at a time. Topics never wait for it: while it fails, tables fall behind.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.lake.commits import TableCommits
from seb_appliance.broker.lake.jobs import PrintJob, TableWriter, WriteJob
from seb_appliance.broker.lake.names import earlier_faults, misleads
from seb_appliance.broker.lake.next_commits import NextCommits
from seb_appliance.broker.lake.notes import CommitRefusedError
from seb_appliance.broker.lake.table import TableHead
from seb_appliance.broker.lake.tables import LakeTables
from seb_appliance.broker.upkeep.tidying import Tidying
from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError, FencedError, SebError
from seb_appliance.failpoints import Failpoints
from seb_appliance.storage.objects.cleanup import BucketCleaner
from seb_appliance.tasks import Job

_log = logging.getLogger(__name__)

_IDLE_S: Final = 60.0  # after which the process ends
_AFTER_FAILURE_S: Final = 30.0  # for which the table rests
_CLEANED_WITHIN_S: Final = 60.0
_STRAYS_EVERY_S: Final = 24 * 3_600.0


@dataclass(slots=True)
class TableCounters:
    """Since the start."""

    commits: int = 0
    failures: int = 0
    rows: int = 0
    bad_rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class TableKeeper(Job):
    """`doing`: the current step, "" for none. `failure`: why the last step failed."""

    name = "tables"

    def __init__(
        self,
        tables: LakeTables,
        commits: TableCommits,
        writer: TableWriter,
        tidying: Tidying,
        cleaner: BucketCleaner,
        confirm_in_force: Callable[[], Awaitable[None]],
        clock: Clock,
        failpoints: Failpoints,
    ) -> None:
        """`confirm_in_force`: of the journal."""
        self.counters = TableCounters()
        self.doing = self.failure = ""
        self.writer = writer
        self.next_commits = NextCommits(tables, commits)
        self._tables = tables
        self._commits = commits
        self._tidying = tidying
        self._cleaner = cleaner
        self._confirm_in_force = confirm_in_force
        self._clock = clock
        self._failpoints = failpoints
        self._was_set = False  # the last change was one of settings
        self._worked_s = 0.0
        self._cleaned_s = clock.monotonic_s()  # when it last looked for what is to be cleaned up
        self._strays_s = 0.0

    async def close(self) -> None:
        await super().close()
        await self.writer.close()

    async def _run(self) -> None:
        while True:
            try:
                is_busy = await self.step()
                self.failure = ""
            except FencedError as error:  # readers and writers get this error, too
                self.failure = error.detail
                return
            except (SebError, OSError) as error:
                self._failed("", str(error))
                is_busy = False
            finally:
                self.doing = ""
            if not is_busy:
                await self._clock.sleep(limits.TABLE_EVERY_S)

    async def step(self) -> bool:
        """Do the next step that is due; False if there is none."""
        now_s = self._clock.monotonic_s()
        is_late = now_s - self._cleaned_s > _CLEANED_WITHIN_S  # commits may be due for ever
        done = (
            (is_late and await self._clean_next())
            or await self._print_next()
            or await self._change_next()
            or await self._clean_next()
        )
        now_s = self._clock.monotonic_s()
        if done:
            self._worked_s = now_s
        elif now_s - self._worked_s > _IDLE_S:
            await self.writer.close()
        return done

    def _rests(self, table_id: str) -> bool:
        return self._clock.monotonic_s() < self._commits.notes(table_id).rests_until_s

    async def _print_next(self) -> bool:
        job = self._commits.next_print(self._rests)
        return job is not None and await self._print(job)

    async def _print(self, job: PrintJob) -> bool:
        head = job.head
        self.doing = f"printing the metadata of table {head.definition.name}"
        # Readers follow the hint, which is replaced: one who was taken over would set it back.
        await self._confirm_in_force()
        self._commits.notes(head.table_id).looked_s = self._clock.monotonic_s()
        try:
            if job.repair:
                await self._look_around(head)
            printed = await self.writer.print(job)
        except (SebError, OSError) as error:
            self._failed(head.table_id, str(error))
        else:
            self._commits.printed(job, printed.foreign)
            self._failpoints.reach("T9")
        return True

    async def _look_around(self, head: TableHead) -> None:
        """Before a repair: remove what someone else wrote behind the last commit, which readers who
        list would follow, and note that metadata of earlier commits is gone or damaged."""
        location = head.definition.location
        listed = await self._cleaner.list_tables()
        sizes = {
            key.removeprefix(location): size
            for key, size in listed.items()
            if key.startswith(location)
        }
        later = [name for name in sizes if misleads(name, head.number)]
        await self._cleaner.delete_metadata([location + name for name in later])
        if any(name.startswith("metadata/") for name, _ in earlier_faults(head, sizes)):
            self._commits.incomplete.add(head.table_id)

    async def _clean_next(self) -> bool:
        self._cleaned_s = self._clock.monotonic_s()
        return await self._condemn_strays() or await self._look_next()

    async def _change_next(self) -> bool:
        """Settings and commits by turns: neither keeps the other waiting for long."""
        set_next = self._commits.set_next
        for change in (
            (self._commit_next, set_next) if self._was_set else (set_next, self._commit_next)
        ):
            if await change():
                self._was_set = change == set_next
                return True
        return False

    async def _commit_next(self) -> bool:
        job = await self.next_commits.next_job(self._rests, self._failed)
        if job is None:
            return False
        began_s = self._clock.monotonic_s()
        try:
            return await self._commit(job)
        finally:
            self.next_commits.had_turn(job, self._clock.monotonic_s() - began_s)

    async def _commit(self, job: WriteJob) -> bool:
        head = job.head
        self.doing = f"{_WORDS[job.op]} table {head.definition.name}"
        notes = self._commits.notes(head.table_id)
        try:
            written = await self.writer.write(job)
            await self._commits.commit(job, written)
        except FencedError:
            raise
        except (SebError, CommitRefusedError, OSError) as error:
            self._failed(head.table_id, str(error))
            if isinstance(error, CorruptObjectError):
                notes.unmerged.update(job.merged)
            self._commits.has_strays = True  # what it stored is in no commit
            return True
        self._failpoints.reach("T2")
        notes.failure = ""
        notes.bad_rows.extend(written.bad_rows)
        counters = self.counters
        counters.commits += 1
        counters.bytes_read += written.bytes_read
        counters.bytes_written += written.bytes_written
        if job.op == "append":
            counters.rows += sum(one.records for one in written.commit.added)
            counters.bad_rows += sum(one.bad for one in written.commit.added)
        table = self._tables.get(head.table_id)
        if table is not None:
            await self._print(self._commits.print_job(table))
        return True

    async def _look_next(self) -> bool:
        """Look once an hour whether the metadata in the bucket is still ours."""
        now_s = self._clock.monotonic_s()
        for table in self._tables.all():
            head = table.head
            published = self._tables.published(head.table_id)
            if published is None or published.number != head.number:
                continue
            due_s = self._commits.notes(head.table_id).looked_s + limits.TABLE_LOOK_EVERY_S
            if now_s >= due_s and not self._rests(head.table_id):
                return await self._print(self._commits.print_job(table, is_first=True))
        return False

    async def _condemn_strays(self) -> bool:
        now_s = self._clock.monotonic_s()
        is_due = now_s >= self._strays_s or self._commits.has_strays
        if not is_due or not self._tidying.is_settled:
            return False
        self.doing = "looking for strays of tables"
        garbage = self._tidying.stored.garbage
        listed = await self._cleaner.list_tables()
        strays = [key for key in self._commits.strays(listed) if key not in garbage]
        if not self._tidying.is_settled:
            return False
        if strays:
            await self._tidying.condemn(strays[: limits.KEYS_PER_ENTRY_MAX])
        else:
            self._strays_s = now_s + _STRAYS_EVERY_S
            self._commits.has_strays = False
        return bool(strays)

    def _failed(self, table_id: str, why: str) -> None:
        self.counters.failures += 1
        self.failure = f"{self.doing or 'tables'}: {why}"
        _log.warning(self.failure)
        if table_id:
            notes = self._commits.notes(table_id)
            notes.failure = self.failure
            notes.rests_until_s = self._clock.monotonic_s() + _AFTER_FAILURE_S


_WORDS: Final = {"append": "adding records to", "replace": "merging files of", "delete": "trimming"}
