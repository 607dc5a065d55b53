"""Reads tell the topic's id, and refuse another topic that has the name by now."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="module")

READS = [
    "topics/{topic}/records?",
    "topics/{topic}/records?offset=1&max_records=1&",
    "topics/{topic}/records?key=k&",
    "topics/{topic}/records?view=latest&fresh=true&",
    "groups/g/topics/{topic}/records?",
    *(
        f"topics/{{topic}}/records?format={name}&until=1&"
        for name in ("json", "ndjson", "batch", "cloudevents", "arrow", "sse")
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def made_anew(seb) -> int:
    """The id of a topic that was deleted and made again, with more records than before."""
    for count in (1, 3):
        await seb.client.delete("/v1/topics/again")
        made = await seb.client.put("/v1/topics/again", json={"key_index": "latest"})
        records = [{"value": str(i), "key": "k"} for i in range(count)]
        await seb.client.post("/v1/topics/again/records", json={"records": records})
    return made.json()["topic_id"]


@pytest.mark.parametrize("read", READS)
async def test_a_read_tells_the_id_of_its_topic_and_holds_it_to_one(seb, read, made_anew) -> None:
    path = "/v1/" + read.format(topic="again")
    for asked in (path.rstrip("?&"), f"{path}topic_id={made_anew}"):
        answer = await seb.client.get(asked)
        assert answer.status_code == 200, answer.text
        assert answer.headers["seb-topic-id"] == str(made_anew)
    refused = await seb.client.get(f"{path}topic_id={made_anew - 1}")
    assert refused.status_code == 409
    problem = refused.json()
    assert (problem["code"], problem["retryable"], problem["side_effects"]) == (
        "topic_replaced",
        False,
        "none",
    )
    assert (problem["topic"], problem["topic_id"]) == ("again", made_anew)


@pytest.mark.parametrize("accept", ["application/json", "application/octet-stream"])
async def test_one_record_tells_the_id_of_its_topic(seb, accept, made_anew) -> None:
    answer = await seb.client.get("/v1/topics/again/records/0", headers={"accept": accept})
    assert answer.headers["seb-topic-id"] == str(made_anew)


async def test_who_is_beyond_the_end_of_the_new_topic_is_told_that_it_is_new(
    seb, made_anew
) -> None:
    answer = await seb.client.get(f"/v1/topics/again/records?offset=77&topic_id={made_anew - 1}")
    assert answer.json()["code"] == "topic_replaced"


@pytest.mark.parametrize("bad", ["x", "-1", "1.5", ""])
async def test_an_id_that_is_none_is_refused(seb, bad) -> None:
    answer = await seb.client.get(f"/v1/topics/again/records?topic_id={bad}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")


async def test_who_waits_while_the_topic_is_made_anew_gets_none_of_its_records(seb) -> None:
    made = (await seb.client.put("/v1/topics/waited")).json()["topic_id"]
    waiting = asyncio.create_task(
        seb.client.get(f"/v1/topics/waited/records?offset=0&wait=30s&topic_id={made}")
    )
    while not seb.appliance.broker.waiting_readers:
        await asyncio.sleep(0)
    await seb.client.delete("/v1/topics/waited")
    await seb.client.put("/v1/topics/waited")
    await seb.client.post("/v1/topics/waited/records", content=b"new")
    assert (await waiting).json()["code"] in ("topic_not_found", "topic_replaced")
