"""What a store answers is bounded, whatever it says of itself: nothing is taken in that is longer
than what was asked for, and no more memory is taken than that."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import resource
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seb_appliance import limits, zstd
from seb_appliance.errors import (
    ConfigurationError,
    CorruptObjectError,
    ImportRefusedError,
    StoreError,
    StoreUncertainError,
    StoreUnusableError,
)
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.ops.checks.findings import Findings
from seb_appliance.ops.checks.objects import list_bucket
from seb_appliance.protocols.go.files import look
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import list_claims
from seb_appliance.storage.journal.bucket_info import refuse_foreign_data
from seb_appliance.storage.journal.claims import Claimant
from seb_appliance.storage.journal.replay import Replay
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import SnapshotName
from seb_appliance.storage.recovery.snapshots import SnapshotStore
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import ObjectInfo, list_all
from seb_appliance.storage.stores.s3 import S3Store
from seb_appliance.storage.stores.s3_options import S3Options
from tests.support.fakes import FakeClock

NO = b"HTTP/1.1 404 No\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS = 1 << 30
CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"


@dataclass
class Answer:
    """Sent to whoever asks; `repeated` again and again, up to ENDLESS bytes in all, of which `sent`
    were taken."""

    head: bytes
    repeated: bytes = b""
    sent: int = 0
    serving: set[asyncio.Future[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.serving.add(done)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.head)
            while self.repeated and self.sent < ENDLESS:
                writer.write(self.repeated)
                await writer.drain()
                self.sent += len(self.repeated)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        done.set_result(None)


@contextlib.asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[S3Store]:
    async with await asyncio.start_server(answer.serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        store = S3Store(S3Options("bucket", "", url, "us-east-1", "id", "secret"))
        try:
            yield store
        finally:
            await store.close()
            async with asyncio.timeout(20):
                await asyncio.gather(*answer.serving)
                answer.serving.clear()


Ask = Callable[[S3Store], Awaitable[object]]
ASKS: dict[str, Ask] = {
    "a listing": lambda store: store.list_after("claims/"),
    "an object": lambda store: store.get("a"),
    "a range": lambda store: store.get_range("a", 0, 1000),
    "a PUT": lambda store: store.create("a", b"x"),
    "settings": lambda store: store.check_configuration(),
}
CHUNKED = b"Transfer-Encoding: chunked\r\n"
RANGE = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-999/5000\r\n"
HOSTILE: dict[str, tuple[str, Answer]] = {
    "a listing without end": ("a listing", Answer(OK + CHUNKED + b"\r\n", CHUNK)),
    "a listing that says 1 GiB": (
        "a listing",
        Answer(OK + b"Content-Length: 1073741824\r\n\r\n<ListBucketResult>", b"<Contents>" * 6554),
    ),
    "an error without end": ("an object", Answer(NO + CHUNKED + b"\r\n", CHUNK)),
    "an answer to a PUT without end": ("a PUT", Answer(OK + CHUNKED + b"\r\n", CHUNK)),
    "settings without end": ("settings", Answer(OK + CHUNKED + b"\r\n", CHUNK)),
    "an object longer than it says": (
        "an object",
        Answer(OK + CHUNKED + b"Content-Length: 1000\r\n\r\n", CHUNK),
    ),
    "a range without end": ("a range", Answer(RANGE + CHUNKED + b"\r\n", CHUNK)),
    "an object of 5 GB": (
        "an object",
        Answer(OK + b"Content-Length: 5000000000\r\n\r\n", b"x" * 65536),
    ),
    "a header of 1 GiB": ("an object", Answer(OK + b"ETag: ", b"x" * 65536)),
    "headers without end": ("an object", Answer(OK, b"x: y\r\n" * 99)),
    "a status line without end": ("an object", Answer(b"HTTP/1.1 200 ", b"x" * 65536)),
}


@pytest.mark.parametrize(("asked", "answer"), HOSTILE.values(), ids=HOSTILE)
async def test_an_answer_without_end_is_not_taken_in(asked: str, answer: Answer) -> None:
    async with answering(answer) as store:
        await asyncio.gather(warmed_up(store), return_exceptions=True)
        answer.sent = 0
        tracemalloc.start()
        try:
            with pytest.raises((StoreUncertainError, CorruptObjectError)):
                await ASKS[asked](store)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 4 * limits.STORE_ANSWER_BYTES_MAX
    assert answer.sent < ENDLESS // 8, "it was heard to the end"


async def warmed_up(store: S3Store) -> None:
    """Imports boto3, which takes memory of its own."""
    await store.signed_urls(["a"], 60)


async def test_a_range_is_taken_with_status_200_if_it_is_the_one_that_was_asked_for() -> None:
    """rclone answers so. Without the header, or with another range, it is the whole object."""
    spans = {b"0-999/5000": True, b"0-4999/5000": False, b"": False}
    for span, is_taken in spans.items():
        header = b"Content-Range: bytes " + span + b"\r\n" if span else b""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n" + header + b"\r\n"
        async with answering(Answer(head + b"x" * 1000)) as store:
            if is_taken:
                assert (await store.get_range("a", 0, 1000)).data == b"x" * 1000
                continue
            with pytest.raises(StoreUncertainError, match="the store answered 200"):
                await store.get_range("a", 0, 1000)


NESTED = b"<ListBucketResult>" + b"<a>" * 100_000


@pytest.mark.parametrize(
    "body",
    [NESTED, NESTED + b"</a>" * 100_000 + b"</ListBucketResult>", b"<a " + b"b='' " * 500_000,
     b"<ListBucketResult><MaxKeys>" + b"9" * 1_000_000 + b"</MaxKeys></ListBucketResult>"],
    ids=["open elements", "elements in each other", "attributes", "a number of a million digits"],
)  # fmt: skip
async def test_a_listing_of_nothing_but_markup_is_not_believed(body: bytes) -> None:
    head = OK + b"Content-Length: %d\r\n\r\n" % len(body)
    async with answering(Answer(head + body)) as store:
        with pytest.raises(StoreError):
            await store.list_after("claims/")


def frames(sizes: Iterable[int]) -> bytes:
    return b"".join(zstd.compress(b"\0" * size) for size in sizes)


@pytest.mark.parametrize(
    "body", [frames([9 * limits.MIB]), frames([limits.MIB])[:-4], b"plain", b""]
)
async def test_a_snapshot_that_is_none_or_inflates_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_BYTES_MAX", 8 * limits.MIB)
    store, target = MemoryStore(), tmp_path / "fetched"
    snapshots = SnapshotStore(RetryingStore(store, FakeClock(), lambda: 0.5), NO_FAILPOINTS)
    name = SnapshotName(7, hashlib.sha256(body).hexdigest()[:16])
    await store.put(name.key, body)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptObjectError):
            await snapshots.fetch(name, target)
        assert tracemalloc.get_traced_memory()[1] < 4 * limits.MIB
    finally:
        tracemalloc.stop()
    assert target.stat().st_size <= limits.SNAPSHOT_BYTES_MAX
    assert target.stat().st_mode & 0o077 == 0, "it is for nobody else"


async def test_a_snapshot_that_the_disk_does_not_take_is_told_so(tmp_path: Path) -> None:
    """`seb serve` said that it cannot write to stdout."""
    store, body = MemoryStore(), frames([limits.MIB])
    snapshots = SnapshotStore(RetryingStore(store, FakeClock(), lambda: 0.5), NO_FAILPOINTS)
    name = SnapshotName(7, hashlib.sha256(body).hexdigest()[:16])
    await store.put(name.key, body)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(ConfigurationError, match="free space"):
            await snapshots.fetch(name, tmp_path / "fetched")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_snapshot_is_written_to_no_file_of_somebody_else(tmp_path: Path) -> None:
    store, target, theirs = MemoryStore(), tmp_path / "fetched", tmp_path / "theirs"
    snapshots = SnapshotStore(RetryingStore(store, FakeClock(), lambda: 0.5), NO_FAILPOINTS)
    body = frames([100])
    name = SnapshotName(7, hashlib.sha256(body).hexdigest()[:16])
    await store.put(name.key, body)
    theirs.write_text("precious")
    for plant in (target.symlink_to, target.hardlink_to):
        plant(theirs)
        await snapshots.fetch(name, target)
        assert theirs.read_text() == "precious"
        assert (target.read_bytes(), target.stat().st_mode & 0o077) == (bytes(100), 0)
        target.unlink()


class Endless(MemoryStore):
    """Lists one more page, whatever it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        digits = re.search("[0-9]{20}", after)
        first = int(digits[0]) if digits else 0
        return [ObjectInfo(prefix + self._name.format(first + i), 1) for i in range(1, limit + 1)]


async def test_a_listing_that_goes_on_and_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the folders that are read whole at a start."""
    monkeypatch.setattr(limits, "SMALL_FOLDER_OBJECTS_MAX", 3_000)
    store = Endless("{:020d}-0123456789abcdef.sqlite.zst")
    retrying = RetryingStore(store, FakeClock(), lambda: 0.5)
    with pytest.raises(StoreUnusableError, match="more than 3,000 objects"):
        await SnapshotStore(retrying, NO_FAILPOINTS).list()
    with pytest.raises(StoreUnusableError, match="more than 3,000 objects"):
        await list_claims(retrying, layout.CLAIMS)


@pytest.mark.parametrize("name", ["journal/{:020d}.seb", "segments/{:020d}", "{:020d}"])
async def test_a_bucket_that_is_listed_without_end_ends_a_check(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(limits, "LISTED_OBJECTS_MAX", 3_000)
    monkeypatch.setattr(limits, "LISTED_ENTRIES_MAX", 3_000)
    store = RetryingStore(Endless(name), FakeClock(), lambda: 0.5)
    with pytest.raises(StoreUnusableError, match="more than 3,000 objects"):
        await list_bucket(store, Findings())
    with pytest.raises(StoreUnusableError, match="more than 3,000 objects"):
        await list_all(store, layout.OURS)


async def test_a_store_that_lists_folders_without_end_ends_a_first_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 3)
    store = RetryingStore(Endless("{:020d}/000000000000.record_batch"), FakeClock(), lambda: 0.5)
    with pytest.raises(ConfigurationError, match="more than 3 folders"):
        await refuse_foreign_data(store)


@pytest.mark.parametrize("name", ["{:020d}/000000000000.record_batch", "t/{:020d}.offsets"])
async def test_an_old_bucket_that_is_listed_without_end_ends_an_import(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 3_000)
    monkeypatch.setattr(limits, "IMPORT_LISTED_MAX", 9_000)
    store = RetryingStore(Endless(name), FakeClock(), lambda: 0.5)
    with pytest.raises(ImportRefusedError, match="more than 9,000 objects, or more than 3,000"):
        await look(store, lambda _topic: True)


async def test_a_claim_above_which_none_can_be_is_named() -> None:
    """A start stored one with a digit too many, and asked for that to be removed."""
    store = MemoryStore()
    claimant = Claimant(RetryingStore(store, FakeClock(), lambda: 0.5), FakeClock(), NO_FAILPOINTS)
    theirs = layout.Claim(9_999_999_999, b"f" * 16)
    with pytest.raises(StoreUnusableError, match=f"{layout.claim_key(theirs)} is no appliance's"):
        await claimant.claim_above([theirs], b"w" * 16)
    assert await store.list_after("") == []


async def test_a_journal_that_is_listed_without_end_holds_up_no_start() -> None:
    store = Endless("{:020d}.seb")
    replay = Replay(
        RetryingStore(store, FakeClock(), lambda: 0.5),
        None,  # type: ignore[arg-type]
        FakeClock(),
        NO_FAILPOINTS,
        lambda *_: None,
    )
    await replay.expect(layout.JOURNAL, layout.create_only_key(1))
    assert replay.expected == 1_000_000
