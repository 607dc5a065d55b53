"""`/v1/topics/{topic}/keys…`, `view=latest` and `key=`, through a whole appliance."""

from __future__ import annotations

import base64
import json
import sqlite3
from dataclasses import replace
from urllib.parse import quote

import pytest

from seb_appliance import limits
from seb_appliance.api.routes.records.by_key import cursor_of, place_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

ODD_KEYS = [b"", b"\0", b"a\0b", b"/", b"?&=%", b"\xff", b"\xff\xff", "ü".encode(), b"k" * 65_536]


async def make(seb, topic: str, key_index: str | None = "latest") -> None:
    made = await seb.client.put(f"/v1/topics/{topic}", json={"key_index": key_index})
    assert made.status_code == 201


async def put(seb, topic: str, *records: tuple[bytes, str | None]) -> dict:
    sent = [
        {"key_base64": base64.b64encode(key).decode(), "value": value} for key, value in records
    ]
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json={"records": sent})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def get(seb, path: str, code: int = 200) -> dict:
    answer = await seb.client.get(f"/v1/topics/{path}")
    assert answer.status_code == code, answer.text
    if code == 200 and "/records" not in path:
        assert answer.headers["seb-indexed-offset"] == str(answer.json()["indexed_offset"])
    return answer.json()


async def ask(seb, path: str, question: dict, code: int = 200) -> dict:
    answer = await seb.client.post(f"/v1/topics/{path}", json=question)
    assert answer.status_code == code, answer.text
    return answer.json()


def key_of(item: dict) -> bytes:
    if "key_base64" in item:
        return base64.b64decode(item["key_base64"])
    return item["key"].encode()


async def test_record_keys_are_listed_in_their_order_by_pages(seb):
    await make(seb, "listed")
    await put(seb, "listed", *((f"k{n:02}".encode(), "v") for n in range(25)), (b"other", "v"))
    await put(seb, "listed", (b"k03", None))
    seen, after = [], ""
    while after is not None:
        page = await get(seb, f"listed/keys?prefix=k&limit=7&fresh=true&after={after}")
        seen += [row["key"] for row in page["keys"]]
        after = page["next_after"]
    assert seen == [f"k{n:02}" for n in range(25) if n != 3]
    assert page["indexed_offset"] == 27
    assert (page["topic"], page["topic_id"] > 0) == ("listed", True)


async def test_a_listing_goes_on_where_it_was_while_records_arrive(seb):
    await make(seb, "moving")
    await put(seb, "moving", *((f"k{n}".encode(), "v") for n in range(9)))
    first = await get(seb, "moving/keys?limit=4&fresh=true")
    await put(seb, "moving", (b"k0", "w"), (b"a", "v"), (b"k3", None), (b"k55", "v"))
    second = await get(seb, f"moving/keys?limit=9&fresh=true&after={first['next_after']}")
    seen = [row["key"] for row in (*first["keys"], *second["keys"])]
    assert seen == ["k0", "k1", "k2", "k3", "k4", "k5", "k55", "k6", "k7", "k8"]


async def test_the_newest_record_of_a_key_is_told_until_its_tombstone(seb):
    await make(seb, "newest")
    await put(seb, "newest", (b"k", "one"), (b"k", "two"), (b"other", "three"))
    found = await get(seb, "newest/keys/latest?key=k&fresh=true")
    assert (found["record"]["value"], found["record"]["offset"]) == ("two", 1)
    raw = await seb.client.get(
        "/v1/topics/newest/keys/latest?key=k", headers={"accept": "application/octet-stream"}
    )
    assert (raw.content, raw.headers["seb-offset"]) == (b"two", "1")
    assert raw.headers["seb-indexed-offset"] == "3"
    gone = await seb.client.delete("/v1/topics/newest/keys?key=k")
    assert (gone.status_code, gone.json()["offset"]) == (200, 3)
    told = await get(seb, "newest/keys/latest?key=k&fresh=true", 404)
    assert (told["code"], told["indexed_offset"]) == ("record_key_not_found", 4)
    assert (await get(seb, "newest/keys/latest?key=none&fresh=true", 404))["indexed_offset"] == 4
    await put(seb, "newest", (b"k", "again"))
    assert (await get(seb, "newest/keys/latest?key=k&fresh=true"))["record"]["value"] == "again"


async def test_a_tombstone_is_safe_to_repeat(seb):
    await make(seb, "repeated")
    path, headers = "/v1/topics/repeated/keys?key=k", {"idempotency-key": "gone"}
    first = await seb.client.delete(path, headers=headers)
    again = await seb.client.delete(path, headers=headers)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    other = await seb.client.delete("/v1/topics/repeated/keys?key=l", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    ahead = await seb.client.delete("/v1/topics/repeated/keys?key=k", headers={"if-match": '"0"'})
    assert ahead.status_code == 412
    missing = await seb.client.delete("/v1/topics/never.made/keys?key=k")
    assert (missing.status_code, missing.json()["code"]) == (404, "topic_not_found")


async def test_the_history_of_a_key_comes_newest_first_by_pages(seb):
    await make(seb, "told", "history")
    for n in range(10):
        await put(seb, "told", (b"k", str(n)), (b"other", "v"))
    await put(seb, "told", (b"k", None))
    seen, before = [], "9999"
    while before is not None:
        page = await get(seb, f"told/keys/history?key=k&limit=4&fresh=true&before={before}")
        seen += [record["value"] for record in page["records"]]
        before = page["next_before"]
    assert seen == [None, *(str(n) for n in range(9, -1, -1))]
    assert (await get(seb, "told/keys/history?key=none"))["records"] == []


async def test_a_record_key_of_any_bytes_comes_back_as_it_was(seb):
    await make(seb, "odd", "history")
    await put(seb, "odd", *((key, str(n)) for n, key in enumerate(ODD_KEYS)))
    seen, question = [], {"limit": 2, "fresh": True}
    while question is not None:
        page = await ask(seb, "odd/keys", question)
        seen += [key_of(row) for row in page["keys"]]
        after = {"after": page["next_after"], "after_base64": page["next_after_base64"]}
        question = {"limit": 2, **after} if any(v is not None for v in after.values()) else None
    assert seen == sorted(ODD_KEYS)
    for n, key in enumerate(ODD_KEYS):
        named = {"key_base64": base64.b64encode(key).decode()}
        assert (await ask(seb, "odd/keys/latest", named))["record"]["value"] == str(n)
        (record,) = (await ask(seb, "odd/keys/history", named))["records"]
        assert record["value"] == str(n)
        if len(key) < 1_000:
            in_url = quote(named["key_base64"], safe="")
            found = await get(seb, f"odd/keys/latest?key_base64={in_url}")
            assert found["record"]["value"] == str(n)
            (record,) = (await get(seb, f"odd/records?key_base64={in_url}"))["records"]
            assert record["value"] == str(n)


# --- view=latest, key= ---


async def view(seb, topic: str, page: int = 3, between=None) -> tuple[list[dict], int]:
    records, cursor, query = [], "", ""
    while cursor is not None:
        path = f"{topic}/records?view=latest&max_records={page}{query}"
        answer = await get(seb, path + ("" if query else "&fresh=true"))
        records += answer["records"]
        cursor = answer["next_cursor"]
        query = f"&cursor={cursor}"
        if between is not None:
            await between()
    return records, answer["next_offset"]


async def test_a_view_shows_the_topic_as_of_one_offset_and_can_be_followed(seb):
    await make(seb, "viewed")
    await put(seb, "viewed", *((f"k{n % 10}".encode(), str(n)) for n in range(40)))
    await put(seb, "viewed", (b"k4", None))

    async def overwrite() -> None:
        await put(seb, "viewed", (b"k7", "late"), (b"k8", None), (b"k99", "late"), (b"k4", "late"))
        await get(seb, "viewed/keys?fresh=true")

    records, as_of = await view(seb, "viewed", between=overwrite)
    assert as_of == 41
    table = {record["key"]: record["value"] for record in records}
    assert len(table) == len(records)
    assert table == {f"k{n}": str(30 + n) for n in range(10) if n != 4}
    offsets = [record["offset"] for record in records]
    assert offsets == sorted(offsets)
    for record in (await get(seb, f"viewed/records?offset={as_of}"))["records"]:
        table[record["key"]] = record["value"]
    fresh, _ = await view(seb, "viewed", page=100)
    assert {r["key"]: r["value"] for r in fresh} == {k: v for k, v in table.items() if v}


async def test_a_view_comes_as_ndjson_with_its_cursor_in_a_header(seb):
    await make(seb, "lines")
    await put(seb, "lines", (b"a", "1"), (b"b", "2"))
    path = "/v1/topics/lines/records?view=latest&format=ndjson&max_records=1"
    first = await seb.client.get(path + "&fresh=true")
    second = await seb.client.get(f"{path}&cursor={first.headers['seb-next-cursor']}")
    assert [json.loads(page.text)["value"] for page in (first, second)] == ["1", "2"]
    assert "seb-next-cursor" not in second.headers
    assert second.headers["seb-next-offset"] == "2"


async def test_a_page_of_long_record_keys_ends_early(seb):
    await make(seb, "lengthy")
    keys = [b"%d" % n + b"k" * (limits.RECORD_KEY_BYTES_MAX - 1) for n in range(9)]
    await put(seb, "lengthy", *((key, "v") for key in keys))
    found, after = [], ""
    while after is not None:
        page = await ask(seb, "lengthy/keys", {"limit": 9, "after": after, "fresh": True})
        assert len(page["keys"]) <= limits.KEYS_PAGE_BYTES // limits.RECORD_KEY_BYTES_MAX
        found += [key["key"].encode() for key in page["keys"]]
        after = page["next_after"]
    assert found == keys


async def test_a_page_of_a_history_of_large_records_ends_early(seb):
    await make(seb, "large", "history")
    for n in range(4):
        await put(seb, "large", (b"a", str(n) * (limits.KEY_HISTORY_BYTES // 2)))
    found, before = [], ""
    while before is not None:
        page = await get(seb, f"large/keys/history?key=a&fresh=true&limit=9{before}")
        assert len(page["records"]) <= 2
        found += [record["offset"] for record in page["records"]]
        before = page["next_before"] and f"&before={page['next_before']}"
    assert found == [3, 2, 1, 0]


async def test_a_cursor_of_a_view_that_somebody_has_made_up_is_refused(seb):
    await make(seb, "forged")
    await put(seb, "forged", (b"a", "1"), (b"b", "2"))
    first = await get(seb, "forged/records?view=latest&max_records=1&fresh=true")
    place = place_of(first["next_cursor"])
    forged = cursor_of(replace(place, begin=2**64 - 1))
    told = await get(seb, f"forged/records?view=latest&cursor={forged}", 400)
    assert told["code"] == "bad_parameter"


async def test_a_view_that_nobody_pages_through_ends(seb, monkeypatch):
    await make(seb, "idle")
    await put(seb, "idle", (b"a", "1"), (b"b", "2"))
    monkeypatch.setattr(limits, "KEY_VIEW_IDLE_S", -1)
    first = await get(seb, "idle/records?view=latest&max_records=1&fresh=true")
    told = await get(seb, f"idle/records?view=latest&cursor={first['next_cursor']}", 400)
    assert (told["code"], "Begin the view again" in told["detail"]) == ("bad_parameter", True)


async def test_only_the_records_of_one_key_are_read_without_an_index(seb):
    await make(seb, "filtered", None)
    for n in range(30):
        await put(seb, "filtered", (b"ab"[n % 2 :][:1], str(n)), (b"other", "v"))
    seen, offset = [], 0
    while offset < 60:
        page = await get(seb, f"filtered/records?key=b&max_records=4&offset={offset}")
        assert len(page["records"]) <= 4
        seen += [int(record["value"]) for record in page["records"]]
        offset = page["next_offset"]
    assert seen == list(range(1, 30, 2))
    page = await get(seb, "filtered/records?key=b&until=5")
    assert [record["value"] for record in page["records"]] == ["1"]
    assert page["next_offset"] == 5
    page = await get(seb, "filtered/records?key=b&wait=1ms&offset=latest")
    assert (page["records"], page["next_offset"]) == ([], 60)


async def test_one_read_of_a_key_looks_through_so_much_and_no_more(seb, monkeypatch):
    monkeypatch.setattr(limits, "KEY_FILTER_BYTES_MAX", 1)
    await make(seb, "long", None)
    for _ in range(2):
        await put(seb, "long", (b"other", "v" * limits.MIB))
    await put(seb, "long", (b"k", "found"))
    page = await get(seb, "long/records?key=k")
    assert (page["records"], page["next_offset"]) == ([], 1)


# --- the setting, and what is gone ---


async def test_a_topic_without_an_index_says_what_to_set(seb):
    await make(seb, "plain", None)
    await put(seb, "plain", (b"k", "v"))
    for path in ("keys", "keys/latest?key=k", "keys/history?key=k", "records?view=latest"):
        told = await get(seb, f"plain/{path}", 409)
        assert (told["code"], "key_index" in told["detail"]) == ("key_index_off", True)
    await seb.client.patch("/v1/topics/plain", json={"key_index": "latest"})
    told = await get(seb, "plain/keys/history?key=k", 409)
    assert (told["code"], told["key_index"]) == ("key_index_off", "latest")


async def test_a_change_of_the_setting_takes_in_what_is_there(seb):
    await make(seb, "changed", None)
    await put(seb, "changed", *((f"k{n % 3}".encode(), str(n)) for n in range(9)))
    for key_index in ("latest", "history", "none", "latest"):
        changed = await seb.client.patch("/v1/topics/changed", json={"key_index": key_index})
        assert changed.json()["effective_settings"]["key_index"] == key_index
        if key_index != "none":
            found = await get(seb, "changed/keys/latest?key=k1&fresh=true")
            assert found["record"]["value"] == "7"
        if key_index == "history":
            found = await get(seb, "changed/keys/history?key=k1&fresh=true")
            assert [r["value"] for r in found["records"]] == ["7", "4", "1"]
    refused = await seb.client.patch("/v1/topics/changed", json={"key_index": "all"})
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_json")


async def test_a_topic_made_anew_shows_nothing_of_the_old_one(seb):
    await make(seb, "anew", "history")
    await put(seb, "anew", (b"old", "v"), (b"both", "v"))
    await get(seb, "anew/keys?fresh=true")
    await seb.client.delete("/v1/topics/anew")
    assert (await get(seb, "anew/keys", 404))["code"] == "topic_not_found"
    await make(seb, "anew", "history")
    await put(seb, "anew", (b"both", "new"))
    page = await get(seb, "anew/keys?fresh=true")
    assert [(row["key"], row["offset"]) for row in page["keys"]] == [("both", 0)]
    assert len((await get(seb, "anew/keys/history?key=both"))["records"]) == 1


async def test_rows_of_what_is_not_indexed_any_more_go(seb):
    topic_ids = []
    for topic in ("rows.off", "rows.deleted"):
        await make(seb, topic, "history")
        topic_ids.append((await put(seb, topic, (b"k", "v"), (b"k", "w")))["topic_id"])
        await get(seb, f"{topic}/keys?fresh=true")
    await seb.client.patch("/v1/topics/rows.off", json={"key_index": None})
    await seb.client.delete("/v1/topics/rows.deleted")
    await make(seb, "rows.kept")
    await put(seb, "rows.kept", (b"k", "v"))
    await get(seb, "rows.kept/keys?fresh=true")  # taken in behind what came before
    connection = sqlite3.connect(seb.appliance.settings.data / "keyindex.sqlite")
    for table in ("topics", "latest", "history"):
        found = connection.execute(f"SELECT DISTINCT topic_id FROM {table}").fetchall()
        assert not {topic_id for (topic_id,) in found} & set(topic_ids), table
    connection.close()


async def test_the_status_and_the_metrics_tell_how_far_the_index_is(seb):
    await make(seb, "watched")
    await put(seb, "watched", (b"k", "v"))
    await get(seb, "watched/keys?fresh=true")
    found = (await seb.client.get("/v1/status")).json()["key_index"]
    assert found["topics"] >= 1
    assert (found["failure"], found["rebuilds"]) == ("", 0)
    assert found["size_bytes"] > 0
    metrics = (await seb.client.get("/metrics")).text
    assert "seb_key_index_lag_records " in metrics


# --- who may, and bad input ---


async def test_record_keys_need_the_grant_to_consume_and_a_tombstone_that_to_produce(seb):
    await make(seb, "guarded", "history")
    await put(seb, "guarded", (b"k", "v"))
    await get(seb, "guarded/keys?fresh=true")
    for operation, codes in (("consume", (200, 403)), ("produce", (403, 200))):
        grants = [{"operation": operation, "topics": "guarded"}]
        made = await seb.client.post("/v1/api-keys", json={"name": operation, "grants": grants})
        async with seb.client_with(made.json()["secret"]) as client:
            for path in ("keys", "keys/latest?key=k", "keys/history?key=k", "records?view=latest"):
                answer = await client.get(f"/v1/topics/guarded/{path}")
                assert answer.status_code == codes[0], path
            for path in ("keys", "keys/latest", "keys/history"):
                answer = await client.post(f"/v1/topics/guarded/{path}", json={"fresh": True})
                assert (answer.status_code == 403) == (codes[0] == 403), path
            answer = await client.delete("/v1/topics/guarded/keys?key=none")
            assert answer.status_code == codes[1]


@pytest.mark.parametrize(
    "path",
    [
        "keys?limit=0", "keys?limit=1001", "keys?limit=x", "keys?fresh=1", "keys?prefix_base64=!",
        "keys?prefix=a&prefix_base64=YQ==", "keys?what=1", "keys/latest", "keys/latest?key=%ff",
        "keys/latest?key=a&key_base64=YQ==", "keys/latest?key_base64=a",
        "keys/latest?key=a&values=x",
        "keys/history?key=a&before=-1", "keys/history?key=a&before=9007199254740992",
        "records?cursor=x", "records?fresh=true", "records?view=oldest",
        "records?view=latest&key=a",
        "records?view=latest&offset=1", "records?view=latest&wait=1s",
        "records?view=latest&cursor=x",
        "records?view=latest&cursor=kwFbUQ", "records?view=latest&cursor=%C3%BC",
        "records?view=latest&format=batch", "records?key=a&format=batch",
        "records?key=a&key_base64=YQ==",
    ],
)  # fmt: skip
async def test_bad_parameters_are_refused(seb, path):
    await seb.client.put("/v1/topics/bad", json={"key_index": "history"})
    told = await get(seb, f"bad/{path}", 400)
    assert told["code"] == "bad_parameter", told


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"limit": 0}, "bad_parameter"),
        ({"limit": 10**18}, "bad_parameter"),
        ({"limit": "1"}, "bad_json"),
        ({"key": "a"}, "bad_json"),
        ({"prefix_base64": "ü"}, "bad_parameter"),
    ],
)
async def test_bad_questions_are_refused(seb, question, code):
    await seb.client.put("/v1/topics/bad", json={"key_index": "history"})
    assert (await ask(seb, "bad/keys", question, 400))["code"] == code


async def test_a_record_key_that_is_too_long_is_refused(seb):
    await seb.client.put("/v1/topics/bad", json={"key_index": "history"})
    told = await ask(seb, "bad/keys/latest", {"key": "k" * 65_537}, 413)
    assert told["code"] == "record_too_large"
