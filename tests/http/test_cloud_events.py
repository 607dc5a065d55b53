"""CloudEvents 1.0 in and out, with the official SDK as the client."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from cloudevents.core.bindings.http import HTTPMessage, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = JSONFormat()
BATCH = "application/cloudevents-batch+json"
ATTRIBUTES = {
    "id": "a-1",
    "source": "/sensors/käse 7%",
    "type": "com.example.read",
    "specversion": "1.0",
    "time": datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC),
    "datacontenttype": "application/json",
    "subject": "cellar",
    "traceparent": "00-af-b7-01",
}
MINIMAL = {"id": "1", "source": "/s", "type": "t", "specversion": "1.0"}


@pytest_asyncio.fixture(loop_scope="module")
async def topic(seb, request):
    name = request.node.name.partition("[")[0]
    await seb.client.put(f"/v1/topics/{name}")
    yield name
    await seb.client.delete(f"/v1/topics/{name}")


def event(data, **attributes):
    given = {name: value for name, value in {**ATTRIBUTES, **attributes}.items() if value}
    return CloudEvent(attributes=given, data=data)


def batched(*events):
    body = b"[" + b",".join(JSON.write(one) for one in events) + b"]"
    return HTTPMessage({"content-type": BATCH}, body)


async def post(seb, topic, message, **headers):
    url = f"/v1/topics/{topic}/records"
    return await seb.client.post(url, content=message.body, headers={**message.headers, **headers})


async def events_of(seb, topic, query=""):
    """As the SDK reads them."""
    answer = await seb.client.get(f"/v1/topics/{topic}/records?{query}", headers={"accept": BATCH})
    assert answer.headers["content-type"] == BATCH
    return [JSON.read(None, json.dumps(one)) for one in answer.json()]


async def records_of(seb, topic):
    return (await seb.client.get(f"/v1/topics/{topic}/records")).json()["records"]


MODES = [lambda e: to_binary(e, JSON), lambda e: to_structured(e, JSON), batched]


@pytest.mark.parametrize("mode", MODES, ids=["binary", "structured", "batched"])
@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ({"celsius": 21}, "application/json"),
        ("21 °C", "text/plain; charset=utf-8"),
        (b"\x00\xff", "application/octet-stream"),
        (None, None),
    ],
    ids=["json", "text", "bytes", "none"],
)
async def test_an_event_comes_back_as_it_went_in(seb, topic, mode, data, content_type):
    sent = event(data, datacontenttype=content_type)
    answer = await post(seb, topic, mode(sent))
    assert answer.status_code == 201, answer.text
    (found,) = await events_of(seb, topic)
    assert found.get_attributes() == sent.get_attributes()
    assert found.get_data() == data


async def test_an_event_is_a_record_with_its_data_as_value(seb, topic):
    await post(seb, topic, to_binary(event({"celsius": 21}), JSON))
    (record,) = await records_of(seb, topic)
    assert json.loads(record["value"]) == {"celsius": 21}
    assert record["key"] == "cellar"
    assert record["timestamp"] == "2026-01-02T03:04:05.678900Z"
    assert record["headers"]["ce_source"] == "/sensors/käse 7%"
    assert record["headers"]["content-type"] == "application/json"


async def test_partitionkey_is_the_record_key_before_subject(seb, topic):
    await post(seb, topic, to_structured(event("x", partitionkey="p"), JSON))
    (record,) = await records_of(seb, topic)
    assert record["key"] == "p"


async def test_a_batch_is_stored_in_order(seb, topic):
    many = [event({"n": n}, id=str(n)) for n in range(300)]
    answer = await post(seb, topic, batched(*many))
    assert (answer.status_code, answer.json()["count"]) == (201, 300)
    assert [e.get_data()["n"] for e in await events_of(seb, topic)] == list(range(300))


async def test_the_same_event_again_is_stored_once_in_whichever_mode_it_comes(seb, topic):
    sent = event({"celsius": 21})
    first = await post(seb, topic, to_binary(sent, JSON))
    structured = HTTPMessage(
        {"content-type": "application/cloudevents+json"},
        JSON.write(sent).replace(b'{"celsius": 21}', json.dumps(sent.get_data()).encode()),
    )
    for message in (to_binary(sent, JSON), structured, batched(sent)):
        again = await post(seb, topic, message)
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
    assert len(await records_of(seb, topic)) == 1


async def test_another_event_under_the_same_source_and_id_is_refused(seb, topic):
    await post(seb, topic, to_binary(event("a"), JSON))
    answer = await post(seb, topic, to_binary(event("b"), JSON))
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")
    other = await post(seb, topic, to_binary(event("b", source="/other"), JSON))
    assert other.status_code == 201


async def test_an_idempotency_key_of_the_request_goes_before_the_ids_of_events(seb, topic):
    for key in ("k1", "k2", "k2"):
        message = to_binary(event("a"), JSON)
        answer = await post(seb, topic, message, **{"idempotency-key": key})
        assert answer.status_code == 201
    assert len(await records_of(seb, topic)) == 2
    changed = to_binary(event("a", subject="other"), JSON)
    answer = await post(seb, topic, changed, **{"idempotency-key": "k2"})
    assert answer.json()["code"] == "idempotency_mismatch"


async def test_any_record_goes_out_as_an_event(seb, topic):
    records = [
        {"value": {"a": 1}, "key": "k", "timestamp": "2026-01-01T00:00:00Z"},
        {"value": "text"},
        {"value_base64": "/w=="},
        {"value": None, "key": "k"},
        {"value": "x", "headers": {"ce_id": "1", "ce_specversion": "1.0"}},
    ]
    await seb.client.post(f"/v1/topics/{topic}/records", json={"records": records})
    topic_id = (await seb.client.get(f"/v1/topics/{topic}")).json()["topic_id"]
    answer = await seb.client.get(f"/v1/topics/{topic}/records?format=cloudevents")
    found = answer.json()
    assert found[0] == {
        "specversion": "1.0",
        "id": f"{topic_id}-0",
        "source": f"/v1/topics/{topic}",
        "type": "seb.record",
        "time": "2026-01-01T00:00:00.000000Z",
        "partitionkey": "k",
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }
    assert (found[1]["data"], found[1]["datacontenttype"]) == ("text", "text/plain; charset=utf-8")
    assert (found[2]["data_base64"], found[3]["type"]) == ("/w==", "seb.tombstone")
    assert "data" not in found[3]
    assert found[4]["id"] == f"{topic_id}-4", "half an event is none"
    assert len(await events_of(seb, topic)) == 5


async def test_one_record_goes_out_as_one_event(seb, topic):
    await post(seb, topic, to_binary(event({"celsius": 21}), JSON))
    headers = {"accept": JSON.CONTENT_TYPE}
    answer = await seb.client.get(f"/v1/topics/{topic}/records/0", headers=headers)
    assert answer.headers["content-type"] == JSON.CONTENT_TYPE
    assert JSON.read(None, answer.content).get_attributes() == ATTRIBUTES
    assert (await seb.client.get(f"/v1/topics/{topic}/records/0")).json()["offset"] == 0


async def test_a_topic_without_records_is_an_empty_list(seb, topic):
    assert await events_of(seb, topic) == []


STRUCTURED = {"content-type": "application/cloudevents+json"}
GOOD = json.dumps({**MINIMAL, "id": "good"})


def without(name):
    return json.dumps({key: value for key, value in MINIMAL.items() if key != name})


def with_(**members):
    return json.dumps({**MINIMAL, **members})


BAD = [
    (STRUCTURED, without("id"), "bad_cloud_event", "The event has no id"),
    (STRUCTURED, without("source"), "bad_cloud_event", "no source"),
    (STRUCTURED, without("type"), "bad_cloud_event", "no type"),
    (STRUCTURED, without("specversion"), "bad_cloud_event", "no specversion"),
    (STRUCTURED, with_(specversion="0.3"), "bad_cloud_event", "'0.3'; only 1.0 is supported"),
    (STRUCTURED, with_(id=""), "bad_cloud_event", "no id"),
    (STRUCTURED, with_(id={}), "bad_cloud_event", "'id' must be text"),
    (STRUCTURED, with_(n=2**40), "bad_cloud_event", "fit into 32 bits"),
    (STRUCTURED, with_(time="now"), "bad_cloud_event", "time"),
    (STRUCTURED, with_(id="a\nb"), "bad_cloud_event", "control character"),
    (STRUCTURED, with_(traceParent="x"), "bad_cloud_event", "not the name of an attribute"),
    (STRUCTURED, with_(data="a", data_base64="YQ=="), "bad_cloud_event", "both"),
    (STRUCTURED, with_(data_base64="?"), "bad_cloud_event", "not base64"),
    (STRUCTURED, with_(data={}, datacontenttype="text/plain"), "bad_cloud_event", "must be text"),
    (STRUCTURED, "[]", "bad_json", "array"),
    (STRUCTURED, "{", "bad_json", ""),
    (STRUCTURED, with_(x="y" * 600_000), "record_too_large", ""),
    ({"content-type": BATCH}, "[]", "bad_json", "empty"),
    ({"content-type": BATCH}, f"[{GOOD},{without('id')}]", "bad_cloud_event", "Event 1 has no id"),
    ({"content-type": BATCH}, f"[{GOOD},", "bad_json", ""),
    ({"content-type": BATCH}, f"[{GOOD},1]", "bad_json", ""),
    ({"content-type": BATCH}, "[" + "{}," * 10_000 + "{}]", "request_too_large", "10000"),
    ({"content-type": "application/cloudevents+xml"}, "x", "unsupported_media_type", "JSON format"),
    ({"ce-id": "1"}, "x", "bad_cloud_event", "no ce-specversion"),
    ({"ce-specversion": "1.0", "ce-id": "1"}, "x", "bad_cloud_event", "no source"),
    ({"ce-specversion": "2.0", "ce-id": "1", "ce-source": "s", "ce-type": "t"}, "x",
     "bad_cloud_event", "'2.0'"),
    ({f"ce-{k}": v for k, v in MINIMAL.items()} | {"ce-x": "%zz"}, "x", "bad_cloud_event", "%25"),
    ({f"ce-{k}": v for k, v in MINIMAL.items()} | {"ce-x": "%ff"}, "x", "bad_cloud_event", "UTF-8"),
    ({f"ce-{k}": v for k, v in MINIMAL.items()} | {"ce-data": "x"}, "x", "bad_cloud_event", "data"),
    ({f"ce-{k}": v for k, v in MINIMAL.items()} | {"seb-key": "x"}, "x", "bad_parameter", ""),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "body", "code", "says"), BAD)
async def test_what_is_no_event_is_refused_and_nothing_is_stored(
    seb, topic, headers, body, code, says
):
    answer = await post(seb, topic, HTTPMessage(headers, body.encode()))
    assert answer.json()["code"] == code
    assert answer.json()["side_effects"] == "none"
    assert says in answer.json()["detail"]
    assert await records_of(seb, topic) == []


async def test_events_go_nowhere_but_to_a_topic(seb):
    headers = {"ce-specversion": "1.0", "content-type": "application/json"}
    answer = await seb.client.put("/v1/topics/never", json={}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")
