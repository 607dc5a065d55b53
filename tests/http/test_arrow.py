"""A topic as an Arrow stream, and each command of docs/ARROW.md."""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from seb_appliance.api.routes.records import ranges as range_answers
from seb_appliance.protocols import arrow as records_arrow

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.asyncio(loop_scope="module")

ARROW = "application/vnd.apache.arrow.stream"
TIME = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
DOCS = (Path(__file__).parents[2] / "docs" / "ARROW.md").read_text(encoding="utf-8")


@pytest_asyncio.fixture(loop_scope="module")
async def topic(seb, request):
    """Two records in one batch, one in another."""
    name = request.node.name.partition("[")[0]
    await seb.client.put(f"/v1/topics/{name}")
    await produce(
        seb,
        name,
        {"value": {"total": 1}, "key": "a", "headers": {"h": "1"}, "timestamp": TIME.isoformat()},
        {"value": None, "key": "b"},
    )
    await produce(seb, name, {"value": {"total": 3}})
    yield name
    await seb.client.delete(f"/v1/topics/{name}")


async def produce(seb, topic, *records):
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json={"records": list(records)})
    assert answer.status_code == 201, answer.text


async def read(seb, topic, query=""):
    answer = await seb.client.get(f"/v1/topics/{topic}/records?{query}", headers={"accept": ARROW})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    return answer, pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()


async def test_a_topic_comes_with_the_columns_that_spark_has(seb, topic):
    answer, table = await read(seb, topic)
    assert [f"{field.name} {field.type}" for field in table.schema] == [
        "key binary",
        "value binary",
        "headers map<string, binary>",
        "topic string",
        "offset int64",
        "timestamp timestamp[us, tz=UTC]",
    ]
    first, second, third = table.to_pylist()
    assert (first["key"], first["value"], first["headers"]) == (b"a", b'{"total":1}', [("h", b"1")])
    assert (first["topic"], first["offset"], first["timestamp"]) == (topic, 0, TIME)
    assert (second["value"], second["headers"], third["key"]) == (None, [], None)
    assert (answer.headers["seb-next-offset"], answer.headers["seb-log-end-offset"]) == ("3", "3")


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("offset=1", [1, 2]),
        ("until=2", [0, 1]),
        ("offset=1&until=2", [1]),
        ("until=99", [0, 1, 2]),
        ("offset=-1", [2]),
        ("max_records=2", [0, 1]),
        ("offset=latest", []),
        ("until=@2026-06-01T00:00:00Z", [0]),
    ],
)
async def test_the_range_is_the_one_that_is_asked_for(seb, topic, query, offsets):
    _, table = await read(seb, topic, query)
    assert table["offset"].to_pylist() == offsets


async def test_all_of_a_topic_comes_in_parts_of_bounded_size(seb, topic, monkeypatch):
    small = range_answers.replace(range_answers.PART, max_records=7)
    monkeypatch.setattr(range_answers, "PART", small)
    await produce(seb, topic, *({"value": str(n)} for n in range(97)))
    _, table = await read(seb, topic)
    assert table["offset"].to_pylist() == list(range(100))
    assert len(table["offset"].chunks) == 15
    assert (await read(seb, topic, "max_records=9"))[1].num_rows == 9
    assert seb.appliance.broker.reading.used == 0


@pytest.mark.parametrize("query", ["wait=1s", "max_bytes=1MiB", "values=json"])
async def test_what_has_no_meaning_in_columns_is_refused(seb, topic, query):
    answer = await seb.client.get(f"/v1/topics/{topic}/records?format=arrow&{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")


async def test_an_offset_beyond_the_log_is_an_ordinary_refusal(seb, topic):
    answer = await seb.client.get(f"/v1/topics/{topic}/records?format=arrow&offset=4")
    assert (answer.status_code, answer.json()["code"]) == (416, "offset_out_of_range")


async def test_head_answers_the_headers(seb, topic):
    answer = await seb.client.head(f"/v1/topics/{topic}/records?format=arrow")
    assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW)


async def test_a_stream_that_cannot_go_on_is_seen_to_be_cut(seb, topic, monkeypatch):
    small = range_answers.replace(range_answers.PART, max_records=1)
    monkeypatch.setattr(range_answers, "PART", small)
    parts = records_arrow._parts

    def delete_behind(result):
        deleting = seb.client.delete(f"/v1/topics/{topic}")
        asyncio.run_coroutine_threadsafe(deleting, loop).result(10)
        return parts(result)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(records_arrow, "_parts", lambda result: map_later(delete_behind, result))
    with pytest.raises(Exception, match="peer closed connection"):
        await read(seb, topic)
    await seb.client.put(f"/v1/topics/{topic}")


def map_later(made, result):
    """`made(result)` in the thread that asks for its parts."""
    yield from made(result)


async def test_without_pyarrow_there_is_none_and_it_says_so(seb, topic, monkeypatch):
    monkeypatch.setattr(records_arrow.importlib.util, "find_spec", lambda name: None)
    for query, accept in (("format=arrow", "*/*"), ("", ARROW)):
        url = f"/v1/topics/{topic}/records?{query}"
        answer = await seb.client.get(url, headers={"accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
        assert "pyarrow" in answer.json()["detail"]


def examples():
    found = re.findall(r"### (\w+)\n.*?```python\n(.*?)```", DOCS, re.DOTALL)
    assert len(found) == 6, "pandas, DuckDB and Polars, from rows and from columns"
    return found


@pytest.mark.parametrize(("tool", "code"), examples(), ids=lambda text: text.split("\n")[0][:10])
async def test_the_examples_of_the_docs_run(seb, topic, tmp_path, tool, code):
    code = code.replace("http://127.0.0.1:51313", seb.base_url).replace("$KEY", seb.admin_key)
    code = code.replace("orders.eu", topic)
    command = [sys.executable, "-W", "error", "-c", code]
    ran = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"\b4(\.0)?\b", ran.stdout), ran.stdout  # the sum of the totals
