"""Topics over HTTP."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_topic_is_created_once(seb):
    first = await seb.client.put("/v1/topics/orders.eu", json={"linger_ms": 5})
    again = await seb.client.put("/v1/topics/orders.eu", json={"linger_ms": 5})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    made = first.json()
    assert made["topic"] == "orders.eu"
    assert made["settings"] == {
        "linger_ms": 5,
        "early_flush": None,
        "max_record_bytes": None,
        "compression": None,
    }
    assert made["effective_settings"]["max_record_bytes"] == 1 << 20
    assert made["effective_settings"]["compression"] == "zstd"
    assert (made["log_start_offset"], made["log_end_offset"], made["size_bytes"]) == (0, 0, 0)


async def test_a_topic_with_other_settings_differs(seb):
    await seb.client.put("/v1/topics/differs", json={"linger_ms": 5})
    answer = await seb.client.put("/v1/topics/differs", json={"linger_ms": 6})
    assert (answer.status_code, answer.json()["code"]) == (409, "topic_differs")
    assert answer.json()["topic"] == "differs"


async def test_settings_can_be_sent_back_as_they_were_shown(seb):
    shown = (await seb.client.put("/v1/topics/echo", json={"early_flush": True})).json()
    answer = await seb.client.put("/v1/topics/echo", json=shown["settings"])
    assert answer.status_code == 200


async def test_a_change_names_settings_and_null_resets(seb):
    await seb.client.put("/v1/topics/changing", json={"linger_ms": 5, "max_record_bytes": 10})
    answer = await seb.client.patch("/v1/topics/changing", json={"linger_ms": None})
    assert answer.json()["settings"] == {
        "linger_ms": None,
        "early_flush": None,
        "max_record_bytes": 10,
        "compression": None,
    }
    assert answer.json()["effective_settings"]["linger_ms"] == 1
    same = await seb.client.patch("/v1/topics/changing", json={})
    assert same.json() == answer.json()


async def test_the_list_is_sorted_and_filtered_by_a_pattern(seb):
    for name in ("list.b", "list.a.deep", "list.a"):
        await seb.client.put(f"/v1/topics/{name}")
    answer = await seb.client.get("/v1/topics", params={"pattern": "list.*"})
    assert [topic["topic"] for topic in answer.json()["topics"]] == ["list.a", "list.b"]
    answer = await seb.client.get("/v1/topics", params={"pattern": "list.**"})
    assert [t["topic"] for t in answer.json()["topics"]] == ["list.a", "list.a.deep", "list.b"]


async def test_a_deleted_topic_is_gone_and_a_new_one_starts_at_0(seb):
    await seb.client.post("/v1/topics/anew/records", content=b"old")
    before = (await seb.client.get("/v1/topics/anew")).json()
    answer = await seb.client.delete("/v1/topics/anew")
    assert (answer.status_code, answer.content) == (204, b"")
    gone = await seb.client.get("/v1/topics/anew")
    assert (gone.status_code, gone.json()["code"]) == (404, "topic_not_found")
    assert (await seb.client.delete("/v1/topics/anew")).status_code == 404
    made = await seb.client.post("/v1/topics/anew/records", content=b"new")
    assert made.json()["offset"] == 0
    assert made.json()["topic_id"] != before["topic_id"]


async def test_names_differ_by_case(seb):
    await seb.client.put("/v1/topics/Case")
    assert (await seb.client.get("/v1/topics/case")).status_code == 404
