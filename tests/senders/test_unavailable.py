"""Fluent Bit and Vector, which no registry of ours has: their files of the cookbook, read by the
test, and bodies as their sources write them. test_collectors.py runs Fluent Bit where it is."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.senders.cookbook import look, prepare
from tests.server.serving import serving

pytestmark = pytest.mark.slow

EVENTS = [{"log": "one", "n": 1}, {"log": "käse\n", "n": 2}]
TIME = "2026-11-23T10:00:00.250000Z"


@dataclass(frozen=True)
class Sent:
    content_type: str
    body: str


def fluent_bit(form: str) -> Sent:
    rows = [json.dumps({"date": TIME, **event}, separators=(",", ":")) for event in EVENTS]
    bodies = {
        "json": Sent("application/json", f"[{','.join(rows)}]"),
        "json_stream": Sent("application/json", "".join(rows)),
        "json_lines": Sent("application/x-ndjson", "".join(f"{row}\n" for row in rows)),
        "json_lines before 3.1": Sent("application/json", "".join(f"{row}\n" for row in rows)),
    }
    return bodies[form]


def vector(form: str) -> Sent:
    rows = [json.dumps({**event, "timestamp": TIME}, separators=(",", ":")) for event in EVENTS]
    bodies = {
        "json": Sent("application/json", f"[{','.join(rows)}]"),
        "newline_delimited": Sent("application/x-ndjson", "".join(f"{row}\n" for row in rows)),
    }
    return bodies[form]


def post(port: int, uri: str, authorization: str, sent: Sent, agent: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": authorization, "User-Agent": agent, "Content-Encoding": "gzip"}
    connection.request(
        "POST",
        uri,
        gzip.compress(sent.body.encode()),
        {**headers, "Content-Type": sent.content_type},
    )
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("form", ["json", "json_stream", "json_lines", "json_lines before 3.1"])
def test_what_fluent_bit_sends_is_a_record_each(tmp_path: Path, form: str) -> None:
    with serving(tmp_path) as seb:
        text = prepare(seb, "fluent-bit").file("seb.conf", seb, tmp_path).read_text()
        given = dict(re.findall(r"^ +(\w+) +(.+)$", text, re.MULTILINE))
        name, _, authorization = given["Header"].partition(" ")
        assert (given["Format"], given["Compress"], name) == ("json_lines", "gzip", "Authorization")
        port = int(given["Port"])
        assert post(port, given["URI"], authorization, fluent_bit(form), "Fluent-Bit") == 201
        check(seb.request("GET", "/v1/topics/logs.fluent-bit/records")[1], "date")
        assert len(look(seb, "fluent-bit")) == 2


@pytest.mark.parametrize("form", ["json", "newline_delimited"])
def test_what_vector_sends_is_a_record_each(tmp_path: Path, form: str) -> None:
    with serving(tmp_path) as seb:
        file = prepare(seb, "vector").file("seb.toml", seb, tmp_path)
        given = tomllib.loads(file.read_text())["sinks"]["seb"]
        assert given["framing"]["method"] == "newline_delimited"
        assert given["compression"] == "gzip"
        uri = given["uri"].partition(str(seb.port))[2]
        bearer = f"Bearer {given['auth']['token']}"
        assert post(seb.port, uri, bearer, vector(form), "Vector/0.50.0") == 201
        check(seb.request("GET", "/v1/topics/logs.vector/records")[1], "timestamp")
        assert len(look(seb, "vector")) == 2


def check(answer: bytes, time_member: str) -> None:
    records = json.loads(answer)["records"]
    values = [json.loads(record["value"]) for record in records]
    assert [value.pop(time_member) for value in values] == [TIME] * 2
    assert values == EVENTS
    assert {record["timestamp"] for record in records} == {TIME}
