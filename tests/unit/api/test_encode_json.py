"""Encoding of records as JSON, without a server."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.api.encoding import record_encoding as module
from seb_appliance.api.encoding.record_encoding import (
    ValueShape,
    csv_parts,
    json_parts,
    ndjson_parts,
    steps,
)
from seb_appliance.api.routes.records.live import events
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.protocols.cloud_events import event_parts, guessed_type
from seb_appliance.protocols.durable_streams.contents import json_parts as stream_parts
from tests.support.plain_encoder import plain_json, plain_ndjson

SHAPES: tuple[ValueShape, ...] = ("text", "json", "base64")
VALUES = st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=6)


def encode_json(result: ReadResult, shape: ValueShape) -> bytes:
    return b"".join(json_parts(result, shape))


def encode_ndjson(result: ReadResult, shape: ValueShape) -> bytes:
    return b"".join(ndjson_parts(result, shape))


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


def test_a_value_that_takes_long_to_parse_is_shown_as_none_of_json():
    most = limits.JSON_SHOWN_BYTES_MAX
    small, large = (b"[" + b"1," * (size // 2 - 1) + b"1]" for size in (most - 2, most))
    assert len(small) <= most < len(large)
    parsed, shown = msgspec.json.decode(encode_json(result([small, large]), "json"))["records"]
    assert len(parsed["value"]) == most // 2 - 1
    assert shown["value"] is None
    assert msgspec.json.decode(f'"{shown["value_base64"]}"', type=bytes) == large
    assert guessed_type(small) == "application/json"
    assert guessed_type(large) == "text/plain; charset=utf-8"


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


CONTENTS = st.one_of(
    st.text(max_size=12).map(str.encode),
    st.text('abc "\\\n', max_size=12).map(str.encode),
    st.binary(max_size=12),
    st.sampled_from(
        [b"null", b" null ", b"1e3", b'{"a": [1, "\xc3\xa4"]}', b'"\xff"', b"[" * 3_000]
    ),
)
HEADERS = st.just(b"") | st.dictionaries(st.text(max_size=4), CONTENTS, min_size=1, max_size=3).map(
    msgspec.msgpack.encode
)
TIMES_US = st.integers(min_value=0, max_value=4_000_000_000_000_000)


@st.composite
def pieces(draw) -> BatchSlice:
    """Some records of a batch that may have any column, none, or gaps between its offsets."""
    count = draw(st.integers(min_value=1, max_value=12))

    def listed(items, size=count):
        return draw(st.lists(items, min_size=size, max_size=size))

    gaps = listed(st.integers(min_value=1, max_value=3)) if draw(st.booleans()) else None
    columns = Columns(
        int64s(listed(TIMES_US)),
        BinaryColumn.of(listed(draw(st.sampled_from([CONTENTS, st.none() | CONTENTS])))),
        BinaryColumn.of(listed(st.none() | CONTENTS)) if draw(st.booleans()) else None,
        BinaryColumn.of(listed(HEADERS)) if draw(st.booleans()) else None,
        None if gaps is None else int64s(100 + sum(gaps[:i]) for i in range(count)),
    )
    last = 100 + (count if gaps is None else sum(gaps)) - 1
    stored = batch.encode(columns, base_offset=100, last_offset=last, created_us=0)
    begin = draw(st.integers(min_value=0, max_value=count - 1))
    end = draw(st.integers(min_value=begin + 1, max_value=count))
    return BatchSlice(batch.decode(stored), begin, end, memoryview(stored))


@given(
    st.lists(pieces(), max_size=3),
    st.sampled_from(SHAPES),
    st.integers(1, 4),
    st.sampled_from([3, 6]),
    st.sampled_from([0, 5, 256 * 1024]),
)
def test_the_bytes_are_those_of_encoding_record_after_record(slices, shape, at_once, piece, part):
    answer = ReadResult('t"records":[]', 1, slices, 200, 0, 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART_RECORDS", at_once)
        patch.setattr(module, "_PIECE", piece)
        patch.setattr(module, "_PART_BYTES", part)
        assert encode_json(answer, shape) == plain_json(answer, shape)
        assert encode_ndjson(answer, shape) == plain_ndjson(answer, shape)


def test_parts_of_small_values_have_many_and_parts_of_larger_ones_few():
    small = result([b"x" * 10] * 5_000)
    assert [part.count(b"\n") for part in ndjson_parts(small, "text")] == [512] * 9 + [392]
    middle = result([b"x" * 40_000] * 12)
    assert [part.count(b"\n") for part in ndjson_parts(middle, "text")] == [6] * 2


def test_a_step_is_no_longer_where_all_bytes_are_in_a_few_records():
    values = [b"", *[b"x" * 100_000] * 9, b"y" * 300_000, *[b""] * 3_000]
    found = list(steps(result(values, keys=values[::-1]).slices[0]))
    both = [len(value) + len(key) for value, key in zip(values, values[::-1], strict=True)]
    assert [begin for begin, _ in found] == [0, *[end for _, end in found[:-1]]]
    for begin, end in found:
        assert sum(both[begin:end]) <= 256 * 1024 or (end - begin, both[begin]) == (1, 300_000)
    assert found[-1][1] == len(values)
    assert len(found) < 20


# Each of these characters takes six bytes, and ten times as long as a letter.
LARGE = [
    b"\1" * 500_000,
    b'"' * 500_000,
    b"\xff" * 500_000,
    b'["' + b"x" * 500_000 + b'"]',
    "ä\r\n".encode() * 200_000,
]
FORMS = {
    "JSON": lambda result: json_parts(result, "json"),
    "NDJSON": lambda result: ndjson_parts(result, "text"),
    "CSV": lambda result: csv_parts(result, "text"),
    "CSV of JSON": lambda result: csv_parts(result, "json"),
    "CSV in base64": lambda result: csv_parts(result, "base64"),
    "live": lambda result: events(result, "text"),
    "events": event_parts,
    "JSON stream": lambda result: stream_parts(result, {}),
}


@pytest.mark.parametrize("parts_of", FORMS.values(), ids=list(FORMS))
def test_each_form_of_an_answer_has_large_values_in_pieces_and_the_same_bytes(parts_of):
    values = [value for large in LARGE for value in (large, b"x")]
    keys = [b'\0"', *LARGE[:-1], *[None] * 5]
    parts = list(parts_of(result(values, [key and key[:40] for key in keys])))
    assert max(map(len, parts)) < 6 * 50_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART_BYTES", 100_000_000)
        whole = list(parts_of(result(values, [key and key[:40] for key in keys])))
    assert b"".join(parts) == b"".join(whole)
    assert max(map(len, whole)) > 500_000
