"""Bugs planted in the product, each of which the simulation must find.

A mutation changes one decision of the real code while it runs. `python -m tests.simulation
--mutations` tells for each the first seed that finds it; `test_simulation.py` asks the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec

from seb_appliance.broker.access.api_keys import ApiKeys
from seb_appliance.broker.append.deduplication import Deduplication
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.groups.admission import GroupAdmission
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.upkeep import due
from seb_appliance.broker.upkeep.tidying import Tidying
from seb_appliance.errors import ObjectExistsError, OutcomeUnknownError, StoreUncertainError
from seb_appliance.formats.entry import Position
from seb_appliance.formats.operations import ApiKeyRevoked, TopicTrimmed
from seb_appliance.ops.jobs.tidier_job import TidierKeeper
from seb_appliance.state import projection
from seb_appliance.state.rows import index_pages
from seb_appliance.storage.journal import journal
from seb_appliance.storage.journal.claims import Claimant
from seb_appliance.storage.journal.create_only import CreateOnlyJournal
from seb_appliance.storage.journal.followed import FollowedClaimed
from seb_appliance.storage.journal.journal import StoredJournal
from seb_appliance.storage.journal.replay import Replay
from seb_appliance.storage.objects.cleanup import BucketCleaner
from seb_appliance.storage.objects.compacting import NewestRecords
from seb_appliance.storage.recovery import opening
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.store_clock import StoreClock
from tests.simulation.doors_mutations import OF_DOORS
from tests.simulation.kafka_mutations import OF_KAFKA
from tests.simulation.queue_mutations import OF_QUEUES
from tests.simulation.seeds import Outcome, run_seed
from tests.simulation.stream_mutations import OF_STREAMS
from tests.simulation.table_mutations import OF_TABLES

Mutation = Callable[[], contextlib.AbstractContextManager[Any]]


def acknowledged_before_it_is_stored() -> contextlib.AbstractContextManager[Any]:
    """The writer does not wait for its PUT."""
    tasks: list[asyncio.Task[None]] = []

    def later(store: Callable[..., Any]) -> Callable[..., Any]:
        async def begun(self: StoredJournal, encoded: Any) -> None:
            tasks.append(asyncio.create_task(store(self, encoded)))

        return begun

    patches = contextlib.ExitStack()
    for kind in (CreateOnlyJournal, opening.ClaimedJournal):
        patches.enter_context(mock.patch.object(kind, "_store", later(kind._store)))
    return patches


def claims_not_checked() -> contextlib.AbstractContextManager[Any]:
    """Mode B: nobody looks for a higher claim."""

    async def highest(self: Claimant, mine: Any) -> None: ...

    return mock.patch.object(Claimant, "require_highest", highest)


def any_412_is_ours() -> contextlib.AbstractContextManager[Any]:
    """Mode A: what is stored at the key is not compared."""

    async def created(store: Any, key: str, encoded: Any) -> bool:
        with contextlib.suppress(ObjectExistsError):
            await store.create(key, encoded.body)
        return True

    return mock.patch.object(journal, "_create_once", created)


def any_412_is_another_writer() -> contextlib.AbstractContextManager[Any]:
    """Mode A: our own lost answer is not thought of."""

    async def created(store: Any, key: str, encoded: Any) -> bool:
        try:
            await store.create(key, encoded.body)
        except ObjectExistsError:
            return False
        return True

    return mock.patch.object(journal, "_create_once", created)


def sealed_entry_given_up() -> contextlib.AbstractContextManager[Any]:
    """Mode A: after an unclear answer the entry counts as refused."""
    create_once = journal._create_once

    async def created(store: Any, key: str, encoded: Any) -> bool:
        try:
            return await create_once(store, key, encoded)
        except StoreUncertainError:
            return False

    return mock.patch.object(journal, "_create_once", created)


def failed_window_acknowledged() -> contextlib.AbstractContextManager[Any]:
    """Who waits when the writer is fenced is told that all is well."""

    def failed(self: Window, error: Exception) -> None:
        self.resolve(0.0)

    return mock.patch.object(Window, "fail", failed)


def unknown_told_as_refused() -> contextlib.AbstractContextManager[Any]:
    """A time-out promises that nothing was stored."""
    return mock.patch.object(OutcomeUnknownError, "side_effects", "none")


def repeats_not_known() -> contextlib.AbstractContextManager[Any]:
    """An idempotent producer's request is stored each time that it is sent."""
    return mock.patch.object(Deduplication, "find_append", return_value=None)


def commits_go_backward() -> contextlib.AbstractContextManager[Any]:
    """Nobody looks where the group stands."""
    return mock.patch.object(GroupAdmission, "_committed", return_value=None)


def revocation_forgotten() -> contextlib.AbstractContextManager[Any]:
    """A revoked API key stays in memory."""
    apply = ApiKeys.apply

    def applied(self: ApiKeys, event: Any) -> None:
        if not isinstance(event, ApiKeyRevoked):
            apply(self, event)

    return mock.patch.object(ApiKeys, "apply", applied)


def inputs_deleted_before_the_switch() -> contextlib.AbstractContextManager[Any]:
    """The tidier deletes what it has merged before that is in force."""
    rewrite = TidierKeeper._rewrite

    async def rewritten(self: TidierKeeper) -> bool:
        job_of = self._tidying.next_job

        async def next_job() -> Any:
            job = await job_of()
            if job is not None and job.inputs:
                await self._cleaner.delete_objects(job.inputs)
            return job

        with mock.patch.object(self._tidying, "next_job", next_job):
            return await rewrite(self)

    return mock.patch.object(TidierKeeper, "_rewrite", rewritten)


def entries_deleted_above_the_floor() -> contextlib.AbstractContextManager[Any]:
    """Tidied entries go at once, whatever the snapshots say."""
    delete = BucketCleaner.delete_entries

    async def deleted(self: BucketCleaner, tidied_seq: int, *rest: Any) -> int:
        async def no_floor() -> int:
            return tidied_seq

        with mock.patch.object(self._snapshots, "floor", no_floor):
            return await delete(self, tidied_seq, *rest)

    return mock.patch.object(BucketCleaner, "delete_entries", deleted)


def oldest_of_each_key_kept() -> contextlib.AbstractContextManager[Any]:
    """Compaction keeps the first record of each record key."""
    add = NewestRecords.add

    def added(self: NewestRecords, keys: Any) -> None:
        before = dict(self._newest)
        add(self, keys)
        self._newest.update(before)

    return mock.patch.object(NewestRecords, "add", added)


def tombstones_dropped_early() -> contextlib.AbstractContextManager[Any]:
    """Compaction leaves out tombstones although older records lie before what it goes over, or in
    it."""
    due_rows = due.due_rows

    def later_rows(*arguments: Any) -> tuple[int, int] | None:
        rows = due_rows(*arguments)
        return (1, rows[1]) if rows is not None and rows[0] == 0 and rows[1] > 1 else rows

    plan = due.Compactions._plan

    def planned(self: Any, topics: Any) -> Any:
        compactions, places = plan(self, topics)
        now_us = self._clock.wall_us()
        return tuple(replace_until(item, now_us) for item in compactions), places

    patches = contextlib.ExitStack()
    patches.enter_context(mock.patch.object(due, "due_rows", later_rows))
    patches.enter_context(mock.patch.object(due.Compactions, "_plan", planned))
    patches.enter_context(mock.patch.object(Tidying, "_keeps_tombstones_now", return_value=False))
    return patches


def replace_until(item: due.Compaction, until_us: int) -> due.Compaction:
    return due.Compaction(
        item.topic_id, item.name, item.base_offset, item.last_offset, until_us, item.last_offset + 1
    )


def snapshot_one_entry_ahead() -> contextlib.AbstractContextManager[Any]:
    """A snapshot's name says one entry more than it holds."""
    publish = SnapshotStore.publish

    async def published(self: SnapshotStore, source: Any, position: Position, check: Any) -> Any:
        ahead = msgspec.structs.replace(position, seq=position.seq + 1)
        return await publish(self, source, ahead, check)

    return mock.patch.object(SnapshotStore, "publish", published)


def entries_replayed_twice() -> contextlib.AbstractContextManager[Any]:
    """A start applies what it has read two times."""
    apply = Replay.apply

    async def applied(self: Replay, batch: list[Any]) -> None:
        await apply(self, batch)
        await apply(self, batch)

    return mock.patch.object(Replay, "apply", applied)


def standby_serves_what_is_not_settled() -> contextlib.AbstractContextManager[Any]:
    """Mode B: a standby does not look for higher claims before it serves."""

    async def settled(self: FollowedClaimed, top: Any) -> bool:
        return True

    return mock.patch.object(FollowedClaimed, "_is_settled", settled)


def sqlite_forgets_trims() -> contextlib.AbstractContextManager[Any]:
    """SQLite does not hear that a log begins later."""
    apply_event = projection.apply_event

    def applied(tables: Any, event: Any, header: Any) -> None:
        if not isinstance(event, TopicTrimmed):
            apply_event(tables, event, header)

    return mock.patch.object(projection, "apply_event", applied)


def pages_end_with_transactions() -> contextlib.AbstractContextManager[Any]:
    """Pages of the index follow from when SQLite committed, and not from the journal alone."""

    def stretches(entries: Any, paged_seq: int, waiting: int) -> Iterator[tuple[list[Any], bool]]:
        yield list(entries), True

    return mock.patch.object(index_pages, "stretches", stretches)


def created_follows_the_wall_clock() -> contextlib.AbstractContextManager[Any]:
    """Nothing bounds how far one entry moves `created`."""

    def created(self: LogClock) -> int:
        return max(self._clock.wall_us(), self._last_us())

    return mock.patch.object(LogClock, "created_us", created)


def retention_follows_the_wall_clock() -> contextlib.AbstractContextManager[Any]:
    """What goes by age goes by a clock that jumps."""

    def age(self: LogClock, created_us: int) -> int:
        return self._clock.wall_us() - created_us

    return mock.patch.object(LogClock, "age_us", age)


def a_start_believes_its_machine() -> contextlib.AbstractContextManager[Any]:
    """The store's Date is not looked at."""
    return mock.patch.object(StoreClock, "_store_us", return_value=None)


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        acknowledged_before_it_is_stored,
        claims_not_checked,
        any_412_is_ours,
        any_412_is_another_writer,
        sealed_entry_given_up,
        failed_window_acknowledged,
        unknown_told_as_refused,
        repeats_not_known,
        commits_go_backward,
        revocation_forgotten,
        inputs_deleted_before_the_switch,
        entries_deleted_above_the_floor,
        oldest_of_each_key_kept,
        tombstones_dropped_early,
        snapshot_one_entry_ahead,
        entries_replayed_twice,
        standby_serves_what_is_not_settled,
        sqlite_forgets_trims,
        pages_end_with_transactions,
        created_follows_the_wall_clock,
        retention_follows_the_wall_clock,
        a_start_believes_its_machine,
        *OF_TABLES,
        *OF_QUEUES,
        *OF_KAFKA,
        *OF_STREAMS,
        *OF_DOORS,
    )
}


# What shows only when a third machine takes over would take many seeds; what only SQLite
# can do wrong shows where it is.
NEEDS: dict[str, dict[str, Any]] = {
    "standby_serves_what_is_not_settled": {"mode": "B", "machines": 3},
    "sqlite_forgets_trims": {"kind": "sqlite"},
    "pages_end_with_transactions": {"kind": "sqlite"},
    **{planted.__name__: {"kind": "streams"} for planted in OF_STREAMS},
    **{planted.__name__: {"kind": "doors"} for planted in OF_DOORS},
}


def run_mutated(name: str, seed: int, *, keep_trace: bool = False) -> Outcome:
    """A seed with this bug planted."""
    with MUTATIONS[name]():
        return run_seed(seed, keep_trace=keep_trace, **NEEDS.get(name, {}))


def found_by(name: str, seeds: range) -> tuple[int, str] | None:
    """The first of `seeds` that finds the mutation, and how; None: none of them."""
    for seed in seeds:
        violations = run_mutated(name, seed).violations
        if violations:
            return seed, violations[0]
    return None
