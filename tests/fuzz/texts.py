"""Targets: names, patterns, places, durations, settings, and what stands for a place."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from seb_appliance import limits, quantities, setting_sources
from seb_appliance.api.encoding import parameters
from seb_appliance.api.encoding.answers import format_time, parse_time
from seb_appliance.api.routes.records import by_key as record_views
from seb_appliance.api.routes.records import many as places_of_many
from seb_appliance.api.routes.records.by_key import (
    HistoryQuestion,
    KeysQuestion,
    question,
)
from seb_appliance.api.routes.records.reading import READ_QUERY, read_request
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.topics.names import Patterns, check_pattern, check_topic_name
from seb_appliance.broker.values import ApiKeyView, From
from seb_appliance.client.transport import AnswerReader, MalformedAnswerError
from seb_appliance.errors import ConfigurationError, RefusedError
from seb_appliance.protocols.go import wire as go
from tests.fuzz.target import Target
from tests.support.patterns import pattern_matches

_KEY = ApiKeyView("fuzzed", "", (), 0)


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def check_patterns(data: bytes) -> None:
    """`patterns,with,commas` and a line with a name: as the plain way matches them."""
    given, _, name = text_of(data).partition("\n")
    found = Patterns([check_pattern(pattern) for pattern in given.split(",")])
    check_topic_name(name)
    assert found.cover(name) == any(pattern_matches(one, name) for one in found.patterns)


def check_query(data: bytes) -> None:
    """The query of a read, as bytes of a URL."""
    wanted = read_request(Call(_KEY, {}, parameters.read_query(data, READ_QUERY), address=""))
    assert 1 <= wanted.max_records <= limits.FETCH_RECORDS_MAX
    assert 1 <= wanted.max_bytes <= limits.FETCH_BYTES_MAX
    assert 0 <= wanted.wait_ms <= limits.WAIT_MS_MAX


def check_key_query(data: bytes) -> None:
    for kind in (KeysQuestion, HistoryQuestion):
        with contextlib.suppress(RefusedError):
            question(kind, parameters.read_query(data, frozenset(kind.__struct_fields__)))


def check_positions(data: bytes) -> None:
    """An offset is written in one way."""
    text = text_of(data)
    with contextlib.suppress(RefusedError):
        assert 0 <= (parameters.end_position(text, "until").offset or 0) <= limits.OFFSET_MAX
    place = parameters.position(text, "offset")
    if place.offset is not None:
        assert place == From(offset=int(text))
        assert 0 <= place.offset <= limits.OFFSET_MAX
    if place.last is not None:
        assert place == From(last=-int(text))


def check_times(data: bytes) -> None:
    moment = parse_time(text_of(data))
    assert parse_time(format_time(moment)) == moment


def check_quantities(data: bytes) -> None:
    text = text_of(data)
    for parse, form in (
        (quantities.duration_ms, quantities.format_duration),
        (quantities.size_bytes, quantities.format_size),
    ):
        with contextlib.suppress(ValueError):
            amount = parse(text)
            assert amount >= 0
            assert parse(form(amount)) == amount
    with contextlib.suppress(RefusedError):
        assert parameters.duration_ms(text, "wait", largest=limits.WAIT_MS_MAX) >= 0
    with contextlib.suppress(RefusedError):
        assert parameters.size_bytes(text, "max_bytes", largest=limits.FETCH_BYTES_MAX)
    assert 0 <= go.duration_ms(text) <= limits.WAIT_MS_MAX


def check_go_query(data: bytes) -> None:
    known = frozenset({"topic-name", "offset", "max-records", "max-bytes", "timeout"})
    query = parameters.read_query(data, known)
    assert check_topic_name(go.topic_name(query)) == query["topic-name"]
    assert go.read_request(query, OPERATOR).max_records <= limits.RECORDS_PER_REQUEST_MAX


def check_settings(data: bytes) -> None:
    """A settings file: it is in force, or the error says what is wrong and where."""
    path = Path(gettempdir()) / f"seb-fuzzed-settings-{os.getpid()}.toml"
    path.write_bytes(data)
    try:
        found = setting_sources.load(environment={}, config=path)
    except ConfigurationError as error:
        assert error.detail  # noqa: PT017 - what it raises is the subject
        return
    finally:
        path.unlink()
    assert found.max_record_bytes <= found.max_request_bytes <= found.max_pending_bytes


def check_variables(data: bytes) -> None:
    """`NAME=value` lines of the environment."""
    lines = (line.partition("=") for line in text_of(data).split("\n"))
    given = {f"SEB_{name}": value for name, _, value in lines if name != "CONFIG"}
    setting_sources.load(environment=given)


def check_cursors(data: bytes) -> None:
    """What stands for a place gives this place again."""
    text = text_of(data)
    with contextlib.suppress(RefusedError):
        place = places_of_many.place_of(text)
        assert places_of_many.place_of(places_of_many.cursor_of(place)) == place or not place
    view = record_views.place_of(text)
    assert record_views.place_of(record_views.cursor_of(view)) == view


def check_answers(data: bytes) -> None:
    """What the Python client makes of an answer: whole and in pieces, it is the same."""
    told = []
    for step in (len(data) or 1, len(data) // 64 + 1):
        reader = AnswerReader()
        answer = None
        try:
            for begin in range(0, len(data), step):
                answer = reader.feed(data[begin : begin + step])
                if answer is not None:
                    break
            told.append(answer or reader.end())
        except MalformedAnswerError:
            told.append(None)
    whole, in_pieces = told
    if whole is not None:  # else more may follow an answer, which is seen only in one piece
        assert in_pieces == whole


_SETTINGS: Final = (
    b'bucket = "s3://orders/seb"\nlinger = "250ms"\nmax_record_bytes = "64KiB"\nport = 8080\n',
    (
        b'bucket = "memory:1MiB"\nprices = "own"\nown_prices = "EUR put=5 fee=4.99"\n'
        b'monthly_budget = "5 EUR"\nlinger = "auto"\nearly_flush = true\n'
    ),
    b"port = " + b"9" * 4_400,
    b'cors_origins = "https://a.example,*"\ncompression = "none"\nack_timeout = 30000\n',
)
_VARIABLES: Final = (
    b"LINGER=5ms\nPORT=0\nMAX_PENDING_BYTES=64MiB",
    b"BUCKET=file:/a/b\nDATA=/a/c\nFOLLOW=on",
)
_ANSWERS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2;x=y\r\nok\r\n0\r\nA: b\r\n\r\n"
    ),
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 4_400 + b"\r\n\r\n",
)

TARGETS: Final = (
    Target(
        "patterns",
        check_patterns,
        (b"a.*,b.**,**.c\na.b", b"**.a.**.b.**\na.a.b.b", b"*.*\na.b.c"),
        (b"*", b"**", b".", b",", b"\n"),
    ),
    Target(
        "query",
        check_query,
        (
            b"offset=17&until=99&max_records=5&max_bytes=8KiB&wait=30s",
            b"offset=@2026-01-01T00:00:00Z&until=@2026-01-02T00:00:00%2B01:00",
            b"offset=-5&wait=250ms",
        ),
        (b"offset=", b"until=", b"&", b"latest", b"earliest", b"%2B"),
    ),
    Target(
        "key_query",
        check_key_query,
        (b"key=a%20b&limit=5", b"prefix_base64=AA&after=x"),
        (b"key=", b"key_base64=", b"prefix=", b"prefix_base64=", b"limit=", b"after=", b"&", b"%"),
    ),
    Target(
        "positions",
        check_positions,
        (b"17", b"-5", b"latest", b"@2026-11-21T10:00:00.000123Z", b"9007199254740991"),
        (b"earliest", b"@", b"-"),
        (RefusedError,),
    ),
    Target(
        "times",
        check_times,
        (b"2026-11-21T10:00:00.000123Z", b"1969-12-31T23:59:59+23:59", b"9999-12-31T23:59:59Z"),
        (b"T", b"Z", b"+00:00", b"0000", b"9999", b"24:00:00", b":60"),
        (ValueError,),
    ),
    Target(
        "quantities",
        check_quantities,
        (b"250ms", b"8MiB", b"1h30m", b"1.5s", b"7d", b"0"),
        (b"ms", b"s", b"KiB", b"TiB", b"d", "µs".encode(), "٣".encode()),
    ),
    Target(
        "go_query",
        check_go_query,
        (b"topic-name=t&offset=1&max-records=5&max-bytes=9&timeout=1m30s",),
        (b"topic-name=", b"offset=", b"timeout=", b"&"),
    ),
    Target(
        "settings",
        check_settings,
        _SETTINGS,
        (b" = ", b'"', b"true", b"[", b"1979-05-27", b"inf", b"nan", b"'''", b"linger", b"data"),
    ),
    Target("variables", check_variables, _VARIABLES, (b"=", b"\n"), (ConfigurationError,)),
    Target(
        "cursors",
        check_cursors,
        (b"1-5.2-17", b"0-0", b"kwEKAA", b"kwHNA-gA"),
        (b"-", b".", b"9999999999999999"),
    ),
    Target(
        "answers",
        check_answers,
        _ANSWERS,
        (
            b"content-length: ",
            b"transfer-encoding: chunked",
            b"\r\n\r\n",
            b"HTTP/1.1 100 C\r\n\r\n",
        ),
    ),
)
