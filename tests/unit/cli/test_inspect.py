"""`seb inspect`: every kind of object, for people and as JSON."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from crc32c import crc32c

from seb_appliance import limits, zstd
from seb_appliance.cli import seb
from seb_appliance.cli.commands.checks import describe
from seb_appliance.cli.errors import WRONG, CommandError
from seb_appliance.cli.output import outline
from seb_appliance.errors import BadBatchError, StartError
from seb_appliance.formats import batch, entry
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.contents import Contents, Section
from seb_appliance.formats.operations import ApiKeyCreated, Append, TopicCreated
from seb_appliance.formats.topic_settings import TopicSettings

FIXTURES = Path(__file__).parents[2] / "fixtures" / "seb-v1"
BATCH = batch.encode(
    Columns(
        int64s([1_795_227_821_780_216, 1_795_227_821_780_217]),
        BinaryColumn.of([b"hello", b"\xff\xfe"]),
        BinaryColumn.of([b"greeting", None]),
        BinaryColumn.of([b"\x81\xa1a\xc4\x01b", b""]),
    ),
    base_offset=40,
    created_us=1_795_227_821_780_216,
)


def an_entry(section_crc: int = crc32c(BATCH)) -> bytes:
    contents = Contents(
        [
            TopicCreated(topic_id=7, name="greetings", created_us=1, settings=TopicSettings()),
            ApiKeyCreated(
                api_key_id="ABCDEFGH",
                name="x",
                secret_sha256=b"S" * 32,
                grants=(),
                created_us=1,
                expires_us=None,
            ),
            Append(section=0),
        ],
        [Section(7, 40, 41, 2, 0, len(BATCH), section_crc, 1_795_227_821_780_217)],
    )
    return entry.encode(
        contents,
        [BATCH],
        after=entry.ORIGIN,
        epoch=3,
        writer_id=b"w" * 16,
        entry_id=b"e" * 16,
        bucket_id=b"b" * 16,
        created_us=1,
    ).body


def a_snapshot(folder: Path) -> bytes:
    path = folder / "state.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE topics (topic_id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("CREATE TABLE journal_state (applied_seq INTEGER, bucket_id BLOB)")
        database.execute("INSERT INTO topics VALUES (1, 'a'), (2, 'b')")
        database.execute("INSERT INTO journal_state VALUES (81, x'00ff')")
    database.close()
    return zstd.compress(path.read_bytes())


def test_a_batch_shows_its_header_and_as_many_records_as_asked_for() -> None:
    found = describe(BATCH, records=9)["batches"][0]
    assert (found["base_offset"], found["last_offset"], found["count"]) == (40, 41, 2)
    assert found["columns"] == ["timestamps", "values", "keys", "headers"]
    assert found["records"] == [
        {
            "offset": 40,
            "timestamp": "2026-11-21T02:23:41.780216Z",
            "key": "greeting",
            "value": "hello",
            "headers": {"a": "b"},
        },
        {
            "offset": 41,
            "timestamp": "2026-11-21T02:23:41.780217Z",
            "key": None,
            "value": "0xfffe",
            "headers": {},
        },
    ]
    assert describe(BATCH)["batches"][0]["records"] == []


def test_batches_back_to_back_are_all_shown() -> None:
    assert len(describe(BATCH + BATCH)["batches"]) == 2


def test_a_file_of_the_go_broker_is_shown() -> None:
    stored = (FIXTURES / "s3" / "000000000000.record_batch").read_bytes()
    found = describe(stored, records=1)
    assert (found["version"], found["count"], found["compressed"]) == (1, 3, "gzip")
    assert found["records"] == [{"value": "first-record-data"}]


def test_an_entry_shows_its_place_its_operations_and_its_sections() -> None:
    found = describe(an_entry(), records=1)
    assert (found["seq"], found["epoch"], found["writer_id"]) == (1, 3, "77" * 16)
    assert [operation["type"] for operation in found["operations"]] == [
        "topic_created",
        "api_key_created",
        "append",
    ]
    section = found["sections"][0]
    assert (section["topic_id"], section["base_offset"], section["count"]) == (7, 40, 2)
    assert section["batches"][0]["records"][0]["value"] == "hello"


def test_what_is_kept_of_a_secret_is_not_shown() -> None:
    assert "secret" not in json.dumps(describe(an_entry()))


def test_a_section_whose_crc_disagrees_is_damage() -> None:
    with pytest.raises(BadBatchError, match="CRC"):
        describe(an_entry(section_crc=1))


def test_a_snapshot_shows_its_place_in_the_journal_and_its_tables(tmp_path: Path) -> None:
    found = describe(a_snapshot(tmp_path))
    assert found["state"] == {"applied_seq": 81, "bucket_id": "00ff"}
    assert found["rows"] == {"journal_state": 1, "topics": 2}
    assert found["check"] == "ok"


BAD_OBJECTS = {
    "nothing": b"",
    "text": b"hello",
    "broken JSON": b"{",
    "JSON that is not UTF-8": b'{"a": "\xff"}',
    "a batch cut short": BATCH[:-8],
    "a zstd frame of something else": zstd.compress(b"hello"),
    "a zstd frame cut short": zstd.compress(b"SQLite format 3\0" * 99)[:-3],
    "SQLite only at first sight": zstd.compress(b"SQLite format 3\0" * 99),
}


@pytest.mark.parametrize("data", BAD_OBJECTS.values(), ids=BAD_OBJECTS)
def test_an_object_that_is_none_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(BadBatchError):
        describe(data)


def test_a_snapshot_that_inflates_to_too_much_is_not_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_BYTES_MAX", 8 * limits.MIB)
    bomb = zstd.compress(b"SQLite format 3\0" + bytes(64 * limits.MIB))
    tracemalloc.start()
    try:
        with pytest.raises(BadBatchError, match="holds more than"):
            describe(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * limits.MIB
    finally:
        tracemalloc.stop()


def test_a_column_that_is_computed_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE journal_state (a, b AS (zeroblob(8000000)))")
        database.execute("INSERT INTO journal_state VALUES (1)")
        database.commit()
    with pytest.raises(BadBatchError, match="too big"):
        describe(path.read_bytes())


def run(*arguments: str) -> str:
    return CliRunner().invoke(seb, ["inspect", *arguments], catch_exceptions=False).output


@pytest.mark.parametrize("make", [lambda _: BATCH, lambda _: an_entry(), a_snapshot])
def test_people_read_an_outline_and_scripts_json(
    tmp_path: Path, make: Callable[[Path], bytes]
) -> None:
    path = tmp_path / "object"
    path.write_bytes(make(tmp_path))
    description = json.loads(run(str(path), "--json", "--records", "2"))
    assert description == {"object": str(path), **describe(path.read_bytes(), records=2)}
    assert run(str(path), "--records", "2") == outline(description) + "\n"


def test_an_object_is_read_from_a_bucket_by_its_key(tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / "_seb"
    folder.mkdir(parents=True)
    (folder / "bucket.json").write_text('{"mode": "A"}')
    shown = run("_seb/bucket.json", "--bucket", f"file:{tmp_path / 'bucket'}", "--json")
    assert json.loads(shown)["content"] == {"mode": "A"}


@pytest.mark.parametrize("nested", [('{"a":', "1}"), ("[", "]")])
def test_an_object_that_is_nested_too_deeply_is_told_in_one_sentence(
    tmp_path: Path, nested: tuple[str, str]
) -> None:
    path = tmp_path / "nested.json"
    path.write_text('{"a":' + nested[0] * 800 + nested[1][:-1] + nested[1][-1] * 800 + "}")
    with pytest.raises(CommandError, match="nested too deeply") as told:
        run(str(path))
    assert told.value.exit_code == WRONG


def test_an_object_that_is_not_there_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot read"):
        run(str(tmp_path / "none"))
    (tmp_path / "bucket").mkdir()
    (tmp_path / "beside").write_text("{}")
    for key in ("none", "../beside", str(tmp_path / "beside"), ".tmp/none", ""):
        with pytest.raises(StartError, match="has no object"):
            run(key, "--bucket", f"file:{tmp_path / 'bucket'}")


def test_a_device_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OBJECT_BYTES_MAX", 1_000_000)
    with pytest.raises(StartError, match="more bytes than any object of ours"):
        run("/dev/zero")


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_bytes, args=(b'{"a": 1}',))
    writing.start()
    assert json.loads(run(str(pipe), "--json"))["content"] == {"a": 1}
    writing.join()


def test_a_file_that_is_larger_than_any_object_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(limits.OBJECT_BYTES_MAX + 1)
    with pytest.raises(StartError, match="more bytes than any object of ours"):
        run(str(path))


def test_control_characters_of_a_record_do_not_reach_the_terminal() -> None:
    shown = outline({"records": [{"value": "\x1b[2Jpay\u202e\nback"}]})
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.count("\n") == 1
