"""Topics over HTTP."""

from __future__ import annotations

import pytest

from seb_appliance.formats.topic_settings import SETTINGS

UNSET = dict.fromkeys(SETTINGS)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_topic_is_created_once(seb):
    first = await seb.client.put("/v1/topics/orders.eu", json={"linger_ms": 5})
    again = await seb.client.put("/v1/topics/orders.eu", json={"linger_ms": 5})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    made = first.json()
    assert made["topic"] == "orders.eu"
    assert made["settings"] == {**UNSET, "linger_ms": 5}
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
    assert answer.json()["settings"] == {**UNSET, "max_record_bytes": 10}
    assert answer.json()["effective_settings"]["linger_ms"] == 1
    same = await seb.client.patch("/v1/topics/changing", json={})
    assert same.json() == answer.json()


async def test_the_settings_of_compaction_are_taken_and_checked(seb):
    chosen = {
        "cleanup": "compact,delete",
        "min_compaction_lag_ms": 0,
        "tombstone_retention_ms": 1,
        "dirty_ratio": 0.25,
        "body": None,
    }
    made = await seb.client.put("/v1/topics/compacted", json=chosen)
    assert made.json()["settings"] == {**UNSET, **chosen}
    reset = await seb.client.patch("/v1/topics/compacted", json=dict.fromkeys(chosen))
    assert {name: reset.json()["effective_settings"][name] for name in chosen} == {
        "cleanup": "delete",
        "min_compaction_lag_ms": 0,
        "tombstone_retention_ms": 86_400_000,
        "dirty_ratio": 0.5,
        "body": "envelope",
    }
    for name, value in (
        ("min_compaction_lag_ms", -1),
        ("tombstone_retention_ms", 10**18),
        ("dirty_ratio", 0),
        ("dirty_ratio", 1),
    ):
        refused = await seb.client.patch("/v1/topics/compacted", json={name: value})
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request"), name
        assert [error["path"] for error in refused.json()["errors"]] == [name]


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


async def _produce(seb, topic, count):
    records = [{"value": str(n)} for n in range(count)]
    await seb.client.post(f"/v1/topics/{topic}/records", json={"records": records})


async def test_a_trim_moves_the_log_start_and_reads_below_it_get_410(seb):
    for _ in range(3):
        await _produce(seb, "trimmed", 4)
    trimmed = await seb.client.post("/v1/topics/trimmed/trim", json={"before": 6})
    assert (trimmed.status_code, trimmed.json()["log_start_offset"]) == (200, 6)
    below = await seb.client.get("/v1/topics/trimmed/records", params={"offset": 5})
    assert (below.status_code, below.json()["code"]) == (410, "offset_expired")
    assert below.json()["log_start_offset"] == 6
    read = (await seb.client.get("/v1/topics/trimmed/records")).json()
    assert [record["offset"] for record in read["records"]] == list(range(6, 12))
    again = await seb.client.post("/v1/topics/trimmed/trim", json={"before": 2})
    assert again.json()["log_start_offset"] == 6


async def test_a_trim_to_the_log_end_leaves_nothing_and_offsets_go_on(seb):
    await _produce(seb, "emptied", 4)
    trimmed = (await seb.client.post("/v1/topics/emptied/trim", json={"before": 4})).json()
    assert (trimmed["log_start_offset"], trimmed["log_end_offset"]) == (4, 4)
    assert trimmed["size_bytes"] == 0
    assert (await seb.client.get("/v1/topics/emptied/records")).json()["records"] == []
    await _produce(seb, "emptied", 1)
    read = (await seb.client.get("/v1/topics/emptied/records")).json()
    assert [record["offset"] for record in read["records"]] == [4]


async def test_a_trim_beyond_the_log_end_is_refused(seb):
    await _produce(seb, "far", 4)
    answer = await seb.client.post("/v1/topics/far/trim", json={"before": 5})
    assert (answer.status_code, answer.json()["code"]) == (416, "offset_out_of_range")
    assert answer.json()["log_end_offset"] == 4
    missing = await seb.client.post("/v1/topics/nowhere/trim", json={"before": 0})
    assert (missing.status_code, missing.json()["code"]) == (404, "topic_not_found")


@pytest.mark.parametrize("body", [{}, {"before": -1}, {"before": 10**18}, {"before": "1"}])
async def test_a_trim_that_makes_no_sense_is_refused(seb, body):
    await _produce(seb, "senseless", 1)
    answer = await seb.client.post("/v1/topics/senseless/trim", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_json")


async def test_a_trim_needs_manage_and_is_in_the_audit(seb):
    await _produce(seb, "guarded", 2)
    key = {"name": "k", "grants": [{"operation": "produce", "topics": "guarded"}]}
    secret = (await seb.client.post("/v1/api-keys", json=key)).json()["secret"]
    async with seb.client_with(secret) as client:
        refused = await client.post("/v1/topics/guarded/trim", json={"before": 1})
    assert refused.status_code == 403
    await seb.client.post("/v1/topics/guarded/trim", json={"before": 1})
    noted = (await seb.client.get("/v1/audit", params={"subject": "guarded"})).json()
    assert noted["audit"][0]["action"] == "topic_trimmed"
    assert noted["audit"][0]["after"] == {"log_start_offset": 1}


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"retention_ms": 0}, "bad_request"),
        ({"retention_bytes": 0}, "bad_request"),
        ({"retention_ms": -1}, "bad_json"),
        ({"retention_bytes": 10**18}, "bad_json"),
    ],
)
async def test_a_retention_out_of_its_range_is_refused(seb, settings, code):
    answer = await seb.client.put("/v1/topics/kept", json=settings)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


@pytest.mark.parametrize("number", [2**53, 2**63, 2**64, 10**30])
async def test_a_number_that_no_start_could_read_is_refused(seb, number):
    await seb.client.put("/v1/topics/kept", json={})
    for name in ("retention_ms", "retention_bytes", "tombstone_retention_ms", "linger_ms"):
        body = b'{"%b": %d}' % (name.encode(), number)
        answer = await seb.client.patch(
            "/v1/topics/kept", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400, name
    assert (await seb.client.post("/v1/topics/kept/records", content=b"x")).status_code == 201
