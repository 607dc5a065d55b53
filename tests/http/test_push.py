"""Push protocols over HTTP: what a sender's body becomes, and what the sender is answered."""

from __future__ import annotations

import base64
import json

import cramjam
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from seb_appliance import limits
from seb_appliance.protocols.push.loki import labels_of, push_request

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_NS = 1_763_900_000_123_456_000
AT = "2025-11-23T12:13:20.123456Z"


async def records(seb, topic):
    answer = await seb.client.get(f"/v1/topics/{topic}/records")
    return answer.json()["records"]


async def with_token(seb, method, path, authorization, **options):
    """Without the admin key that the client sends by itself."""
    async with seb.client_with(None) as client:
        headers = {"Authorization": authorization, **options.pop("headers", {})}
        return await client.request(method, path, headers=headers, **options)


async def new_key(seb, *topics, operation="produce"):
    grants = [{"operation": operation, "topics": topic} for topic in topics]
    answer = await seb.client.post("/v1/api-keys", json={"name": "shipper", "grants": grants})
    assert answer.status_code == 201, answer.text
    return answer.json()["secret"]


async def inlet(seb, name):
    settings = {"topic": f"of-{name}", "verify": {"scheme": "token", "header": "X-Token"}}
    answer = await seb.client.put(f"/v1/inlets/{name}", json={**settings, "secrets": ["s" * 20]})
    assert answer.status_code == 201, answer.text


async def push_to_inlet(seb, name, path, body, content_type, token="s" * 20):
    async with seb.client_with(None) as client:
        headers = {"X-Token": token, "Content-Type": content_type}
        return await client.post(f"/v1/inlets/{name}{path}", content=body, headers=headers)


# --- Loki ---


def loki_json(*lines, **labels):
    values = [[str(AT_NS), line] for line in lines]
    return json.dumps({"streams": [{"stream": labels, "values": values}]}).encode()


def loki_protobuf(labels, *lines):
    request = push_request()()
    stream = request.streams.add(labels=labels)
    for line in lines:
        entry = stream.entries.add(line=line)
        entry.timestamp.FromNanoseconds(AT_NS)
        entry.metadata.add(name="trace", value="t1")
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


@pytest.mark.parametrize("form", ["json", "protobuf"])
async def test_a_line_of_loki_is_a_record_with_its_labels_as_headers(seb, form):
    topic = f"loki.{form}"
    if form == "json":
        body, content_type = loki_json("one", "two", job="nginx"), "application/json"
    else:
        body = loki_protobuf('{job="nginx"}', "one", "two")
        content_type = "application/x-protobuf"
    answer = await seb.client.post(
        "/loki/api/v1/push",
        content=body,
        headers={"X-Scope-OrgID": topic, "Content-Type": content_type},
    )
    assert answer.status_code == 204, answer.text
    found = await records(seb, topic)
    assert [one["value"] for one in found] == ["one", "two"]
    assert found[0]["timestamp"] == AT
    expected = {"job": "nginx"} if form == "json" else {"job": "nginx", "trace": "t1"}
    assert found[0]["headers"] == expected


async def test_a_loki_request_without_a_tenant_is_told_how_to_name_the_topic(seb):
    answer = await seb.client.post("/loki/api/v1/push", content=loki_json("x"))
    assert answer.status_code == 400
    assert "X-Scope-OrgID" in answer.text


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"\xff" * 9, "application/x-protobuf", 400),
        (b"", "application/x-protobuf", 400),
        (b"\x05hello", "application/x-protobuf", 400),
        (b"\xff\xff\xff\xff\x0f" + b"x" * 9, "application/x-protobuf", 413),  # says 4 GiB
        (bytes(cramjam.snappy.compress_raw(b"\x0a\xff")), "application/x-protobuf", 400),
        (b'{"streams":[', "application/json", 400),
        (b'{"streams":[{"stream":{"a":"b"},"values":[["soon","x"]]}]}', "application/json", 400),
        (b'{"streams":[{"stream":{"a":"\\ud800"},"values":[["1","x"]]}]}', "application/json", 400),
        (loki_protobuf("job", "x"), "application/x-protobuf", 400),
        (loki_json(*["x"] * (limits.RECORDS_PER_REQUEST_MAX + 1)), "application/json", 413),
        (loki_json("x", **{f"l{i}": "" for i in range(99)}), "application/json", 413),
    ],
)
async def test_a_bad_loki_body_is_refused_and_stores_nothing(seb, body, content_type, status):
    sent = {"X-Scope-OrgID": "loki.bad", "Content-Type": content_type}
    answer = await seb.client.post("/loki/api/v1/push", content=body, headers=sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert (await seb.client.get("/v1/topics/loki.bad/records")).status_code == 404


async def test_labels_repeated_for_each_line_count_as_bytes_of_the_request(seb):
    body = loki_json(*["x"] * 9_000, big="y" * 8_000)
    sent = {"X-Scope-OrgID": "loki.big", "Content-Type": "application/json"}
    answer = await seb.client.post("/loki/api/v1/push", content=body, headers=sent)
    assert answer.status_code == 413, answer.text


async def test_labels_are_read_as_loki_writes_them():
    assert labels_of("{}") == {}
    assert labels_of(r'{a="x, y", b="q\"u\n", c=""}') == {"a": "x, y", "b": 'q"u\n', "c": ""}
    assert labels_of(r'{a="\x41"}') == {"a": r"\x41"}  # an escape that JSON does not have


# --- Splunk ---


async def test_splunk_events_are_stored_with_a_key_as_token_and_the_index_as_topic(seb):
    await seb.client.put("/v1/topics/splunk.events", json={})
    key = await new_key(seb, "splunk.events")
    events = (
        '{"event":"a line","time":"1763900000.123456","host":"h","index":"splunk.events"}'
        '{"event":{"n": 1.0},"time":1763900000,"fields":{"a":1,"b":"x"},"index":"splunk.events"}'
    )
    answer = await with_token(
        seb, "POST", "/services/collector/event", f"Splunk {key}", content=events.encode()
    )
    assert (answer.status_code, answer.json()) == (200, {"text": "Success", "code": 0})
    found = await records(seb, "splunk.events")
    assert [one["value"] for one in found] == ["a line", '{"n": 1.0}']
    assert found[0]["timestamp"] == AT
    assert [one["headers"] for one in found] == [{"host": "h"}, {"a": "1", "b": "x"}]


async def test_raw_lines_of_splunk_are_records(seb):
    query = "?index=splunk.raw&host=web1&channel=0"
    answer = await seb.client.post(f"/services/collector/raw{query}", content=b"one\r\n\ntwo")
    assert answer.status_code == 200, answer.text
    found = await records(seb, "splunk.raw")
    assert [(one["value"], one["headers"]) for one in found] == [
        ("one", {"host": "web1"}),
        ("two", {"host": "web1"}),
    ]


async def test_the_checks_of_splunk_senders_are_answered(seb):
    for method, path in (("OPTIONS", "event/1.0"), ("GET", "health"), ("GET", "health/1.0")):
        answer = await with_token(seb, method, f"/services/collector/{path}", "Splunk x")
        assert answer.status_code == 200, path


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, 5),
        (b'{"event":', 400, 6),
        (b'{"no":"event"}', 400, 6),
        (b'{"event":1,"time":"soon"}', 400, 6),
        (b'{"event":1,"index":"a"}{"event":1,"index":"b"}', 400, 6),
        (b'{"event":1,"index":"not a name"}', 400, 6),
        (b'{"event":1}', 400, 6),
        (b'{"event":"\\ud800","index":"a"}', 400, 6),
        (b'{"event":1e999,"index":"a"}', 400, 6),
        (b'{"event":' + b"9" * 5_000 + b',"index":"a"}', 400, 6),
        (b'{"event":1,"fields":{"a":"\\ud800"},"index":"a"}', 400, 6),
        (b'{"event":1,"time":1e308,"index":"a"}', 400, 6),
        (b'{"event":' + b"[" * 100_000 + b"]" * 100_000 + b',"index":"a"}', 400, 6),
    ],
)
async def test_a_bad_splunk_body_is_refused_in_its_words(seb, body, status, code):
    answer = await seb.client.post("/services/collector", content=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


async def test_a_splunk_token_writes_only_where_it_may(seb):
    key = await new_key(seb, "splunk.mine")
    body = b'{"event":1,"index":"splunk.theirs"}'
    answer = await with_token(seb, "POST", "/services/collector", f"Splunk {key}", content=body)
    assert (answer.status_code, answer.json()["code"]) == (403, 4)
    answer = await with_token(seb, "POST", "/services/collector", "Splunk none", content=body)
    assert (answer.status_code, answer.json()["code"]) == (401, 4)
    reader = await new_key(seb, "splunk.mine", operation="consume")
    answer = await with_token(seb, "POST", "/services/collector", f"Splunk {reader}", content=body)
    assert answer.status_code == 403


# --- Confluent ---


async def confluent(seb, topic, body, kind="json"):
    sent = {"Content-Type": f"application/vnd.kafka.{kind}.v2+json"}
    return await seb.client.post(f"/topics/{topic}", content=body, headers=sent)


async def test_confluent_records_are_stored_and_their_offsets_answered(seb):
    body = b'{"records":[{"key":"k","value":{"n": 1.0}},{"value":"text"},{"key":7,"value":null}]}'
    answer = await confluent(seb, "confluent.json", body)
    assert answer.status_code == 200, answer.text
    assert [one["offset"] for one in answer.json()["offsets"]] == [0, 1, 2]
    found = await records(seb, "confluent.json")
    assert [(one.get("key"), one["value"]) for one in found] == [
        ("k", '{"n": 1.0}'),
        (None, "text"),
        ("7", None),
    ]
    answer = await confluent(seb, "confluent.json", b'{"records":[{"value":1}]}')
    assert answer.json()["offsets"][0]["offset"] == 3


async def test_binary_records_of_confluent_are_their_bytes(seb):
    value = base64.b64encode(b"\x00\xff").decode()
    answer = await confluent(
        seb, "confluent.binary", json.dumps({"records": [{"value": value}]}), "binary"
    )
    assert answer.status_code == 200, answer.text
    assert (await records(seb, "confluent.binary"))[0]["value_base64"] == value


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "json", 400),
        (b'{"records":[{}]}', "json", 400),
        (b'{"records":[{"value":1e999}]}', "json", 400),
        (b'{"records":[{"value":"%"}]}', "binary", 400),
        (b'{"records":[{"value":{}}]}', "binary", 400),
        (b'{"records":[{"value":"\\ud800"}]}', "json", 400),
        (b'{"records":[{"value":"x"}]}', "avro", 415),
    ],
)
async def test_a_bad_confluent_body_is_refused_in_its_words(seb, body, kind, status):
    answer = await confluent(seb, "confluent.bad", body, kind)
    assert answer.status_code == status, answer.text
    assert answer.json()["error_code"] == status * 100 + 1
    assert (await seb.client.get("/v1/topics/confluent.bad/records")).status_code == 404


# --- OTLP ---


def otlp_request(*texts):
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add(schema_url="https://example.test/schema")
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_logs.add()
    scope.scope.name = "lib"
    for text in texts:
        one = scope.log_records.add(
            time_unix_nano=AT_NS, severity_number=9, trace_id=b"\x01" * 16, span_id=b"\x02" * 8
        )
        one.body.string_value = text
    return request


async def test_each_otlp_log_record_is_a_document_of_its_own(seb):
    await inlet(seb, "otel")
    body = otlp_request("one", "two").SerializeToString()
    answer = await push_to_inlet(seb, "otel", "/v1/logs", body, "application/x-protobuf")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "application/x-protobuf"
    found = await records(seb, "of-otel")
    assert [one["timestamp"] for one in found] == [AT, AT]
    first = json.loads(found[0]["value"])["resourceLogs"][0]
    assert first["schemaUrl"] == "https://example.test/schema"
    assert first["resource"]["attributes"][0]["value"] == {"stringValue": "shop"}
    assert first["scopeLogs"][0]["scope"] == {"name": "lib"}
    assert first["scopeLogs"][0]["logRecords"] == [
        {
            "timeUnixNano": str(AT_NS),
            "severityNumber": 9,
            "body": {"stringValue": "one"},
            "traceId": "01" * 16,
            "spanId": "02" * 8,
        }
    ]


async def test_a_stored_otlp_document_can_be_sent_again_as_json(seb):
    await inlet(seb, "otel-json")
    body = otlp_request("one").SerializeToString()
    await push_to_inlet(seb, "otel-json", "/v1/logs", body, "application/x-protobuf")
    first = (await records(seb, "of-otel-json"))[0]["value"]
    answer = await push_to_inlet(seb, "otel-json", "/v1/logs", first.encode(), "application/json")
    assert (answer.status_code, answer.json()) == (200, {})
    assert (await records(seb, "of-otel-json"))[1]["value"] == first


@pytest.mark.parametrize("form", ["json", "protobuf"])
async def test_a_log_record_that_is_too_large_is_left_out_and_the_answer_says_so(seb, form):
    name = f"otel-large-{form}"
    await inlet(seb, name)
    request = otlp_request("small", "x" * (limits.RECORD_BYTES_DEFAULT + 1), "also small")
    body, content_type = request.SerializeToString(), "application/x-protobuf"
    if form == "json":
        logs = [
            {"body": {"stringValue": one.body.string_value}}
            for one in request.resource_logs[0].scope_logs[0].log_records
        ]
        document = {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}
        body, content_type = json.dumps(document).encode(), "application/json"
    answer = await push_to_inlet(seb, name, "/v1/logs", body, content_type)
    assert answer.status_code == 200, answer.text
    if form == "json":
        assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    else:
        partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        assert partial.rejected_log_records == 1
    assert len(await records(seb, f"of-{name}")) == 2


async def test_an_empty_value_of_otlp_is_stored_as_one(seb):
    await inlet(seb, "otel-void")
    request = otlp_request("one")
    log_record = request.resource_logs[0].scope_logs[0].log_records[0]
    log_record.body.Clear()
    log_record.attributes.add(key="void").value.SetInParent()
    log_record.attributes.add(key="list").value.array_value.values.add()
    body = request.SerializeToString()
    await push_to_inlet(seb, "otel-void", "/v1/logs", body, "application/x-protobuf")
    (found,) = await records(seb, "of-otel-void")
    stored = json.loads(found["value"])["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert stored["body"] == {}
    assert stored["attributes"] == [
        {"key": "void", "value": {}},
        {"key": "list", "value": {"arrayValue": {"values": [{}]}}},
    ]


@pytest.mark.parametrize("members", ["timeUnixNano", "body", "attributes"])
async def test_a_null_of_otlp_stands_for_what_is_left_out(seb, members):
    name = f"otel-null-{members}"
    await inlet(seb, name)
    scope = {"scope": None, "schemaUrl": None, "logRecords": [{members: None}]}
    parts = [{"resource": None, "schemaUrl": None, "scopeLogs": [scope, {"logRecords": None}]}]
    for logs in (None, [{"scopeLogs": None}], parts):
        body = json.dumps({"resourceLogs": logs}).encode()
        answer = await push_to_inlet(seb, name, "/v1/logs", body, "application/json")
        assert (answer.status_code, answer.json()) == (200, {}), answer.text
    (found,) = await records(seb, f"of-{name}")
    stored = json.loads(found["value"])["resourceLogs"][0]["scopeLogs"][0]
    assert stored["logRecords"] == [{members: None}]


async def test_otlp_without_log_records_is_a_success(seb):
    await inlet(seb, "otel-empty")
    answer = await push_to_inlet(seb, "otel-empty", "/v1/logs", b"", "application/x-protobuf")
    assert answer.status_code == 200, answer.text
    assert await records(seb, "of-otel-empty") == []


@pytest.mark.parametrize(
    ("body", "content_type", "token", "status"),
    [
        (b"\xff\xff", "application/x-protobuf", "s" * 20, 400),
        (b"{", "application/json", "s" * 20, 400),
        (
            b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[1]}]}]}',
            "application/json",
            "s" * 20,
            400,
        ),
        (
            b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"x"}]}]}]}',
            "application/json",
            "s" * 20,
            400,
        ),
        (b"{}", "text/plain", "s" * 20, 415),
        (b"{}", "application/json", "wrong", 401),
    ],
)
async def test_a_bad_otlp_request_is_answered_with_a_status(seb, body, content_type, token, status):
    name = f"otel-bad-{status}-{len(body)}"
    await inlet(seb, name)
    answer = await push_to_inlet(seb, name, "/v1/logs", body, content_type, token)
    assert answer.status_code == status, answer.text
    expected = "application/x-protobuf" if "protobuf" in content_type else "application/json"
    assert answer.headers["content-type"].startswith(expected)
    unknown = await push_to_inlet(seb, "nobody", "/v1/logs", body, content_type, token)
    assert unknown.status_code == 401


def field(number, content):
    """A field of protobuf that holds bytes."""
    length, rest = bytearray(), len(content)
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([number << 3 | 2, *length, rest]) + content


MANY = b"\x12\x00" * limits.MIB  # empty messages in field 2


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        ("/v1/logs", field(1, field(2, MANY[:-200])), "application/x-protobuf"),
        ("/v1/logs", field(1, MANY[:-200]), "application/x-protobuf"),
        ("/v1/logs", b" " * (limits.PUSH_BYTES_MAX + 1), "application/json"),
        ("/topics/t", b" " * (limits.PUSH_BYTES_MAX + 1), "application/json"),
        (
            "/loki/api/v1/push",
            bytes(cramjam.snappy.compress_raw(bytes(limits.PUSH_BYTES_MAX + 1))),
            "application/x-protobuf",
        ),
    ],
)
async def test_a_push_that_would_take_much_memory_is_refused(seb, path, body, content_type):
    name = f"much-{path[1]}{len(body)}"
    await inlet(seb, name)
    answer = await push_to_inlet(seb, name, path, body, content_type)
    assert answer.status_code == 413, answer.text
    assert await records(seb, f"of-{name}") == []
    assert (await push_to_inlet(seb, name, path, b"{", "application/json")).status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/logs",
            '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"%d000"}]}]}]}',
        ),
        ("/loki/api/v1/push", '{"streams":[{"stream":{},"values":[["%d000","x"]]}]}'),
        ("/services/collector", '{"event":"x","time":%d}'),
        ("/topics/t", '{"records":[{"value":"x","timestamp":%d}]}'),
    ],
)
@pytest.mark.parametrize("at_us", [4_000_000_000_000_000, -1])
async def test_a_sender_with_a_wrong_clock_loses_no_record(seb, path, body, at_us):
    name = f"clock-{path[1]}{path.count('/')}{at_us < 0}"
    await inlet(seb, name)
    sent = (body % at_us).encode()
    answer = await push_to_inlet(seb, name, path, sent, "application/json")
    if path.startswith("/loki") and at_us < 0:
        assert answer.status_code == 400  # not a number of Loki's at all
        return
    assert answer.status_code in (200, 204), answer.text
    (record,) = await records(seb, f"of-{name}")
    assert "2020" < record["timestamp"] < "2060"


# --- under an inlet ---


@pytest.mark.parametrize(
    ("path", "body", "content_type", "status"),
    [
        ("/loki/api/v1/push", loki_json("x"), "application/json", 204),
        (
            "/services/collector/event",
            b'{"event":"x","index":"elsewhere"}',
            "application/json",
            200,
        ),
        ("/services/collector/raw", b"x", "text/plain", 200),
        ("/topics/elsewhere", b'{"records":[{"value":"x"}]}', "application/json", 200),
    ],
)
async def test_an_inlet_names_the_topic_of_what_is_pushed_to_it(
    seb, path, body, content_type, status
):
    name = f"push{path.count('/')}{path[1]}{path[-1]}"
    await inlet(seb, name)
    answer = await push_to_inlet(seb, name, path, body, content_type)
    assert answer.status_code == status, answer.text
    assert [one["value"] for one in await records(seb, f"of-{name}")] == ["x"]
    assert (await seb.client.get("/v1/topics/elsewhere/records")).status_code == 404


async def test_a_secret_in_the_path_goes_before_the_path_of_a_protocol(seb):
    settings = {"topic": "of-hidden", "verify": {"scheme": "path"}, "secrets": ["p" * 20]}
    assert (await seb.client.put("/v1/inlets/hidden", json=settings)).status_code == 201
    path = f"/{'p' * 20}/services/collector/raw"
    assert (await push_to_inlet(seb, "hidden", path, b"x", "text/plain")).status_code == 200
    assert [one["value"] for one in await records(seb, "of-hidden")] == ["x"]
