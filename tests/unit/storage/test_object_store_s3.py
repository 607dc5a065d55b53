"""What the S3 store makes of each answer, and of none: a fault proxy stands before moto."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from email.utils import formatdate

import pytest

from seb_appliance.clock import monotonic_s
from seb_appliance.errors import (
    ConfigurationError,
    ObjectExistsError,
    StoreClockSkewError,
    StoreConflictError,
    StoreDeniedError,
    StoreError,
    StoreUncertainError,
    StoreUnsupportedError,
)
from seb_appliance.storage.stores.object_store import ObjectInfo
from seb_appliance.storage.stores.s3 import S3Store
from seb_appliance.storage.stores.s3_options import S3Options
from tests.support.faultproxy import FaultProxy, Rule
from tests.support.servers.s3_server import S3Server


@pytest.fixture
async def proxy(moto_server: S3Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(moto_server.port) as running:
        yield running


@pytest.fixture
def options(moto_server: S3Server, proxy: FaultProxy) -> S3Options:
    return replace(
        moto_server.new_bucket(),
        endpoint_url=proxy.url,
        connect_timeout_s=2,
        read_timeout_s=2,
    )


@pytest.fixture
async def store(options: S3Options) -> AsyncIterator[S3Store]:
    opened = S3Store(options)
    yield opened
    await opened.close()


def requests_of(proxy: FaultProxy, method: str) -> int:
    return sum(1 for seen, _ in proxy.requests if seen == method)


def listing(members: str) -> str:
    return f"<ListBucketResult>{members}</ListBucketResult>"


def listed(key: str, size: str, modified: str = "") -> str:
    modified = modified and f"<LastModified>{modified}</LastModified>"
    return f"<Contents><Key>{key}</Key><Size>{size}</Size>{modified}</Contents>"


# --- the table "What an answer means" ---


@pytest.mark.parametrize(
    ("code", "error", "meaning"),
    [
        (400, "BadDigest", StoreUncertainError),
        (400, "XAmzContentChecksumMismatch", StoreUncertainError),
        (400, "ExpiredToken", StoreDeniedError),
        (400, "AuthorizationHeaderMalformed", StoreDeniedError),
        (401, "Unauthorized", StoreDeniedError),
        (403, "AccessDenied", StoreDeniedError),
        (403, "InvalidAccessKeyId", StoreDeniedError),
        (404, "NoSuchBucket", StoreDeniedError),
        (404, "NoSuchKey", StoreUncertainError),
        (409, "ConditionalRequestConflict", StoreConflictError),
        (412, "PreconditionFailed", ObjectExistsError),
        (429, "TooManyRequests", StoreUncertainError),
        (500, "InternalError", StoreUncertainError),
        (501, "NotImplemented", StoreUnsupportedError),
        (502, "BadGateway", StoreUncertainError),
        (503, "SlowDown", StoreUncertainError),
        (504, "GatewayTimeout", StoreUncertainError),
        (507, "InsufficientStorage", StoreUncertainError),
        (202, "Accepted", StoreUncertainError),
        (300, "MultipleChoices", StoreUncertainError),
        (418, "Teapot", StoreUncertainError),
        (500, "<Deeper>InternalError</Deeper>", StoreUncertainError),
    ],
)
async def test_an_answer_to_create_has_its_meaning_and_is_not_retried(
    store: S3Store, proxy: FaultProxy, code: int, error: str, meaning: type[StoreError]
) -> None:
    proxy.add(Rule("status", method="PUT", code=code, error=error))
    with pytest.raises(StoreError) as raised:
        await store.create("journal/1", b"bytes")
    assert type(raised.value) is meaning
    assert raised.value.key == "journal/1"
    assert requests_of(proxy, "PUT") == 1


@pytest.mark.parametrize("code", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(store: S3Store, proxy: FaultProxy, code: int) -> None:
    elsewhere = {"Location": f"{proxy.url}/elsewhere", "x-amz-bucket-region": "mars-1"}
    proxy.add(Rule("status", method="PUT", code=code, error="Moved", headers=elsewhere))
    with pytest.raises(StoreUncertainError, match="in the region mars-1"):
        await store.create("journal/1", b"bytes")
    assert [method for method, _ in proxy.requests] == ["PUT"]


@pytest.mark.parametrize("error", ["NoSuchBucket", "AccessDenied"])
async def test_an_answer_about_the_bucket_is_none_about_the_key(
    store: S3Store, proxy: FaultProxy, error: str
) -> None:
    proxy.add(Rule("status", code=404 if error == "NoSuchBucket" else 403, error=error))
    for request in (store.get("a"), store.get_range("a", 0, 5), store.list_after(""),
                    store.delete("a"), store.put("a", b"")):  # fmt: skip
        with pytest.raises(StoreDeniedError):
            await request


async def test_a_404_without_the_code_of_a_store_does_not_end_a_log(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.add(Rule("status", method="GET", code=404, error="NotFound"))
    with pytest.raises(StoreUncertainError):
        await store.get("journal/1")


async def test_a_bucket_that_is_gone_asks_for_an_operator(options: S3Options) -> None:
    store = S3Store(replace(options, bucket="no-such-bucket-here"))
    try:
        for request in (store.create("a", b""), store.get("a"), store.list_after("")):
            with pytest.raises(StoreDeniedError, match="NoSuchBucket"):
                await request
    finally:
        await store.close()


# --- no answer ---


@pytest.mark.parametrize("action", ["reset", "drop_reply", "hang"])
async def test_a_put_without_an_answer_is_uncertain_and_made_once(
    store: S3Store, proxy: FaultProxy, action: str
) -> None:
    proxy.add(Rule(action, method="PUT", count=1))  # type: ignore[arg-type]
    with pytest.raises(StoreUncertainError):
        await store.create("journal/1", b"bytes")
    assert requests_of(proxy, "PUT") == 1


async def test_a_put_whose_answer_was_lost_is_refused_when_it_is_made_again(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.add(Rule("drop_reply", method="PUT", count=1))
    with pytest.raises(StoreUncertainError):
        await store.create("journal/1", b"bytes")
    with pytest.raises(ObjectExistsError):
        await store.create("journal/1", b"bytes")
    assert await store.get("journal/1") == b"bytes"


async def test_a_put_may_land_after_its_caller_gave_up(store: S3Store, proxy: FaultProxy) -> None:
    proxy.add(Rule("late", method="PUT", count=1, delay=0.2))
    with pytest.raises(StoreUncertainError):
        await store.create("journal/1", b"bytes")
    assert await store.list_after("journal/") == []
    await proxy.late_landed()
    assert await store.get("journal/1") == b"bytes"


async def test_a_store_that_is_not_there_is_uncertain(options: S3Options) -> None:
    store = S3Store(replace(options, endpoint_url="http://127.0.0.1:1"))
    try:
        with pytest.raises(StoreUncertainError):
            await store.get("journal/1")
    finally:
        await store.close()


async def test_a_body_that_ends_early_is_uncertain(store: S3Store, proxy: FaultProxy) -> None:
    await store.put("object", b"x" * 1000)
    proxy.add(Rule("truncate", method="GET", bytes=500))
    for request in (store.get("object"), store.get_range("object", 0, 900)):
        with pytest.raises(StoreUncertainError):
            await request


async def test_a_listing_that_ends_early_is_uncertain(store: S3Store, proxy: FaultProxy) -> None:
    await store.put("claims/1", b"")
    proxy.add(Rule("truncate", method="GET", match="list-type=2", bytes=40))
    with pytest.raises(StoreUncertainError):
        await store.list_after("claims/")


@pytest.mark.parametrize(
    "body", ["", "<html>Welcome to the hotel</html>", listing("<KeyCount>0</KeyCount>")]
)
async def test_an_answer_that_is_no_listing_is_not_an_empty_one(
    store: S3Store, proxy: FaultProxy, body: str
) -> None:
    proxy.add(Rule("status", method="GET", match="list-type=2", code=200, body=body))
    with pytest.raises(StoreUncertainError, match="not a listing"):
        await store.list_after("claims/")


@pytest.mark.parametrize(
    "body",
    [
        listing("<IsTruncated>true</IsTruncated>"),
        listing("<IsTruncated>false</IsTruncated><KeyCount>1</KeyCount>"),
        listing("<IsTruncated>false</IsTruncated>" + listed("tests/seb/claims/2", "")),
        listing("<IsTruncated>false</IsTruncated>" + listed("tests/seb/claims/2", "many")),
        listing("<IsTruncated>false</IsTruncated>" + listed("tests/seb/claims/2", "1", "soon")),
        listing(
            "<IsTruncated>false</IsTruncated>"
            + listed("tests/seb/claims/2", "1", "2026-01-01T00:" + "9" * 5_000)
        ),
        listing("<IsTruncated>false</IsTruncated>" + listed("elsewhere", "1")),
        listing("<IsTruncated>false</IsTruncated>" + listed("tests/seb/claims/2", "-1")),
        listing("<IsTruncated>false</IsTruncated>" + listed("tests/seb/claims/2", str(1 << 63))),
        listing("<IsTruncated>false</IsTruncated>" + listed("tests/seb/claims/1", "1")),
    ],
)
async def test_a_listing_that_is_wrong_or_not_whole_is_not_believed(
    store: S3Store, proxy: FaultProxy, body: str
) -> None:
    proxy.add(Rule("status", method="GET", match="list-type=2", code=200, body=body))
    with pytest.raises(StoreUncertainError):
        await store.list_after("claims/", after="claims/1")


ENTITIES = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))


@pytest.mark.parametrize(
    "entities",
    [f'<!ENTITY e0 "aaaaaaaaaa">{ENTITIES}', '<!ENTITY e9 SYSTEM "file:///etc/passwd">'],
    ids=["a billion characters", "a file"],
)
async def test_a_listing_with_entities_is_neither_believed_nor_taken_in(
    store: S3Store, proxy: FaultProxy, entities: str
) -> None:
    inside = f"<IsTruncated>false</IsTruncated>{listed('tests/seb/claims/&e9;', '1')}"
    body = f"<?xml version='1.0'?><!DOCTYPE l [{entities}]>{listing(inside)}"
    proxy.add(Rule("status", method="GET", match="list-type=2", code=200, body=body))
    with pytest.raises(StoreUncertainError):
        await store.list_after("claims/")


async def test_a_put_is_stored_only_if_the_answer_names_the_object(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.add(Rule("status", method="PUT", code=200, body="<html>Welcome to the hotel</html>"))
    with pytest.raises(StoreUncertainError):
        await store.create("journal/1", b"bytes")


async def test_many_stuck_reads_do_not_hold_up_a_put(options: S3Options, proxy: FaultProxy) -> None:
    store = S3Store(replace(options, read_timeout_s=30, threads=4))
    proxy.add(Rule("hang", method="GET"))
    reads = [asyncio.create_task(store.get("object")) for _ in range(20)]
    while requests_of(proxy, "GET") < 4:
        await asyncio.sleep(0)
    await store.create("journal/1", b"bytes")
    assert not any(read.done() for read in reads)
    await proxy.stop()
    answers = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUncertainError}
    await store.close()


async def test_a_caller_who_is_cancelled_as_the_answer_comes_is_cancelled(
    options: S3Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ObjectInfo] = loop.create_future()
    monkeypatch.setattr(loop, "run_in_executor", lambda *_: answer)
    store = S3Store(options)
    asked = asyncio.create_task(store.head("a"))
    answer.add_done_callback(lambda _: asked.cancel())
    await asyncio.sleep(0)
    answer.set_exception(StoreUncertainError("a: no answer", key="a"))
    with pytest.raises(asyncio.CancelledError):
        await asked
    monkeypatch.undo()
    await store.close()


# --- killed at a failpoint ---

_CREATE_AND_DIE = """\
import asyncio, sys
from seb_appliance.failpoints import Failpoints
from seb_appliance.storage.stores.object_store import ObjectInfo
from seb_appliance.storage.stores.s3 import S3Store
from seb_appliance.storage.stores.s3_options import S3Options
options = S3Options("bucket-of-tests", "", sys.argv[1], "us-east-1", "test", "testtest")
store = S3Store(options, Failpoints(sys.argv[2]))
asyncio.run(store.create("journal/1", b"x" * 1_000_000))
"""


@pytest.mark.parametrize(
    ("failpoint", "sent_min", "sent_max"),
    [("K4", 0, 0), ("K5", 500_000, 502_000), ("K6", 1_000_000, 1_002_000)],
)
async def test_a_process_killed_while_it_puts_has_sent_nothing_half_or_all(
    failpoint: str, sent_min: int, sent_max: int
) -> None:
    received, ended = bytearray(), asyncio.Event()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                received.extend(data)
                if len(received) > 1_000_000:
                    writer.write(b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        ended.set()

    async with await asyncio.start_server(keep, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CREATE_AND_DIE, url, f"{failpoint}:kill"
        )
        assert await process.wait() == -signal.SIGKILL
        if sent_min:  # what it has sent may not be read yet
            await ended.wait()
    assert sent_min <= len(received) <= sent_max
    assert b"Expect" not in received[:1000]


# --- clocks ---


class Clock:
    def __init__(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s

    def __call__(self) -> float:
        return time.time() + self.ahead_s


async def test_a_step_of_our_clock_does_not_move_the_store_s(options: S3Options) -> None:
    clock = Clock(ahead_s=3600)
    store = S3Store(options, wall_s=clock)
    try:
        assert store.date_ahead_s is None
        await store.list_after("")
        clock.ahead_s = 0
        assert store.date_ahead_s is not None
        assert store.date_ahead_s + monotonic_s() == pytest.approx(time.time(), abs=10)
    finally:
        await store.close()


async def test_a_refused_clock_is_told_with_its_offset(store: S3Store, proxy: FaultProxy) -> None:
    date = {"Date": formatdate(time.time() - 7200, usegmt=True)}
    proxy.add(Rule("status", code=403, error="RequestTimeTooSkewed", headers=date))
    with pytest.raises(StoreClockSkewError) as skewed:
        await store.create("journal/1", b"bytes")
    assert skewed.value.clock_offset_s == pytest.approx(-7200, abs=10)
    assert store.date_ahead_s is not None
    assert store.date_ahead_s + monotonic_s() == pytest.approx(time.time() - 7200, abs=10)


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [-86_400, 7200])
async def test_after_a_refused_clock_requests_are_signed_with_that_of_the_store(
    ceph_server: S3Server, ahead_s: float
) -> None:
    store = S3Store(ceph_server.new_bucket(), wall_s=Clock(ahead_s))
    try:
        with pytest.raises(StoreClockSkewError) as skewed:
            await store.create("journal/1", b"bytes")
        assert skewed.value.clock_offset_s == pytest.approx(-ahead_s, abs=10)
        await store.create("journal/1", b"bytes")
        assert await store.get("journal/1") == b"bytes"
    finally:
        await store.close()


# --- the bucket and its options ---


async def test_versioning_and_lifecycle_expiry_are_warned_of(
    options: S3Options, moto_server: S3Server
) -> None:
    def rule(name: str, prefix: str, **action: object) -> dict[str, object]:
        return {"ID": name, "Status": "Enabled", "Filter": {"Prefix": prefix}, **action}

    rules = [
        rule("ours", "tests/", Expiration={"Days": 30}),
        rule("theirs", "logs/", Expiration={"Days": 1}),
        rule("uploads", "", AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}),
    ]
    with moto_server.client() as client:
        client.put_bucket_versioning(
            Bucket=options.bucket, VersioningConfiguration={"Status": "Suspended"}
        )
        client.put_bucket_lifecycle_configuration(
            Bucket=options.bucket, LifecycleConfiguration={"Rules": rules}
        )
    store = S3Store(options)
    try:
        versioning, lifecycle = await store.check_configuration()
    finally:
        await store.close()
    assert versioning.startswith("versioning is suspended")
    assert lifecycle.startswith("lifecycle")
    assert "'ours'" in lifecycle
    assert "'theirs'" not in lifecycle
    assert "'uploads'" not in lifecycle


@pytest.mark.parametrize(("code", "error"), [(403, "AccessDenied"), (501, "NotImplemented")])
async def test_settings_that_may_not_be_asked_for_give_no_warning(
    store: S3Store, proxy: FaultProxy, code: int, error: str
) -> None:
    proxy.add(Rule("status", method="GET", code=code, error=error))
    assert await store.check_configuration() == []


async def test_keys_outside_the_prefix_are_not_seen(
    store: S3Store, options: S3Options, moto_server: S3Server
) -> None:
    with moto_server.client() as client:
        for key in ("tests/seb", "tests/seb/", "tests/sebastian", "other/object"):
            client.put_object(Bucket=options.bucket, Key=key, Body=b"theirs")
    await store.put("object", b"ours")
    assert [info.key for info in await store.list_after("")] == ["object"]
    assert store.description == f"s3://{options.bucket}/tests/seb"


@pytest.mark.parametrize(
    "wrong",
    [
        {"bucket": "no/bucket"},
        {"bucket": ""},
        {"endpoint_url": "127.0.0.1:9000"},
        {"endpoint_url": "ftp://127.0.0.1"},
        {"secret_access_key": None},
    ],
)
async def test_options_that_cannot_work_are_refused(
    options: S3Options, wrong: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError):
        S3Store(replace(options, **wrong))  # type: ignore[arg-type]


def test_options_do_not_show_the_secret_when_printed() -> None:
    options = S3Options("bucket", access_key_id="key", secret_access_key="canary-secret")
    assert "canary" not in repr(options)
