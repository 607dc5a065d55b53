"""NDJSON and CSV hold all records of a range, whole or visibly cut."""

from __future__ import annotations

import asyncio
import base64
import csv
import io
import json

import httpx2
import pytest
import pytest_asyncio

from seb_appliance.api.encoding.record_encoding import HEADER_ROW
from seb_appliance.api.routes.records import consume
from seb_appliance.api.routes.records import ranges as range_answers
from seb_appliance.broker.shares import OPERATOR

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORMATS = ("ndjson", "csv")
SOME = 2_500  # more than the 1,000 records of a page


@pytest_asyncio.fixture(loop_scope="module")
async def topic(seb, request):
    name = request.node.name.partition("[")[0]
    await seb.client.put(f"/v1/topics/{name}", json={"key_index": "latest"})
    yield name
    await seb.client.delete(f"/v1/topics/{name}")


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(
        range_answers, "PART", range_answers.replace(range_answers.PART, max_records=7)
    )


@pytest.fixture
def midway(monkeypatch):
    """Takes what is to happen in the middle of the next answer."""
    begin = range_answers.begin
    happens = []

    async def begin_and_interfere(*arguments):
        first, end, follow = await begin(*arguments)

        async def interfered(before):
            if before.next_offset == 21:
                await happens.pop()()
            return await follow(before)

        return first, end, interfered

    monkeypatch.setattr(consume, "begin", begin_and_interfere)
    return happens.append


async def produce(seb, topic, *records):
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json={"records": list(records)})
    assert answer.status_code == 201, answer.text


async def fill(seb, topic, count=SOME):
    await produce(seb, topic, *({"value": str(n), "key": f"k{n % 3}"} for n in range(count)))


async def read(seb, topic, query):
    answer = await seb.client.get(f"/v1/topics/{topic}/records?{query}")
    assert answer.status_code == 200, answer.text
    return answer, rows(answer)


def rows(answer):
    if answer.headers["content-type"].startswith("text/csv"):
        return list(csv.DictReader(io.StringIO(answer.text, newline="")))
    return [json.loads(line) for line in answer.text.splitlines()]


def offsets(found):
    return [int(row["offset"]) for row in found]


@pytest.mark.parametrize("rows_as", FORMATS)
async def test_all_records_up_to_the_log_end_come(seb, topic, rows_as):
    await fill(seb, topic)
    answer, found = await read(seb, topic, f"format={rows_as}")
    assert offsets(found) == list(range(SOME))
    assert [row["value"] for row in found] == [str(n) for n in range(SOME)]
    assert answer.headers["seb-next-offset"] == answer.headers["seb-log-end-offset"] == str(SOME)
    assert seb.appliance.broker.reading.used == 0


@pytest.mark.parametrize("rows_as", FORMATS)
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("offset=2000", range(2_000, SOME)),
        ("offset=-1200", range(SOME - 1_200, SOME)),
        ("until=1500", range(1_500)),
        ("offset=latest", range(0)),
        ("max_records=3", range(3)),
        ("max_bytes=1B", range(1)),
        ("key=k1", range(1, SOME, 3)),
        ("view=latest", range(SOME - 3, SOME)),
    ],
)
async def test_the_range_is_the_one_that_is_asked_for(
    seb, topic, small_parts, rows_as, query, wanted
):
    await fill(seb, topic)
    await seb.client.get(f"/v1/topics/{topic}/keys?fresh=true")
    assert offsets((await read(seb, topic, f"format={rows_as}&{query}"))[1]) == list(wanted)


@pytest.mark.parametrize("rows_as", FORMATS)
async def test_a_group_gets_a_page(seb, topic, rows_as):
    await fill(seb, topic)
    answer = await seb.client.get(f"/v1/groups/g/topics/{topic}/records?format={rows_as}")
    assert offsets(rows(answer)) == list(range(1_000))
    assert answer.headers["seb-next-offset"] == "1000"


async def test_what_comes_behind_the_log_end_of_the_start_is_left_out(
    seb, topic, small_parts, midway
):
    await fill(seb, topic, 100)
    midway(lambda: fill(seb, topic, 50))
    assert len((await read(seb, topic, "format=ndjson"))[1]) == 100


async def test_a_reader_at_the_log_end_may_wait_for_the_first_record(seb, topic):
    waiting = asyncio.create_task(read(seb, topic, "format=csv&offset=latest&wait=30s"))
    while not seb.appliance.broker.waiting_readers:
        await asyncio.sleep(0)
    await fill(seb, topic, 5)
    assert offsets((await waiting)[1]) == list(range(5))


async def delete(seb, topic):
    await seb.client.delete(f"/v1/topics/{topic}")


async def make_anew(seb, topic):
    await delete(seb, topic)
    await seb.client.put(f"/v1/topics/{topic}")
    await fill(seb, topic, 200)


async def trim(seb, topic):
    body = {"before_offset": 90}
    answer = await seb.client.post(f"/v1/topics/{topic}/trim", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("rows_as", FORMATS)
@pytest.mark.parametrize("happens", [delete, make_anew, trim])
async def test_an_answer_whose_records_vanish_on_the_way_is_cut(
    seb, topic, small_parts, midway, rows_as, happens
):
    await fill(seb, topic, 100)
    midway(lambda: happens(seb, topic))
    with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):
        await read(seb, topic, f"format={rows_as}")
    assert seb.appliance.broker.reading.used == 0


async def test_csv_says_what_json_says(seb, topic):
    value = 'a "quoted", value\r\nof two lines: ä'
    binary = base64.b64encode(b"\xff\x00").decode()
    await produce(
        seb,
        topic,
        {"value": value, "key": "a,b", "headers": {"h": 'x"y'}},
        {"value": "", "key": ""},
        {"value": None, "key": "gone"},
        {"value_base64": binary, "key_base64": binary, "headers_base64": {"b": binary}},
    )
    answer, found = await read(seb, topic, "format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    _, said = await read(seb, topic, "format=ndjson")
    for row, record in zip(found, said, strict=True):
        for name in ("key", "value", "key_base64", "value_base64", "timestamp"):
            assert row[name] == (record.get(name) or "")
        assert json.loads(row["headers"]) == record["headers"]
        assert json.loads(row["headers_base64"] or "{}") == record.get("headers_base64", {})
    lines = answer.content.split(b"\r\n")
    assert lines[0] + b"\r\n" == HEADER_ROW
    assert lines[3].split(b",")[2:5] == [b'""', b'""', b"{}"]  # empty
    assert lines[4].split(b",")[2:5] == [b'"gone"', b"", b"{}"]  # null


@pytest.mark.parametrize("shape", ["json", "base64"])
async def test_csv_takes_the_shapes_of_values(seb, topic, shape):
    await produce(seb, topic, {"value": {"a": [1, 2]}}, {"value": "no json"})
    _, (first, second) = await read(seb, topic, f"format=csv&values={shape}")
    if shape == "json":
        assert (first["value"], first["value_base64"]) == ('{"a":[1,2]}', "")
        assert (second["value"], second["value_base64"]) == (
            "",
            base64.b64encode(b"no json").decode(),
        )
    else:
        assert base64.b64decode(first["value_base64"]) == b'{"a":[1,2]}'


async def test_accept_asks_for_csv(seb, topic):
    answer = await seb.client.get(f"/v1/topics/{topic}/records", headers={"accept": "text/csv"})
    assert answer.content == HEADER_ROW
    head = await seb.client.head(f"/v1/topics/{topic}/records?format=csv")
    assert (head.status_code, head.content) == (200, b"")


async def test_an_answer_that_there_is_no_room_for_is_refused_at_once(seb, topic):
    await fill(seb, topic, 10)
    budget = seb.appliance.broker.reading
    with budget.reserve(OPERATOR, budget.limit):
        answer = await seb.client.get(f"/v1/topics/{topic}/records?format=csv")
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")


async def test_an_answer_under_way_waits_for_room(seb, topic, small_parts, midway, monkeypatch):
    await fill(seb, topic, 100)
    budget = seb.appliance.broker.reading
    try_take, refusals = budget.try_take, 0

    async def take_all():
        taken = budget.reserve(OPERATOR, budget.limit - budget.used)

        def released_after_a_refusal(owner, amount):
            nonlocal refusals
            is_taken = try_take(owner, amount)
            if not is_taken:
                refusals += 1
                taken.release()
            return is_taken

        monkeypatch.setattr(budget, "try_take", released_after_a_refusal)

    midway(take_all)
    assert len((await read(seb, topic, "format=ndjson"))[1]) == 100
    assert refusals == 1


async def test_the_quota_of_bytes_is_held_while_an_answer_goes_on(seb, topic):
    await fill(seb, topic, 600)
    new = {"name": "slow", "grants": [{"operation": "consume", "topics": "**"}]}
    made = await seb.client.post(
        "/v1/api-keys", json=new | {"quotas": {"bytes_out_per_second": 20_000}}
    )
    loop = asyncio.get_running_loop()
    async with seb.client_with(made.json()["secret"]) as client:
        began_s = loop.time()
        answer = await client.get(f"/v1/topics/{topic}/records?format=ndjson")
        took_s = loop.time() - began_s
    size_bytes = len(answer.content)
    assert len(rows(answer)) == 600
    assert 40_000 < size_bytes < 60_000 + 20_000 * took_s
    assert took_s > size_bytes / 20_000 - 3


async def test_a_key_that_is_revoked_gets_no_further(seb, topic, small_parts, monkeypatch):
    await fill(seb, topic, 100)
    new = {"name": "short", "grants": [{"operation": "consume", "topics": "**"}]}
    made = (await seb.client.post("/v1/api-keys", json=new)).json()
    part = range_answers.RangeAnswer._send_result

    async def revoke_and_send(*arguments):
        await seb.client.delete(f"/v1/api-keys/{made['api_key_id']}")
        await part(*arguments)

    monkeypatch.setattr(range_answers.RangeAnswer, "_send_result", revoke_and_send)
    async with seb.client_with(made["secret"]) as client:
        with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):
            await client.get(f"/v1/topics/{topic}/records?format=ndjson")
