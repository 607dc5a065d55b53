"""The checker of the crash tests finds each kind of violation, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.checker import Log, violations
from tests.support.producer import Call

FIRST = Call("t", 0, (b"a0",), 0.0, 1, 1.0, "acked", 0)
MANY = Call("t", 1, (b"b0", b"b1"), 0.5, 1, 1.5, "acked", 1)
LOST = Call("t", 0, (b"a1", b"a2"), 2.0, 1, 3.0, "unknown")
REFUSED = Call("t", 1, (b"b2",), 2.0, 1, 2.5, "refused")
LAST = Call("t", 0, (b"a3",), 4.0, 1, 5.0, "acked", 3)
CALLS = [FIRST, MANY, LOST, REFUSED, LAST]
LOG = [(0, b"a0"), (1, b"b0"), (2, b"b1"), (3, b"a3")]
LANDED = [*LOG[:3], (3, b"a1"), (4, b"a2"), (5, b"a3")]


def found(calls: list[Call], log: Log, reads: Log = ()) -> str:
    return "\n".join(violations(calls, log, reads))


def test_a_log_as_it_should_be_is_not_complained_about() -> None:
    assert found(CALLS, LOG, LOG[1:3]) == ""
    assert found([*CALLS[:4], replace(LAST, offset=5)], LANDED) == ""
    assert found([], []) == ""


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        (LOG[:3], "was acknowledged at 3, and is at [None]"),
        ([*LOG[:2], (2, b"a3")], "was acknowledged at 1, and is at [1, None]"),
        ([*LOG, (4, b"b0")], "is there again at 4"),
        ([(0, b"b0"), (1, b"b1"), (2, b"a0"), (3, b"a3")], "acknowledged at 0, and is at [2]"),
        ([*LOG[:3], (4, b"a3")], "offset 4 stands where 3 should"),
        ([*LOG[:3], (3, b"zz"), (4, b"a3")], "nobody sent the record at 3"),
        ([*LOG, (4, b"b2")], "was refused, and is at [4]"),
        ([*LOG, (4, b"a1")], "is there in part, or torn: [4, None]"),
        ([*LOG, (4, b"a2")], "is there in part, or torn: [None, 4]"),
        ([*LOG, (4, b"a2"), (5, b"a1")], "is there in part, or torn: [5, 4]"),
    ],
)
def test_a_wrong_log_is_found_out(log: Log, complaint: str) -> None:
    assert complaint in found(CALLS, log)


def test_an_order_against_time_is_found_out() -> None:
    late = replace(FIRST, sent_s=6.0, answered_s=7.0)
    assert "sent after one behind it was acknowledged" in found([late, *CALLS[1:]], LOG)
    landed_too_early = [(0, b"a0"), (1, b"a1"), (2, b"a2"), (3, b"b0"), (4, b"b1"), (5, b"a3")]
    calls = [FIRST, replace(MANY, offset=3), LOST, REFUSED, replace(LAST, offset=5)]
    assert "at 2 was sent after one behind it was acknowledged" in found(calls, landed_too_early)


@pytest.mark.parametrize(
    ("reads", "complaint"),
    [
        ([(3, b"a1")], "which is not there any more"),
        ([(4, b"a1")], "which is not there any more"),
        ([(0, b"a0"), (2, b"b1")], "offset 2 after 0"),
        ([(1, b"b0"), (0, b"a0")], "offset 0 after 1"),
    ],
)
def test_a_consumer_that_was_served_something_else_is_found_out(reads: Log, complaint: str) -> None:
    assert complaint in found(CALLS, LOG, reads)
