"""Bugs of lake tables planted in the product, as in mutations.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec

from seb_appliance import limits
from seb_appliance.broker.lake import commits as table_commits
from seb_appliance.broker.lake.commits import TableCommits
from seb_appliance.broker.lake.names import HINT, list_name, manifest_name, metadata_name
from seb_appliance.broker.lake.table import LakeTable
from tests.simulation import process
from tests.support.plain_tables import PLAIN


def table_commits_not_numbered() -> contextlib.AbstractContextManager[Any]:
    """A commit is added whatever the table's number is by then."""

    async def commit(self: TableCommits, job: Any, written: Any) -> None:
        if (table := self._tables.get(job.head.table_id)) is not None:
            await self._add(written.commit, table.head.number)

    return mock.patch.object(TableCommits, "commit", commit)


def table_goes_on_one_too_far() -> contextlib.AbstractContextManager[Any]:
    """A commit begins behind the end of the last one."""
    append = TableCommits.append_of

    async def later(self: TableCommits, table: Any, topic: Any, settings: Any) -> Any:
        job = await append(self, table, topic, settings)
        return msgspec.structs.replace(job, first=min(job.first + 1, job.end - 1))

    return mock.patch.object(TableCommits, "append_of", later)


def table_begins_anew_at_each_commit() -> contextlib.AbstractContextManager[Any]:
    """What a commit before has added is added once more."""
    append = TableCommits.append_of

    async def whole(self: TableCommits, table: Any, topic: Any, settings: Any) -> Any:
        parts, end = await self._parts(topic, topic.log_start_offset, topic.log_end_offset)
        job = await append(self, table, topic, settings)
        return msgspec.structs.replace(job, first=topic.log_start_offset, end=end, parts=parts)

    return mock.patch.object(TableCommits, "append_of", whole)


def hint_stored_before_the_manifests() -> contextlib.AbstractContextManager[Any]:
    """Readers are told of a commit before its metadata is there."""
    objects = lambda job: PLAIN.objects(job)[::-1]  # noqa: E731
    return mock.patch.object(process, "PLAIN", replace(PLAIN, objects=objects))


def hint_alone_printed_again() -> contextlib.AbstractContextManager[Any]:
    """A start does not print what the process before it may have left out."""
    objects = lambda job: PLAIN.objects(job)[-1 if job.is_first else 0 :]  # noqa: E731
    return mock.patch.object(process, "PLAIN", replace(PLAIN, objects=objects))


def older_snapshots_not_in_use() -> contextlib.AbstractContextManager[Any]:
    """Only what the newest snapshot has counts as used: strays are condemned that readers need."""

    def in_use(table: Any) -> Callable[[str], bool]:
        head = table.head
        used = {HINT, metadata_name(head.number), *(one.file.name for one in table.living())}
        used |= {manifest_name(one.name) for one in head.manifests}
        if head.newest is not None:
            used.add(list_name(head.newest.number))
        return used.__contains__

    return mock.patch.object(table_commits, "names_in_use", in_use)


def files_dropped_with_their_removal() -> contextlib.AbstractContextManager[Any]:
    """A file leaves the state with the commit that removes it, though older snapshots have it."""
    commit = LakeTable.commit

    def committed(self: LakeTable, event: Any, created_us: int) -> list[str]:
        dead = commit(self, event, created_us)
        gone = [name for name, one in self.files.items() if one.removed]
        for name in gone:
            del self.files[name]
        return [*dead, *gone]

    return mock.patch.object(LakeTable, "commit", committed)


def fork_boundary_ignored() -> contextlib.AbstractContextManager[Any]:
    """A fork's table takes what its parent got after the fork, too."""
    parts = TableCommits._parts

    async def whole(self: TableCommits, topic: Any, *args: Any) -> Any:
        found, end = await parts(self, topic, *args)
        past = [msgspec.structs.replace(one, end=one.place.last_offset + 1) for one in found]
        return tuple(past), end

    return mock.patch.object(TableCommits, "_parts", whole)


def table_does_not_follow_compactions() -> contextlib.AbstractContextManager[Any]:
    """Rows of a compacted topic stay as they were written."""
    return mock.patch.object(table_commits, "stale", return_value=None)


def merge_loses_a_file() -> contextlib.AbstractContextManager[Any]:
    """A merge removes one file more than it has read."""
    job_of = TableCommits._job

    def job(self: TableCommits, *args: Any, **more: Any) -> Any:
        made = job_of(self, *args, **more)
        return msgspec.structs.replace(made, merged=made.merged[:-1] or made.merged)

    return mock.patch.object(TableCommits, "_job", job)


def half_of_a_file_written_anew() -> contextlib.AbstractContextManager[Any]:
    """A file of a compacted topic is replaced by what one commit reads at most."""
    parts = TableCommits._parts

    async def some(self: TableCommits, topic: Any, first: int, until: int, *_: Any) -> Any:
        most = limits.TABLE_JOB_SECTIONS, limits.TABLE_JOB_BYTES
        return await parts(self, topic, first, until, *most)

    return mock.patch.object(TableCommits, "_parts", some)


OF_TABLES: tuple[Callable[[], contextlib.AbstractContextManager[Any]], ...] = (
    table_commits_not_numbered,
    table_goes_on_one_too_far,
    table_begins_anew_at_each_commit,
    hint_stored_before_the_manifests,
    hint_alone_printed_again,
    older_snapshots_not_in_use,
    files_dropped_with_their_removal,
    fork_boundary_ignored,
    table_does_not_follow_compactions,
    merge_loses_a_file,
    half_of_a_file_written_anew,
)
