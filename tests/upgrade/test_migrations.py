"""Alembic's migrations and the schema in code say the same; a migration is done whole or not."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from seb_appliance import limits, setting_sources, zstd
from seb_appliance.broker.append.retry_results import RememberedRequest
from seb_appliance.broker.ports import AuditQuery, GroupOffsetRow, UserRow
from seb_appliance.bundled import bundled
from seb_appliance.errors import ConfigurationError, CorruptObjectError
from seb_appliance.formats.api_key_members import Quotas
from seb_appliance.formats.contents import Produced, ProducerAppend, RequestResult
from seb_appliance.formats.operations import (
    CommittedOffset,
    OffsetsCommitted,
    TopicDeleted,
    UserSet,
)
from seb_appliance.ops.host import restoring
from seb_appliance.settings import Settings
from seb_appliance.state import checks, files, schema
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.schema import NEWEST_REVISION
from seb_appliance.state.tables import rows_checksum, state_digest
from tests.support.appliance import running_appliance
from tests.unit.state.journal import Journal, audit_noted, sample, section
from tests.upgrade.old_states import write_as_of

# What a release after this one might do.
LATER_REVISION = f"{int(NEWEST_REVISION) + 1:04}"
ADD_A_COLUMN = f"""
import sqlalchemy as sa
from alembic import op

revision = "{LATER_REVISION}"
down_revision = "{NEWEST_REVISION}"


def upgrade():
    with op.batch_alter_table("topics", table_kwargs={{"sqlite_strict": True}}) as topics:
        topics.add_column(sa.Column("colour", sa.Text, nullable=False, server_default="red"))
"""


def _migrations_with(tmp_path: Path, script: str) -> Path:
    folder = tmp_path / "migrations"
    shutil.copytree(bundled("migrations"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{LATER_REVISION}_later.py").write_text(script)
    return folder


async def _state(path: Path, journal: Journal | None = None) -> Path:
    database = await StateDatabase.open(path)
    await database.apply((journal or sample()).entries)
    await database.close()
    return path


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def test_the_newest_revision_is_the_one_that_the_code_names() -> None:
    config = Config()
    config.set_main_option("script_location", str(bundled("migrations")))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [NEWEST_REVISION]


def test_all_migrations_make_the_same_file_as_the_schema_in_code(tmp_path: Path) -> None:
    schema.make(tmp_path / "made")
    sqlite3.connect(tmp_path / "migrated").close()
    checks.upgrade(tmp_path / "migrated")
    with _reading(tmp_path / "made") as made, _reading(tmp_path / "migrated") as migrated:
        wording = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
        made_rows, migrated_rows = made.execute(wording), migrated.execute(wording)
        assert [_in_one_line(row) for row in made_rows] == [_in_one_line(r) for r in migrated_rows]
    checks.prepare(tmp_path / "migrated")
    assert state_digest(tmp_path / "made") == state_digest(tmp_path / "migrated")


def _in_one_line(row: tuple[str | None, ...]) -> list[str]:
    words = " ".join(str(row[2]).split()).replace("( ", "(").replace(" )", ")")
    return [str(row[0]), str(row[1]), words]


async def test_a_migration_keeps_the_rows_and_sets_the_checksum_anew(tmp_path: Path) -> None:
    path = await _state(tmp_path / "state.sqlite")
    with _reading(path) as connection:
        names = connection.execute("SELECT topic_id, name FROM topics").fetchall()
    checks.upgrade(path, migrations=_migrations_with(tmp_path, ADD_A_COLUMN))
    with _reading(path) as connection:
        assert connection.execute("SELECT topic_id, name FROM topics").fetchall() == names
        assert connection.execute("SELECT DISTINCT colour FROM topics").fetchall() == [("red",)]
        assert checks.read_checked_revision(connection) == LATER_REVISION


async def test_a_migration_that_fails_midway_changes_nothing(tmp_path: Path) -> None:
    path = await _state(tmp_path / "state.sqlite")
    before = state_digest(path)
    script = (
        ADD_A_COLUMN + '    op.execute("DELETE FROM journal_entries")\n    raise RuntimeError\n'
    )
    with pytest.raises(RuntimeError):
        checks.upgrade(path, migrations=_migrations_with(tmp_path, script))
    assert state_digest(path) == before
    checks.prepare(path)


async def test_an_older_file_is_migrated_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await _state(tmp_path / "state.sqlite")
    before = state_digest(path)
    folder = _migrations_with(tmp_path, ADD_A_COLUMN)
    monkeypatch.setattr(checks, "NEWEST_REVISION", LATER_REVISION)
    monkeypatch.setattr(checks, "bundled", lambda name: tmp_path / name)
    assert folder == tmp_path / "migrations"
    monkeypatch.setattr(checks, "_check_shape", lambda connection: None)  # the code's is older
    database = await StateDatabase.open(path)
    assert (database.set_aside, await database.position()) == ("", sample().position)
    await database.close()
    with _reading(path) as connection:
        assert checks.read_checked_revision(connection) == LATER_REVISION
    kept = tmp_path / f"state.sqlite.revision-{NEWEST_REVISION}"
    assert state_digest(kept) == before
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_of_the_copies_before_migrations_the_newest_is_kept(tmp_path: Path) -> None:
    path = await _state(tmp_path / "state.sqlite")
    for revision in ("0001", "0002"):
        files.keep_revision(path, revision)
    assert [found.name for found in tmp_path.glob("*.revision-*")] == ["state.sqlite.revision-0002"]


async def test_a_migration_that_fails_at_a_start_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await _state(tmp_path / "state.sqlite")
    before = state_digest(path)
    _migrations_with(tmp_path, ADD_A_COLUMN + "    raise RuntimeError\n")
    with monkeypatch.context() as later:
        later.setattr(checks, "NEWEST_REVISION", LATER_REVISION)
        later.setattr(checks, "bundled", lambda name: tmp_path / name)
        with pytest.raises(RuntimeError):
            await StateDatabase.open(path)
    database = await StateDatabase.open(path)
    assert (database.set_aside, await database.position()) == ("", sample().position)
    await database.close()
    assert state_digest(path) == before


async def test_after_going_back_a_release_older_snapshots_are_begun_from(tmp_path: Path) -> None:
    """As if the newest snapshots had been written by a release with a later revision."""
    where = {"bucket": f"file:{tmp_path / 'bucket'}"}
    async with running_appliance(tmp_path / "data", **where) as seb:
        for number in range(4):
            await seb.client.post("/v1/topics/t/records", content=f"{number}".encode())
            await seb.client.post("/v1/snapshots")
    _write_as_a_later_release(tmp_path / "bucket", newest=2)
    found = await restoring.verify(_settings(tmp_path), lambda *_: None)
    assert found.state.topics[0].name == "t"
    assert found.rebuilt.entries_replayed == 2
    assert len(found.rebuilt.notes) == 2
    _write_as_a_later_release(tmp_path / "bucket", newest=3)
    with pytest.raises(ConfigurationError, match="wrote the snapshots"):  # entries before are gone
        await restoring.verify(_settings(tmp_path), lambda *_: None)


def _settings(tmp_path: Path) -> Settings:
    flags = {"bucket": f"file:{tmp_path / 'bucket'}", "data": str(tmp_path / "other")}
    return setting_sources.load(flags=flags, environment={})


def _write_as_a_later_release(bucket: Path, newest: int) -> None:
    for path in sorted((bucket / "_seb" / "snapshots").iterdir())[-newest:]:
        state = bucket.parent / "rewritten"
        state.write_bytes(zstd.decompress(path.read_bytes()))
        with _reading(state) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (LATER_REVISION,))
            checksum = rows_checksum(connection)
            connection.execute("UPDATE journal_state SET checksum = ?", (checksum,))
        body = zstd.compress(state.read_bytes())
        digest = hashlib.sha256(body).hexdigest()[:16]
        path.unlink()
        path.with_name(f"{path.name.partition('-')[0]}-{digest}.sqlite.zst").write_bytes(body)


async def test_a_state_from_before_there_were_groups_goes_on_with_groups(tmp_path: Path) -> None:
    journal = sample(with_groups=False)
    newest = await _state(tmp_path / "newest.sqlite", journal)
    path = tmp_path / "state.sqlite"
    write_as_of("0001", newest, path)
    with _reading(path) as connection:
        assert checks.read_checked_revision(connection) == "0001"
        grants = connection.execute("SELECT grants FROM api_keys").fetchone()[0]
        assert "topics" in grants
        assert "groups" not in grants
    database, other = await StateDatabase.open(path), await StateDatabase.open(newest)
    assert database.set_aside == ""
    assert await database.load() == replace(await other.load(), streams=[])
    commit = OffsetsCommitted(group="g", offsets=(CommittedOffset(1, 7, "note"),))
    await database.apply([journal.write(commit)])
    row = (await database.load()).group_offsets
    assert row == [GroupOffsetRow("g", 1, 7, "note", journal.entries[-1].header.created_us)]
    await database.close()
    await other.close()
    checks.prepare(path)


async def test_a_state_from_before_retries_were_remembered_goes_on_remembering(
    tmp_path: Path,
) -> None:
    journal = sample()
    newest = await _state(tmp_path / "newest.sqlite", journal)
    path = tmp_path / "state.sqlite"
    write_as_of("0002", newest, path)
    with _reading(path) as connection:
        assert checks.read_checked_revision(connection) == "0002"

    database, other = await StateDatabase.open(path), await StateDatabase.open(newest)
    assert database.set_aside == ""
    assert await database.load() == replace(await other.load(), streams=[])
    await other.close()
    result = RequestResult(b"s" * 16, b"b" * 16, [Produced(1, 99, 1, 5)])
    producers = (ProducerAppend("p", 0, 0, 99, 1, 5),)
    appended = msgspec.structs.replace(section(1, 99), producers=producers)
    entry = journal.write(sections=[appended], results=[result])
    await database.apply([entry])
    loaded = await database.load()
    created_us = entry.header.created_us
    assert loaded.requests == [RememberedRequest(result, created_us, 1)]
    assert [(p.producer_id, p.next_seq, p.used_us) for p in loaded.producers] == [
        ("p", 1, created_us)
    ]
    await database.close()
    checks.prepare(path)


async def test_api_keys_from_before_there_were_quotas_have_none(tmp_path: Path) -> None:
    newest = await _state(tmp_path / "newest.sqlite")
    path = tmp_path / "state.sqlite"
    write_as_of("0003", newest, path)
    database = await StateDatabase.open(path)
    assert database.set_aside == ""
    (row,) = (await database.load()).api_keys
    assert (row.description, row.disabled, row.quotas) == ("", False, Quotas())
    assert (row.previous_sha256, row.overlap_until_us) == (None, None)
    assert await database.audit(AuditQuery(10)) == []
    await database.close()
    checks.prepare(path)


async def test_the_pages_of_a_migrated_state_are_those_that_the_journal_would_have_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INDEX_PAGE_ENTRIES", 7)
    journal = sample(40)
    journal.write(TopicDeleted(topic_id=2))
    newest = await _state(tmp_path / "newest.sqlite", journal)
    path = tmp_path / "state.sqlite"
    write_as_of("0004", newest, path)
    database = await StateDatabase.open(path)
    assert database.set_aside == ""
    (paged,) = (await database.load()).paged
    assert (paged.topic_id, paged.end_offset) == (1, 35)
    await database.close()
    assert state_digest(path) == state_digest(newest)


async def test_requests_from_before_there_were_places_count_one_each(tmp_path: Path) -> None:
    journal = sample()
    produced = [Produced(1, 99, 1, 5)] * 7
    before = [RequestResult(letter * 16, b"b" * 16, produced) for letter in (b"z", b"a")]
    written = [journal.write(results=[result]).header.created_us for result in before]
    newest = await _state(tmp_path / "newest.sqlite", journal)
    path = tmp_path / "state.sqlite"
    write_as_of("0004", newest, path)
    database = await StateDatabase.open(path)
    assert database.set_aside == ""
    after = RequestResult(b"m" * 16, b"b" * 16, produced)
    entry = journal.write(results=[after])
    await database.apply([entry])
    loaded = await database.load()
    assert loaded.requests == [
        RememberedRequest(before[0], written[0], 1),
        RememberedRequest(before[1], written[1], 2),
        RememberedRequest(after, entry.header.created_us, 9),
    ]
    assert loaded.requests_place == 9
    await database.close()
    checks.prepare(path)


async def test_the_audit_from_before_there_were_users_knows_no_client(tmp_path: Path) -> None:
    journal = sample()
    journal.write(audit_noted(1, user_agent="Browser/1.0"))
    newest = await _state(tmp_path / "newest.sqlite", journal)
    path = tmp_path / "state.sqlite"
    write_as_of("0004", newest, path)
    database = await StateDatabase.open(path)
    assert database.set_aside == ""
    (row,) = await database.audit(AuditQuery(10))
    assert (row.number, row.after, row.user_agent) == (1, '{"n":1}', "")
    user = UserSet(name="olga", role="viewer", password_hash="hash", set_us=7)
    await database.apply([journal.write(user)])
    assert (await database.load()).users == [UserRow("olga", "viewer", "hash", 7)]
    await database.close()
    checks.prepare(path)


@pytest.mark.parametrize("revision", ["", "1", "00001", "abcd", "0001 "])
def test_a_revision_that_no_release_wrote_is_damage(revision: str) -> None:
    with pytest.raises(CorruptObjectError):
        checks.needs_upgrade(revision)


def test_only_an_older_revision_needs_an_upgrade() -> None:
    assert checks.needs_upgrade("0000")
    assert not checks.needs_upgrade(NEWEST_REVISION)
    with pytest.raises(ConfigurationError, match="newer release"):
        checks.needs_upgrade(LATER_REVISION)


def test_making_and_opening_a_state_does_not_import_alembic(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path;"
        "from seb_appliance.state.database import StateDatabase as D;"
        "[asyncio.run(D.open(Path(sys.argv[1]))) for _ in 'ab'];"
        "sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "state.sqlite")], check=True)
