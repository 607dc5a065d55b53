"""Consumer groups over HTTP: reading on, committing, looking, resetting."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from seb_appliance import limits

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def fill(seb, topic, count):
    """A topic with `count` records, values "0", "1", …; its id."""
    records = [{"value": str(n)} for n in range(count)]
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answer.status_code == 201, answer.text
    return answer.json()["topic_id"]


async def commit(seb, group, offsets, **members):
    return await seb.client.put(f"/v1/groups/{group}/offsets", json={"offsets": offsets, **members})


def reading(group, topic):
    return f"/v1/groups/{group}/topics/{topic}/records"


async def committed(seb, group, topic):
    """Where the group stands, or None."""
    return (await seb.client.get(reading(group, topic))).json()["committed_offset"]


async def make_key(seb, *grants):
    answer = await seb.client.post("/v1/api-keys", json={"name": "test", "grants": list(grants)})
    assert answer.status_code == 201, answer.text
    return answer.json()["secret"]


# --- reading and committing ---


async def test_a_group_reads_on_from_where_it_committed(seb):
    topic_id = await fill(seb, "on", 5)
    first = (await seb.client.get(reading("on", "on"), params={"max_records": 2})).json()
    assert [record["value"] for record in first["records"]] == ["0", "1"]
    assert (first["committed_offset"], first["lag_records"]) == (None, 5)
    answer = await commit(seb, "on", {"on": first["next_offset"]})
    assert answer.status_code == 200
    assert answer.json() == {"group": "on", "offsets": {"on": 2}, "topic_ids": {"on": topic_id}}
    then = (await seb.client.get(reading("on", "on"))).json()
    assert [record["value"] for record in then["records"]] == ["2", "3", "4"]
    assert then.keys() == {
        "topic", "topic_id", "records", "next_offset", "log_start_offset", "log_end_offset",
        "group", "committed_offset", "lag_records", "lag_bytes", "lag_seconds",
    }  # fmt: skip
    assert (then["group"], then["committed_offset"], then["lag_records"]) == ("on", 2, 3)
    assert then["lag_bytes"] > 0
    assert then["lag_seconds"] > 0


async def test_two_readers_of_one_group_get_the_same_records(seb):
    await fill(seb, "same", 3)
    first = (await seb.client.get(reading("same", "same"))).json()
    second = (await seb.client.get(reading("same", "same"))).json()
    assert first["records"] == second["records"] != []


async def test_a_group_without_an_offset_begins_where_default_says(seb):
    await fill(seb, "begin", 3)
    for query, expected in (("", 0), ("?default=earliest", 0), ("?default=latest", 3)):
        answer = (await seb.client.get(reading("begin", "begin") + query)).json()
        assert answer["next_offset"] - len(answer["records"]) == expected
        assert answer["lag_records"] == 3 - expected


@pytest.mark.parametrize("named", ["json", "ndjson", "batch"])
async def test_every_format_tells_the_lag_in_headers(seb, named):
    topic_id = await fill(seb, f"lag.{named}", 4)
    before = await seb.client.get(reading("lag", f"lag.{named}"), params={"format": named})
    assert "seb-committed-offset" not in before.headers
    await commit(seb, "lag", {f"lag.{named}": 1})
    for method in ("GET", "HEAD"):
        answer = await seb.client.request(
            method, reading("lag", f"lag.{named}"), params={"format": named}
        )
        assert answer.status_code == 200
        assert answer.headers["seb-group"] == "lag"
        assert answer.headers["seb-topic-id"] == str(topic_id)
        assert answer.headers["seb-committed-offset"] == "1"
        assert answer.headers["seb-lag-records"] == "3"
        assert int(answer.headers["seb-lag-bytes"]) > 0
        assert float(answer.headers["seb-lag-seconds"]) > 0
        assert answer.headers["seb-next-offset"] == "4"


async def test_a_reader_of_a_group_waits_for_a_record(seb):
    await fill(seb, "wait", 1)
    await commit(seb, "wait", {"wait": 1})
    waiting = asyncio.ensure_future(seb.client.get(reading("wait", "wait"), params={"wait": "20s"}))
    while not seb.appliance.broker.waiting_readers:
        await asyncio.sleep(0)
    await fill(seb, "wait", 1)
    answer = (await waiting).json()
    assert [record["offset"] for record in answer["records"]] == [1]
    assert (answer["committed_offset"], answer["lag_records"]) == (1, 1)


async def test_a_commit_may_carry_metadata_and_be_compare_and_set(seb):
    topic_id = await fill(seb, "cas", 9)
    first = await commit(seb, "cas", {"cas": 4}, expected={"cas": None}, metadata={"cas": "file 4"})
    assert first.status_code == 200
    view = (await seb.client.get("/v1/groups/cas")).json()
    assert view["topics"][0]["metadata"] == "file 4"
    again = await commit(seb, "cas", {"cas": 5}, expected={"cas": 3})
    assert (again.status_code, again.json()["code"]) == (409, "offset_conflict")
    assert (again.json()["expected"], again.json()["committed"]) == (3, 4)
    other = await commit(seb, "cas", {"cas": 5}, topic_ids={"cas": topic_id + 1})
    assert (other.status_code, other.json()["code"]) == (409, "offset_conflict")
    assert await committed(seb, "cas", "cas") == 4


async def test_a_commit_goes_back_only_when_it_says_so(seb):
    await fill(seb, "back", 9)
    await commit(seb, "back", {"back": 6})
    answer = await commit(seb, "back", {"back": 5})
    assert (answer.status_code, answer.json()["code"]) == (409, "commit_backward")
    assert answer.json()["committed"] == 6
    assert (await commit(seb, "back", {"back": 5}, allow_backward=True)).status_code == 200
    assert await committed(seb, "back", "back") == 5


async def test_a_commit_of_many_topics_is_all_or_nothing(seb):
    await fill(seb, "all.a", 3)
    await fill(seb, "all.b", 3)
    answer = await commit(seb, "all", {"all.a": 2, "all.b": 4})
    assert (answer.status_code, answer.json()["code"]) == (400, "commit_beyond_end")
    assert (answer.json()["topic"], answer.json()["log_end_offset"]) == ("all.b", 3)
    assert (await seb.client.get("/v1/groups/all")).status_code == 404
    assert (await commit(seb, "all", {"all.a": 2, "all.b": 3})).status_code == 200
    view = (await seb.client.get("/v1/groups/all")).json()
    assert [topic["committed_offset"] for topic in view["topics"]] == [2, 3]


async def test_a_commit_to_a_deleted_topic_says_so(seb):
    await fill(seb, "deleted", 3)
    await commit(seb, "deleted", {"deleted": 1})
    await seb.client.delete("/v1/topics/deleted")
    answer = await commit(seb, "deleted", {"deleted": 2})
    assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")
    assert (await seb.client.get("/v1/groups/deleted")).status_code == 404


# --- looking ---


async def test_a_group_is_described_by_topic_and_in_total(seb):
    await fill(seb, "shown.a", 4)
    await fill(seb, "shown.b", 2)
    await commit(seb, "shown", {"shown.b": 2, "shown.a": 1})
    view = (await seb.client.get("/v1/groups/shown")).json()
    assert (view["group"], view["topic_count"], view["lease"]) == ("shown", 2, None)
    a, b = view["topics"]
    assert (a["topic"], a["committed_offset"], a["lag_records"]) == ("shown.a", 1, 3)
    assert (b["topic"], b["lag_records"], b["lag_bytes"], b["lag_seconds"]) == ("shown.b", 0, 0, 0)
    assert view["lag_records"] == 3
    assert view["lag_bytes"] == a["lag_bytes"] > 0
    assert view["lag_seconds"] >= a["lag_seconds"] > 0
    assert view["last_commit"] == a["last_commit"] == b["last_commit"]
    assert (await seb.client.head("/v1/groups/shown")).status_code == 200


async def test_groups_are_listed_in_pages(seb):
    await fill(seb, "paged", 1)
    names = [f"paged.{n}" for n in range(5)]
    for name in reversed(names):
        await commit(seb, name, {"paged": 1})
    seen, after = [], "paged"
    while after is not None and after.startswith("paged"):
        page = await seb.client.get("/v1/groups", params={"after": after, "limit": 2})
        assert len(page.json()["groups"]) <= 2
        seen += [group["group"] for group in page.json()["groups"]]
        after = page.json()["next_after"]
    assert seen[:5] == names
    everything = (await seb.client.get("/v1/groups", params={"limit": 500})).json()
    assert everything["next_after"] is None
    listed = [group["group"] for group in everything["groups"]]
    assert listed == sorted(listed)
    assert set(names) < set(listed)


async def test_a_deleted_group_is_gone(seb):
    await fill(seb, "gone", 1)
    await commit(seb, "gone", {"gone": 1})
    answer = await seb.client.delete("/v1/groups/gone")
    assert (answer.status_code, answer.content) == (204, b"")
    for again in (
        await seb.client.delete("/v1/groups/gone"),
        await seb.client.get("/v1/groups/gone"),
    ):
        assert (again.status_code, again.json()["code"]) == (404, "group_not_found")
    assert await committed(seb, "gone", "gone") is None


# --- resetting ---


async def reset(seb, group, **members):
    answer = await seb.client.post(f"/v1/groups/{group}/reset", json=members)
    assert answer.status_code == 200, answer.text
    return {row["topic"]: (row["before"], row["after"]) for row in answer.json()["topics"]}


async def test_a_dry_run_shows_what_a_reset_would_do_and_does_nothing(seb):
    await fill(seb, "dry", 5)
    await commit(seb, "dry", {"dry": 3})
    planned = await reset(seb, "dry", to="earliest", dry_run=True)
    assert planned == {"dry": (3, 0)}
    assert await committed(seb, "dry", "dry") == 3
    assert await reset(seb, "dry", to="earliest") == planned
    assert await committed(seb, "dry", "dry") == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def places(seb):
    await fill(seb, "places", 6)


@pytest.mark.parametrize(
    ("members", "after"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 6),
        ({"to": "2"}, 2),
        ({"to": 2}, 2),
        ({"to": "-2"}, 4),
        ({"to": 99}, 6),
        ({"to": "@1990-01-01T00:00:00Z"}, 0),
        ({"to": "@2990-01-01T00:00:00Z"}, 6),
        ({"shift": -1}, 2),
        ({"shift": 2}, 5),
        ({"shift": -99}, 0),
        ({"shift": 99}, 6),
    ],
)
async def test_a_reset_goes_to_a_place_or_by_a_distance(seb, places, members, after):
    await commit(seb, "places", {"places": 3}, allow_backward=True)
    assert await reset(seb, "places", **members) == {"places": (3, after)}
    assert await committed(seb, "places", "places") == after


async def test_a_pattern_picks_among_the_topics_of_the_group_and_a_name_any_topic(seb):
    for topic in ("pick.a", "pick.b", "other.a"):
        await fill(seb, topic, 3)
    await commit(seb, "pick", {"pick.a": 2, "other.a": 2})
    assert await reset(seb, "pick", topics=["pick.*"], to=1) == {"pick.a": (2, 1)}
    assert await reset(seb, "pick", topics=["pick.b"], to=1) == {"pick.b": (None, 1)}
    assert await reset(seb, "pick", topics=["nothing.**"], to=1) == {}
    everything = {"other.a": (2, 0), "pick.a": (1, 0), "pick.b": (1, 0)}
    assert await reset(seb, "pick", to="earliest") == everything


# --- leases ---


async def lease(seb, group, holder="worker-1", ttl_ms=60_000):
    return await seb.client.post(
        f"/v1/groups/{group}/lease", json={"holder": holder, "ttl_ms": ttl_ms}
    )


async def test_only_the_holder_of_a_lease_commits(seb):
    await fill(seb, "leased", 5)
    taken = (await lease(seb, "leased")).json()
    assert (taken["group"], taken["holder"], taken["ttl_ms"]) == ("leased", "worker-1", 60_000)
    assert 0 < taken["expires_in_ms"] <= 60_000
    for members in ({}, {"generation": taken["generation"] + 1}):
        answer = await commit(seb, "leased", {"leased": 1}, **members)
        assert (answer.status_code, answer.json()["code"]) == (409, "stale_generation")
        assert answer.json()["holder"] == "worker-1"
    mine = await commit(seb, "leased", {"leased": 1}, generation=taken["generation"])
    assert mine.status_code == 200
    shown = (await seb.client.get("/v1/groups/leased")).json()["lease"]
    assert (shown["generation"], shown["holder"]) == (taken["generation"], "worker-1")


async def test_a_lease_is_held_renewed_and_given_back(seb):
    taken = (await lease(seb, "given")).json()
    held = await lease(seb, "given", "worker-2")
    assert (held.status_code, held.json()["code"]) == (409, "lease_held")
    assert held.json()["holder"] == "worker-1"
    assert 0 < held.json()["expires_in_ms"] <= 60_000
    renewed = (await lease(seb, "given")).json()
    assert renewed["generation"] == taken["generation"]
    url = "/v1/groups/given/lease"
    wrong = await seb.client.delete(url, params={"generation": taken["generation"] + 1})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "stale_generation")
    released = await seb.client.delete(url, params={"generation": taken["generation"]})
    assert (released.status_code, released.content) == (204, b"")
    other = (await lease(seb, "given", "worker-2")).json()
    assert other["generation"] > taken["generation"]


# --- who may ---


async def test_a_grant_to_consume_covers_its_topics_and_its_groups(seb):
    for topic in ("may.yes", "may.no"):
        await fill(seb, topic, 2)
    token = await make_key(seb, {"operation": "consume", "topics": "may.yes", "groups": "mine.**"})
    async with seb.client_with(token) as client:
        put = {"offsets": {"may.yes": 1}}
        assert (await client.get(reading("mine.a", "may.yes"))).status_code == 200
        assert (await client.put("/v1/groups/mine.a/offsets", json=put)).status_code == 200
        assert (await client.get("/v1/topics/may.yes/records")).status_code == 200
        taken = await client.post("/v1/groups/mine.a/lease", json={"holder": "x", "ttl_ms": 1000})
        assert taken.status_code == 200
        both = {"offsets": {"may.yes": 1, "may.no": 1}}
        for refused in (
            await client.get(reading("mine.a", "may.no")),
            await client.get(reading("other", "may.yes")),
            await client.put("/v1/groups/mine.a/offsets", json=both),
            await client.put("/v1/groups/other/offsets", json=put),
            await client.post("/v1/groups/other/lease", json={"holder": "x", "ttl_ms": 1000}),
            await client.delete("/v1/groups/other/lease?generation=1"),
            await client.get("/v1/groups/other"),
            await client.delete("/v1/groups/mine.a"),
            await client.post("/v1/groups/mine.a/reset", json={"to": "earliest"}),
        ):
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        missing = (await client.get(reading("other", "may.yes"))).json()["missing_grant"]
        assert missing == {"operation": "consume", "topics": "may.yes", "groups": "other"}


async def test_resetting_and_deleting_need_manage_on_every_topic(seb):
    for topic in ("rule.a", "rule.b"):
        await fill(seb, topic, 2)
    await commit(seb, "ruled", {"rule.a": 1, "rule.b": 1})
    token = await make_key(seb, {"operation": "manage", "topics": "rule.a", "groups": "ruled"})
    async with seb.client_with(token) as client:
        url = "/v1/groups/ruled/reset"
        one = await client.post(url, json={"topics": ["rule.a"], "to": "latest"})
        assert one.status_code == 200
        assert (await client.post(url, json={"to": "latest"})).status_code == 403
        assert (await client.delete("/v1/groups/ruled")).status_code == 403
    both = await make_key(seb, {"operation": "manage", "topics": "rule.*", "groups": "ruled"})
    async with seb.client_with(both) as client:
        assert (await client.delete("/v1/groups/ruled")).status_code == 204


async def test_a_key_sees_only_its_groups_and_its_topics(seb):
    for topic in ("see.a", "see.b"):
        await fill(seb, topic, 2)
    await commit(seb, "seen.1", {"see.a": 1, "see.b": 0})
    await commit(seb, "seen.2", {"see.b": 1})
    await commit(seb, "unseen", {"see.a": 1})
    token = await make_key(seb, {"operation": "consume", "topics": "see.a", "groups": "seen.*"})
    async with seb.client_with(token) as client:
        listed = (await client.get("/v1/groups")).json()
        assert [group["group"] for group in listed["groups"]] == ["seen.1"]
        assert listed["groups"][0]["topic_count"] == 1
        view = (await client.get("/v1/groups/seen.1")).json()
        assert [topic["topic"] for topic in view["topics"]] == ["see.a"]
        assert view["lag_records"] == 1
        assert (await client.get("/v1/groups/seen.2")).status_code == 404
        assert (await client.get("/v1/groups/unseen")).status_code == 403


async def test_a_grant_shows_its_groups_and_covers_all_when_it_names_none(seb):
    grants = [{"operation": "consume", "topics": "a.*"}]
    made = (await seb.client.post("/v1/api-keys", json={"name": "x", "grants": grants})).json()
    assert made["grants"] == [{"operation": "consume", "topics": "a.*", "groups": "**"}]
    bad = {"operation": "consume", "groups": "a**"}
    answer = await seb.client.post("/v1/api-keys", json={"name": "x", "grants": [bad]})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")


# --- size ---


async def test_ten_thousand_offsets_fit_one_commit(seb):
    """The longest names, each with everything that may be said about it."""
    await fill(seb, "many", 1)
    names = [f"{n:0128}" for n in range(limits.OFFSETS_PER_COMMIT_MAX)]
    offsets = dict.fromkeys(names, limits.OFFSET_MAX)
    answer = await commit(seb, "many", offsets, topic_ids=offsets, generation=1)
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_generation")
    answer = await commit(seb, "many", offsets | {"many": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_json")


async def test_an_answer_with_many_topics_of_a_group_comes_in_parts_and_counts(seb, monkeypatch):
    names = [f"wide-{n:02}" for n in range(70)]
    for name in names:
        assert (await seb.client.put(f"/v1/topics/{name}", json={})).status_code == 201
    metadata = dict.fromkeys(names, "m" * 100)
    await commit(seb, "wide", dict.fromkeys(names, 0), metadata=metadata)
    found = (await seb.client.get("/v1/groups/wide")).json()
    assert [topic["topic"] for topic in found["topics"]] == names
    assert (found["group"], found["topic_count"], found["membership"]) == ("wide", 70, None)
    monkeypatch.setattr(seb.appliance.broker.reading, "limit", 1_000)
    refused = await seb.client.get("/v1/groups/wide")
    assert refused.status_code in (429, 503)
    assert seb.appliance.broker.reading.used == 0
