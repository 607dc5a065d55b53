"""The bodies of streams: the items of a JSON list, and the data of live answers."""

from __future__ import annotations

import base64
import re
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.errors import BadJsonError, RequestTooLargeError
from seb_appliance.formats.batch import decode, encode
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.protocols.durable_streams import contents
from seb_appliance.protocols.durable_streams.contents import event_data, json_values

MOST = limits.RECORDS_PER_REQUEST_MAX


def test_a_list_has_as_many_items_as_a_request_may_have_records() -> None:
    body = b"[%b]" % b",".join(b"%d" % i for i in range(MOST))
    assert json_values(body, may_be_none=False) == [b"%d" % i for i in range(MOST)]
    with pytest.raises(RequestTooLargeError):
        json_values(body[:-1] + b",0]", may_be_none=False)


def test_only_the_items_of_the_list_itself_are_counted() -> None:
    inner = b"[%b0]" % (b"0," * MOST)
    text = b'"%b"' % (b"," * MOST)
    assert json_values(b"[%b,%b,1]" % (inner, text), may_be_none=False) == [inner, text, b"1"]


def test_a_list_of_too_many_items_is_not_made_before_it_is_refused() -> None:
    body = b"[%b0]" % (b"0," * 500_000)
    with pytest.raises(RequestTooLargeError):
        json_values(b"[%b0]" % (b"0," * MOST), may_be_none=False)  # builds the decoder
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLargeError):
            json_values(body, may_be_none=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(body)


def test_a_number_that_no_double_holds_is_refused() -> None:
    for body in (b"1e999", b"[1," + b"9" * 5_000 + b"]", b'{"a":[-1e400]}'):
        with pytest.raises(BadJsonError, match="too large"):
            json_values(body, may_be_none=False)


def of_records(*values: bytes) -> ReadResult:
    stored = encode(
        Columns(int64s([0] * len(values)), BinaryColumn.of(values)), base_offset=0, created_us=0
    )
    piece = BatchSlice(decode(stored), 0, len(values), memoryview(stored))
    return ReadResult("t", 1, [piece], len(values), 0, len(values))


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b" ", b"data: ", b"x"]), min_size=1), st.integers(1, 4)
)
def test_each_line_of_a_stream_is_a_field_of_its_own_wherever_it_is_cut(
    pieces: list[bytes], threes: int
) -> None:
    content = b"".join(pieces)
    lines = re.split(rb"\r\n|\r|\n", content)
    fields = [b"data:%b%b" % (b" " if one.startswith(b" ") else b"", one) for one in lines]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contents, "_DATA_BYTES", 3 * threes)
        told = b"".join(event_data(of_records(content), in_base64=False))
        assert told == b"event: data\n%b\n\n" % b"\n".join(fields)
        told = b"".join(event_data(of_records(content), in_base64=True))
        assert told == b"event: data\ndata:%b\n\n" % base64.b64encode(content)


def test_a_large_record_of_short_lines_is_told_in_parts_between_which_others_have_turns() -> None:
    content = b"\n" * limits.MIB
    parts = list(event_data(of_records(content), in_base64=False))
    assert max(map(len, parts)) <= 6 * 48 * limits.KIB
    assert sum(map(len, parts)) == len(b"event: data\ndata:\n\n") + 6 * len(content)


def shown(result: ReadResult) -> Iterator[bytes]:
    return contents.json_parts(result, {})


@pytest.mark.parametrize("parts_of", [shown, contents.byte_parts])
def test_values_are_shown_so_many_bytes_at_a_time(parts_of) -> None:
    """Each must be parsed: 1 MiB of numbers takes 10 ms. A large record makes no others larger."""
    numbers = b"[%b0]" % (b"0," * 2_000)
    small, large = [b"1"] * 1_000, b"[%b0]" % (b"0," * 200_000)
    values = [*small, *[numbers] * 250, large, *small]
    parts = list(parts_of(of_records(*values)))
    assert b"".join(parts).translate(None, b",[]") == b"".join(values).translate(None, b",[]")
    assert sorted(map(len, parts))[-2] < 270_000 < 410_000 > max(map(len, parts))
    assert len(parts) < 30
