"""Durable Streams over HTTP: what the protocol's own suite does not ask."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from seb_appliance import limits, setting_sources
from seb_appliance.errors import ConfigurationError
from seb_appliance.protocols.durable_streams import limits as stream_limits
from tests.support.appliance import running_appliance
from tests.support.lanes import Lane, masked

pytestmark = pytest.mark.asyncio(loop_scope="module")
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}


async def test_a_stream_is_a_topic_and_its_values_are_records(seb):
    made = await seb.client.put("/v1/stream/chat", headers=JSON, content=b'[{"a": 1}, [2]]')
    assert made.status_code == 201
    assert made.headers["location"] == f"{seb.base_url}/v1/stream/chat"
    records = await seb.client.get("/v1/topics/chat/records?values=json")
    assert [record["value"] for record in records.json()["records"]] == [{"a": 1}, [2]]


async def test_a_topic_becomes_a_stream_where_somebody_asks_for_one(seb):
    await seb.client.post("/v1/topics/older/records", content=b"no json")
    await seb.client.post("/v1/topics/older/records", content=b"\xff")
    plain = await seb.client.get("/v1/stream/older")
    assert (plain.headers["content-type"], plain.content) == (
        "application/octet-stream",
        b"no json\xff",
    )
    assert (await seb.client.put("/v1/stream/older", headers=JSON)).status_code == 201
    assert (await seb.client.put("/v1/stream/older", headers=TEXT)).status_code == 409
    shown = await seb.client.get("/v1/stream/older")
    assert shown.json() == ["no json", {"value_base64": "/w=="}]


async def test_an_answer_is_of_one_stream_though_it_is_made_anew_meanwhile(seb, monkeypatch):
    await seb.client.put("/v1/stream/anew", headers=TEXT, content=b"old")
    broker, read = seb.appliance.broker, seb.appliance.broker.read

    async def read_and_made_anew(topic, request):
        found = await read(topic, request)
        assert (await seb.client.delete("/v1/stream/anew")).status_code == 204
        assert (await seb.client.put("/v1/stream/anew", headers=JSON)).status_code == 201
        return found

    monkeypatch.setattr(broker, "read", read_and_made_anew)
    assert (await seb.client.get("/v1/stream/anew?offset=-1")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/stream/a/b:1", "/v1/stream/none"])
async def test_the_hint_of_a_missing_stream_makes_it(seb, path):
    for method, body in (("GET", b""), ("POST", b"x"), ("DELETE", b"")):
        answer = await seb.client.request(method, path, headers=TEXT, content=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "topic_not_found")
    method, named = re.search(r"Create it with ([A-Z]+) (\S+)\.$", answer.json()["detail"]).groups()
    assert (await seb.client.request(method, named, headers=TEXT)).status_code == 201
    assert (await seb.client.post(path, headers=TEXT, content=b"x")).status_code == 204


async def test_the_end_of_a_stream_with_a_checksum_is_known_again(seb):
    await seb.client.put("/v1/stream/checked", headers=TEXT)
    numbers = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
    end = {**numbers, "producer-checksum": "7", "stream-closed": "true"}
    for _ in range(2):
        answer = await seb.client.post("/v1/stream/checked", headers=end)
        assert answer.status_code == 204


async def test_what_a_producer_stored_before_the_end_is_known_at_each_door(seb):
    """A request whose answer was lost is sent again, though somebody closed the stream."""
    await seb.client.put("/v1/stream/known", headers=TEXT)
    seqs = [{"producer-id": "p", "producer-epoch": "0", "producer-seq": str(i)} for i in range(2)]
    first = await seb.client.post("/v1/topics/known/records", headers=seqs[0], content=b"a")
    await seb.client.post("/v1/stream/known", headers={"stream-closed": "true"})
    again = await seb.client.post("/v1/topics/known/records", headers=seqs[0], content=b"a")
    assert (again.status_code, again.content) == (200, first.content)
    more = await seb.client.post("/v1/topics/known/records", headers=seqs[1], content=b"b")
    assert (more.status_code, more.json()["code"]) == (409, "stream_closed")


async def test_nobody_appends_to_a_closed_stream(seb):
    await seb.client.put("/v1/stream/over", headers=TEXT)
    end = await seb.client.post(
        "/v1/stream/over", headers={**TEXT, "stream-closed": "true"}, content=b"end"
    )
    assert (end.status_code, end.headers["stream-closed"]) == (204, "true")
    answer = await seb.client.post("/v1/topics/over/records", content=b"more")
    assert (answer.status_code, answer.json()["code"]) == (409, "stream_closed")
    several = {"produce": [{"topic": "over", "records": [{"value": "x"}]}]}
    assert (await seb.client.post("/v1/transactions", json=several)).status_code in (400, 409)
    assert (await seb.client.get("/v1/stream/over")).text == "end"


async def test_the_last_records_and_the_end_are_one_entry(seb):
    await seb.client.put("/v1/stream/whole", headers=TEXT)
    counters = seb.appliance.broker.counters
    before = counters.entries
    await seb.client.post(
        "/v1/stream/whole",
        headers={**TEXT, "stream-closed": "true", "stream-seq": "1"},
        content=b"end",
    )
    assert counters.entries == before + 1


async def test_a_page_that_was_stored_has_no_origin_where_it_is_shown(seb):
    page = {"content-type": "text/html"}
    await seb.client.put("/v1/stream/page", headers=page, content=b"<form action=/ui/users>")
    for method, query in (("GET", ""), ("GET", "?offset=-1"), ("GET", "?offset=now"), ("HEAD", "")):
        answer = await seb.client.request(method, f"/v1/stream/page{query}")
        assert answer.headers["content-type"] == "text/html"
        policy = set(answer.headers["content-security-policy"].split("; "))
        assert {"sandbox", "default-src 'none'", "form-action 'none'"} <= policy
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_bytes_larger_than_a_record_are_read_as_they_came(seb):
    body = bytes(range(256)) * 10_000
    await seb.client.put("/v1/stream/large", content=body)
    read, offset = b"", "-1"
    while len(read) < len(body):
        answer = await seb.client.get("/v1/stream/large", params={"offset": offset})
        read, offset = read + answer.content, answer.headers["stream-next-offset"]
    assert read == body
    assert answer.headers["stream-up-to-date"] == "true"


@pytest.mark.parametrize(
    "path", ["a%2fb", "a/%2e%2e/b", "p%D0%B0ypal", "a" * 4096, "a//b", "a/", "%00"]
)
async def test_a_path_that_is_none_changes_nothing(seb, path: str):
    topics = len(seb.appliance.broker.topics.all())
    url = httpx2.URL(f"{seb.base_url}/").copy_with(raw_path=f"/v1/stream/{path}".encode())
    for method in ("PUT", "POST", "GET", "DELETE"):
        answer = await seb.client.request(method, url, headers=TEXT, content=b"x")
        assert answer.status_code in (400, 404), (method, answer.text)
    assert len(seb.appliance.broker.topics.all()) == topics


async def test_a_live_reader_gets_the_spaces_that_lines_begin_with(seb):
    text = " one\n  two\nthree\n"
    closed = {**TEXT, "stream-closed": "true"}
    await seb.client.put("/v1/stream/spaces", headers=closed, content=text.encode())
    told = (await seb.client.get("/v1/stream/spaces?live=sse&offset=-1")).text
    data = told.partition("\n\n")[0].removeprefix("event: data\n").split("\n")
    assert [line.removeprefix("data:").removeprefix(" ") for line in data] == text.split("\n")


@pytest.mark.parametrize(
    "headers",
    [
        {"stream-ttl": "1", "stream-expires-at": "2099-01-01T00:00:00Z"},
        {"stream-ttl": "99999999999999999"},
        {"stream-expires-at": "tomorrow"},
        {"stream-expires-at": "9999-12-31T23:59:59-01:00"},
        {"stream-fork-offset": "0000000000000000_0000000000000000"},
        {"stream-forked-from": "nowhere"},
        {"stream-forked-from": "/v1/stream/../x"},
        {"content-type": "no type"},
        {"content-type": f"text/{'x' * stream_limits.CONTENT_TYPE_CHARACTERS_MAX}"},
    ],
)
async def test_a_header_that_means_nothing_is_refused(seb, headers: dict[str, str]):
    answer = await seb.client.put("/v1/stream/never", headers=headers)
    assert answer.status_code == 400, answer.text
    assert (await seb.client.get("/v1/stream/never")).status_code == 404


async def test_a_stream_seq_that_is_too_long_is_refused_and_one_that_is_not_is_taken(seb):
    await seb.client.put("/v1/stream/in-order", headers=TEXT)
    longest = "x" * stream_limits.SEQ_CHARACTERS_MAX
    for seq, status in ((longest + "x", 400), (longest, 204)):
        headers = {**TEXT, "stream-seq": seq}
        answer = await seb.client.post("/v1/stream/in-order", headers=headers, content=b"x")
        assert answer.status_code == status, answer.text


async def test_a_key_does_what_its_grants_say(seb):
    await seb.client.put("/v1/stream/mine/one", headers=TEXT, content=b"x")
    grants = [{"operation": "consume", "topics": "mine.**"}]
    made = await seb.client.post("/v1/api-keys", json={"name": "reader", "grants": grants})
    async with seb.client_with(made.json()["secret"]) as reader:
        assert (await reader.get("/v1/stream/mine/one")).text == "x"
        for method in ("PUT", "POST", "DELETE"):
            answer = await reader.request(method, "/v1/stream/mine/one", headers=TEXT, content=b"y")
            assert answer.status_code == 403
        assert (await reader.get("/v1/stream/other")).status_code == 403
    async with seb.client_with(None) as nobody:
        answer = await nobody.get("/v1/stream/mine/one")
        assert answer.status_code == 401
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


async def test_both_lanes_append_alike(seb):
    """Byte for byte, but for what differs from one time to the next, and the offset."""
    await seb.client.put("/v1/stream/lanes", headers=JSON)
    head = f"POST /v1/stream/lanes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {seb.admin_key}\r\n"
    json = "Content-Type: application/json\r\n"
    chunked = f"{head}{json}Transfer-Encoding: chunked\r\n\r\n8\r\n".encode()
    requests = [chunked + b'{"n": 1}\r\n0\r\n\r\n']
    for body in (b'{"n": 1}', b"[1, 2]", b"no json"):
        sized = f"{head}{json}Content-Length: {len(body)}\r\n\r\n"
        requests.append(sized.encode() + body)
    said = []
    for request in requests:
        lane, before = Lane(seb), seb.server.plain_answers.answered
        answer = await lane.answers(request)
        said.append((seb.server.plain_answers.answered - before, masked(answer)))
        lane.leave()
    assert [taken for taken, _ in said] == [0, 1, 1, 0]
    offset = re.compile(rb"(?<=stream-next-offset: )[0-9_]+")
    assert offset.sub(b"*", said[0][1]) == offset.sub(b"*", said[1][1])
    assert said[0][1].startswith(b"HTTP/1.1 204 ")
    assert said[3][1].startswith(b"HTTP/1.1 400 ")
    assert (await seb.client.get("/v1/stream/lanes")).json() == [{"n": 1}, {"n": 1}, 1, 2]


@pytest.mark.asyncio(loop_scope="function")
async def test_a_value_that_takes_long_to_parse_is_parsed_apart_from_the_event_loop(tmp_path: Path):
    large, none = b'["%b"]' % (b"x" * limits.MIB), b'["' * limits.MIB
    async with running_appliance(tmp_path, max_record_bytes="4MiB") as seb:
        await seb.client.put("/v1/stream/far", headers=JSON)
        for value in (large, none):
            sent = await seb.client.post("/v1/topics/far/records", content=value, headers=TEXT)
            assert sent.status_code == 201
        parsed = seb.appliance.parser.parsed
        first = await seb.client.get("/v1/stream/far")
        assert first.content == b"[%b]" % large
        place = first.headers["stream-next-offset"]
        assert (await seb.client.get(f"/v1/stream/far?offset={place}")).json() == [none.decode()]
        await seb.client.post("/v1/stream/far", headers={**JSON, "stream-closed": "true"})
        live = await seb.client.get("/v1/stream/far?offset=-1&live=sse")
        lines = [line for line in live.content.split(b"\n") if line.startswith(b"data:[")]
        assert [json.loads(line[5:]) for line in lines] == [[json.loads(large)], [none.decode()]]
        assert seb.appliance.parser.parsed == parsed + 4


@pytest.fixture
async def open_door(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        running_appliance(tmp_path, durable_streams_open=True) as seb,
        seb.client_with(None) as anybody,
    ):
        yield anybody


@pytest.mark.asyncio(loop_scope="function")
async def test_an_open_door_is_for_programs_of_this_machine(open_door):
    assert (await open_door.put("/v1/stream/a", headers=TEXT, content=b"x")).status_code == 201
    assert (await open_door.get("/v1/topics")).status_code == 401
    for foreign in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        answer = await open_door.get("/v1/stream/a", headers=foreign)
        assert answer.status_code == 401, foreign
    same = {"origin": f"http://127.0.0.1:{open_door.base_url.port}"}
    assert (await open_door.get("/v1/stream/a", headers=same)).text == "x"


@pytest.mark.asyncio(loop_scope="function")
async def test_an_open_door_is_not_for_what_a_page_of_another_origin_embeds(open_door):
    await open_door.put("/v1/stream/a", headers=TEXT, content=b"x")
    for site, status in (("cross-site", 401), ("same-site", 401), ("same-origin", 200)):
        answer = await open_door.get("/v1/stream/a", headers={"sec-fetch-site": site})
        assert answer.status_code == status, site


@pytest.mark.asyncio(loop_scope="function")
async def test_an_open_door_is_not_for_those_behind_a_proxy(open_door):
    for name in ("forwarded", "x-forwarded-for", "x-real-ip"):
        answer = await open_door.put("/v1/stream/a", headers={**TEXT, name: "192.0.2.1"})
        assert answer.status_code == 401, name


@pytest.mark.asyncio(loop_scope="function")
@pytest.mark.parametrize(("origins", "status"), [("https://page.example", 200), ("*", 401)])
async def test_an_open_door_is_for_origins_that_are_named(tmp_path: Path, origins, status):
    flags = {"durable_streams_open": True, "cors_origins": origins}
    async with running_appliance(tmp_path, **flags) as seb, seb.client_with(None) as anybody:
        await seb.client.put("/v1/stream/a", headers=TEXT, content=b"x")
        page = {"origin": "https://page.example", "sec-fetch-site": "cross-site"}
        assert (await anybody.get("/v1/stream/a", headers=page)).status_code == status
        assert (await seb.client.get("/v1/stream/a", headers=page)).text == "x"


@pytest.mark.asyncio(loop_scope="function")
async def test_the_door_opens_on_loopback_only(tmp_path: Path):
    for host in ("0.0.0.0", "::", "192.0.2.1", "appliance.example"):
        with pytest.raises(ConfigurationError, match="loopback"):
            setting_sources.load(flags={"durable_streams_open": True, "host": host}, environment={})
    for host in ("127.0.0.1", "::1", "localhost"):
        setting_sources.load(flags={"durable_streams_open": True, "host": host}, environment={})
