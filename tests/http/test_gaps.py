"""A compacted topic over HTTP: every way to read goes over the gaps, and offsets stay what they
were."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.formats import batch
from tests.http.test_live import followed
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.documented import check_documented
from tests.support.tidied import FLAGS, compact

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDS = "/v1/topics/t/records"
LEFT = [4, 6, 7, 8, 9]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    """Topic t: offsets 0 to 9, of which those in LEFT have a record."""
    folder = tmp_path_factory.mktemp("seb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
        async with running_appliance(folder, tidy_after="0ms", **FLAGS) as running:
            running.client.event_hooks = {"response": [check_documented]}
            settings = {"cleanup": "compact", "key_index": "history"}
            await running.client.put("/v1/topics/t", json=settings)
            for n, key in enumerate("aaabcaab"):
                record = {"value": str(n), "key": key, "timestamp": f"2026-11-21T10:00:0{n}Z"}
                await running.client.post(RECORDS, json={"records": [record]})
            plain = [{"value": "8"}, {"value": "9", "key": "d"}]
            await running.client.post(RECORDS, json={"records": plain})
            await compact(running.appliance)
            yield running


async def offsets(seb: RunningAppliance, query: str) -> tuple[list[int], int]:
    answer = (await seb.client.get(f"{RECORDS}?{query}")).json()
    return [record["offset"] for record in answer["records"]], answer["next_offset"]


@pytest.mark.parametrize("begin", range(11))
async def test_a_read_goes_on_with_the_next_record_that_is_there(seb, begin):
    behind = [offset for offset in LEFT if offset >= begin]
    assert await offsets(seb, f"offset={begin}") == (behind, 10)
    one = await offsets(seb, f"offset={begin}&max_records=1")
    assert one[0] == behind[:1]
    ndjson = await seb.client.get(
        f"{RECORDS}?offset={begin}", headers={"accept": "application/x-ndjson"}
    )
    assert [msgspec.json.decode(line)["offset"] for line in ndjson.text.splitlines()] == behind
    assert ndjson.headers["seb-next-offset"] == "10"


async def test_paging_by_next_offset_finds_each_record_once(seb):
    found, at = [], 0
    while at < 10:
        page, at = await offsets(seb, f"offset={at}&max_records=2")
        found += page
    assert found == LEFT


@pytest.mark.parametrize(
    ("query", "left", "next_offset"),
    [
        ("offset=0&until=4", [], 4),
        ("offset=0&until=5", [4], 5),
        ("offset=5&until=6", [], 6),
        ("offset=-3", [7, 8, 9], 10),
        ("offset=-5", [6, 7, 8, 9], 10),
        ("offset=@2026-11-21T10:00:02Z", LEFT, 10),
        ("offset=@2026-11-21T10:00:05Z", LEFT[1:], 10),
        ("offset=0&until=@2026-11-21T10:00:05Z", [4], 6),
        ("offset=0&key=a", [6], 10),
        ("view=latest&fresh=true", [4, 6, 7, 9], 10),
    ],
)
async def test_a_range_may_begin_and_end_in_a_gap(seb, query, left, next_offset):
    assert await offsets(seb, query) == (left, next_offset)


async def test_one_raw_record_is_asked_for_by_its_own_offset(seb):
    headers = {"accept": "application/octet-stream"}
    answer = await seb.client.get(f"{RECORDS}/6", headers=headers)
    assert (answer.content, answer.headers["seb-offset"]) == (b"6", "6")
    newest = await seb.client.get(f"{RECORDS}/-1", headers=headers)
    assert newest.headers["seb-offset"] == "9"
    gone = await seb.client.get(f"{RECORDS}/5", headers=headers)
    assert (gone.status_code, gone.json()["code"]) == (404, "record_not_found")


async def test_a_batch_names_the_offsets_of_its_records(seb):
    headers = {"accept": "application/vnd.seb.batch"}
    answer = await seb.client.get(f"{RECORDS}?offset=5", headers=headers)
    batches = [batch.decode(answer.content, at) for at, _ in batch.walk(answer.content)]
    assert [offset for found in batches for offset in found.offsets()] == LEFT


async def test_a_follower_is_sent_what_is_there(seb):
    async with followed(seb, "t", "offset=0&until=10") as events:
        sent = []
        while (event := await events.next()) is not None and "id" in event:
            sent.append(int(event["id"]))
    assert sent == LEFT


async def test_the_lag_of_a_group_counts_offsets(seb):
    path = "/v1/groups/g/topics/t/records"
    first = (await seb.client.get(path, params={"max_records": 1})).json()
    assert (first["records"][0]["offset"], first["next_offset"]) == (4, 6)
    await seb.client.put("/v1/groups/g/offsets", json={"offsets": {"t": 5}})
    then = (await seb.client.get(path)).json()
    assert [record["offset"] for record in then["records"]] == [6, 7, 8, 9]
    assert then["lag_records"] == 5
    assert then["lag_bytes"] > 0


async def test_the_history_of_a_record_key_is_what_is_still_there(seb):
    told = await seb.client.get("/v1/topics/t/keys/history?key=a&fresh=true")
    assert [record["offset"] for record in told.json()["records"]] == [6]


async def test_the_status_tells_of_compaction(seb):
    tidier = (await seb.client.get("/v1/status")).json()["tidier"]
    assert tidier["compacted_topics"] == 1
    assert tidier["dirty_bytes"] == 0 < tidier["compacted_bytes"]
    assert tidier["records_removed"] == 5
