"""One contract over every object store: memory, directory, and S3 on every server there is."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from _pytest.mark.structures import ParameterSet

from seb_appliance.clock import monotonic_s
from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreUncertainError,
    StoreUnsupportedError,
)
from seb_appliance.storage.stores.object_store import ObjectInfo, ObjectRange, ObjectStore, list_all
from seb_appliance.storage.stores.s3 import S3Store
from tests.support.servers.s3_server import S3Server
from tests.support.stores import open_store, race

EMBEDDED = ["memory", "ready memory", "directory"]


def servers(*names: str) -> list[ParameterSet]:
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


# Those that fail the store test are left out: docs/COMPATIBILITY.md.
ATOMIC = servers("ceph", "minio", "seaweedfs", "versitygw")
PLAIN = servers("swift", "garage")

every_store = pytest.mark.parametrize(
    "store",
    [*EMBEDDED, "moto", *ATOMIC, *PLAIN, *servers("rclone", "s3mock")],
    indirect=True,
)
# SeaweedFS lists folder by folder, "a/b" before "a-b".
lists_by_bytes = pytest.mark.parametrize(
    "store",
    [
        *EMBEDDED,
        "moto",
        *(each for each in ATOMIC if each.values != ("seaweedfs",)),
        *PLAIN,
        *servers("rclone", "s3mock"),
    ],
    indirect=True,
)
creates_only_if_absent = pytest.mark.parametrize(
    "store", [*EMBEDDED, "moto", *ATOMIC, *servers("s3mock")], indirect=True
)
# The servers for tests, moto and s3mock, check and write without a lock between.
creates_atomically = pytest.mark.parametrize("store", [*EMBEDDED, *ATOMIC], indirect=True)

signs_urls = pytest.mark.parametrize("store", ["moto", *ATOMIC, *PLAIN], indirect=True)
# moto gives everything to everybody.
minds_signatures = pytest.mark.parametrize("store", [*ATOMIC, *PLAIN], indirect=True)


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    async with open_store(request.param, request, tmp_path) as opened:
        yield opened


@creates_only_if_absent
async def test_create_stores_the_bytes_under_a_free_key(store: ObjectStore) -> None:
    await store.create("journal/1", b"first")
    assert await store.get("journal/1") == b"first"


@creates_only_if_absent
async def test_create_on_a_taken_key_is_refused_and_changes_nothing(store: ObjectStore) -> None:
    await store.create("journal/1", b"first")
    with pytest.raises(ObjectExistsError) as refused:
        await store.create("journal/1", b"second")
    assert refused.value.key == "journal/1"
    assert await store.get("journal/1") == b"first"


@creates_only_if_absent
async def test_a_deleted_key_is_free_again(store: ObjectStore) -> None:
    await store.create("journal/1", b"first")
    await store.delete("journal/1")
    await store.create("journal/1", b"second")
    assert await store.get("journal/1") == b"second"


@creates_atomically
async def test_of_four_writers_racing_for_a_key_exactly_one_wins(store: ObjectStore) -> None:
    keys = [f"race/{number}" for number in range(5)]
    winners = await race([store] * 4, keys)
    assert [len(winners[key]) for key in keys] == [1] * 5
    for key in keys:
        assert await store.get(key) == f"writer {winners[key][0]}".encode()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["swift"], indirect=True)
async def test_swift_says_that_it_knows_no_create_only_put(store: ObjectStore) -> None:
    with pytest.raises(StoreUnsupportedError):
        await store.create("journal/1", b"first")
    with pytest.raises(ObjectMissingError):
        await store.get("journal/1")


@pytest.mark.slow
@pytest.mark.parametrize("store", ["rclone"], indirect=True)
async def test_rclone_overwrites_in_spite_of_the_condition(store: ObjectStore) -> None:
    await store.create("journal/1", b"first")
    await store.create("journal/1", b"second")
    assert await store.get("journal/1") == b"second"


@pytest.mark.slow
async def test_ceph_lets_several_creators_win_when_the_bucket_is_versioned(
    ceph_server: S3Server,
) -> None:
    store = S3Store(ceph_server.new_bucket(versioned=True))
    try:
        winners = await race([store] * 4, [f"race/{number}" for number in range(5)])
        warnings = await store.check_configuration()
    finally:
        await store.close()
    assert max(len(each) for each in winners.values()) > 1
    assert [warning.split()[0] for warning in warnings] == ["versioning"]


@every_store
async def test_put_replaces_what_is_there(store: ObjectStore) -> None:
    await store.put("object", b"first")
    await store.put("object", b"second, and longer")
    assert await store.get("object") == b"second, and longer"


@every_store
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
async def test_an_object_of_any_size_comes_back_as_it_was(store: ObjectStore, size: int) -> None:
    body = bytes(number * 7 % 251 for number in range(1000)) * (size // 1000 + 1)
    await store.put("folder/object", body[:size])
    assert await store.get("folder/object") == body[:size]
    assert await store.head("folder/object") == ObjectInfo("folder/object", size)


@every_store
async def test_a_missing_object_is_named(store: ObjectStore) -> None:
    for request in (store.get("no/such"), store.head("no/such"), store.get_range("no/such", 0, 9)):
        with pytest.raises(ObjectMissingError) as missing:
            await request
        assert missing.value.key == "no/such"


@every_store
async def test_what_lies_below_an_object_or_above_it_is_missing(store: ObjectStore) -> None:
    await store.put("folder/object", b"bytes")
    with pytest.raises(ObjectMissingError):
        await store.get("folder/object/below")
    with pytest.raises(ObjectMissingError):
        await store.get("folder")


@every_store
async def test_a_range_is_cut_at_the_end_of_the_object(store: ObjectStore) -> None:
    await store.put("object", b"0123456789")
    assert await store.get_range("object", 0, 3) == ObjectRange(b"012", 10)
    assert await store.get_range("object", 4, 6) == ObjectRange(b"456789", 10)
    assert await store.get_range("object", 4, 100) == ObjectRange(b"456789", 10)
    assert await store.get_range("object", 9, 1) == ObjectRange(b"9", 10)


@every_store
async def test_a_range_beyond_the_end_is_empty_and_tells_the_size(store: ObjectStore) -> None:
    await store.put("object", b"0123456789")
    await store.put("empty", b"")
    assert await store.get_range("object", 10, 5) == ObjectRange(b"", 10)
    assert await store.get_range("object", 10**12, 5) == ObjectRange(b"", 10)
    assert await store.get_range("empty", 0, 5) == ObjectRange(b"", 0)


@every_store
async def test_deleting_an_absent_key_is_no_error(store: ObjectStore) -> None:
    await store.delete("no/such/object")
    await store.put("folder/object", b"bytes")
    await store.delete("folder/object")
    await store.delete("folder/object")
    with pytest.raises(ObjectMissingError):
        await store.get("folder/object")


@lists_by_bytes
async def test_a_listing_is_in_the_order_of_bytes_across_folders(store: ObjectStore) -> None:
    # "-" and "." sort before "/", digits and letters after it.
    keys = ["a-b", "a.b", "a/b", "a/b-c/d", "a/b.c", "a/b0", "a0", "b/c/d/e", "b/c/d0", "c"]
    for number, key in enumerate(reversed(keys)):
        await store.put(key, b"x" * number)
    sizes = range(len(keys) - 1, -1, -1)
    expected = [ObjectInfo(key, size) for key, size in zip(keys, sizes, strict=True)]
    assert await store.list_after("") == expected
    for after in range(len(keys)):
        assert await store.list_after("", after=keys[after]) == expected[after + 1 :]


@lists_by_bytes
async def test_a_listing_holds_only_what_begins_with_the_prefix(store: ObjectStore) -> None:
    for key in ("journal/01", "journal/02", "journal/10", "journal-old/01", "journal0", "k"):
        await store.put(key, b"")

    async def listed(prefix: str, after: str = "") -> list[str]:
        return [info.key for info in await store.list_after(prefix, after)]

    assert await listed("journal/") == ["journal/01", "journal/02", "journal/10"]
    assert await listed("journal/0") == ["journal/01", "journal/02"]
    assert await listed("journal") == [
        "journal-old/01", "journal/01", "journal/02", "journal/10", "journal0",
    ]  # fmt: skip
    assert await listed("journal/", after="journal/015") == ["journal/02", "journal/10"]
    assert await listed("journal/", after="a") == ["journal/01", "journal/02", "journal/10"]
    assert await listed("journal/", after="journal/10") == []
    assert await listed("journal/", after="z") == []
    assert await listed("nothing/") == []


@pytest.mark.slow
@pytest.mark.parametrize("store", ["seaweedfs"], indirect=True)
async def test_a_listing_in_another_order_is_not_believed(store: ObjectStore) -> None:
    for key in ("a-b", "a/b", "b"):
        await store.put(key, b"")
    with pytest.raises(StoreUncertainError, match="lists 'tests/seb/a-b' under"):
        await store.list_after("")
    assert [info.key for info in await store.list_after("a/")] == ["a/b"]


@every_store
async def test_pages_of_a_listing_follow_each_other_without_a_gap(store: ObjectStore) -> None:
    keys = [f"journal/{number:03d}/entry" if number % 5 else f"journal/{number:03d}"
            for number in range(25)]  # fmt: skip
    for key in keys:
        await store.put(key, b"")
    found: list[str] = []
    while page := await store.list_after("journal/", found[-1] if found else "", limit=4):
        assert len(page) <= 4
        found += [info.key for info in page]
    assert found == keys
    assert [info.key for info in await list_all(store, "journal/")] == keys


@every_store
async def test_a_deleted_object_leaves_the_listing(store: ObjectStore) -> None:
    await store.put("folder/one", b"")
    await store.put("folder/two", b"")
    await store.delete("folder/one")
    assert [info.key for info in await store.list_after("folder/")] == ["folder/two"]


@every_store
async def test_a_plain_bucket_gives_no_warning_and_has_a_close_clock(store: ObjectStore) -> None:
    assert await store.check_configuration() == []
    if store.date_ahead_s is not None:
        assert abs(store.date_ahead_s + monotonic_s() - time.time()) < 5


@every_store
async def test_the_description_holds_no_secret(store: ObjectStore) -> None:
    assert store.description.startswith(("memory:", "file:", "s3://"))
    assert "testing" not in store.description
    assert "testtest" not in store.description


@signs_urls
async def test_a_signed_url_gives_part_of_the_object_to_anyone(store: ObjectStore) -> None:
    await store.put("segments/7/a", b"0123456789")
    urls = await store.signed_urls(["segments/7/a"], 60)
    assert urls is not None
    async with httpx2.AsyncClient() as anyone:
        answer = await anyone.get(urls[0], headers={"Range": "bytes=2-4"})
    assert (answer.status_code, answer.content) == (206, b"234")


@minds_signatures
async def test_a_signed_url_gives_nothing_but_its_object(store: ObjectStore) -> None:
    await store.put("segments/7/a", b"ours")
    await store.put("segments/7/b", b"not ours")
    urls = await store.signed_urls(["segments/7/a"], 60)
    assert urls is not None
    async with httpx2.AsyncClient() as anyone:
        other = await anyone.get(urls[0].replace("segments/7/a", "segments/7/b"))
        written = await anyone.put(urls[0], content=b"changed")
    assert (other.status_code, written.status_code) == (403, 403)


@pytest.mark.parametrize("store", EMBEDDED, indirect=True)
async def test_a_store_without_urls_says_so(store: ObjectStore) -> None:
    assert await store.signed_urls(["segments/7/a"], 60) is None


@signs_urls
async def test_a_signed_put_stores_the_bytes_that_it_was_signed_for(store: ObjectStore) -> None:
    put = await store.signed_put("segments/7/a", 4, md5(b"ours"), 60)
    assert put is not None
    async with httpx2.AsyncClient() as anyone:
        answer = await anyone.put(put.url, content=b"ours", headers=put.headers)
    assert answer.status_code == 200
    assert await store.get("segments/7/a") == b"ours"


@minds_signatures
async def test_a_signed_put_takes_no_other_bytes(store: ObjectStore) -> None:
    put = await store.signed_put("segments/7/a", 4, md5(b"ours"), 60)
    assert put is not None
    others = base64.b64encode(md5(b"else")).decode()
    async with httpx2.AsyncClient() as anyone:
        for content, headers in (
            (b"else", put.headers),
            (b"else", {**put.headers, "Content-MD5": others}),
            (b"else", {"Content-Length": "4"}),
        ):
            answer = await anyone.put(put.url, content=content, headers=headers)
            assert 400 <= answer.status_code < 500, (headers, answer.text)
    with pytest.raises(ObjectMissingError):
        await store.get("segments/7/a")


def md5(body: bytes) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).digest()


@pytest.mark.parametrize("store", EMBEDDED, indirect=True)
async def test_a_store_without_urls_signs_no_put(store: ObjectStore) -> None:
    assert await store.signed_put("segments/7/a", 4, bytes(16), 60) is None
