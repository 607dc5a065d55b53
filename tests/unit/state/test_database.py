"""The state file as the journal's replica: apply, save, restore, clear."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance.broker.ports import ApiKeyRow, EntryRef, EntryRow
from seb_appliance.errors import ConfigurationError, CorruptObjectError
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.formats.operations import (
    ApiKeyRevoked,
    ApiKeyRotated,
    CommittedOffset,
    OffsetsCommitted,
    TopicChanged,
    TopicDeleted,
)
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.tables import state_digest
from tests.unit.state.journal import (
    BUCKET_ID,
    Journal,
    api_key_created,
    sample,
    section,
    topic_created,
)


async def test_a_new_state_is_at_the_origin_and_of_no_bucket(database: StateDatabase) -> None:
    assert await database.position() == ORIGIN
    assert await database.bucket_id() is None
    assert database.set_aside == ""


async def test_what_was_applied_is_there_after_reopening(path: Path) -> None:
    journal = sample()
    database = await StateDatabase.open(path)
    await database.apply(journal.entries)
    await database.close()

    database = await StateDatabase.open(path)
    assert database.set_aside == ""
    assert await database.position() == journal.position
    assert await database.bucket_id() == BUCKET_ID
    await database.close()


async def test_entries_one_by_one_make_the_same_state_as_all_at_once(tmp_path: Path) -> None:
    journal = sample()
    one_by_one = await StateDatabase.open(tmp_path / "one")
    for entry in journal.entries:
        await one_by_one.apply([entry])
    at_once = await StateDatabase.open(tmp_path / "all")
    await at_once.apply(journal.entries)

    assert state_digest(tmp_path / "one") == state_digest(tmp_path / "all")
    await one_by_one.close()
    await at_once.close()


async def test_an_entry_that_does_not_follow_changes_nothing(
    database: StateDatabase, path: Path
) -> None:
    journal = sample()
    await database.apply(journal.entries[:10])
    before = state_digest(path)
    for entries in (journal.entries[11:12], journal.entries[9:12], journal.entries[:1]):
        with pytest.raises(CorruptObjectError, match="does not follow"):
            await database.apply(entries)
    with pytest.raises(CorruptObjectError, match="does not follow"):
        await database.apply([*journal.entries[10:13], journal.entries[14]])
    assert state_digest(path) == before


async def test_an_entry_that_chains_to_another_entry_is_refused(database: StateDatabase) -> None:
    ours, other = Journal(), Journal()
    await database.apply([ours.write(topic_created(1))])
    other.write(topic_created(2))
    with pytest.raises(CorruptObjectError, match="does not follow"):
        await database.apply([other.write(topic_created(3))])


async def test_an_entry_of_another_bucket_is_refused(database: StateDatabase) -> None:
    journal = Journal()
    await database.apply([journal.write(topic_created(1))])
    foreign = Journal(bucket_id=b"X" * 16)
    foreign.entries = list(journal.entries)
    with pytest.raises(CorruptObjectError, match="of bucket"):
        await database.apply([foreign.write(topic_created(2))])


@pytest.mark.parametrize(
    "event",
    [
        TopicChanged(topic_id=9, settings=TopicSettings()),
        TopicDeleted(topic_id=9),
        ApiKeyRevoked(api_key_id="nobody", revoked_us=1),
        topic_created(1, "a-name-with-a-taken-number"),
        topic_created(3, "topic-1"),
        api_key_created("aaaa"),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_an_event_that_contradicts_the_state_is_refused(
    database: StateDatabase, path: Path, event: TopicDeleted
) -> None:
    journal = sample(5)
    await database.apply(journal.entries)
    before = state_digest(path)
    with pytest.raises(CorruptObjectError):
        await database.apply([journal.write(event)])
    assert state_digest(path) == before


async def test_the_number_of_a_deleted_topic_is_not_given_out_again(
    database: StateDatabase,
) -> None:
    journal = Journal()
    journal.write(topic_created(1), topic_created(7))
    await database.apply([*journal.entries, journal.write(TopicDeleted(topic_id=7))])
    loaded = await database.load()
    assert [topic.topic_id for topic in loaded.topics] == [1]
    assert loaded.next_topic_id == 8


async def test_a_topic_may_be_deleted_and_made_anew_in_one_entry(database: StateDatabase) -> None:
    journal = Journal()
    journal.write(topic_created(1, "logs"))
    journal.write(TopicDeleted(topic_id=1), topic_created(2, "logs"))
    await database.apply(journal.entries)
    assert [(row.topic_id, row.name) for row in (await database.load()).topics] == [(2, "logs")]


async def test_more_events_than_sqlite_takes_parameters_fit_in_one_entry(
    database: StateDatabase, path: Path
) -> None:
    journal = Journal()
    journal.write(*(topic_created(i) for i in range(1, 33_001)))
    await database.apply(journal.entries)
    assert len((await database.load()).topics) == 33_000
    await database.close()
    assert (await _reopened_and_closed(path)).set_aside == ""


async def test_rows_changed_in_a_later_transaction_keep_the_checksum_true(path: Path) -> None:
    journal = Journal()
    journal.write(topic_created(1), topic_created(2), api_key_created("a"), api_key_created("b"))
    journal.write(TopicChanged(topic_id=1, settings=TopicSettings(linger_ms=5)))
    journal.write(TopicDeleted(topic_id=2))
    journal.write(ApiKeyRevoked(api_key_id="a", revoked_us=1))
    for entry in journal.entries:
        database = await StateDatabase.open(path)
        assert database.set_aside == ""
        await database.apply([entry])
        await database.close()
    assert (await _reopened_and_closed(path)).set_aside == ""


async def test_a_topic_deleted_beside_a_commit_keeps_the_checksum_true(path: Path) -> None:
    """The group that commits has an offset on the deleted topic: that counts once."""
    journal = Journal()
    journal.write(topic_created(1), topic_created(2))
    for group in ("a", "b"):
        offsets = (CommittedOffset(1, 5), CommittedOffset(2, 5))
        journal.write(OffsetsCommitted(group=group, offsets=offsets))
    moved = OffsetsCommitted(group="a", offsets=(CommittedOffset(2, 6),))
    last = journal.write(moved, TopicDeleted(topic_id=1))
    database = await StateDatabase.open(path)
    await database.apply(journal.entries[:-1])
    await database.apply([last])
    kept = [(row.group, row.topic_id) for row in (await database.load()).group_offsets]
    assert sorted(kept) == [("a", 2), ("b", 2)]
    await database.close()
    assert (await _reopened_and_closed(path)).set_aside == ""


async def test_loading_leaves_out_sections_of_deleted_topics(database: StateDatabase) -> None:
    journal = Journal()
    journal.write(topic_created(1), topic_created(2))
    both = journal.write(sections=[section(1), section(2, start=8)])
    journal.write(sections=[section(2, 1)])
    journal.write(TopicDeleted(topic_id=2))
    await database.apply(journal.entries)
    loaded = await database.load()
    header = both.header
    ref = EntryRef(header.seq, header.epoch, header.writer_id)
    expected = EntryRow(ref, header.created_us, header.sections_at, [section(1)])
    assert loaded.entries == [expected]


async def test_a_saved_copy_restored_elsewhere_is_the_same_state(
    database: StateDatabase, path: Path, tmp_path: Path
) -> None:
    journal = sample()
    await database.apply(journal.entries)
    position = await database.save(tmp_path / "copy")
    other = await StateDatabase.open(tmp_path / "other.sqlite")
    assert await other.restore(tmp_path / "copy") == position == journal.position
    assert await other.load() == await database.load()
    assert state_digest(path) == state_digest(tmp_path / "other.sqlite")
    await other.close()


async def test_a_restored_state_follows_the_journal_from_there(
    database: StateDatabase, path: Path, tmp_path: Path
) -> None:
    journal = sample()
    await database.apply(journal.entries[:20])
    await database.save(tmp_path / "copy")
    await database.apply(journal.entries[20:])
    live = state_digest(path)
    await database.restore(tmp_path / "copy")
    assert await database.position() == journal.entries[19].header.position
    await database.apply(journal.entries[20:])
    assert state_digest(path) == live


async def test_a_copy_is_as_of_one_entry_while_others_are_applied(
    database: StateDatabase, tmp_path: Path
) -> None:
    journal = sample(300)
    await database.apply(journal.entries[:1])

    async def apply_the_rest() -> None:
        for entry in journal.entries[1:]:
            await database.apply([entry])

    applying = asyncio.create_task(apply_the_rest())
    copies = 0
    while not applying.done():
        position = await database.save(tmp_path / "copy")
        assert position == journal.entries[position.seq - 1].header.position
        await StateDatabase.check(tmp_path / "copy")
        copies += 1
    await applying
    assert copies


async def test_a_state_can_be_saved_before_anything_else_used_it(
    path: Path, tmp_path: Path
) -> None:
    journal = sample(5)
    database = await StateDatabase.open(path)
    await database.apply(journal.entries)
    await database.close()
    database = await StateDatabase.open(path)
    assert await database.save(tmp_path / "copy") == journal.position
    await database.close()


async def test_a_refused_snapshot_leaves_the_state_as_it_was(
    database: StateDatabase, path: Path, tmp_path: Path
) -> None:
    journal = sample()
    await database.apply(journal.entries)
    before = state_digest(path)
    (tmp_path / "junk").write_bytes(b"SQLite format 3\0" + b"junk" * 1000)
    with pytest.raises(CorruptObjectError):
        await database.restore(tmp_path / "junk")
    assert state_digest(path) == before
    assert await database.position() == journal.position
    assert sorted(found.name for found in path.parent.iterdir() if "new" in found.name) == []


async def test_clear_begins_at_the_origin_and_keeps_the_old_file(
    database: StateDatabase, path: Path
) -> None:
    journal = sample()
    await database.apply(journal.entries)
    before = state_digest(path)
    await database.clear()
    assert await database.position() == ORIGIN
    assert state_digest(path.with_name("state.sqlite.damaged-1")) == before
    await database.apply(journal.entries)
    assert state_digest(path) == before


async def test_only_the_three_newest_files_put_aside_are_kept(
    database: StateDatabase, path: Path
) -> None:
    journal = sample(3)
    for _ in range(5):
        await database.apply(journal.entries)
        await database.clear()
    await database.clear()
    kept = sorted(found.name for found in path.parent.glob("*damaged*"))
    assert kept == [f"state.sqlite.damaged-{n}" for n in (3, 4, 5)]


async def test_every_file_is_private(database: StateDatabase, path: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await database.apply(sample().entries)
        await database.save(path.parent / "copy")
        await database.restore(path.parent / "copy")
        await database.position()
    finally:
        os.umask(before)
    modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    assert set(modes) == {"copy", "state.sqlite", "state.sqlite-shm", "state.sqlite-wal"}
    assert set(modes.values()) == {0o600}


async def test_a_file_that_others_could_read_is_made_private(path: Path) -> None:
    await _reopened_and_closed(path)
    path.chmod(0o644)
    await _reopened_and_closed(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_settings_that_were_not_set_are_not_stored(
    database: StateDatabase, path: Path
) -> None:
    """So that a release that knows more settings has the same rows for older topics."""
    journal = Journal()
    await database.apply([journal.write(topic_created(1), topic_created(2, linger_ms=50))])
    with closing(sqlite3.connect(path)) as connection:
        stored = connection.execute("SELECT settings FROM topics ORDER BY topic_id").fetchall()
    assert stored == [("{}",), ('{"linger_ms":50}',)]


async def test_a_clean_stop_moves_the_log_into_the_file(path: Path) -> None:
    database = await StateDatabase.open(path)
    await database.apply(sample().entries)
    await database.close()
    assert [found.name for found in path.parent.iterdir()] == [path.name]


async def test_an_apply_that_is_cancelled_changes_all_or_nothing(
    database: StateDatabase, path: Path
) -> None:
    journal = sample(200)
    for turns in range(0, 60, 7):
        applying = asyncio.create_task(database.apply(journal.entries))
        for _ in range(turns):
            await asyncio.sleep(0)
        applying.cancel()
        await asyncio.gather(applying, return_exceptions=True)
        assert await database.position() in (ORIGIN, journal.position)
        await database.clear()
    await database.apply(journal.entries)
    assert await database.position() == journal.position


async def test_a_state_in_use_elsewhere_is_the_operators_matter(
    path: Path, database: StateDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = sample(3)
    await database._transact(lambda connection: connection.execute("PRAGMA busy_timeout = 1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigurationError, match="no other appliance"):
            await database.apply(journal.entries)
        other.execute("ROLLBACK")
    await database.apply(journal.entries)


async def test_a_directory_that_cannot_be_made_is_the_operators_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        await StateDatabase.open(tmp_path / "file" / "state.sqlite")


async def _reopened_and_closed(path: Path) -> StateDatabase:
    database = await StateDatabase.open(path)
    await database.close()
    return database


async def test_a_rotation_keeps_the_secret_before_and_none_older(database: StateDatabase) -> None:
    journal = Journal()
    journal.write(api_key_created("a"), api_key_created("b"))
    first = (await _applied(database, journal))["a"].secret_sha256
    for number in (1, 2):
        journal.write(
            ApiKeyRotated(
                api_key_id="a",
                secret_sha256=bytes([number]) * 32,
                rotated_us=number,
                overlap_until_us=10 + number,
            )
        )
        found = (await _applied(database, journal))["a"]
        assert found.secret_sha256 == bytes([number]) * 32
        assert found.previous_sha256 == (first if number == 1 else b"\1" * 32)
        assert found.overlap_until_us == 10 + number
    assert (await _applied(database, journal))["b"].previous_sha256 is None


async def _applied(database: StateDatabase, journal: Journal) -> dict[str, ApiKeyRow]:
    seq = (await database.position()).seq
    await database.apply(journal.entries[seq:])
    return {row.api_key_id: row for row in (await database.load()).api_keys}
