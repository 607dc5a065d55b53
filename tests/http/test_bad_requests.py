"""Bad names, paths, parameters and settings on every route: the documented code, nothing stored."""

from __future__ import annotations

import pytest
import pytest_asyncio

from seb_appliance import limits
from tests.http.bad_input import JSON, RECORDS, nothing_happens, refused
from tests.support.raw_http import exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _nothing_happens(seb):
    async with nothing_happens(seb):
        yield


# --- names and paths ---

BAD_NAMES = [
    b"..",
    b".",
    b"a..b",
    b".hidden",
    b"a.",
    b"",
    b"a" * 129,
    b"%2e%2e%2f",
    b"..%5c",
    b"%00",
    b"a%00b",
    b"%0d%0aSet-Cookie:x",
    b"%ff%fe",
    b"%61",
    b"caf%C3%A9",
    b"cafe%CC%81",
    b"%F0%9F%98%80",
    b"%D0%B0",
    b"$(id)",
    b";drop%20table",
    b"a%20",
    b"a%2Fb",
    b"a+b",
    b"a:b",
    b"__sys*em",
    b"a" * 8000,
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name[:20]))
@pytest.mark.parametrize("rest", [b"", b"/records", b"/records/0"])
async def test_what_is_no_name_is_refused_on_every_route(seb, name, rest):
    for method in (b"GET", b"PUT", b"POST", b"PATCH", b"DELETE"):
        head = b"%s /v1/topics/%s%s HTTP/1.1\r\nHost: x\r\n" % (method, name, rest)
        key = b"Authorization: Bearer " + seb.admin_key.encode()
        answer = await exchange(seb.port, head + key + b"\r\nContent-Length: 0\r\n\r\n")
        assert (answer.status, answer.code) == (400, "bad_name"), (method, answer)
        assert answer.headers.get("set-cookie") is None


@pytest.mark.parametrize("name", ["CON", "-rf", "__system", "snap", "claims", "a" * 128, "0", "-1"])
async def test_names_that_look_dangerous_elsewhere_are_names(seb, name):
    assert (await seb.client.get(f"/v1/topics/{name}")).status_code == 404
    await refused(seb, "GET", f"/v1/topics/{name}", 404, "topic_not_found")


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/topics/a/b",
        b"/v1/topics/target/records/",
        b"/v1/topics/target/",
        b"/v1//topics",
        b"/v1/topics/../../etc/passwd/x",
        b"/schema/assets/..%2f..%2fapp.py",
        b"/schema/assets/../../app.py",
        b"/v1/api-keys/%00",
        b"/v1/api-keys/a%2fb",
        b"/%76%31/topics",
        b"*",
    ],
)
async def test_paths_that_no_route_has_are_not_found(seb, path):
    head = b"GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " % path
    answer = await exchange(seb.port, head + seb.admin_key.encode() + b"\r\n\r\n")
    expected = (400, "bad_name") if b"/.." in path and b"topics" in path else (404, "not_found")
    if path.startswith(b"/v1/api-keys/"):
        expected = (404, "api_key_not_found")
    assert (answer.status, answer.code) == expected


# --- consume ---


@pytest.mark.parametrize(
    "query",
    [
        "x=1",
        "offset=",
        "offset=abc",
        "offset=1.0",
        "offset=-0",
        "offset=--1",
        "offset=%2B1",
        "offset=0x10",
        "offset=9007199254740992",
        "offset=9223372036854775808",
        "offset=18446744073709551616",
        "offset=" + "9" * 400,
        "offset=-9007199254740992",
        "offset=%D9%A1",
        "offset=@",
        "offset=@yesterday",
        "offset=@2026-01-01T00:00:00",
        "offset=@2026-01-01T00:00:00+01:00",
        "offset=@0000-01-01T00:00:00Z",
        "offset=@292277026596-01-01T00:00:00Z",
        "offset=Latest",
        "offset=1&offset=2",
        "until=-1",
        "until=latest",
        "until=@x",
        "until=9007199254740992",
        "max_records=0",
        "max_records=-1",
        "max_records=1000000000",
        "max_records=1e3",
        "max_records=",
        "max_bytes=0",
        "max_bytes=-1",
        "max_bytes=17MiB",
        "max_bytes=1XB",
        "max_bytes=1.5MiB",
        "wait=30",
        "wait=-1s",
        "wait=61s",
        "wait=1000000000s",
        "wait=forever",
        "values=xml",
        "format=avro",
        "format=parquet",
        "format=JSON",
        "format=batch&values=json",
        "key_base64=a",
        "view=oldest",
        "%ff=1",
        "offset=%ff",
        "offset",
        "=",
        "&".join(f"a{i}=1" for i in range(100)),
    ],
    ids=lambda query: query[:40],
)
async def test_bad_query_parameters_are_refused(seb, query):
    await refused(seb, "GET", f"{RECORDS}?{query}", 400, "bad_parameter")


async def test_unknown_query_parameters_are_refused_on_every_route(seb):
    for method, path in (
        ("POST", RECORDS),
        ("GET", f"{RECORDS}/0"),
        ("GET", "/v1/topics"),
        ("GET", "/v1/topics/target"),
        ("PUT", "/v1/topics/target"),
        ("PATCH", "/v1/topics/target"),
        ("DELETE", "/v1/topics/target"),
        ("GET", "/v1/api-keys"),
        ("POST", "/v1/api-keys"),
        ("GET", "/v1/api-keys/x"),
        ("DELETE", "/v1/api-keys/x"),
    ):
        await refused(seb, method, f"{path}?nonsense=1", 400, "bad_parameter")


async def test_offsets_out_of_range(seb):
    problem = await refused(seb, "GET", f"{RECORDS}?offset=1", 416, "offset_out_of_range")
    assert problem["log_end_offset"] == 0
    await refused(seb, "GET", f"{RECORDS}?offset=9007199254740991", 416, "offset_out_of_range")


@pytest.mark.parametrize("offset", ["abc", "latest", "earliest", "1.0", "-0", "9" * 400])
async def test_a_record_is_named_by_its_offset_only(seb, offset):
    await refused(seb, "GET", f"{RECORDS}/{offset}", 400, "bad_parameter")


@pytest.mark.parametrize(
    "accept", ["text/html", "image/*", "text/event-stream;q=0", "x", "*/*;q=0"]
)
async def test_nothing_acceptable_is_said(seb, accept):
    for path in (RECORDS, f"{RECORDS}/0"):
        problem = await refused(seb, "GET", path, 406, "not_acceptable", headers={"accept": accept})
        assert "application/json" in problem["supported"]


async def test_a_missing_topic_is_not_found_on_every_route(seb):
    for method, path in (
        ("GET", "/v1/topics/nobody"),
        ("DELETE", "/v1/topics/nobody"),
        ("GET", "/v1/topics/nobody/records"),
        ("GET", "/v1/topics/nobody/records?wait=20s"),
        ("GET", "/v1/topics/nobody/records/0"),
    ):
        await refused(seb, method, path, 404, "topic_not_found")
    await refused(seb, "PATCH", "/v1/topics/nobody", 404, "topic_not_found", json={"linger_ms": 1})


# --- topics and API keys ---

BAD_SETTINGS = [
    (b"[]", "bad_json"),
    (b"null", "bad_json"),
    (b'{"linger_ms":"5"}', "bad_json"),
    (b'{"linger_ms":1.0}', "bad_json"),
    (b'{"linger_ms":true}', "bad_json"),
    (b'{"early_flush":1}', "bad_json"),
    (b'{"no_such_setting":1}', "bad_json"),
    (b'{"compression":"gzip"}', "bad_json"),
    (b'{"compression":true}', "bad_json"),
    (b'{"cleanup":"compact, delete"}', "bad_json"),
    (b'{"cleanup":["compact"]}', "bad_json"),
    (b'{"dirty_ratio":"0.5"}', "bad_json"),
    (b'{"linger_ms":5', "bad_json"),
    (b"\xff", "bad_json"),
    (b"[" * 100_000, "bad_json"),
    (b'{"linger_ms":60001}', "bad_request"),
    (b'{"max_record_bytes":0}', "bad_request"),
    (b'{"max_record_bytes":16777217}', "bad_request"),
]


@pytest.mark.parametrize(("body", "code"), BAD_SETTINGS, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_bad_topic_settings_are_refused(seb, method, body, code):
    topic = "/v1/topics/target" if method == "PATCH" else "/v1/topics/new"
    problem = await refused(seb, method, topic, 400, code, content=body, headers=JSON)
    assert problem["detail"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_negative_settings_are_refused(seb, method):
    topic = "/v1/topics/target" if method == "PATCH" else "/v1/topics/new"
    answer = await seb.client.request(method, topic, json={"linger_ms": -1})
    assert answer.status_code == 400
    assert answer.json()["code"] in ("bad_json", "bad_request")


async def test_settings_must_be_json_and_small(seb):
    await refused(
        seb, "PUT", "/v1/topics/new", 415, "unsupported_media_type",
        content=b"{}", headers={"content-type": "text/plain"},
    )  # fmt: skip
    await refused(
        seb, "PUT", "/v1/topics/new", 413, "request_too_large",
        content=b" " * (limits.MANAGE_BYTES_MAX + 1), headers=JSON,
    )  # fmt: skip
    await refused(seb, "PUT", "/v1/topics/new", 400, "bad_parameter", headers={"if-match": '"1"'})


@pytest.mark.parametrize(
    "pattern", ["", "a..b", "#", "a*", "*a", "***", "a/b", "a" * 129, "a/../b"]
)
async def test_bad_patterns_are_refused(seb, pattern):
    answer = await seb.client.get("/v1/topics", params={"pattern": pattern})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")
    grants = [{"operation": "produce", "topics": pattern}]
    await refused(
        seb, "POST", "/v1/api-keys", 400, "bad_parameter", json={"name": "n", "grants": grants}
    )


GRANT = {"operation": "produce"}
BAD_KEYS = [
    ({}, "bad_json"),
    ({"name": "n"}, "bad_json"),
    ({"name": "", "grants": [GRANT]}, "bad_json"),
    ({"name": "n" * 201, "grants": [GRANT]}, "bad_json"),
    ({"name": 5, "grants": [GRANT]}, "bad_json"),
    ({"name": "n", "grants": []}, "bad_json"),
    ({"name": "n", "grants": [GRANT] * 101}, "bad_json"),
    ({"name": "n", "grants": [{"operation": "everything"}]}, "bad_json"),
    ({"name": "n", "grants": [{"operation": "produce", "group": "x"}]}, "bad_json"),
    ({"name": "n", "grants": [GRANT], "quota": 1}, "bad_json"),
    ({"name": "n", "grants": [GRANT], "expires": "soon"}, "bad_json"),
    ({"name": "n", "grants": [GRANT], "expires": 7}, "bad_json"),
    ({"name": "n", "grants": [GRANT], "expires": "2020-01-01T00:00:00Z"}, "bad_request"),
]


@pytest.mark.parametrize(("asked", "code"), BAD_KEYS, ids=lambda value: str(value)[:40])
async def test_bad_api_keys_are_refused(seb, asked, code):
    await refused(seb, "POST", "/v1/api-keys", 400, code, json=asked)


@pytest.mark.parametrize("api_key_id", ["x", "a" * 1000, "aaaaaaaa"])
async def test_unknown_api_keys_are_not_found(seb, api_key_id):
    await refused(seb, "GET", f"/v1/api-keys/{api_key_id}", 404, "api_key_not_found")
    await refused(seb, "DELETE", f"/v1/api-keys/{api_key_id}", 404, "api_key_not_found")
