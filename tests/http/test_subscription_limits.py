"""Subscriptions over HTTP: what is refused, and what a receiver can neither do nor take."""

from __future__ import annotations

import gc
import time

import pytest
import pytest_asyncio

from seb_appliance.broker.queues.takers import Taken
from seb_appliance.protocols.subscriptions.running import Subscriptions
from tests.support.appliance import running_appliance
from tests.support.documented import check_documented
from tests.support.receiver import OK, answer, receiving
from tests.support.subscribing import acked, log, produce, show, subscribe, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory):
    local = {"push_networks": "127.0.0.0/8"}
    async with running_appliance(tmp_path_factory.mktemp("push"), **local) as running:
        running.client.event_hooks = {"response": [check_documented]}
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def receiver():
    async with receiving() as one:
        yield one


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "inside"},
        {"content-length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "upgrade"},
        {"Webhook-Id": "mine"},
        {"Seb-Topic": "mine"},
        {"X-A": "a\r\nX-B: b"},
        {"X-A": "a\x00"},
        {"X-A": "ü"},
        {"X A": "a"},
        {"": "a"},
        {"X-A": ""},
        {"X-A": "1", "x-a": "2"},
        {f"X-{i}": "1" for i in range(21)},
        {"X-A": "a" * 4_001},
    ],
)
async def test_a_header_that_would_change_the_request_is_refused(seb, receiver, headers):
    await subscribe(seb, "hostile", receiver.url, headers=headers, status=400)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://shop.example/", "https://", "https://user:secret@shop.example/", "//shop.example/",
        "https://shop.example/a b", "https://shop.example/\r\nX: y", "https://shop.example/#a",
        "https://shop.example:0/", "https://shop.example:99999/", "https://bücher.example/",
        "https://[::1/", "javascript:alert(1)", "https://shop.example/" + "a" * 2_000,
    ],
)  # fmt: skip
async def test_a_url_that_is_no_plain_http_is_refused(seb, url):
    await subscribe(seb, "no-url", url, status=400)


async def test_the_content_type_of_a_record_cannot_add_headers(seb, receiver):
    await subscribe(seb, "injected", receiver.url)
    record = {"value": "x", "headers": {"content-type": "text/plain\r\nX-Evil: 1"}}
    sent = await seb.client.post("/v1/topics/of-injected/records", json={"records": [record]})
    assert sent.status_code == 201, sent.text
    (got,) = await receiver.arrived(1)
    assert "x-evil" not in got.headers
    assert got.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_redirect_is_not_followed(seb, receiver):
    async with receiving() as elsewhere:
        receiver.answers.append(answer(307, f"Location: {elsewhere.url}"))
        await subscribe(seb, "redirect", receiver.url, queue={})
        await produce(seb, "redirect", b"one")
        await acked(seb, "redirect", 1)
        assert [one["status"] for one in await log(seb, "redirect")] == [307, 204]
        assert not elsewhere.got


async def test_a_huge_answer_is_read_as_far_as_it_matters(seb, receiver):
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"8000\r\n" + b"a" * 2**25
    too_long = b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n"
    receiver.answers.extend([too_long, endless])
    await subscribe(seb, "huge", receiver.url, queue={})
    await produce(seb, "huge", b"one")
    await acked(seb, "huge", 1)
    first, second = await log(seb, "huge")
    assert (first["status"], first["detail"]) == (0, "the headers of the answer are too long")
    assert (second["status"], second["detail"]) == (200, "a" * 200)


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0}, {"concurrency": 65}, {"rate": 0}, {"rate": 10_001},
        {"timeout_ms": 999}, {"timeout_ms": 60_001}, {"disable_after_ms": 3_599_999},
        {"disable_after_ms": 30 * 86_400_000 + 1}, {"batch": 0}, {"batch": 2}, {"body": "xml"},
        {"batch": 1_001, "body": "records"}, {"secrets": ["whsec_"]}, {"secrets": ["no base64!"]},
        {"secrets": ["whsec_MfKQ"] * 3}, {"topics": []},
        {"keep_previous": True, "end_previous": True},
    ],
)  # fmt: skip
async def test_settings_outside_their_limits_are_refused(seb, settings):
    await subscribe(seb, "outside", "https://shop.example/", status=400, **settings)
    assert (await seb.client.get("/v1/queues/outside")).status_code == 404  # nothing was made


async def test_no_more_requests_are_on_their_way_than_there_may_be(seb, receiver, shares):
    receiver.usual = None
    await subscribe(seb, "full", receiver.url, concurrency=8)
    shares["pushes"].limit = 2
    await produce(seb, "full", *[b"x"] * 5)
    await receiver.arrived(2)

    await produce(seb, "another", b"x")
    await subscribe(seb, "another", receiver.url)  # each may have one
    got = await receiver.arrived(3)
    assert got[2].headers["seb-topic"] == "of-another"
    refused = await seb.client.post("/v1/subscriptions/full/test")
    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
    receiver.usual = OK
    receiver.release.set()
    await acked(seb, "full", 5)


@pytest.fixture
def shares(seb):
    """The limit of a share, for one test."""
    former = {one: one.limit for one in seb.appliance.broker.shares}
    yield {one.name: one for one in former}
    for one, limit in former.items():
        one.limit = limit


async def test_a_subscription_may_send_one_request_however_many_others_are_slow(
    seb, receiver, shares
):
    async with receiving() as slow:
        slow.usual = None
        shares["pushes"].limit = 2
        await produce(seb, "hogs", *[b"x"] * 3)
        await subscribe(seb, "hogs", slow.url)
        await slow.arrived(2)
        await produce(seb, "modest", *[b"x"] * 5)
        await subscribe(seb, "modest", receiver.url)
        await acked(seb, "modest", 5)
        assert receiver.most_at_once == 1
        slow.usual = OK
        slow.release.set()
        await acked(seb, "hogs", 3)


async def test_no_more_bytes_are_on_their_way_than_there_may_be(seb, receiver, shares):
    shares["push_bytes"].limit = 1_000
    await produce(seb, "heavy", b"x" * 1_001)
    await subscribe(seb, "heavy", receiver.url)

    async def is_full():
        return "bytes of requests are in use" in (await show(seb, "heavy"))["failure"]

    await until(is_full)
    assert not receiver.got
    shares["push_bytes"].limit = 2_000
    (got,) = await receiver.arrived(1)
    assert got.headers["seb-attempt"] == "1"


async def test_a_request_on_its_way_keeps_its_body_in_memory_and_no_batch(seb, receiver):
    receiver.usual = None
    await produce(seb, "beside", b"small", b"x" * 1_000)
    await subscribe(seb, "beside", receiver.url, concurrency=2)
    await receiver.arrived(2)
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Taken)]
    receiver.usual = OK
    receiver.release.set()
    await acked(seb, "beside", 2)


async def test_only_the_latest_deliveries_are_kept(seb, receiver):
    await subscribe(seb, "kept-log", receiver.url)
    found = seb.appliance.beside[Subscriptions].find("kept-log")
    tested = (await seb.client.post("/v1/subscriptions/kept-log/test")).json()
    worker = seb.appliance.beside[Subscriptions].worker(found)
    assert worker.log.maxlen == 100
    worker.log.extend([worker.log[0]] * 100)
    path = "/v1/subscriptions/kept-log/deliveries"
    assert len((await seb.client.get(f"{path}?limit=100")).json()["deliveries"]) == 100
    assert (await seb.client.get(f"{path}?limit=1")).json()["deliveries"] == [tested]
    assert (await seb.client.get(f"{path}?limit=101")).status_code == 400


async def test_the_rate_is_kept(seb, receiver):
    await produce(seb, "rate", b"one", b"two", b"three")
    began_s = time.monotonic()
    await subscribe(seb, "rate", receiver.url, rate=20)
    await receiver.arrived(3)
    assert time.monotonic() - began_s >= 0.1
