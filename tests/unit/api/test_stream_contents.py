"""What a JSON stream's bodies hold: the items of a list, and how many it may have."""

from __future__ import annotations

import tracemalloc

import pytest

from seb_appliance import limits
from seb_appliance.errors import BadJsonError, RequestTooLargeError
from seb_appliance.protocols.durable_streams.contents import json_values

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
