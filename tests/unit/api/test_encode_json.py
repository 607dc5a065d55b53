"""Encoding of records as JSON, without a server."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.api.encode_json import encode_json, encode_ndjson
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

VALUES = st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=6)


def result(values, keys=None, headers=None, begin=0, end=None) -> ReadResult:
    columns = Columns(
        int64s(range(len(values))),
        BinaryColumn.of(values),
        None if keys is None else BinaryColumn.of(keys),
        None if headers is None else BinaryColumn.of(headers),
    )
    stored = batch.encode(columns, base_offset=100, created_us=0)
    piece = BatchSlice(
        batch.decode(stored), begin, len(values) if end is None else end, memoryview(stored)
    )
    return ReadResult("t", 1, [piece], 100 + piece.end, 0, 100 + len(values))


@given(VALUES, st.sampled_from(["text", "base64"]))
def test_every_value_can_be_had_back(values, shape):
    keys = [None if value is None else value[::-1] for value in values]
    decoded = msgspec.json.decode(encode_json(result(values, keys), shape))
    assert [record["offset"] for record in decoded["records"]] == [
        100 + i for i in range(len(values))
    ]
    for record, value, key in zip(decoded["records"], values, keys, strict=True):
        for name, expected in (("value", value), ("key", key)):
            encoded = record.get(f"{name}_base64")
            if encoded is not None:
                assert record[name] is None
                assert msgspec.json.decode(f'"{encoded}"', type=bytes) == expected
            else:
                assert record[name] == (None if expected is None else expected.decode())


@given(VALUES)
def test_ndjson_has_a_line_per_record_whatever_is_in_it(values):
    for shape in ("text", "json", "base64"):
        lines = encode_ndjson(result(values), shape).split(b"\n")
        assert lines.pop() == b""
        assert [msgspec.json.decode(line)["offset"] for line in lines] == [
            100 + i for i in range(len(values))
        ]


def test_a_slice_gives_only_its_records():
    decoded = msgspec.json.decode(encode_json(result([b"a", b"b", b"c"], begin=1, end=2), "text"))
    assert [(record["offset"], record["value"]) for record in decoded["records"]] == [(101, "b")]


def test_the_five_fields_are_always_there():
    decoded = msgspec.json.decode(encode_json(result([b"a"]), "text"))
    assert decoded["records"] == [
        {
            "offset": 100,
            "timestamp": "1970-01-01T00:00:00.000000Z",
            "key": None,
            "value": "a",
            "headers": {},
        }
    ]


def test_headers_that_are_no_text_come_in_base64():
    packed = msgspec.msgpack.encode({"a": b"text", "b": b"\xff"})
    [record] = msgspec.json.decode(encode_json(result([b"v"], None, [packed]), "text"))["records"]
    assert (record["headers"], record["headers_base64"]) == ({"a": "text"}, {"b": "/w=="})


def test_a_json_null_is_not_taken_for_a_tombstone():
    tombstone, null = msgspec.json.decode(
        encode_json(result([None, b" null"], [b"k", b"k"]), "json")
    )["records"]
    assert "value_base64" not in tombstone
    assert (null["value"], null["value_base64"]) == (None, "IG51bGw=")
