"""Bugs that the class `doors` must find, planted in the product as in mutations.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

from seb_appliance.broker.access.accounts import Accounts
from seb_appliance.broker.append.appends import NO_CONDITIONS
from seb_appliance.broker.append.deduplication import Deduplication, ProducerStamp
from seb_appliance.client.producing import Numbers
from seb_appliance.errors import SequenceGapError, StoreUncertainError
from seb_appliance.protocols.go import files
from seb_appliance.protocols.go.files import OldTopics
from seb_appliance.protocols.inlets import delivering, inlets
from seb_appliance.state.follower import StateFollower
from seb_appliance.storage import layout
from seb_appliance.storage.journal import journal
from seb_appliance.storage.recovery.opening import _WriterOpening
from seb_appliance.ui.sessions import Session, Sessions

Planted = contextlib.AbstractContextManager[Any]


def answers_waited_for_a_while_only() -> Planted:
    """Mode A: an entry whose PUT is not answered for some seconds counts as refused."""
    create_once = journal._create_once

    async def created(store: Any, key: str, encoded: Any) -> bool:
        try:
            async with asyncio.timeout(4.0):
                return await create_once(store, key, encoded)
        except (TimeoutError, StoreUncertainError):
            return False

    return mock.patch.object(journal, "_create_once", created)


def entries_that_came_meanwhile_forgotten() -> Planted:
    """What comes while SQLite commits counts as committed."""
    commit = StateFollower._commit_all_behind

    async def committed(self: StateFollower) -> bool:
        done = await commit(self)
        if done:
            self._behind.clear()
        return done

    return mock.patch.object(StateFollower, "_commit_all_behind", committed)


def writer_id_of_the_directory() -> Planted:
    """A start goes by the writer id of its data directory, and not by one of its own."""
    begin = _WriterOpening.__post_init__

    def begun(self: _WriterOpening) -> None:
        begin(self)
        self.writer_id = min(self.writer_ids.known(), default=self.writer_id)

    return mock.patch.object(_WriterOpening, "__post_init__", begun)


def requests_taken_beyond_a_gap() -> Planted:
    """A request of an idempotent producer that overtook another is stored."""
    find = Deduplication.find_append

    def found(self: Deduplication, topic_id: int, stamp: ProducerStamp, count: int) -> Any:
        try:
            return find(self, topic_id, stamp, count)
        except Exception as refusal:
            if isinstance(getattr(refusal, "error", None), SequenceGapError):
                return None
            raise

    return mock.patch.object(Deduplication, "find_append", found)


def numbers_used_again_in_their_epoch() -> Planted:
    """The client library numbers its requests anew after a refusal, in the same epoch."""
    begin = Numbers.begin_again

    def begun(self: Numbers) -> None:
        epoch = self._epoch
        begin(self)
        self._epoch = epoch

    return mock.patch.object(Numbers, "begin_again", begun)


def removal_told_before_it_is_stored() -> Planted:
    """A user is told as removed while that is on its way."""
    remove, tasks = Accounts.remove, list[asyncio.Task[None]]()

    async def removed(self: Accounts, name: str, by: Any) -> None:
        self._ahead.find(name)
        task = asyncio.create_task(remove(self, name, by))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        tasks.append(task)

    return mock.patch.object(Accounts, "remove", removed)


def sessions_outlive_their_users() -> Planted:
    """A session goes on, whatever became of its user."""

    def lives(_self: Sessions, _session: Session) -> bool:
        return True

    return mock.patch.object(Sessions, "_lives", lives)


def deliveries_not_known_by_their_ids() -> Planted:
    """A delivery is stored each time that it is sent."""
    return mock.patch.object(delivering, "_conditions", mock.AsyncMock(return_value=NO_CONDITIONS))


def repeated_rotation_ends_a_secret() -> Planted:
    """A rotation that is sent again is another one."""
    return mock.patch.object(inlets, "_begin_with", return_value=False)


def tables_taken_for_foreign_files() -> Planted:
    """An import does not know the objects of lake tables."""
    known = mock.Mock(wraps=layout, is_of_table=lambda _: False)
    for name in ("OURS", "SEGMENTS", "PACKED"):
        setattr(known, name, getattr(layout, name))
    return mock.patch.object(files, "layout", known)


def imported_files_not_looked_for() -> Planted:
    """An import begins with the first file, whatever is there."""

    async def imported(_self: OldTopics, _topic: Any, **_: Any) -> tuple[int, int]:
        return 0, 0

    return mock.patch.object(OldTopics, "imported", imported)


OF_DOORS: list[Callable[[], Planted]] = [
    answers_waited_for_a_while_only,
    entries_that_came_meanwhile_forgotten,
    writer_id_of_the_directory,
    requests_taken_beyond_a_gap,
    numbers_used_again_in_their_epoch,
    removal_told_before_it_is_stored,
    sessions_outlive_their_users,
    deliveries_not_known_by_their_ids,
    repeated_rotation_ends_a_secret,
    tables_taken_for_foreign_files,
    imported_files_not_looked_for,
]
