"""Values that are written in pieces, in each answer that has records."""

from __future__ import annotations

import base64
import csv
import io
import json

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "\1" * 300_000
BINARY = b"\xff" * 300_000
TOPIC = "/v1/topics/large.values"
KEY = "key=k&fresh=true"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large(seb):
    await seb.client.put(TOPIC, json={"key_index": "history"})
    values = [{"value": TEXT}, {"value": "x"}, {"value_base64": base64.b64encode(BINARY).decode()}]
    records = [{"key": "k", **value} for value in values]
    sent = await seb.client.post(f"{TOPIC}/records", json={"records": records})
    assert sent.status_code == 201, sent.text
    return seb.client


def of_csv(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def of_live(text):
    lines = (line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: "))
    return [json.loads(line) for line in lines]


def in_records(text):
    return json.loads(text)["records"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (f"{TOPIC}/records", in_records),
        (f"{TOPIC}/records?format=ndjson", lambda text: list(map(json.loads, text.splitlines()))),
        (f"{TOPIC}/records?format=csv", of_csv),
        (f"{TOPIC}/records?format=csv&max_records=3", of_csv),
        (f"{TOPIC}/records?format=sse&max_records=3", of_live),
        (f"{TOPIC}/records?{KEY[:5]}", in_records),
        (f"{TOPIC}/records?format=cloudevents", json.loads),
        (f"{TOPIC}/keys/history?{KEY}", lambda text: in_records(text)[::-1]),
        ("/v1/records?topics=large.*&format=json", in_records),
        ("/v1/records?topics=large.*&format=sse&max_records=3", of_live),
        ("/v1/groups/g/topics/large.values/records", in_records),
    ],
)
async def test_an_answer_with_many_records_has_large_values_whole(large, path, told):
    csv.field_size_limit(1_000_000)
    answer = await large.get(path)
    assert answer.status_code == 200, answer.text
    event = "cloudevents" in path
    text, binary = ("data", "data_base64") if event else ("value", "value_base64")
    first, second, third = told(answer.text)
    assert (first[text], second[text]) == (TEXT, "x")
    assert base64.b64decode(third[binary]) == BINARY
    if not event:
        assert [one["offset"] for one in (first, second, third)] in ([0, 1, 2], ["0", "1", "2"])


@pytest.mark.parametrize(
    ("path", "accept", "found"),
    [
        ("records/2", "application/json", lambda told: told["value_base64"]),
        ("records/2", "application/cloudevents+json", lambda told: told["data_base64"]),
        (f"keys/latest?{KEY}", "application/json", lambda told: told["record"]["value_base64"]),
    ],
)
async def test_an_answer_with_one_record_has_a_large_value_whole(large, path, accept, found):
    answer = await large.get(f"{TOPIC}/{path}", headers={"accept": accept})
    assert base64.b64decode(found(answer.json())) == BINARY


async def test_a_view_and_a_queue_have_large_values_whole(large):
    page = (await large.get(f"{TOPIC}/records?view=latest&fresh=true")).json()["records"]
    assert base64.b64decode(page[0]["value_base64"]) == BINARY
    await large.put("/v1/queues/large", json={"topics": ["large.values"], "start": "earliest"})
    taken = (await large.post("/v1/queues/large/take", json={"wait_ms": 5_000})).json()["records"]
    assert taken[0]["value"] == TEXT
    assert taken[0]["topic"] == "large.values"
