"""Parsing of JSON bodies, without a server."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.api.encoding.record_json import parse_json, parse_ndjson
from seb_appliance.errors import RefusedError, RequestTooLargeError

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_refusal(body):
    for parse in (parse_json, parse_ndjson):
        for framed in (body, b'{"records":[{"value":' + body + b"}]}"):
            try:
                parse(framed)
            except RefusedError as error:
                assert error.detail  # noqa: PT017 - what it raises is the subject


@given(st.lists(JSON_VALUES.filter(lambda value: value is not None), min_size=1, max_size=5))
def test_any_json_value_comes_back_as_it_was(values):
    body = msgspec.json.encode({"records": [{"value": value} for value in values]})
    lines = b"\n".join(msgspec.json.encode({"value": value}) for value in values)
    for records in (parse_json(body), parse_ndjson(lines)):
        assert len(records.values) == len(values)
        for stored, value in zip(records.values, values, strict=True):
            if isinstance(value, str):
                assert stored == value.encode()
            else:
                assert stored == msgspec.json.encode(value)


def test_columns_that_nobody_uses_are_absent():
    records = parse_json(b'{"records":[{"value":1},{"value":2,"key":null,"headers":{}}]}')
    assert (records.keys, records.headers, records.timestamps_us) == (None, None, None)


def test_keys_headers_and_timestamps_stand_beside_their_values():
    records = parse_json(
        b'{"records":[{"value":1},{"value":2,"key":"k","headers":{"a":"b"},'
        b'"headers_base64":{"c":"/w=="},"timestamp":"1970-01-01T00:00:01.000002Z"}]}'
    )
    assert records.keys == [None, b"k"]
    assert records.headers is not None
    assert records.headers[0] == b""
    assert msgspec.msgpack.decode(records.headers[1]) == {"a": "b", "c": b"\xff"} or (
        msgspec.msgpack.decode(records.headers[1], type=dict[str, bytes])
        == {"a": b"b", "c": b"\xff"}
    )
    assert records.timestamps_us == [None, 1_000_002]


def test_the_last_of_two_equal_fields_counts():
    assert parse_json(b'{"records":[{"value":1,"value":2}]}').values == [b"2"]


def test_long_numbers_inside_of_strings_are_no_numbers():
    value = b'{"a":"' + b"9" * 400 + b' 1e999 \\" 1e999"}'
    assert parse_json(b'{"records":[{"value":' + value + b"}]}").values == [value]


def test_the_limit_is_on_records_and_not_on_braces():
    value = b"[" + b",".join([b"{}"] * 20_000) + b"]"
    assert parse_json(b'{"records":[{"value":' + value + b"}]}").values == [value]
    most = [{"value": i} for i in range(limits.RECORDS_PER_REQUEST_MAX)]
    assert len(parse_json(msgspec.json.encode({"records": most})).values) == len(most)


@pytest.mark.parametrize("record", [b"{}", b'{"value":1}'])
def test_a_flood_of_records_takes_little_memory(record):
    body = b'{"records":[' + b",".join([record] * 500_000) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLargeError):
            parse_json(body)
        assert tracemalloc.get_traced_memory()[1] < 8 * limits.MIB
    finally:
        tracemalloc.stop()
