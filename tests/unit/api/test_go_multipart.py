"""Multipart bodies of the Go broker's API: what was sent comes out, and nothing else ever does."""

from __future__ import annotations

import contextlib
import json
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multipart import MultipartParser

from seb_appliance import limits
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.errors import BadParameterError, RefusedError
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.protocols.go.wire import (
    boundary_of,
    duration_ms,
    offsets_body,
    parameters_of,
    parse_records,
    records_answer,
)
from tests.support.go_client import BOUNDARY, body_of

RECORDS = st.lists(st.binary(max_size=50), min_size=1, max_size=20)


@given(RECORDS)
def test_the_records_of_a_body_are_those_that_were_sent(records: list[bytes]) -> None:
    assert parse_records(body_of(records), BOUNDARY.encode()).values == records


@given(RECORDS, st.data())
def test_a_damaged_body_is_refused_or_says_something_else(
    records: list[bytes], data: st.DataObject
) -> None:
    body = body_of(records)
    at = data.draw(st.integers(0, len(body) - 1))
    cut = data.draw(st.integers(0, 3))
    damaged = body[:at] + data.draw(st.binary(max_size=3)) + body[at + cut :]
    try:
        parsed = parse_records(damaged, BOUNDARY.encode())
    except RefusedError:
        return
    parts = MultipartParser(BytesIO(damaged), BOUNDARY, strict=True).parts()
    values = [value or b"" for value in parsed.values]
    assert [part.raw for part in parts][1] == b"".join(values)
    assert json.loads(parts[0].raw) == [len(value) for value in values]


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_end_with_records_or_a_refusal(content_type: bytes, body: bytes) -> None:
    for given_type in (content_type, b"multipart/form-data;" + content_type):
        with contextlib.suppress(RefusedError):
            parse_records(body, boundary_of(given_type))


@pytest.mark.parametrize(
    ("value", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b"Multipart/Form-Data;charset=utf-8; Boundary=abc ", b"abc"),
        (b'multipart/form-data; boundary="a b:c"', b"a b:c"),
        (b'multipart/form-data; boundary="a\\bc"', b"abc"),
        (b"multipart/form-data; boundary=----WebKitFormBoundaryA1", b"----WebKitFormBoundaryA1"),
    ],
)
def test_a_boundary_is_read_however_it_is_written(value: bytes, boundary: bytes) -> None:
    assert boundary_of(value) == boundary


def test_names_of_parameters_are_lower_case_and_values_as_they_are() -> None:
    kind, parameters = parameters_of(b'Form-Data; Name="Sizes"; filename="a\\"b;c"')
    assert (kind, parameters) == (b"form-data", {b"name": b"Sizes", b"filename": b'a"b;c'})


def test_offsets_are_a_json_list() -> None:
    assert json.loads(offsets_body(7, 3)) == {"offsets": [7, 8, 9]}


# --- answers ---


def sliced(offsets: list[int], values: list[bytes | None], begin: int, end: int) -> BatchSlice:
    columns = Columns(
        int64s(range(len(values))),
        BinaryColumn.of(values),
        keys=BinaryColumn.of([b"k"] * len(values)),
        offsets=None if offsets[-1] - offsets[0] == len(offsets) - 1 else int64s(offsets),
    )
    stored = batch.encode(columns, base_offset=offsets[0], created_us=0, last_offset=offsets[-1])
    return BatchSlice(
        batch.decode(stored, 0, batch.read_header(stored, 0)), begin, end, memoryview(b"")
    )


def told(slices: list[BatchSlice], offset: int, max_records: int = 100) -> list[bytes]:
    result = ReadResult("t", 1, slices, 0, 0, 0)
    status, _, parts = records_answer(result, offset, max_records, "drawn")
    assert status == 200
    parsed = parse_records(b"".join(parts), b"drawn").values
    return [value or b"" for value in parsed]


def test_a_part_of_a_batch_is_told() -> None:
    piece = sliced([5, 6, 7, 8], [b"a", None, b"ccc", b"d"], 1, 3)
    assert told([piece], 6) == [b"", b"ccc"]


def test_a_missing_offset_comes_as_an_empty_record_so_that_counting_stays_right() -> None:
    pieces = [sliced([5, 8], [b"a", b"b"], 0, 2), sliced([11, 12], [b"c", b"d"], 0, 2)]
    assert told(pieces, 3) == [b"", b"", b"a", b"", b"", b"b", b"", b"", b"c", b"d"]
    assert told(pieces, 3, 6) == [b"", b"", b"a", b"", b"", b"b"]
    assert told(pieces, 3, 5) == [b"", b"", b"a", b"", b""]
    assert told(pieces, 3, 4) == [b"", b"", b"a", b""]
    assert told(pieces, 3, 2) == [b"", b""]


def test_a_wide_gap_costs_no_more_than_what_was_asked_for() -> None:
    assert told([sliced([2**50], [b"a"], 0, 1)], 0, 10) == [b""] * 10


def test_no_record_is_206_and_no_part() -> None:
    status, headers, parts = records_answer(ReadResult("t", 1, [], 0, 0, 0), 0, 10, "drawn")
    assert (status, b"".join(parts)) == (206, b"--drawn--\r\n")
    assert (b"content-type", b"multipart/form-data; boundary=drawn") in headers


# --- durations ---


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0), ("0s", 0), ("10s", 10_000), ("250ms", 250), ("1.5s", 1_500), (".5s", 500),
        ("1.s", 1_000), ("1ns", 1), ("1us", 1), ("1000µs", 1), ("1001μs", 2), ("0h0m2s", 2_000),
        ("1m", limits.WAIT_MS_MAX), ("1h30m", limits.WAIT_MS_MAX),
        ("2562047h47m16.854775807s", limits.WAIT_MS_MAX), ("9" * 49 + "h", limits.WAIT_MS_MAX),
    ],
)  # fmt: skip
def test_a_go_duration_is_read_and_bounded(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@given(st.text(alphabet="0123456789.nuµmsh-+ e", max_size=60))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(BadParameterError):
        assert 0 <= duration_ms(text) <= limits.WAIT_MS_MAX
