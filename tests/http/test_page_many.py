"""One read over many topics: pages, their turns, waiting, and what a group is told to commit."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def name(seb, request):
    """The first word of this test's topics, which are gone afterwards."""
    name = request.node.name.partition("[")[0]
    yield name
    for topic in (await seb.client.get(f"/v1/topics?pattern={name}.**")).json()["topics"]:
        await seb.client.delete(f"/v1/topics/{topic['topic']}")


async def produce(seb, topic, *values):
    records = {"records": [{"value": str(value)} for value in values]}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json=records)
    assert answer.status_code == 201, answer.text


async def page(seb, topics, query="", client=None):
    url = f"/v1/records?topics={topics}&format=json&{query}".rstrip("&")
    answer = await (client or seb.client).get(url)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(seb, query, status, code):
    answer = await seb.client.get(f"/v1/records?format=json&{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def seen(found):
    return [(record["topic"], record["value"]) for record in found["records"]]


async def waiting(seb):
    """Returns once a page waits."""
    followers = seb.appliance.broker.followers
    while not any(f._woken is not None and not f._woken.done() for f in followers._of_many):
        await asyncio.sleep(0)


async def test_a_page_holds_records_of_all_topics_that_match_as_a_read_gives_them(seb, name):
    await produce(seb, f"{name}.a", 1, 'with "quotes"\n{and lines')
    await produce(seb, f"{name}.b.c", 2)
    await produce(seb, f"{name}.d", 3)
    found = await page(seb, f"{name}.a,{name}.b.**")
    expected = []
    for topic in ("a", "b.c"):
        read = (await seb.client.get(f"/v1/topics/{name}.{topic}/records")).json()
        expected += [{"topic": f"{name}.{topic}", **record} for record in read["records"]]
    assert found["records"] == expected
    assert found["commit"] is None


async def test_pages_follow_one_another_with_nothing_lost_and_nothing_twice(seb, name):
    for topic in "abc":
        await produce(seb, f"{name}.{topic}", *range(5))
    got, cursor, pages = [], "", 0
    while some := await page(seb, f"{name}.*", f"max_records=2&cursor={cursor}"):
        if not some["records"]:
            break
        got, cursor, pages = got + seen(some), some["cursor"], pages + 1
    assert pages == 8
    assert sorted(got) == sorted((f"{name}.{topic}", str(i)) for topic in "abc" for i in range(5))


async def test_a_topic_with_much_does_not_keep_the_others_waiting(seb, name):
    await produce(seb, f"{name}.busy", *range(100))
    await produce(seb, f"{name}.quiet", "q")
    first = await page(seb, f"{name}.*", "max_records=10")
    assert {topic for topic, _ in seen(first)} == {f"{name}.busy"}
    second = await page(seb, f"{name}.*", f"max_records=10&cursor={first['cursor']}")
    assert seen(second)[0] == (f"{name}.quiet", "q")
    assert seen(second)[1] == (f"{name}.busy", "10")


async def test_max_bytes_ends_a_page_and_one_record_always_comes(seb, name):
    await produce(seb, f"{name}.a", *["x" * 1_000] * 5)
    await produce(seb, f"{name}.b", "x" * 1_000)
    assert len((await page(seb, f"{name}.*", "max_bytes=1"))["records"]) == 1
    assert 1 < len((await page(seb, f"{name}.*", "max_bytes=3KiB"))["records"]) < 5


async def test_a_large_record_counts_as_it_is_and_not_as_its_batch_has_them_on_the_mean(seb, name):
    for topic in ("a", "b"):
        await produce(seb, f"{name}.{topic}", "x" * 10_000, *range(99))
    first = await page(seb, f"{name}.*", "max_bytes=9KiB")
    assert [(topic, len(value)) for topic, value in seen(first)] == [(f"{name}.a", 10_000)]


async def test_a_page_keeps_no_more_batches_than_it_has_room_for(seb, name, monkeypatch):
    for topic in ("a", "b"):
        await produce(seb, f"{name}.{topic}", "x" * 10_000, "y")
    ends = [(await seb.client.get(f"/v1/topics/{name}.{topic}")).json() for topic in ("a", "b")]
    cursor = ".".join(f"{end['topic_id']}-1" for end in ends)
    assert len(seen(await page(seb, f"{name}.*", f"cursor={cursor}"))) == 2
    monkeypatch.setattr("seb_appliance.api.routes.records.many.HELD_BYTES_MAX", 10_000)
    first = await page(seb, f"{name}.*", f"cursor={cursor}")
    assert seen(first) == [(f"{name}.a", "y")]
    rest = await page(seb, f"{name}.*", f"cursor={first['cursor']}")
    assert seen(rest) == [(f"{name}.b", "y")]


async def test_a_cursor_goes_on_as_a_live_stream_and_a_streams_id_as_a_page(seb, name):
    await produce(seb, f"{name}.a", 1)
    cursor = (await page(seb, f"{name}.*"))["cursor"]
    await produce(seb, f"{name}.a", 2)
    url = f"/v1/records?topics={name}.*&cursor={cursor}&max_records=1"
    stream = (await seb.client.get(url)).text
    assert '"value":"2"' in stream
    last = stream.split("id: ")[2].partition("\n")[0]
    assert (await page(seb, f"{name}.*", f"cursor={last}"))["records"] == []


async def test_a_page_that_waits_is_answered_by_the_first_record_of_any_topic(seb, name):
    await produce(seb, f"{name}.a", 1)
    asked = asyncio.create_task(page(seb, f"{name}.*", "offset=latest&wait=30s"))
    await waiting(seb)
    await produce(seb, f"{name}.new", 2)
    found = await asked
    assert seen(found) == [(f"{name}.new", "2")]
    asked = asyncio.create_task(page(seb, f"{name}.*", f"cursor={found['cursor']}&wait=30s"))
    await waiting(seb)
    await produce(seb, f"{name}.a", 3)
    assert seen(await asked) == [(f"{name}.a", "3")]
    assert seb.appliance.broker.followers.count == 0


async def test_a_page_that_waits_for_nothing_tells_where_to_go_on(seb, name):
    await produce(seb, f"{name}.a", 1)
    found = await page(seb, f"{name}.*", "offset=latest&wait=1ms")
    assert found["records"] == []
    await produce(seb, f"{name}.a", 2)
    assert seen(await page(seb, f"{name}.*", f"cursor={found['cursor']}")) == [(f"{name}.a", "2")]


async def test_a_group_begins_where_it_committed_and_is_told_what_to_commit(seb, name):
    await produce(seb, f"{name}.a", 1, 2)
    await produce(seb, f"{name}.b", 3)
    commit = {"offsets": {f"{name}.a": 1}}
    await seb.client.put(f"/v1/groups/{name}/offsets", json=commit)
    found = await page(seb, f"{name}.*", f"group={name}")
    assert sorted(seen(found)) == [(f"{name}.a", "2"), (f"{name}.b", "3")]
    assert found["commit"]["offsets"] == {f"{name}.a": 2, f"{name}.b": 1}
    assert found["commit"]["expected"] == {f"{name}.a": 1, f"{name}.b": None}
    answer = await seb.client.put(f"/v1/groups/{name}/offsets", json=found["commit"])
    assert answer.status_code == 200
    again = await page(seb, f"{name}.*", f"group={name}")
    assert (again["records"], again["commit"]) == ([], None)
    answer = await seb.client.put(f"/v1/groups/{name}/offsets", json=found["commit"])
    assert answer.json()["code"] == "offset_conflict"


async def test_only_what_the_api_key_may_read_for_the_group_is_in_it(seb, name):
    await produce(seb, f"{name}.a", 1)
    await produce(seb, f"{name}.b", 2)
    grants = [{"operation": "consume", "topics": f"{name}.a", "groups": "lake"}]
    key = (await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})).json()
    async with seb.client_with(key["secret"]) as client:
        assert seen(await page(seb, f"{name}.*", "group=lake", client)) == [(f"{name}.a", "1")]
        answer = await client.get(f"/v1/records?topics={name}.*&format=json&group=other")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_what_is_asked_wrongly_is_refused(seb, name):
    await produce(seb, f"{name}.a", 1, 2)
    ours = f"topics={name}.*"
    await refused(seb, "", 400, "bad_parameter")
    await refused(seb, f"{ours}&cursor=x", 400, "bad_parameter")
    await refused(seb, f"{ours}&max_records=100001", 400, "bad_parameter")
    await refused(seb, f"{ours}&max_bytes=17MiB", 400, "bad_parameter")
    await refused(seb, f"{ours}&wait=61s", 400, "bad_parameter")
    await refused(seb, f"{ours}&group=g..g", 400, "bad_name")
    topic_id = (await seb.client.get(f"/v1/topics/{name}.a")).json()["topic_id"]
    await refused(seb, f"{ours}&cursor={topic_id}-3", 416, "offset_out_of_range")
    await seb.client.post(f"/v1/topics/{name}.a/trim", json={"before": 1})
    await refused(seb, f"{ours}&cursor={topic_id}-0", 410, "offset_expired")
    assert seb.appliance.broker.followers.count == 0
