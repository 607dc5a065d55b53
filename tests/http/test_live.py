"""Live streams over HTTP: what comes, in which order, and how a stream ends."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio

from seb_appliance import limits
from tests.support.events import Events

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def topic(seb, request):
    """A topic of the test's own, with three records: 0, 1, 2."""
    name = request.node.name.partition("[")[0]
    await seb.client.put(f"/v1/topics/{name}")
    await produce(seb, name, 0, 1, 2)
    yield name
    await seb.client.delete(f"/v1/topics/{name}")


async def produce(seb, topic, *values):
    records = {"records": [{"value": value} for value in values]}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json=records)
    assert answer.status_code == 201, answer.text


@contextlib.asynccontextmanager
async def followed(seb, topic, query="", client=None, **headers):
    client = client or seb.client_with(seb.admin_key)
    headers = {"accept": "text/event-stream", **headers}
    url = f"/v1/topics/{topic}/records?{query}"
    async with client, client.stream("GET", url, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield Events(response)


async def at_the_tail(seb, topic):
    """Returns once every follower of the topic sleeps: whatever there was has been sent."""
    topic_id = seb.appliance.broker.topics.get(topic).topic_id
    by_topic = seb.appliance.broker.followers.readers.by_topic
    while not all(f._woken is not None and not f._woken.done() for f in by_topic[topic_id]):
        await asyncio.sleep(0)


async def test_what_is_there_comes_first_and_then_what_is_new(seb, topic):
    async with followed(seb, topic) as events:
        assert await events.values(3) == ["0", "1", "2"]
        await produce(seb, topic, 3, 4)
        assert await events.values(2) == ["3", "4"]


async def test_an_event_is_the_record_as_a_read_gives_it_and_its_id_is_the_offset(seb, topic):
    async with followed(seb, topic, "offset=1") as events:
        event = await events.next()
    read = (await seb.client.get(f"/v1/topics/{topic}/records?offset=1")).json()
    assert event == {"event": "message", "id": "1", "data": read["records"][0]}


async def test_last_event_id_goes_on_behind_it_whatever_offset_says(seb, topic):
    async with followed(seb, topic, "offset=0", **{"last-event-id": "1"}) as events:
        assert await events.values(1) == ["2"]


@pytest.mark.parametrize("empty", [False, True])
async def test_who_leaves_before_the_first_record_comes_back_to_the_same_place(seb, topic, empty):
    if empty:
        await seb.client.delete(f"/v1/topics/{topic}")
        await seb.client.put(f"/v1/topics/{topic}")
    client = seb.client_with(seb.admin_key)  # one that does not wait for the end of answers
    url = f"/v1/topics/{topic}/records?offset=latest&format=sse"
    async with client, client.stream("GET", url) as response:
        lines = response.aiter_lines()
        first = [await anext(lines) for _ in range(2)]
    assert first[0] == "retry: 1000"
    last = first[1].removeprefix("id: ")
    assert last == ("-1" if empty else "2")
    await produce(seb, topic, "new")
    async with followed(seb, topic, "offset=latest", **{"last-event-id": last}) as events:
        assert await events.values(1) == ["new"]


@pytest.mark.parametrize("query", ["offset=0&until=2", "offset=0&max_records=2"])
async def test_a_stream_with_an_end_ends_there(seb, topic, query):
    async with followed(seb, topic, query) as events:
        assert await events.values(2) == ["0", "1"]
        assert (await events.next())["data"] == "end"
        assert await events.next() is None


async def test_a_stream_waits_for_records_before_its_end(seb, topic):
    async with followed(seb, topic, "until=4") as events:
        assert await events.values(3) == ["0", "1", "2"]
        await produce(seb, topic, 3, 4)
        assert await events.values(1) == ["3"]
        assert (await events.next())["data"] == "end"


async def test_values_come_in_the_shape_that_is_asked_for(seb, topic):
    async with followed(seb, topic, "values=json&format=sse") as events:
        assert await events.values(3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("offset=99", {}, 416, "offset_out_of_range"),
        ("wait=1s", {}, 400, "bad_parameter"),
        ("max_bytes=1KiB", {}, 400, "bad_parameter"),
        ("until=@2026-01-01T00:00:00Z", {}, 400, "bad_parameter"),
        ("max_records=0", {}, 400, "bad_parameter"),
        ("", {"last-event-id": "x"}, 400, "bad_parameter"),
        ("", {"last-event-id": "5"}, 416, "offset_out_of_range"),
    ],
)
async def test_what_is_known_before_the_stream_begins_is_an_ordinary_refusal(
    seb, topic, query, headers, status, code
):
    headers["accept"] = "text/event-stream"
    answer = await seb.client.get(f"/v1/topics/{topic}/records?{query}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_proxies_are_told_to_pass_it_on_at_once(seb, topic):
    async with followed(seb, topic) as events:
        assert events.response.headers["x-accel-buffering"] == "no"
        assert events.response.headers["cache-control"] == "no-store"


async def test_head_answers_the_headers_and_ends(seb, topic):
    url = f"/v1/topics/{topic}/records"
    answer = await seb.client.head(url, headers={"accept": "text/event-stream"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_group_is_not_followed(seb, topic):
    answer = await seb.client.get(f"/v1/groups/g/topics/{topic}/records?format=sse")
    assert answer.status_code == 400


async def test_a_topic_that_is_deleted_and_made_anew_ends_the_stream(seb, topic):
    async with followed(seb, topic, "offset=latest") as events:
        await at_the_tail(seb, topic)
        await asyncio.gather(
            seb.client.delete(f"/v1/topics/{topic}"), seb.client.put(f"/v1/topics/{topic}")
        )
        event = await events.next()
        assert (event["event"], event["data"]["code"]) == ("error", "topic_not_found")
        assert await events.next() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda seb, key: seb.client.patch(key, json={"disabled": True}),
        lambda seb, key: seb.client.post(f"{key}/rotate", json={"overlap": "0s"}),
        lambda seb, key: seb.client.delete(key),
    ],
    ids=["disabled", "rotated", "revoked"],
)
async def test_a_stream_ends_when_its_api_key_is(seb, topic, change):
    key = await api_key(seb)
    async with followed(seb, topic, client=seb.client_with(key["secret"])) as events:
        assert await events.values(3) == ["0", "1", "2"]
        assert (await change(seb, f"/v1/api-keys/{key['api_key_id']}")).status_code < 300
        await produce(seb, topic, 3)
        event = await events.next()
        assert (event["event"], event["data"]["code"]) == ("error", "unauthenticated")


async def test_a_stream_goes_on_when_its_api_key_is_only_renamed(seb, topic):
    key = await api_key(seb)
    async with followed(seb, topic, client=seb.client_with(key["secret"])) as events:
        await seb.client.patch(f"/v1/api-keys/{key['api_key_id']}", json={"name": "other"})
        await produce(seb, topic, 3)
        assert await events.values(4) == ["0", "1", "2", "3"]


async def test_a_ring_pings_who_got_nothing_and_looks_at_the_api_key(seb, topic):
    key = await api_key(seb)
    async with followed(seb, topic, "offset=latest", seb.client_with(key["secret"])) as events:
        await at_the_tail(seb, topic)
        seb.appliance.broker.followers._ring()
        assert await events.next() == {"event": ":", "data": "ping"}
        await seb.client.patch(f"/v1/api-keys/{key['api_key_id']}", json={"disabled": True})
        seb.appliance.broker.followers._ring()
        assert (await events.next())["data"]["code"] == "unauthenticated"


async def test_bytes_are_charged_to_the_quota(seb, topic):
    key = await api_key(seb, quotas={"bytes_out_per_second": 10})
    async with followed(seb, topic, client=seb.client_with(key["secret"])) as events:
        await events.values(3)
        async with seb.client_with(key["secret"]) as client:
            # What was sent is charged when the transport has taken it, which may be a turn later.
            while (answer := await client.get(f"/v1/topics/{topic}/records")).status_code == 200:
                pass
            assert answer.json()["code"] == "quota_exceeded"


async def api_key(seb, **members):
    grants = [{"operation": "consume", "topics": "**"}]
    answer = await seb.client.post("/v1/api-keys", json={"name": "f", "grants": grants, **members})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_too_many_followers_are_refused(seb, topic, monkeypatch):
    monkeypatch.setattr(seb.appliance.broker.followers._shares, "limit", 2)
    async with followed(seb, topic):
        answer = await seb.client.get(f"/v1/topics/{topic}/records?format=sse")
        assert (answer.status_code, answer.json()["code"]) == (429, "share_exceeded")


async def test_the_place_of_a_client_that_leaves_is_free(seb, topic):
    async with followed(seb, topic, "offset=latest"):
        await at_the_tail(seb, topic)
        assert seb.appliance.broker.followers.count == 1
    while seb.appliance.broker.followers.count:
        await asyncio.sleep(0)
    assert seb.appliance.broker.followers._timer is None
    assert seb.appliance.broker.followers.budget.used == 0


async def test_followers_at_the_log_end_share_what_is_encoded(seb, topic):
    async with contextlib.AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(followed(seb, topic, "offset=latest")) for _ in range(5)
        ]
        await at_the_tail(seb, topic)
        before = seb.appliance.broker.counters.live_encoded
        for value in range(3, 10):
            await produce(seb, topic, value)
        for events in streams:
            assert await events.values(7) == [str(value) for value in range(3, 10)]
        assert seb.appliance.broker.counters.live_encoded == before + 7


async def test_one_that_takes_nothing_is_told_so_and_holds_nothing(seb, topic, monkeypatch):
    monkeypatch.setattr(limits, "FOLLOWER_STALLED_S_MAX", 0.05)
    followers = seb.appliance.broker.followers
    before = followers.cut
    reader, writer = await asyncio.open_connection("127.0.0.1", seb.port, limit=1024)
    path = f"/v1/topics/{topic}/records?format=sse"
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {seb.admin_key}\r\n\r\n"
    writer.write(head.encode())
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    await seb.client.post(
        f"/v1/topics/{topic}/records", json={"records": [{"value": "x" * 1_000_000}] * 12}
    )
    while followers.cut == before:
        await asyncio.sleep(0)
    while followers.count:
        await asyncio.sleep(0)
    assert followers.budget.used == 0
    rest = await reader.read(-1)
    assert b"event: error\ndata: {" in rest
    assert b"follower_too_slow" in rest
    writer.close()
