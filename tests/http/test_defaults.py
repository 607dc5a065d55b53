"""Each query parameter may be sent with its documented default, as generated clients do."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
import pytest_asyncio

from seb_appliance.ops.serve.protocols import openapi_json

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENT = msgspec.json.decode(openapi_json())
PLACES = {"topic": "t", "group": "g", "offset": "0", "queue": "q"}
# What a question cannot do without; for a route with several kinds of answers, each of them.
NEEDS = {
    "consume": [
        {},
        *({"format": name} for name in ("json", "ndjson", "csv", "batch", "cloudevents", "arrow")),
        {"format": "sse", "max_records": "1"},
        {"key": "a"},
        {"view": "latest"},
        {"view": "latest", "format": "ndjson"},
    ],
    "consumeInGroup": [{"format": name} for name in ("json", "ndjson", "csv", "batch")],
    "readMany": [{"topics": "t", "format": "json"}, {"topics": "t", "max_records": "1"}],
    "getLatestOfRecordKey": [{"key": "a"}],
    "getHistoryOfRecordKey": [{"key": "a"}],
}


def defaults(operation):
    listed = [p for p in operation.get("parameters", ()) if p["in"] == "query"]
    given = {p["name"]: p["schema"]["default"] for p in listed if "default" in p["schema"]}
    return {n: v if isinstance(v, str) else json.dumps(v) for n, v in given.items()}


def questions():
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if defaults(operation):
                for needed in NEEDS.get(operation["operationId"], [{}]):
                    url = re.sub(r"\{(\w+)\}", lambda found: PLACES[found[1]], path)
                    name = "&".join([operation["operationId"], *needed.values()])
                    yield pytest.param(method, url, needed, defaults(operation), id=name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def topic(seb):
    made = await seb.client.put("/v1/topics/t", json={"key_index": "history"})
    assert made.status_code == 201, made.text
    records = [{"value": "1", "key": "a"}, {"value": "2", "key": "b"}]
    await seb.client.post("/v1/topics/t/records", json={"records": records})
    pushed = {"topics": ["none"], "url": "http://127.0.0.1:9/"}
    assert (await seb.client.put("/v1/subscriptions/q", json=pushed)).status_code == 201
    asked = {"key": "b", "fresh": "true"}  # the key index has caught up
    assert (await seb.client.get("/v1/topics/t/keys/latest", params=asked)).status_code == 200


@pytest.mark.parametrize(("method", "url", "needed", "given"), list(questions()))
async def test_a_default_that_is_sent_changes_nothing(seb, topic, method, url, needed, given):
    plain = await seb.client.request(method, url, params=needed)
    assert plain.status_code == 200, plain.text
    # All together, each alone (what one asks for may hide another), with values first and last.
    for sent in (given, *({name: value} for name, value in given.items())):
        answer = await seb.client.request(method, url, params={**needed, **sent})
        assert (answer.status_code, masked(answer.text)) == (200, masked(plain.text)), sent


def masked(text):
    """Without what differs from call to call anyway."""
    figures = r'"(lag_seconds|seconds)":[0-9.e-]+|"cursor":"[^"]*"|(?m:(?<=[a-z}]) [0-9.e+-]+$)'
    return re.sub(figures, "", text)
