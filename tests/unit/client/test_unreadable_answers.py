"""Answers that no appliance gives are errors of the client, whatever they hold."""

from __future__ import annotations

import pytest

from seb_appliance.client.failures import refusal
from seb_appliance.client.records import UnreadableAnswerError, decode_batches, decode_lines
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s


@pytest.mark.parametrize("body", [b'{"code":"\xff"}', b"[" * 9_000, b"<html>", b"[]", b""])
def test_an_error_whose_body_is_no_problem_is_that_of_something_else(body: bytes) -> None:
    error = refusal("http://seb", 503, {"seb-version": "1"}, body)
    assert (error.code, error.retryable) == ("foreign_answer", True)


@pytest.mark.parametrize("packed", [b"\x07", b"\x81\xa1\xff\xc4\0", b"\x81"])
def test_a_batch_with_headers_that_are_none_cannot_be_read(packed: bytes) -> None:
    columns = Columns(int64s([5]), BinaryColumn.of([b"v"]), None, BinaryColumn.of([packed]))
    body = batch.encode(columns, base_offset=0, created_us=1)
    with pytest.raises(UnreadableAnswerError):
        decode_batches("t", body, 0, 1)


def test_a_line_that_is_nested_deeply_cannot_be_read() -> None:
    with pytest.raises(UnreadableAnswerError):
        decode_lines("t", b'{"offset":1,"a":' + b"[" * 9_000)
