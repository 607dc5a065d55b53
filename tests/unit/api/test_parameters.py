"""The grammar of query parameters and headers."""

from __future__ import annotations

import pytest

from seb_appliance.api.encoding.answers import format_time, parse_time
from seb_appliance.api.encoding.formats import media_type, negotiate
from seb_appliance.api.encoding.parameters import (
    check_raw_path,
    duration_ms,
    end_position,
    position,
    read_headers,
    read_query,
    size_bytes,
)
from seb_appliance.broker.values import From
from seb_appliance.errors import (
    BadNameError,
    BadParameterError,
    NotAcceptableError,
    NotFoundError,
    UnauthenticatedError,
    UnsupportedMediaTypeError,
)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("0", From(offset=0)),
        ("9007199254740991", From(offset=2**53 - 1)),
        ("earliest", From(earliest=True)),
        ("latest", From(latest=True)),
        ("-5", From(last=5)),
        ("@1970-01-01T00:00:01Z", From(timestamp_us=1_000_000)),
        ("@1970-01-01T01:00:00.000001+01:00", From(timestamp_us=1)),
    ],
)
def test_positions(text, start):
    assert position(text, "offset") == start


def test_an_end_is_an_offset_or_a_time():
    assert end_position("7", "until") == From(offset=7)
    assert end_position("@1970-01-01T00:00:00Z", "until") == From(timestamp_us=0)
    with pytest.raises(BadParameterError):
        end_position("-7", "until")


def test_times_round_trip_to_the_microsecond():
    for timestamp_us in (0, 1, 1_799_999_999_999_999, 253_402_300_799_999_999):
        assert parse_time(format_time(timestamp_us)) == timestamp_us
    assert format_time(1) == "1970-01-01T00:00:00.000001Z"


def test_durations_and_sizes_have_units():
    assert duration_ms("250ms", "wait", largest=60_000) == 250
    assert duration_ms("1m", "wait", largest=60_000) == 60_000
    assert duration_ms("0", "wait", largest=60_000) == 0
    assert size_bytes("2KiB", "max_bytes", largest=4096) == 2048
    with pytest.raises(BadParameterError, match="30s"):
        duration_ms("30", "wait", largest=60_000)
    with pytest.raises(BadParameterError, match="4KiB"):
        size_bytes("4097", "max_bytes", largest=4096)


def test_a_query_is_read_once_and_known():
    known = frozenset({"a", "b"})
    assert read_query(b"", known) == {}
    assert read_query(b"a=1&b=%C3%A9+x", known) == {"a": "1", "b": "é x"}
    for bad in (b"c=1", b"a=1&a=1", b"a", b"a=%ff", b"&", b"a=1;b=2&"):
        with pytest.raises(BadParameterError):
            read_query(bad, known)


def test_headers_that_lists_allow_are_joined_and_others_are_not():
    assert read_headers([(b"accept", b"a"), (b"accept", b"b")]) == {b"accept": b"a, b"}
    with pytest.raises(BadParameterError):
        read_headers([(b"seb-key", b"a"), (b"seb-key", b"a")])
    with pytest.raises(UnauthenticatedError):
        read_headers([(b"authorization", b"a"), (b"authorization", b"a")])


def test_media_types_are_compared_without_parameters():
    assert media_type(b"Application/JSON; charset=UTF-8") == "application/json"
    assert media_type(b"text/plain; charset=latin-1") == "text/plain"
    with pytest.raises(UnsupportedMediaTypeError):
        media_type(b"application/json; charset=utf-16")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "a/x"),
        (b"", "a/x"),
        (b"a/y", "a/y"),
        (b"a/*", "a/x"),
        (b"a/x;q=0.1, a/y;q=0.2", "a/y"),
        (b"a/x;q=0, */*", "a/y"),
        (b"b/z, a/y;q=0.1", "a/y"),
    ],
)
def test_the_best_offered_type_is_chosen(accept, chosen):
    assert negotiate(accept, ("a/x", "a/y")) == chosen


@pytest.mark.parametrize("accept", [b"b/z", b"a/x;q=0, a/y;q=0", b"*/*;q=nonsense", b","])
def test_nothing_acceptable_is_an_error(accept):
    with pytest.raises(NotAcceptableError):
        negotiate(accept, ("a/x", "a/y"))


def test_paths_are_checked_before_they_are_decoded():
    for good in (b"/", b"/v1/topics", b"/v1/topics/a.b/records/-1", b"/ui/static/app.css"):
        check_raw_path(good)
    for name in (b"..", b"%2e%2e", b"a%00", b"\xff", b"a" * 129, b""):
        with pytest.raises(BadNameError):
            check_raw_path(b"/v1/topics/" + name + b"/records")
    for nowhere in (b"", b"//", b"/v1/", b"/v1/topics/a/", b"/v1/topics/a/records/%31", b"/a b"):
        with pytest.raises(NotFoundError):
            check_raw_path(nowhere)
