"""Forks over HTTP: what they share, what is theirs, and what becomes of a deleted parent."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.formats import batch
from tests.http.test_live import followed

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def filled(seb, name, *values, **settings):
    await seb.client.put(f"/v1/topics/{name}", json=settings)
    if values:
        await append(seb, name, *values)


async def append(seb, name, *values):
    """All in one batch."""
    records = {"records": [{"value": value} for value in values]}
    assert (await seb.client.post(f"/v1/topics/{name}/records", json=records)).status_code == 201


async def fork(seb, name, parent, offset=None, **settings):
    wanted = {"fork_of": {"topic": parent, "offset": offset}, **settings}
    return await seb.client.put(f"/v1/topics/{name}", json=wanted)


async def values(seb, name, **query):
    query = {"offset": "earliest", **query}
    answer = await seb.client.get(f"/v1/topics/{name}/records", params=query)
    return [record["value"] for record in answer.json()["records"]]


async def test_a_fork_has_what_lies_below_it_and_goes_its_own_way(seb):
    await filled(seb, "base", "a", "b", "c", "d", retention_ms=86_400_000)
    made = await fork(seb, "way", "base", 2)
    assert made.status_code == 201
    shown = made.json()
    assert shown["fork_of"] == {"topic": "base", "offset": 2}
    assert (shown["log_start_offset"], shown["log_end_offset"], shown["size_bytes"]) == (0, 2, 0)
    assert shown["settings"]["retention_ms"] == 86_400_000
    await append(seb, "way", "C")
    await append(seb, "base", "e")
    assert await values(seb, "way") == ["a", "b", "C"]
    assert await values(seb, "base") == ["a", "b", "c", "d", "e"]
    assert (await seb.client.get("/v1/topics/base")).json()["forks"] == 1
    assert (await seb.client.get("/v1/topics/way/records/2")).json()["value"] == "C"
    assert await values(seb, "way", offset=1, max_records=1) == ["b"]


async def test_without_an_offset_all_of_the_parent_is_shared(seb):
    await filled(seb, "whole", "a", "b")
    assert (await fork(seb, "whole.fork", "whole")).json()["fork_of"]["offset"] == 2
    assert await values(seb, "whole.fork") == ["a", "b"]


async def test_the_same_fork_again_changes_nothing(seb):
    await filled(seb, "again", "a", "b")
    first = await fork(seb, "again.fork", "again", 1)
    assert [
        (await fork(seb, "again.fork", "again", 1)).status_code,
        (await fork(seb, "again.fork", "again")).json() == first.json(),
    ] == [200, True]
    differs = [
        await fork(seb, "again.fork", "again", 2),
        await fork(seb, "again.fork", "base", 1),
        await fork(seb, "again.fork", "again", 1, linger_ms=7),
        await fork(seb, "again", "again.fork"),
    ]
    assert [answer.json()["code"] for answer in differs] == ["topic_differs"] * 4


async def test_who_reads_a_fork_gets_no_byte_of_its_parents_later_records(seb):
    await filled(seb, "private", "first", "second", "secret")
    await fork(seb, "private.fork", "private", 2)
    await append(seb, "private.fork", "own")
    answer = await seb.client.get(
        "/v1/topics/private.fork/records", params={"offset": 0, "format": "batch"}
    )
    assert b"secret" not in answer.content
    headers = [header for _, header in batch.walk(answer.content)]
    assert [(h.base_offset, h.last_offset, h.count) for h in headers] == [(0, 1, 2), (2, 2, 1)]


async def test_forks_of_forks_read_through_all_of_them(seb):
    await filled(seb, "deep0", "0")
    for n in range(1, 5):
        await fork(seb, f"deep{n}", f"deep{n - 1}")
        await append(seb, f"deep{n}", str(n), "not shared")
        await fork(seb, f"deep{n}.at", f"deep{n}", n)
        assert await values(seb, f"deep{n}.at") == await values(seb, f"deep{n}", max_records=n)
        await seb.client.post(f"/v1/topics/deep{n}.at/records", json={"records": [{"value": "x"}]})
    assert await values(seb, "deep4") == [
        "0",
        "1",
        "not shared",
        "2",
        "not shared",
        "3",
        "not shared",
        "4",
        "not shared",
    ]


async def test_a_deleted_topic_with_forks_is_held_until_the_last_of_them_goes(seb):
    await filled(seb, "held", "a")
    await fork(seb, "held.1", "held")
    await fork(seb, "held.2", "held.1")
    for name in ("held", "held.1"):
        assert (await seb.client.delete(f"/v1/topics/{name}")).status_code == 204
    refused = [
        await seb.client.get("/v1/topics/held"),
        await seb.client.get("/v1/topics/held/records"),
        await seb.client.post("/v1/topics/held/records", json={"records": [{"value": "x"}]}),
        await seb.client.delete("/v1/topics/held"),
        await fork(seb, "held.3", "held"),
    ]
    assert {(a.status_code, a.json()["code"]) for a in refused} == {(410, "topic_held")}
    taken = await seb.client.put("/v1/topics/held")
    assert (taken.status_code, taken.json()["code"]) == (409, "name_held")
    names = [t["topic"] for t in (await seb.client.get("/v1/topics")).json()["topics"]]
    assert "held.2" in names
    assert not {"held", "held.1"} & set(names)
    assert await values(seb, "held.2") == ["a"]
    assert (await seb.client.get("/v1/topics/held.2")).json()["fork_of"]["topic"] == "held.1"
    await seb.client.delete("/v1/topics/held.2")
    assert (await seb.client.get("/v1/topics/held")).status_code == 404
    assert (await seb.client.put("/v1/topics/held.1")).status_code == 201


async def test_a_fork_keeps_what_its_parent_trims_and_trims_for_itself(seb):
    await filled(seb, "trimmed", "a", "b", "c")
    await fork(seb, "trimmed.fork", "trimmed")
    await seb.client.post("/v1/topics/trimmed/trim", json={"before": 3})
    assert await values(seb, "trimmed.fork") == ["a", "b", "c"]
    await seb.client.post("/v1/topics/trimmed.fork/trim", json={"before": 1})
    assert await values(seb, "trimmed.fork") == ["b", "c"]
    gone = await fork(seb, "trimmed.late", "trimmed", 2)
    assert (gone.status_code, gone.json()["code"]) == (410, "offset_expired")


async def test_a_place_beyond_the_log_end_cannot_be_forked(seb):
    await filled(seb, "short", "a")
    answers = [await fork(seb, "f1", "short", 2), await fork(seb, "f2", "nowhere")]
    assert [answer.json()["code"] for answer in answers] == [
        "offset_out_of_range",
        "topic_not_found",
    ]


async def test_too_many_forks_and_too_deep_ones_are_refused(seb, monkeypatch):
    monkeypatch.setattr(limits, "FORKS_PER_TOPIC_MAX", 2)
    monkeypatch.setattr(limits, "FORK_DEPTH_MAX", 2)
    await filled(seb, "limited")
    made = [
        await fork(seb, "limited.1", "limited"),
        await fork(seb, "limited.2", "limited.1"),
        await fork(seb, "limited.3", "limited.2"),
        await fork(seb, "limited.4", "limited"),
        await fork(seb, "limited.5", "limited"),
    ]
    assert [answer.status_code for answer in made] == [201, 201, 409, 201, 409]
    assert (made[2].json()["code"], made[2].json()["limit"]) == ("fork_refused", 2)


async def test_a_fork_needs_manage_of_it_and_manage_and_consume_of_the_parent(seb):
    await filled(seb, "guarded", "a")
    grants = [{"operation": "manage", "topics": "mine.**"}]
    on_parent = [{"operation": name, "topics": "guarded"} for name in ("manage", "consume")]
    for more, status in ((on_parent[:1], 403), (on_parent[1:], 403), (on_parent, 201)):
        asked = {"name": f"forker {status}", "grants": grants + more}
        key = (await seb.client.post("/v1/api-keys", json=asked)).json()["secret"]
        async with seb.client_with(key) as client:
            wanted = {"fork_of": {"topic": "guarded"}}
            assert (await client.put("/v1/topics/mine.f", json=wanted)).status_code == status
            assert (await client.put("/v1/topics/other", json=wanted)).status_code == 403


async def test_times_and_lags_go_through_what_is_shared(seb):
    await filled(seb, "timed")
    for n, timestamp in enumerate(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")):
        records = {"records": [{"value": str(n), "timestamp": timestamp}]}
        await seb.client.post("/v1/topics/timed/records", json=records)
    await fork(seb, "timed.fork", "timed", 1)
    records = {"records": [{"value": "own", "timestamp": "2026-01-03T00:00:00Z"}]}
    await seb.client.post("/v1/topics/timed.fork/records", json=records)
    assert await values(seb, "timed.fork", offset="@2026-01-01T00:00:00Z") == ["0", "own"]
    assert await values(seb, "timed.fork", offset="@2026-01-01T00:00:01Z") == ["own"]
    own_bytes = (await seb.client.get("/v1/topics/timed.fork")).json()["size_bytes"]
    described = await seb.appliance.broker.groups.commit(
        Commit("g", {"timed.fork": 0}), seb.appliance.broker.pending.reserve(OPERATOR, 1)
    )
    assert described
    view = await seb.appliance.broker.groups.describe("g", lambda *_: True, everybody)
    (lag,) = (topic.lag for topic in view.topics)
    assert lag.records == 2
    assert lag.bytes > own_bytes > 0


async def test_a_follower_of_a_fork_is_sent_both(seb):
    await filled(seb, "followed", "a", "b")
    await fork(seb, "followed.fork", "followed", 1)
    async with followed(seb, "followed.fork", "offset=earliest") as events:
        assert await events.values(1) == ["a"]
        await append(seb, "followed", "c")
        await append(seb, "followed.fork", "own")
        assert await events.values(1) == ["own"]
