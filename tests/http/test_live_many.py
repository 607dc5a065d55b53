"""Streams of many topics: what joins, what leaves, and where a stream goes on."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio

from seb_appliance import limits
from tests.support.events import Events

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def name(seb, request):
    """The first word of this test's topics, which are gone afterwards."""
    name = request.node.name.partition("[")[0]
    yield name
    for topic in (await seb.client.get(f"/v1/topics?pattern={name}.**")).json()["topics"]:
        await seb.client.delete(f"/v1/topics/{topic['topic']}")


async def make(seb, *topics):
    await asyncio.gather(*(seb.client.put(f"/v1/topics/{topic}") for topic in topics))


async def produce(seb, topic, *values):
    records = {"records": [{"value": str(value)} for value in values]}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json=records)
    assert answer.status_code == 201, answer.text


@contextlib.asynccontextmanager
async def followed(seb, topics, query="", token=None, **headers):
    headers = {"accept": "text/event-stream", **headers}
    url = f"/v1/records?topics={topics}&{query}".rstrip("&")
    client = seb.client_with(token or seb.admin_key)
    async with client, client.stream("GET", url, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        events = Events(response)
        yield events


async def refused(seb, query, status, code, **headers):
    answer = await seb.client.get(f"/v1/records?{query}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def seen(events):
    return [(event["data"]["topic"], event["data"]["value"]) for event in events]


async def asleep(seb):
    """Returns once every follower of many topics sleeps."""
    followers = seb.appliance.broker.followers
    while not followers._of_many or not all(
        f._woken is not None and not f._woken.done() for f in followers._of_many
    ):
        await asyncio.sleep(0)


async def consumer(seb, *patterns):
    grants = [{"operation": "consume", "topics": pattern} for pattern in patterns]
    answer = await seb.client.post("/v1/api-keys", json={"name": "f", "grants": grants})
    return answer.json()


async def test_topics_that_match_come_in_one_stream_each_in_order(seb, name):
    await make(seb, f"{name}.a", f"{name}.b", f"{name}.c.d")
    for topic in ("a", "b", "c.d"):
        await produce(seb, f"{name}.{topic}", 1, 2)
    async with followed(seb, f"{name}.a,{name}.c.**") as events:
        assert sorted(seen(await events.some(4))) == [
            (f"{name}.a", "1"),
            (f"{name}.a", "2"),
            (f"{name}.c.d", "1"),
            (f"{name}.c.d", "2"),
        ]
        await produce(seb, f"{name}.b", 3)
        await produce(seb, f"{name}.a", 3)
        assert seen(await events.some(1)) == [(f"{name}.a", "3")]


async def test_an_event_is_the_record_as_a_read_gives_it_with_its_topic(seb, name):
    await make(seb, f"{name}.a")
    await produce(seb, f"{name}.a", 1)
    async with followed(seb, f"{name}.*") as events:
        (event,) = await events.some(1)
    read = (await seb.client.get(f"/v1/topics/{name}.a/records")).json()
    assert event["data"] == {"topic": f"{name}.a", **read["records"][0]}


async def test_a_topic_that_is_made_meanwhile_joins_from_its_first_record(seb, name):
    async with followed(seb, f"{name}.**", "offset=latest") as events:
        await asleep(seb)
        await make(seb, f"{name}.new")
        await produce(seb, f"{name}.new", 1)
        await make(seb, f"{name}.x.other")
        await produce(seb, f"{name}.x.other", 2)
        assert [value for _, value in seen(await events.some(2))] == ["1", "2"]


async def test_latest_begins_at_the_log_ends(seb, name):
    await make(seb, f"{name}.a")
    await produce(seb, f"{name}.a", 1)
    async with followed(seb, f"{name}.*", "offset=latest") as events:
        await asleep(seb)
        await produce(seb, f"{name}.a", 2)
        assert seen(await events.some(1)) == [(f"{name}.a", "2")]


@pytest.mark.parametrize("by", ["last-event-id", "cursor"])
async def test_any_id_goes_on_in_all_topics_with_nothing_lost_and_nothing_twice(seb, name, by):
    topics = [f"{name}.{n}" for n in range(3)]
    await make(seb, *topics)
    for topic in topics:
        await produce(seb, topic, *range(4))
    async with followed(seb, f"{name}.*") as events:
        whole = await events.some(12)
    for at in range(11):
        cursor = whole[at]["id"]
        headers, query = {}, f"cursor={cursor}"
        if by == "last-event-id":
            headers, query = {"last-event-id": cursor}, "offset=latest&cursor=0-0"
        query += f"&max_records={11 - at}"
        async with followed(seb, f"{name}.*", query, **headers) as events:
            rest = await events.some(11 - at)
            assert (await events.next())["data"] == "end"
        assert sorted(seen(whole[: at + 1] + rest)) == sorted(seen(whole))


async def test_who_leaves_before_the_first_event_comes_back_to_the_same_place(seb, name):
    await make(seb, f"{name}.a")
    await produce(seb, f"{name}.a", 1)
    url = f"/v1/records?topics={name}.*&offset=latest"
    client = seb.client_with(seb.admin_key)  # one that does not wait for the end of answers
    async with client, client.stream("GET", url) as response:
        lines = response.aiter_lines()
        first = [await anext(lines) for _ in range(2)]
    assert first[0] == "retry: 1000"
    cursor = first[1].removeprefix("id: ")
    await produce(seb, f"{name}.a", 2)
    await make(seb, f"{name}.b")
    await produce(seb, f"{name}.b", 3)
    async with followed(seb, f"{name}.*", "offset=latest", **{"last-event-id": cursor}) as events:
        assert [value for _, value in seen(await events.some(2))] == ["2", "3"]


async def test_a_cursor_of_no_topics_is_one(seb, name):
    async with followed(seb, f"{name}.*", "cursor=0-0") as events:
        await asleep(seb)
        await make(seb, f"{name}.a")
        await produce(seb, f"{name}.a", 1)
        assert seen(await events.some(1)) == [(f"{name}.a", "1")]


async def test_topics_with_much_do_not_keep_the_others_waiting(seb, name):
    await make(seb, f"{name}.busy", f"{name}.quiet")
    big = "x" * 1_000
    for _ in range(5):
        await produce(seb, f"{name}.busy", *([big] * 100))
    await produce(seb, f"{name}.quiet", 1)
    async with followed(seb, f"{name}.*") as events:
        some = seen(await events.some(200))
        assert (f"{name}.quiet", "1") in some


async def test_a_topic_that_is_deleted_leaves_and_one_of_its_name_is_another(seb, name):
    await make(seb, f"{name}.a", f"{name}.b")
    async with followed(seb, f"{name}.*", "offset=latest") as events:
        await asleep(seb)
        await produce(seb, f"{name}.a", 1)
        (event,) = await events.some(1)
        await seb.client.delete(f"/v1/topics/{name}.a")
        await make(seb, f"{name}.a")
        await produce(seb, f"{name}.a", 2)
        (event,) = await events.some(1)
        assert (event["data"]["offset"], event["data"]["value"]) == (0, "2")
        assert event["id"].count("-") == 2, "the deleted one has left the cursor"


async def test_only_what_the_api_key_may_read_is_in_it(seb, name):
    await make(seb, f"{name}.a", f"{name}.b")
    for topic in "ab":
        await produce(seb, f"{name}.{topic}", topic)
    key = await consumer(seb, f"{name}.a", f"{name}.x.*")
    async with followed(seb, f"{name}.**", token=key["secret"]) as events:
        assert seen(await events.some(1)) == [(f"{name}.a", "a")]
        await asleep(seb)
        await make(seb, f"{name}.c", f"{name}.x.c")
        await produce(seb, f"{name}.c", 1)
        await produce(seb, f"{name}.x.c", 2)
        assert seen(await events.some(1)) == [(f"{name}.x.c", "2")]


async def test_grants_that_change_change_the_stream(seb, name):
    await make(seb, f"{name}.a", f"{name}.b")
    await produce(seb, f"{name}.b", "old")
    key = await consumer(seb, f"{name}.a")
    url = f"/v1/api-keys/{key['api_key_id']}"

    async def grant(*topics):
        grants = [{"operation": "consume", "topics": topic} for topic in topics]
        assert (await seb.client.patch(url, json={"grants": grants})).status_code == 200

    async with followed(seb, f"{name}.*", token=key["secret"]) as events:
        await produce(seb, f"{name}.a", 1)
        assert seen(await events.some(1)) == [(f"{name}.a", "1")]
        await grant(f"{name}.b")
        seb.appliance.broker.followers._ring()
        assert seen(await events.some(1)) == [(f"{name}.b", "old")]
        await produce(seb, f"{name}.a", 2)
        await produce(seb, f"{name}.b", 3)
        assert seen(await events.some(1)) == [(f"{name}.b", "3")]
        await grant(f"{name}.*")
        seb.appliance.broker.followers._ring()
        assert seen(await events.some(1)) == [(f"{name}.a", "2")], "it goes on where it was"
        await seb.client.delete(url)
        seb.appliance.broker.followers._ring()
        event = await events.next()
        assert (event["event"], event["data"]["code"]) == ("error", "unauthenticated")


async def test_a_key_that_may_consume_nothing_is_refused(seb):
    grants = [{"operation": "produce", "topics": "**"}]
    key = (await seb.client.post("/v1/api-keys", json={"name": "p", "grants": grants})).json()
    async with seb.client_with(key["secret"]) as client:
        answer = await client.get("/v1/records?topics=**")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_what_is_asked_wrongly_is_an_ordinary_refusal(seb, name):
    await make(seb, f"{name}.a")
    await produce(seb, f"{name}.a", 1, 2)
    topic_id = (await seb.client.get(f"/v1/topics/{name}.a")).json()["topic_id"]
    ours = f"topics={name}.*"
    await refused(seb, "", 400, "bad_parameter")
    await refused(seb, "topics=a..b", 400, "bad_parameter")
    await refused(seb, "topics=" + ",".join(["a"] * 101), 400, "bad_parameter")
    await refused(seb, f"{ours}&offset=3", 400, "bad_parameter")
    await refused(seb, f"{ours}&cursor=x", 400, "bad_parameter")
    await refused(seb, ours, 400, "bad_parameter", **{"last-event-id": "1-2-3"})
    await refused(seb, f"{ours}&max_records=0", 400, "bad_parameter")
    await refused(seb, f"{ours}&format=ndjson", 400, "bad_parameter")
    await refused(seb, ours, 406, "not_acceptable", accept="text/plain")
    for of_a_page in ("wait=1s", "max_bytes=1KiB", "group=g"):
        await refused(seb, f"{ours}&{of_a_page}", 400, "bad_parameter")
    await refused(seb, f"{ours}&cursor={topic_id}-3", 416, "offset_out_of_range")
    await seb.client.post(f"/v1/topics/{name}.a/trim", json={"before": 1})
    await refused(seb, f"{ours}&cursor={topic_id}-0", 410, "offset_expired")
    assert seb.appliance.broker.followers.count == 0


async def test_too_many_topics_are_refused_and_end_a_stream_that_they_join(seb, name, monkeypatch):
    monkeypatch.setattr(limits, "FOLLOWED_TOPICS_MAX", 2)
    await make(seb, f"{name}.a", f"{name}.b")
    async with followed(seb, f"{name}.*") as events:
        await make(seb, f"{name}.c")
        event = await events.next()
        assert (event["event"], event["data"]["code"]) == ("error", "bad_parameter")
    await refused(seb, f"topics={name}.*", 400, "bad_parameter")


async def test_head_answers_the_headers_and_ends(seb):
    answer = await seb.client.head("/v1/records?topics=**")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_followers_of_many_share_what_is_encoded_and_leave_nothing_behind(seb, name):
    await make(seb, f"{name}.a")
    followers = seb.appliance.broker.followers
    async with contextlib.AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(followed(seb, f"{name}.*", "offset=latest"))
            for _ in range(5)
        ]
        while followers.count < 5:
            await asyncio.sleep(0)
        await asleep(seb)
        before = seb.appliance.broker.counters.live_encoded
        for value in range(7):
            await produce(seb, f"{name}.a", value)
        for events in streams:
            assert await events.values(7) == [str(value) for value in range(7)]
        assert seb.appliance.broker.counters.live_encoded == before + 7
    while followers.count:
        await asyncio.sleep(0)
    assert not followers._of_many
    assert not followers.readers.by_topic
    assert followers.budget.used == 0


async def test_one_that_takes_nothing_is_told_so_and_holds_nothing(seb, name, monkeypatch):
    monkeypatch.setattr(limits, "FOLLOWER_STALLED_S_MAX", 0.05)
    await make(seb, f"{name}.a")
    for _ in range(12):
        await produce(seb, f"{name}.a", "x" * 1_000_000)
    followers = seb.appliance.broker.followers
    reader, writer = await asyncio.open_connection("127.0.0.1", seb.port, limit=1024)
    path = f"/v1/records?topics={name}.*"
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {seb.admin_key}\r\n\r\n"
    writer.write(head.encode())
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    while followers.count:
        await asyncio.sleep(0)
    assert followers.budget.used == 0
    rest = await reader.read(-1)
    assert b"event: error\ndata: {" in rest
    assert b"follower_too_slow" in rest
    writer.close()
