"""What earlier releases left behind is opened, and says what it said then.

stored/ holds buckets and data directories, and beside each what is in it (make_stored.py).
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from seb_appliance import limits, zstd
from seb_appliance.clock import SystemClock
from seb_appliance.errors import StartError
from seb_appliance.formats import entry
from seb_appliance.ops.checks.check import CheckOptions, check_bucket
from seb_appliance.ops.host import restoring
from seb_appliance.state import checks
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.schema import NEWEST_REVISION
from seb_appliance.state.tables import rows_checksum
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.stores.directory import DirectoryStore
from tests.upgrade.appliance_of import appliance_of, settings_of, told_records, told_state
from tests.upgrade.make_stored import INDEX_PAGE_ENTRIES
from tests.upgrade.old_states import REVISIONS
from tests.upgrade.stored_data import STORED, unpack

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in STORED.glob("*.tar.xz"))
IN_MODE_A = [name for name in NAMES if name.endswith("-a")]


@dataclass(frozen=True)
class Stored:
    """A copy for one test. `manifest`: what is in it."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def records(self) -> dict[str, Any]:
        found: dict[str, Any] = self.manifest["records"]
        return found

    @property
    def state(self) -> dict[str, Any]:
        found = {key: self.manifest[key] for key in self.manifest if key not in NOT_STATE}
        for topic in found["topics"]:  # earlier releases told of settings that are not set, too
            topic["settings"] = {n: v for n, v in topic["settings"].items() if v is not None}
        return found

    def objects(self, below: str) -> list[Path]:
        return sorted(path for path in (self.bucket / below).rglob("*") if path.is_file())


NOT_STATE = {"mode", "seq", "records"}
Unpacked = Callable[[str], Stored]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each, once: nobody changes an object of a bucket."""
    found = {name: unpack(name, tmp_path_factory.mktemp(name)) for name in NAMES}
    for folder in found.values():
        _complete(folder / "states")
    return found


def _complete(states: Path) -> None:
    """States of revisions that came after the release: its last one, as their releases migrated
    it."""
    stored = sorted(states.glob("*.sqlite")) if states.exists() else []
    for revision in REVISIONS[:-1]:
        path = states / f"{revision}.sqlite"
        if stored and not path.exists():
            shutil.copy(stored[-1], path)
            checks.upgrade(path, to=revision)


@pytest.fixture
def stored(unpacked: dict[str, Path], tmp_path: Path) -> Unpacked:
    def copied(name: str) -> Stored:
        source = unpacked[name]
        shutil.copytree(source / "bucket", tmp_path / "bucket", copy_function=os.link)
        for part in ("data", "states"):
            if (source / part).exists():
                shutil.copytree(source / part, tmp_path / part)
        return Stored(tmp_path, msgspec.json.decode((STORED / f"{name}.json").read_bytes()))

    return copied


def as_json(told: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(told))


async def records_of(there: Stored, data: Path) -> dict[str, Any]:
    async with appliance_of(there.bucket, data, drained=False) as appliance:
        found: dict[str, Any] = as_json(await told_records(appliance))
        return found


async def rebuilt_state(there: Stored) -> dict[str, Any]:
    """From the bucket alone, which is only read."""
    chosen = settings_of(there.bucket, there.folder / "elsewhere")
    restored = await restoring.verify(chosen, lambda *_: None)
    assert restored.rebuilt.position.seq == there.manifest["seq"]
    found: dict[str, Any] = as_json(told_state(restored.state))
    return found


def test_each_kind_of_object_is_in_what_is_stored(stored: Unpacked) -> None:
    found = [str(path) for name in NAMES for path in STORED.glob(f"{name}.json")]
    assert len(found) == len(NAMES) >= 2
    for name in IN_MODE_A:
        there = stored(name)
        for folder in (layout.JOURNAL, layout.SEGMENTS, layout.PACKED, layout.SNAPSHOTS):
            assert there.objects(folder), folder
        for file in ("state.sqlite", "keyindex.sqlite", "local.sqlite", "writer-ids"):
            assert (there.data / file).exists(), file


@pytest.mark.parametrize("name", NAMES)
async def test_its_data_directory_is_gone_on_from(stored: Unpacked, name: str) -> None:
    there = stored(name)
    database = await StateDatabase.open(there.data / "state.sqlite")
    state = await database.load()
    await database.close()
    assert database.set_aside == ""
    assert as_json(told_state(state)) == there.state
    assert await records_of(there, there.data) == there.records
    assert not list(there.data.glob("*.damaged*"))


@pytest.mark.parametrize("name", NAMES)
async def test_its_bucket_alone_gives_the_same(stored: Unpacked, name: str) -> None:
    there = stored(name)
    assert await rebuilt_state(there) == there.state
    assert await records_of(there, there.folder / "new") == there.records


@pytest.mark.parametrize("name", NAMES)
async def test_who_made_its_topics_is_known_from_its_data_and_from_its_bucket(
    stored: Unpacked, name: str
) -> None:
    there = stored(name)
    database = await StateDatabase.open(there.data / "state.sqlite")
    migrated = {row.name: row.owner for row in (await database.load()).topics}
    await database.close()
    chosen = settings_of(there.bucket, there.folder / "elsewhere")
    restored = await restoring.verify(chosen, lambda *_: None)
    assert {row.name: row.owner for row in restored.state.topics} == migrated
    assert migrated["plain"] in {row["api_key_id"] for row in there.state["api_keys"]}


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_is_found_wrong_with_its_bucket(
    stored: Unpacked, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INDEX_PAGE_ENTRIES", INDEX_PAGE_ENTRIES)  # else snapshots differ
    store = DirectoryStore(stored(name).bucket)
    retrying = RetryingStore(store, SystemClock(), random.random, give_up_after_s=5)
    report = await check_bucket(retrying, SystemClock(), CheckOptions(), lambda *_: None)
    await store.close()
    assert report.findings.problems == []


@pytest.mark.parametrize("revision", REVISIONS[:-1])
@pytest.mark.parametrize("name", IN_MODE_A)
async def test_a_state_of_each_earlier_revision_is_migrated_and_kept_as_it_was(
    stored: Unpacked, name: str, revision: str
) -> None:
    there = stored(name)
    old = there.folder / "states" / f"{revision}.sqlite"
    shutil.copy(old, there.data / "state.sqlite")
    database = await StateDatabase.open(there.data / "state.sqlite")
    topics = {row.name for row in (await database.load()).topics}
    await database.close()
    assert database.set_aside == ""
    assert topics >= {"plain", "keyed", "compacted"}
    assert (there.data / f"state.sqlite.revision-{revision}").read_bytes() == old.read_bytes()


@pytest.mark.parametrize("name", IN_MODE_A)
async def test_an_appliance_goes_on_from_the_oldest_state(stored: Unpacked, name: str) -> None:
    """In the middle of the log: what came later is replayed, what readers are told is the same."""
    there = stored(name)
    (there.data / "keyindex.sqlite").unlink()  # no release of that time had one that knew this
    shutil.copy(there.folder / "states" / "0001.sqlite", there.data / "state.sqlite")
    assert await records_of(there, there.data) == there.records
    assert not list(there.data.glob("*.damaged*"))


@pytest.mark.parametrize("revision", REVISIONS[:-1])
@pytest.mark.parametrize("name", IN_MODE_A)
async def test_a_snapshot_of_each_earlier_revision_is_begun_from(
    stored: Unpacked, name: str, revision: str
) -> None:
    there = stored(name)
    for path in there.objects(layout.SNAPSHOTS):
        path.unlink()
    seq = _put_snapshot(there, there.folder / "states" / f"{revision}.sqlite")
    chosen = settings_of(there.bucket, there.folder / "elsewhere")
    restored = await restoring.verify(chosen, lambda *_: None)
    assert restored.rebuilt.entries_replayed == there.manifest["seq"] - seq
    assert as_json(told_state(restored.state)) == there.state


def _put_snapshot(there: Stored, state: Path) -> int:
    """The state as a snapshot in the bucket; the seq that it is as of."""
    with closing(sqlite3.connect(state)) as connection:
        (seq,) = connection.execute("SELECT applied_seq FROM journal_state").fetchone()
    body = zstd.compress(state.read_bytes())
    digest = hashlib.sha256(body).hexdigest()[:16]
    (there.bucket / layout.SNAPSHOTS / f"{seq:020d}-{digest}.sqlite.zst").write_bytes(body)
    return int(seq)


# --- of a release after this one ---


def _newer_entry(there: Stored) -> None:
    """The last entry, in a version 2 whose header is otherwise as we know it."""
    path = there.objects(layout.JOURNAL)[-1]
    body = bytearray(path.read_bytes())
    struct.pack_into("<H", body, 4, entry.VERSION + 1)
    struct.pack_into("<I", body, 104, crc32c(bytes(body[:104])))
    _replace(path, bytes(body))


def _newer_operation(there: Stored) -> None:
    """The last entry, with an operation that we do not know."""
    path = there.objects(layout.JOURNAL)[-1]
    body = path.read_bytes()
    assert b"epoch_started" in body
    changed = bytearray(body.replace(b"epoch_started", b"epoch_stopped"))
    size = struct.unpack_from("<I", changed, 28)[0]
    struct.pack_into("<I", changed, 100, crc32c(bytes(changed[112 : 112 + size])))
    struct.pack_into("<I", changed, 104, crc32c(bytes(changed[:104])))
    _replace(path, bytes(changed))


def _newer_bucket(there: Stored) -> None:
    path = there.bucket / layout.BUCKET
    _replace(path, path.read_bytes().replace(b'"journal_entry": 1', b'"journal_entry": 2'))


def _newer_state(there: Stored) -> None:
    with closing(sqlite3.connect(there.data / "state.sqlite")) as connection, connection:
        later = f"{int(NEWEST_REVISION) + 1:04}"
        connection.execute("UPDATE alembic_version SET version_num = ?", (later,))
        checksum = rows_checksum(connection)
        connection.execute("UPDATE journal_state SET checksum = ?", (checksum,))


def _replace(path: Path, body: bytes) -> None:
    path.unlink()  # others link to the same file
    path.write_bytes(body)


@pytest.mark.parametrize("name", IN_MODE_A)
@pytest.mark.parametrize(
    "change",
    [_newer_entry, _newer_operation, _newer_bucket, _newer_state],
    ids=lambda f: f.__name__,
)
async def test_what_a_later_release_wrote_is_refused_with_a_hint(
    stored: Unpacked, name: str, change: Callable[[Stored], None]
) -> None:
    there = stored(name)
    change(there)
    if change in {_newer_entry, _newer_operation}:  # which neither state nor snapshot know yet
        shutil.copy(there.folder / "states" / "0001.sqlite", there.data / "state.sqlite")
        for path in there.objects(layout.SNAPSHOTS):
            path.unlink()
    before = sorted(str(path) for path in there.objects("_seb"))
    with pytest.raises(StartError) as refused:
        await records_of(there, there.data)
    sentence = refused.value.detail.lower()
    assert "install" in sentence
    assert "release" in sentence
    assert refused.value.exit_code in {74, 78}
    assert sorted(str(path) for path in there.objects("_seb")) == before, "nothing was claimed"


@pytest.mark.parametrize("file", ["keyindex.sqlite", "local.sqlite"])
async def test_a_file_of_this_machine_that_a_later_release_wrote_is_begun_anew(
    stored: Unpacked, file: str
) -> None:
    there = stored(IN_MODE_A[-1])
    with closing(sqlite3.connect(there.data / file)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    assert await records_of(there, there.data) == there.records
