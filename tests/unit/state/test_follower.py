"""SQLite following the acknowledgement: in order, several at once, and through its failures."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.follower import StateFollower
from seb_appliance.state.tables import state_digest
from tests.support.fakes import FakeClock
from tests.unit.state.journal import Journal, sample, section, topic_created


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def follower(database: StateDatabase, clock: FakeClock) -> AsyncIterator[StateFollower]:
    follower = StateFollower(database, clock=clock, failpoints=NO_FAILPOINTS)
    yield follower
    await follower.close()


async def test_followed_entries_are_in_the_file_after_draining(
    follower: StateFollower, database: StateDatabase
) -> None:
    journal = sample()
    for entry in journal.entries:
        follower.follow(entry)
    assert follower.lag_entries == len(journal.entries)
    await follower.drain()
    assert follower.lag_entries == 0
    assert await database.position() == journal.position


async def test_a_followed_state_equals_the_one_rebuilt_from_the_journal(
    follower: StateFollower, path: Path, tmp_path: Path
) -> None:
    journal = sample(200)
    for number, entry in enumerate(journal.entries):
        follower.follow(entry)
        if number % 7 == 0:
            await follower.drain()
    await follower.drain()
    rebuilt = await StateDatabase.open(tmp_path / "rebuilt")
    await rebuilt.apply(journal.entries)
    assert state_digest(path) == state_digest(tmp_path / "rebuilt")
    assert await follower.load() == await rebuilt.load()
    await rebuilt.close()


async def test_entries_that_wait_share_one_transaction(
    follower: StateFollower, database: StateDatabase
) -> None:
    statements = await _traced(database)
    for entry in sample(50).entries:
        follower.follow(entry)
    await follower.drain()
    assert statements.count("COMMIT") == 1


async def test_entries_soon_after_a_commit_gather_until_time_has_passed(
    follower: StateFollower, database: StateDatabase, clock: FakeClock
) -> None:
    journal = sample(10)
    follower.follow(journal.entries[0])
    await follower.drain()
    statements = await _traced(database)
    for entry in journal.entries[1:6]:
        follower.follow(entry)
        await clock.advance(limits.STATE_GATHER_S / 10)
    assert (statements, follower.lag_entries) == ([], 5)
    await clock.advance(limits.STATE_GATHER_S)
    await follower.drain()
    assert statements.count("COMMIT") == 1


async def test_many_entries_do_not_gather_longer(
    follower: StateFollower, database: StateDatabase, clock: FakeClock
) -> None:
    journal = sample(limits.STATE_GATHER_ENTRIES + 1)
    committed, begun_s = asyncio.Event(), clock.monotonic_s()
    follower.follow(journal.entries[0])
    await follower.drain()
    await _on_commit(database, committed.set)
    for entry in journal.entries[1:]:
        follower.follow(entry)
    await asyncio.wait_for(committed.wait(), 60)
    assert clock.monotonic_s() == begun_s


async def test_entries_that_come_during_a_commit_are_in_the_next(
    follower: StateFollower, database: StateDatabase
) -> None:
    journal = sample(10)
    coming = iter(journal.entries)

    def one_more() -> None:
        if entry := next(coming, None):
            follower.follow(entry)

    await _on_commit(database, one_more)
    one_more()
    await follower.drain()
    assert follower.failure == ""
    assert await database.position() == journal.position


async def test_nothing_is_written_and_no_timer_runs_while_idle(
    follower: StateFollower, database: StateDatabase, clock: FakeClock
) -> None:
    statements = await _traced(database)
    await clock.advance(3600)
    assert (statements, clock.armed) == ([], 0)


async def test_a_full_disk_stops_following_and_loses_nothing_once_there_is_room(
    follower: StateFollower, database: StateDatabase, clock: FakeClock, path: Path
) -> None:
    journal = Journal()
    follower.follow(journal.write(topic_created(1)))
    await follower.drain()
    await _limit_pages(database, 1)  # SQLite never goes below what the file has already
    for offset in range(60):
        follower.follow(journal.write(*[topic_created(100 + offset, "t" * 100 + str(offset))]))
    await follower.drain()
    assert "database or disk is full" in follower.failure
    assert "free space" in follower.failure
    await clock.advance(60)
    assert follower.lag_entries == 60
    assert "database or disk is full" in follower.failure

    await _limit_pages(database, 1_000_000)
    follower.follow(journal.write(sections=[section(1)]))
    await clock.advance(5)
    while follower.lag_entries:
        await database.position()  # has its turn after the attempt that is under way
    assert follower.failure == ""
    assert await database.position() == journal.position


@pytest.mark.parametrize("name", ["STATE_LAG_ENTRIES_MAX", "STATE_LAG_BYTES_MAX"])
async def test_too_many_entries_behind_or_too_large_ones_are_far_behind(
    follower: StateFollower, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    journal = Journal()
    entries = [journal.write(topic_created(topic_id)) for topic_id in (1, 2, 3)]
    size = sum(entry.header.contents_bytes for entry in entries)
    monkeypatch.setattr(limits, name, 3 if name == "STATE_LAG_ENTRIES_MAX" else size)
    for entry in entries[:2]:
        follower.follow(entry)
    assert not follower.is_far_behind
    follower.follow(entries[2])
    assert follower.is_far_behind
    await follower.drain()
    assert not follower.is_far_behind


async def test_the_writer_pauses_for_longer_the_further_behind_it_is(
    follower: StateFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STATE_LAG_ENTRIES_MAX", 4)
    journal = Journal()
    pauses = []
    for topic_id in (1, 2, 3, 4):
        follower.follow(journal.write(topic_created(topic_id)))
        pauses.append(follower.pause_s)
    assert pauses == [0.0, 0.0, 0.025, 0.05]
    await follower.drain()
    assert follower.pause_s == 0.0


async def test_attempts_after_a_failure_become_rarer(database: StateDatabase) -> None:
    slept: list[float] = []
    enough = asyncio.Event()

    class Clock(FakeClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 8:
                enough.set()
                await asyncio.Event().wait()

    follower = StateFollower(database, clock=Clock(), failpoints=NO_FAILPOINTS)
    follower.follow(sample(3).entries[2])  # does not follow the empty state: fails each time
    await enough.wait()
    assert slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert "does not follow" in follower.failure
    await follower.close()


async def test_a_file_damaged_while_running_is_reported_and_rebuilt_by_a_restart(
    follower: StateFollower, database: StateDatabase, path: Path, tmp_path: Path
) -> None:
    journal = sample(300)
    for entry in journal.entries:
        follower.follow(entry)
    await follower.drain()
    await database._while_closed(lambda: None)  # now everything is in the file itself
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    follower.follow(journal.write(topic_created(3)))
    await follower.drain()
    assert "malformed" in follower.failure
    assert "restart" in follower.failure
    await database.close()

    again = await StateDatabase.open(path)
    assert again.set_aside
    await again.apply(journal.entries)
    await again.close()


async def test_draining_while_sqlite_fails_returns(
    follower: StateFollower, database: StateDatabase
) -> None:
    follower.follow(sample(3).entries[2])
    async with asyncio.timeout(60):
        await follower.drain()
        await follower.drain()
    assert follower.lag_entries == 1


async def test_closing_projects_what_is_behind(database: StateDatabase, clock: FakeClock) -> None:
    follower = StateFollower(database, clock=clock, failpoints=NO_FAILPOINTS)
    journal = sample()
    for entry in journal.entries:
        follower.follow(entry)
    await follower.close()
    assert await database.position() == journal.position


async def _limit_pages(database: StateDatabase, pages: int) -> None:
    """Make SQLite say that the disk is full beyond `pages` pages (of 4 KiB)."""
    pragma = f"PRAGMA max_page_count = {pages}"
    await database._transact(lambda connection: connection.execute(pragma).fetchall())


async def _trace(database: StateDatabase, called: Callable[[str], object]) -> None:
    """Call `called`, in the thread of the database, with each SQL statement from now on."""
    await database.position()
    assert database._connection is not None
    database._connection.set_trace_callback(called)


async def _traced(database: StateDatabase) -> list[str]:
    statements: list[str] = []
    await _trace(database, statements.append)
    return statements


async def _on_commit(database: StateDatabase, called: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()

    def traced(statement: str) -> None:
        if statement == "COMMIT":
            loop.call_soon_threadsafe(called)

    await _trace(database, traced)


KILLED = """
import asyncio, sys
from pathlib import Path
from seb_appliance.clock import SystemClock
from seb_appliance.failpoints import Failpoints
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.follower import StateFollower
from tests.unit.state.journal import sample

async def main():
    database = await StateDatabase.open(Path(sys.argv[1]))
    follower = StateFollower(database, clock=SystemClock(), failpoints=Failpoints(sys.argv[2]))
    for entry in sample(3).entries:
        follower.follow(entry)
        await follower.drain()

asyncio.run(main())
"""


@pytest.mark.parametrize(("failpoint", "kept"), [("K8:kill:3", 2), ("K9:kill:3", 3)])
async def test_a_kill_around_the_commit_leaves_whole_entries(
    path: Path, failpoint: str, kept: int
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(path), failpoint
    )
    assert await process.wait() == -signal.SIGKILL
    journal = sample(3)
    database = await StateDatabase.open(path)
    assert database.set_aside == ""
    assert await database.position() == journal.entries[kept - 1].header.position
    await database.apply(journal.entries[kept:])
    await database.close()
