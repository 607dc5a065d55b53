"""`seb import`: a Go broker's bucket becomes topics, in place or copied."""

from __future__ import annotations

import datetime
import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.streams.admission import WantedStream
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest
from seb_appliance.clock import SystemClock
from seb_appliance.errors import ConfigurationError, CorruptObjectError, ImportRefusedError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats import batch_v1
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.operations import StoredObject, StoredSection
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.checks.check import CheckOptions, check_bucket
from seb_appliance.ops.host import restoring
from seb_appliance.ops.host.data_directory import own_data_directory
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.go_import import ImportOptions, import_old_log
from seb_appliance.storage.journal.retry import RetryingStore
from tests.support import go_client
from tests.support.appliance import running_appliance
from tests.support.old_buckets import FIXTURE, FIXTURE_VALUES, OldPlace, of_directory

ADMIN = ApiKeyView("test", "test", (Grant(operation="admin"),), 0)
TIDY = {"tidier": "off", "tidy_bytes": "1KiB", "tidy_young": "0ms", "garbage_grace": "0ms"}
both = pytest.mark.parametrize("in_place", [True, False], ids=["in place", "copied"])


@pytest.fixture
def old(tmp_path: Path) -> OldPlace:
    return OldPlace(tmp_path)


async def started(old: OldPlace, *, in_place: bool = True, **flags: str | bool) -> Appliance:
    bucket = old.bucket if in_place else old.folder / "own"
    chosen = of_directory(bucket, old.folder / "data", take_over=True, **{"tidier": "off", **flags})
    store = make_store(chosen)
    appliance = await Appliance.open(chosen, store, NO_FAILPOINTS, lambda *_: None)
    await appliance.start()
    return appliance


async def stopped(appliance: Appliance) -> None:
    assert await appliance.drain()
    await appliance.close()


async def append(appliance: Appliance, topic: str, *values: bytes) -> int:
    """The first offset."""
    records = NewRecords(list(values))
    appended = await appliance.broker.appends.append(
        ADMIN, topic, records, appliance.broker.pending.reserve(OPERATOR, 1)
    )
    return appended.offset


async def read(appliance: Appliance, topic: str) -> list[tuple[int, bytes, int]]:
    """(offset, value, timestamp in µs) of every record."""
    found: list[tuple[int, bytes, int]] = []
    start = From(earliest=True)
    while True:
        result = await appliance.broker.read(topic, ReadRequest(start, max_bytes=1 << 24))
        for piece in result.slices:
            columns = piece.batch.columns
            rows = zip(
                piece.batch.offsets(), columns.values.slice(), columns.timestamps_us, strict=True
            )
            found += list(rows)[piece.begin : piece.end]
        if result.next_offset == result.log_end_offset:
            return found
        start = From(offset=result.next_offset)


async def values(appliance: Appliance, topic: str) -> list[bytes]:
    found = await read(appliance, topic)
    assert [offset for offset, *_ in found] == list(range(len(found)))
    return [value for _, value, _ in found]


async def problems(old: OldPlace, *, in_place: bool = True) -> list[tuple[str, str]]:
    chosen = old.own(in_place=in_place)
    store = make_store(chosen)
    retrying = RetryingStore(store, SystemClock(), random.random, give_up_after_s=10)
    options = CheckOptions(data=chosen.data)
    report = await check_bucket(retrying, SystemClock(), options, lambda *_: None)
    await store.close()
    return [(problem.code, problem.subject) for problem in report.findings.problems]


@both
async def test_an_old_bucket_comes_out_under_its_offsets_and_times_and_goes_on(
    old: OldPlace, in_place: bool
) -> None:
    old.fixture().small("other.topic", 40)
    told = await old.imported(in_place=in_place)
    assert (told.topics, told.files, told.records, told.found) == (2, 43, 263 + 120, 0)
    assert told.in_place is in_place
    old.forget_local_state()  # from the bucket alone
    appliance = await started(old, in_place=in_place)
    found = await read(appliance, "sample")
    assert [value for _, value, _ in found] == FIXTURE_VALUES
    assert [offset for offset, *_ in found] == list(range(263))
    times = {path.name: batch_v1.decode(path.read_bytes()).created_us for path in _batches()}
    assert found[2][2] == times["000000000000.record_batch"]
    assert found[3][2] == found[6][2] == times["000000000003.record_batch"]
    assert found[262][2] == times["000000000007.record_batch"]
    assert await append(appliance, "sample", b"new") == 263
    await stopped(appliance)
    appliance = await started(old, in_place=in_place)
    assert await values(appliance, "sample") == [*FIXTURE_VALUES, b"new"]
    assert await values(appliance, "other.topic") == old.expected["other.topic"]
    await stopped(appliance)
    assert await problems(old, in_place=in_place) == []


def _batches() -> list[Path]:
    return sorted(FIXTURE.glob("*.record_batch"))


async def test_an_import_in_place_copies_no_record_and_changes_no_file(old: OldPlace) -> None:
    old.fixture().small("t", 5)
    before = {path: path.read_bytes() for path in old.bucket.rglob("*.*") if path.is_file()}
    await old.imported()
    after = {path: path.read_bytes() for path in before}
    assert after == before
    assert not (old.bucket / "_seb" / "segments").exists()
    assert b"first-record-data" not in b"".join(
        path.read_bytes() for path in (old.bucket / "_seb" / "journal").iterdir()
    )


async def test_every_way_of_reading_shows_imported_records(old: OldPlace) -> None:
    old.fixture()
    await old.imported()
    flags = {"bucket": f"file:{old.bucket}", "tidier": "off"}
    async with running_appliance(old.folder / "data", **flags) as running:
        for _ in range(2):  # from the bucket, then from memory
            one = await running.client.get("/v1/topics/sample/records", params={"offset": 3})
            assert one.json()["records"][1]["value"] == "hello"
        lines = await running.client.get(
            "/v1/topics/sample/records", params={"format": "ndjson", "offset": -1}
        )
        assert b'"offset":262' in lines.content
        got = await go_client.get(running.client, "sample", 0, max_records=300)
        assert got == FIXTURE_VALUES
        await _at_time(running.client)


async def _at_time(client: httpx2.AsyncClient) -> None:
    """A time finds the file that was written then."""
    second_us = batch_v1.decode(_batches()[1].read_bytes()).created_us
    at = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(
        microseconds=second_us
    )
    found = await client.get("/v1/topics/sample/records", params={"offset": f"@{at.isoformat()}"})
    assert found.json()["records"][0]["offset"] == 3


async def test_files_that_were_taken_in_are_merged_and_removed_by_the_tidier(
    old: OldPlace,
) -> None:
    old.small("t", 40)
    await old.imported()
    appliance = await started(old, **TIDY)
    await append(appliance, "t", b"new")
    steps = 0
    while any((old.bucket / "t").iterdir()):
        await appliance.tidier.step()
        steps += 1
        assert steps < 300
    expected = [*old.expected["t"], b"new"]
    assert await values(appliance, "t") == expected
    await stopped(appliance)
    old.forget_local_state()
    appliance = await started(old)
    assert await values(appliance, "t") == expected
    await stopped(appliance)
    assert await problems(old) == []


async def test_trimming_and_deleting_take_the_old_files_along(old: OldPlace) -> None:
    old.small("kept", 4).small("gone", 3)
    old.put(old.bucket / "gone" / "offsets_000000000000.offsets", b"theirs")
    await old.imported()
    appliance = await started(old, **TIDY)
    await appliance.broker.topics.trim("kept", 7)
    await appliance.broker.topics.delete("gone")
    for _ in range(10):
        await appliance.tidier.step()
    assert await append(appliance, "kept", b"new") == 12
    assert [offset for offset, *_ in await read(appliance, "kept")] == list(range(7, 13))
    await stopped(appliance)
    assert [path.name for path in (old.bucket / "gone").iterdir()] == [
        "offsets_000000000000.offsets"
    ]
    left = sorted(int(path.stem) for path in (old.bucket / "kept").iterdir())
    assert left[0] == 6
    assert await problems(old) == []


async def test_a_damaged_file_that_was_taken_in_is_found_and_never_read_as_records(
    old: OldPlace,
) -> None:
    old.small("t", 3)
    await old.imported()
    path = old.file("t", 3)
    body = bytearray(path.read_bytes())
    body[20] ^= 1
    path.write_bytes(body)
    appliance = await started(old)
    with pytest.raises(CorruptObjectError):
        await appliance.broker.read("t", ReadRequest(From(offset=4)))
    await stopped(appliance)
    found = await problems(old)
    assert ("segment_damaged", "t/000000000003.record_batch") in found
    assert ("records_lost", "t/000000000003.record_batch") in found
    path.unlink()
    assert ("records_lost", "t/000000000003.record_batch") in await problems(old)


async def test_a_clone_takes_the_old_files_along(old: OldPlace) -> None:
    old.fixture()
    await old.imported()
    target = of_directory(old.folder / "copy", old.folder / "data")
    await restoring.clone(old.own(in_place=True), target, None, lambda *_: None)
    other = OldPlace(old.folder / "elsewhere")
    other.folder.mkdir()
    (old.folder / "copy").rename(other.bucket)
    appliance = await started(other)
    assert await values(appliance, "sample") == FIXTURE_VALUES
    await stopped(appliance)


# --- again ---


class Interrupted(Exception):  # noqa: N818 - not an error: somebody pulled the plug
    pass


@both
async def test_an_import_that_broke_off_goes_on_and_doubles_nothing(
    old: OldPlace, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.protocols.go.files.FILES_AT_ONCE", 4)
    monkeypatch.setattr("seb_appliance.ops.serve.go_import._FILES_PER_ENTRY", 4)
    monkeypatch.setattr("seb_appliance.protocols.go.files.OBJECT_BYTES_MAX", 300)
    old.small("a", 20).small("b", 20)

    def stop(done: int, _of: int, what: str) -> None:
        if what.startswith("importing b") and done >= 28:
            raise Interrupted

    with pytest.raises(Interrupted):
        await old.imported(stop, in_place=in_place)
    told = await old.imported(in_place=in_place)
    assert told.found >= 24
    assert told.files + told.found == 40
    again = await old.imported(in_place=in_place)
    assert (again.files, again.found) == (0, 40)
    appliance = await started(old, in_place=in_place)
    assert await values(appliance, "a") == old.expected["a"]
    assert await values(appliance, "b") == old.expected["b"]
    await append(appliance, "a", b"new")
    await stopped(appliance)
    assert (await old.imported(in_place=in_place)).files == 0  # the topic has gone on
    assert await problems(old, in_place=in_place) == []


@both
async def test_a_topic_with_records_of_its_own_is_left_alone(old: OldPlace, in_place: bool) -> None:
    old.small("t", 3)
    (old.folder / "own").mkdir()
    appliance = await started(old, in_place=in_place)
    await append(appliance, "t", *old.expected["t"][:3])  # even the same ones
    await stopped(appliance)
    with pytest.raises(ImportRefusedError, match="'t' has records of its own at offset 0"):
        await old.imported(in_place=in_place)
    appliance = await started(old, in_place=in_place)
    assert await values(appliance, "t") == old.expected["t"][:3]
    await stopped(appliance)


def adopted(topic_id: int, base_offset: int, key: str, last_offset: int = -1) -> StoredObject:
    """An object of ten records, in words only: nobody reads it."""
    last = base_offset + 9 if last_offset < 0 else last_offset
    section = StoredSection(topic_id, base_offset, last, 10, 0, 99, 1, 5, 5)
    return StoredObject(key, 99, (section,))


async def test_only_objects_that_continue_a_log_of_their_own_kind_are_adopted(
    old: OldPlace,
) -> None:
    old.bucket.mkdir()
    appliance = await started(old)
    broker = appliance.broker
    ids = [(await broker.topics.create(name, TopicSettings()))[0].topic_id for name in "ab"]
    await broker.tidying.adopt([adopted(ids[0], 0, "one"), adopted(ids[0], 10, "two")])
    assert broker.topics.get("a").log_end_offset == 20
    await append(appliance, "b", b"of an entry")
    closed = WantedStream(closed=True)
    held = broker.pending.reserve(OPERATOR, 1)
    view, _ = await broker.streams.create("c", closed, [], held, THE_APPLIANCE)
    bad = {
        "begins at offset 21, but the log ends at 20": adopted(ids[0], 21, "three"),
        "begins at offset 19": adopted(ids[0], 19, "three"),
        "two is or was active": adopted(ids[0], 20, "two"),
        "there is no topic of the id": adopted(999, 0, "three"),
        "'b' has records in journal entries": adopted(ids[1], 1, "three"),
        "'c' is a stream that was closed": adopted(view.topic_id, 0, "three"),
    }
    for told, one in bad.items():
        with pytest.raises(ImportRefusedError, match=told):
            await broker.tidying.adopt([one])
    with pytest.raises(ImportRefusedError):  # all of them, or none
        await broker.tidying.adopt([adopted(ids[0], 20, "three"), adopted(ids[0], 31, "four")])
    assert broker.topics.get("a").log_end_offset == 20
    assert await append(appliance, "a", b"next") == 20
    await stopped(appliance)
    appliance = await started(old)
    assert appliance.broker.topics.get("a").log_end_offset == 21
    await stopped(appliance)


# --- what is refused ---


def _offsets_file(old: OldPlace) -> None:
    old.put(old.file("t", 9), (FIXTURE / "offsets_000000000000.offsets").read_bytes())


def _cut(old: OldPlace) -> None:
    path = old.file("t", 6)
    old.put(path, path.read_bytes()[:-5])


def _cut_inside(old: OldPlace) -> None:
    plain = gzip.decompress(old.file("t", 6).read_bytes())
    old.put(old.file("t", 6), gzip.compress(plain[:40]))


def _gap(old: OldPlace) -> None:
    old.file("t", 3).unlink()


def _no_beginning(old: OldPlace) -> None:
    old.file("t", 0).unlink()


def _twice(old: OldPlace) -> None:
    old.write("t", 8, [b"again"])


def _mixed_up(old: OldPlace) -> None:
    day_us = 24 * 3600 * 1_000_000
    old.write("t", 0, [b"1", b"2", b"3"], 1_700_000_000_000_000)
    old.write("t", 3, [b"1", b"2", b"3"], 1_700_000_000_000_000 + 2 * day_us)
    old.write("t", 6, [b"1", b"2", b"3"], 1_700_000_000_000_000 + day_us)


def _nothing_in_it(old: OldPlace) -> None:
    old.write("t", 9, [])


def _next_year(old: OldPlace) -> None:
    old.write("t", 9, [b"x"], 4_000_000_000_000_000)


def _before_1970(old: OldPlace) -> None:
    old.write("t", 9, [b"x"], -5)


def _short_name(old: OldPlace) -> None:
    old.put(old.bucket / "t" / "9.record_batch", b"")


def _foreign(old: OldPlace) -> None:
    old.put(old.bucket / "t" / "notes.txt", b"hello")


def _name(old: OldPlace) -> None:
    old.write("späti", 0, [b"x"])


BAD: dict[str, tuple[Callable[[OldPlace], Any], str]] = {
    "an offsets file as a batch": (_offsets_file, "t/000000000009.record_batch is damaged"),
    "a file cut short": (_cut, "t/000000000006.record_batch is damaged: the gzip stream is cut"),
    "a file cut short before": (_cut_inside, "t/000000000006.record_batch is damaged: the index"),
    "a gap": (_gap, "before t/000000000006.record_batch: the records from offset 3 up to 6"),
    "no beginning": (_no_beginning, "the records from offset 0 up to 3 are missing"),
    "records twice": (_twice, "t/000000000006.record_batch has records up to offset 9, and t/0"),
    "mixed up": (_mixed_up, "t/000000000006.record_batch was written 86,400 s before t/000000000"),
    "an empty file": (_nothing_in_it, "t/000000000009.record_batch is damaged: a file of 0 rec"),
    "a file of next year": (_next_year, "t/000000000009.record_batch has a creation time"),
    "a file of before 1970": (_before_1970, "t/000000000009.record_batch is damaged"),
    "a name of one digit": (_short_name, "t/9.record_batch: the file name must be an offset"),
    "somebody's notes": (_foreign, "t/notes.txt is not a file of a Go broker"),
    "a name that is none here": (_name, "cannot have its name here"),
}


@pytest.mark.parametrize(("break_it", "told"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("dry_run", [True, False], ids=["dry run", "import"])
async def test_what_is_wrong_with_an_old_bucket_is_told_by_name(
    old: OldPlace, break_it: Callable[[OldPlace], Any], told: str, dry_run: bool
) -> None:
    old.small("t", 3)
    break_it(old)
    with pytest.raises(ImportRefusedError) as refused:
        await old.imported(in_place=False, dry_run=dry_run)
    assert told in refused.value.detail


async def test_a_dry_run_writes_nothing(old: OldPlace) -> None:
    old.fixture()
    before = sorted(old.folder.rglob("*"))
    told = await old.imported(dry_run=True)
    assert (told.files, told.records) == (3, 263)
    assert sorted(old.folder.rglob("*")) == before


async def test_a_dry_run_of_a_half_done_import_says_that_it_goes_on(old: OldPlace) -> None:
    old.small("t", 3)
    told = await old.imported()
    assert told.goes_on == 0
    (old.bucket / "t" / "000000000000.record_batch").unlink()  # as the tidier does
    told = await old.imported(dry_run=True)
    assert (told.files, told.goes_on) == (2, 1)


async def test_a_clock_that_was_set_back_is_taken_when_somebody_says_so(old: OldPlace) -> None:
    _mixed_up(old.small("t", 3))
    assert (await old.imported(times_may_go_back=True)).records == 9
    appliance = await started(old)
    assert len(await values(appliance, "t")) == 9
    await stopped(appliance)


async def test_a_bucket_that_was_written_to_a_moment_ago_is_refused(old: OldPlace) -> None:
    old.small("t", 2).file("t", 3).touch()
    with pytest.raises(ImportRefusedError, match=r"t/000000000003\.record_batch was written 0 s"):
        await old.imported()
    assert (await old.imported(quiet_ms=0)).files == 2


@both
async def test_a_bucket_that_is_still_being_written_is_found_out(
    old: OldPlace, in_place: bool
) -> None:
    old.small("t", 2)

    def meanwhile(done: int, _of: int, what: str) -> None:
        if done == 2 and what == "importing t" and not old.file("t", 6).exists():
            old.write("t", 6, [b"late"])

    with pytest.raises(ImportRefusedError, match="still running"):
        await old.imported(meanwhile, in_place=in_place)
    assert (await old.imported(in_place=in_place)).files == 1  # the Go broker was stopped
    appliance = await started(old, in_place=in_place)
    assert await values(appliance, "t") == [*old.expected["t"]]
    await stopped(appliance)


async def test_only_the_topics_that_are_asked_for_are_looked_at(old: OldPlace) -> None:
    old.small("orders.eu", 2).small("orders.us", 2).small("späti", 1)
    told = await old.imported(in_place=False, topics=("orders.eu",))
    assert (told.topics, told.files) == (1, 2)


async def test_another_bucket_is_imported_by_copy_only(old: OldPlace) -> None:
    old.small("t", 1)
    source = of_directory(old.bucket, old.folder / "data")
    with pytest.raises(ConfigurationError, match="--copy"):
        await import_old_log(old.own(in_place=False), ImportOptions(source=source), lambda *_: None)


async def test_while_an_appliance_runs_nothing_is_imported(old: OldPlace) -> None:
    old.small("t", 1)
    flags = {"bucket": f"file:{old.bucket}", "tidier": "off"}
    async with running_appliance(old.folder / "data", **flags):
        with own_data_directory(old.folder / "data"), pytest.raises(ConfigurationError):
            await old.imported()
