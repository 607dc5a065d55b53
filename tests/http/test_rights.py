"""Who may close a stream, use a group and fork a topic: nobody stops another's topic or group."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = {"content-type": "text/plain"}
CLOSING = {**TEXT, "stream-closed": "true"}


@asynccontextmanager
async def key_with(seb, *grants):
    """A client with these grants: (operation, topics) or (operation, topics, groups)."""
    named = [dict(zip(("operation", "topics", "groups"), grant, strict=False)) for grant in grants]
    made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": named})
    assert made.status_code == 201, made.text
    async with seb.client_with(made.json()["secret"]) as client:
        yield client


def told(answer):
    return answer.status_code, answer.json()["code"]


# --- closing ---


@pytest.mark.parametrize("headers", [CLOSING, {**TEXT, "stream-seq": "zzzz"}])
@pytest.mark.parametrize("body", [b"", b"last"])
async def test_what_is_no_stream_stays_a_plain_topic(seb, headers, body):
    await seb.client.put("/v1/topics/plain", json={})
    body = body if "stream-closed" in headers else b"last"
    answer = await seb.client.post("/v1/stream/plain", headers=headers, content=body)
    assert told(answer) == (409, "stream_conflict")
    assert (await seb.client.put("/v1/stream/plain", headers=CLOSING)).status_code == 409
    topic = (await seb.client.get("/v1/topics/plain")).json()
    assert (topic["log_end_offset"], topic["closed"]) == (0, False)
    assert (await seb.client.post("/v1/topics/plain/records", content=b"x")).status_code == 201
    await seb.client.delete("/v1/topics/plain")


async def test_who_may_only_produce_closes_nothing(seb):
    await seb.client.put("/v1/stream/open", headers=TEXT)
    async with key_with(seb, ("produce", "open")) as client:
        for content in (b"", b"last"):
            answer = await client.post("/v1/stream/open", headers=CLOSING, content=content)
            assert answer.json()["missing_grant"] == {"operation": "manage", "topics": "open"}
        assert (await client.post("/v1/stream/open", headers=TEXT, content=b"x")).is_success
    assert (await seb.client.get("/v1/stream/open")).text == "x"


async def test_who_may_only_manage_closes_without_records(seb):
    await seb.client.put("/v1/stream/managed", headers=TEXT)
    async with key_with(seb, ("manage", "managed")) as client:
        answer = await client.post("/v1/stream/managed", headers=CLOSING, content=b"last")
        assert answer.json()["missing_grant"]["operation"] == "produce"
        assert (await client.post("/v1/stream/managed", headers=CLOSING)).status_code == 204


async def test_an_admin_opens_a_closed_stream_again(seb):
    await seb.client.put("/v1/stream/again", headers=CLOSING, content=b"one,")
    assert (await seb.client.get("/v1/topics/again")).json()["closed"]
    async with key_with(seb, ("manage", "again"), ("produce", "again")) as client:
        assert told(await client.post("/v1/topics/again/reopen")) == (403, "forbidden")
    for _ in range(2):  # once more changes nothing
        opened = await seb.client.post("/v1/topics/again/reopen")
        assert (opened.status_code, opened.json()["closed"]) == (200, False)
    assert (await seb.client.post("/v1/stream/again", headers=TEXT, content=b"two")).is_success
    shown = await seb.client.get("/v1/stream/again")
    assert (shown.text, "stream-closed" in shown.headers) == ("one,two", False)
    audit = (await seb.client.get("/v1/audit?subject=again")).json()["audit"]
    assert [action["action"] for action in audit] == ["stream_reopened", "topic_created"]
    assert told(await seb.client.post("/v1/topics/nowhere/reopen")) == (404, "topic_not_found")


# --- groups ---


async def committed(client, group, *topics):
    offsets = {"offsets": dict.fromkeys(topics, 0)}
    return await client.put(f"/v1/groups/{group}/offsets", json=offsets)


async def group_asks(client, group, topic):
    """Everything that can be asked of a group without naming what it stands on; `topic` is the
    caller's own."""
    url = f"/v1/groups/{group}"
    transaction = {"produce": {topic: [{"value": 1}]}}
    transaction["commit"] = {"group": group, "offsets": {topic: 0}}
    return {
        "lease": await client.post(f"{url}/lease", json={"holder": "h", "ttl_ms": 1_000}),
        "release": await client.delete(f"{url}/lease?generation=1"),
        "commit": await committed(client, group, topic),
        "transaction": await client.post("/v1/transactions", json=transaction),
        "reset": await client.post(f"{url}/reset", json={"to": "latest", "topics": [topic]}),
        "reset all": await client.post(f"{url}/reset", json={"to": "latest"}),
        "reset some": await client.post(f"{url}/reset", json={"to": "latest", "topics": ["**"]}),
        "read": await client.get(url),
        "delete": await client.delete(url),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outsider(seb):
    """May do everything on topics of its own, for every group."""
    await seb.client.put("/v1/topics/own.topic", json={})
    operations = ("produce", "consume", "manage")
    async with key_with(seb, *((operation, "own.**") for operation in operations)) as client:
        yield client


async def test_a_group_that_stands_on_others_topics_is_refused_in_one_wording(seb, outsider):
    await seb.client.put("/v1/topics/secret.name", json={})
    await committed(seb.client, "theirs", "secret.name")
    before = (await seb.client.get("/v1/groups/theirs")).json()
    answers = await group_asks(outsider, "theirs", "own.topic")
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "lease": 403, "release": 403, "commit": 403, "transaction": 403, "reset": 403,
        "reset all": 404, "reset some": 404, "read": 404, "delete": 404,
    }  # fmt: skip
    details = {answer.json()["detail"].replace("manage", "consume") for answer in answers.values()}
    assert len(details) == 2
    assert not any("secret" in answer.text for answer in answers.values())
    assert (await seb.client.get("/v1/groups/theirs")).json() == before
    absent = await group_asks(outsider, "absent", "own.topic")  # each as if it were not there
    for name in ("reset all", "reset some", "read", "delete"):
        told = answers[name].json()
        # The asks before have made the absent one: it is deleted by the last of them.
        assert absent["delete"].status_code == 204
        again = await outsider.get("/v1/groups/absent")
        assert again.json()["detail"] == told["detail"].replace("theirs", "absent")


async def test_whether_a_named_topic_is_there_is_not_told_by_a_reset(seb, outsider):
    await seb.client.put("/v1/topics/secret.there", json={})
    details = set()
    for name in ("secret.there", "secret.nowhere"):
        asked = {"to": "latest", "topics": [name]}
        answer = await outsider.post("/v1/groups/any/reset", json=asked)
        assert answer.json()["missing_grant"]["topics"] == name
        details.add(answer.json()["detail"].replace(name, "…"))
    assert len(details) == 1


async def test_who_may_use_one_topic_of_a_group_uses_the_group(seb, outsider):
    await seb.client.put("/v1/topics/secret.other", json={})
    await committed(seb.client, "shared", "own.topic", "secret.other")
    url = "/v1/groups/shared"
    taken = await outsider.post(f"{url}/lease", json={"holder": "h", "ttl_ms": 1_000})
    generation = taken.json()["generation"]
    await outsider.delete(f"{url}/lease?generation={generation}")
    assert (await committed(outsider, "shared", "own.topic")).status_code == 200
    picked = await outsider.post(f"{url}/reset", json={"to": "latest", "topics": ["**"]})
    assert [row["topic"] for row in picked.json()["topics"]] == ["own.topic"]
    for answer in (
        await outsider.post(f"{url}/reset", json={"to": "latest"}),
        await outsider.delete(url),
    ):
        assert told(answer) == (403, "forbidden")
        assert "secret" not in answer.text
    await seb.client.put("/v1/topics/own.second", json={})
    assert (await committed(outsider, "shared", "own.second")).status_code == 200  # it joins


async def test_a_group_without_offsets_is_for_who_comes_first(seb, outsider):
    lease = {"holder": "h", "ttl_ms": 1_000}
    assert (await outsider.post("/v1/groups/new/lease", json=lease)).status_code == 200
    generation = (await seb.client.get("/v1/groups/new")).json()["lease"]["generation"]
    offsets = {"offsets": {"own.topic": 0}, "generation": generation}
    assert (await outsider.put("/v1/groups/new/offsets", json=offsets)).status_code == 200


# --- forks ---


def fork_of(parent):
    return {"fork_of": {"topic": parent}}


@pytest.mark.parametrize("own", ["consume", "manage"])
async def test_a_fork_needs_manage_and_consume_on_its_parent(seb, own):
    await seb.client.put("/v1/topics/parent", json={})
    await seb.client.put("/v1/stream/parent", headers=TEXT)
    missing = {"consume": "manage", "manage": "consume"}[own]
    async with key_with(seb, (own, "parent"), ("manage", "mine.**")) as client:
        for answer in (
            await client.put("/v1/topics/mine.fork", json=fork_of("parent")),
            await client.put(
                "/v1/stream/mine/fork", headers={"stream-forked-from": "/v1/stream/parent"}
            ),
        ):
            assert answer.json()["missing_grant"] == {"operation": missing, "topics": "parent"}
    assert (await seb.client.get("/v1/topics/parent")).json()["forks"] == 0


@pytest.mark.parametrize("path", ["/v1/topics/other.deep", "/v1/stream/other/deep"])
async def test_who_manages_a_topic_finds_and_deletes_its_forks(seb, path):
    await seb.client.put("/v1/topics/owned", json={})
    await seb.client.put("/v1/topics/other.fork", json=fork_of("owned"))
    await seb.client.put("/v1/topics/other.deep", json=fork_of("other.fork"))
    await seb.client.put("/v1/topics/other.alone", json={})
    async with key_with(seb, ("manage", "owned")) as owner:
        assert (await owner.delete("/v1/topics/owned")).status_code == 204
        assert told(await owner.put("/v1/topics/owned", json={})) == (409, "name_held")
        listed = (await owner.get("/v1/topics")).json()["topics"]
        assert [topic["topic"] for topic in listed] == ["other.deep", "other.fork"]
        assert (await owner.get("/v1/topics/other.deep")).status_code == 200
        for answer in (
            await owner.get("/v1/topics/other.alone"),
            await owner.delete("/v1/topics/other.alone"),
            await owner.delete("/v1/topics/other.nowhere"),
            await owner.patch("/v1/topics/other.fork", json={"linger_ms": 1}),
            await owner.post("/v1/topics/other.fork/trim", json={"before": 0}),
        ):
            assert told(answer) == (403, "forbidden")
        assert (await owner.delete(path)).status_code == 204
        assert (await owner.delete("/v1/topics/other.fork")).status_code == 204
        assert (await owner.put("/v1/topics/owned", json={})).status_code == 201
    async with key_with(seb, ("consume", "other.**"), ("produce", "other.**")) as reader:
        assert told(await reader.delete("/v1/topics/other.alone")) == (403, "forbidden")
