"""Who may close a stream, use a group and fork a topic: nobody stops another's topic or group."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

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
