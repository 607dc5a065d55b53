"""What was acknowledged against what can be read: every kind of wrong is found out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from seb_appliance.bench.accounts import (
    MISTAKES_SHOWN,
    Account,
    Findings,
    TopicCheck,
    make_bodies,
    values_of,
)

TOPIC = 0
REQUESTS = 4


def value(producer: int, number: int, place: int = 0, count: int = 1) -> bytes:
    return make_bodies("single", [values_of(producer, count, 64)[place]], 0).make(number)


def accounts() -> list[Account]:
    """Two producers that take turns, a record each; acknowledged at offsets 0 to 7."""
    made = [Account(0), Account(1)]
    for number in range(REQUESTS):
        for producer in (0, 1):
            made[producer].acknowledge(TOPIC, number, 2 * number + producer)
    return made


def log() -> list[bytes]:
    return [value(producer, number) for number in range(REQUESTS) for producer in (0, 1)]


def check(
    values: Sequence[bytes], told: list[Account], offsets: Sequence[int] | None = None
) -> Findings:
    topic = TopicCheck(TOPIC, "t", 1, len(told))
    topic.take(values, range(len(values)) if offsets is None else offsets)
    return topic.settle(told)


def test_what_was_acknowledged_and_is_there_is_right() -> None:
    found = check(log(), accounts())
    assert (found.records, found.wrong, found.mistakes) == (8, 0, [])


def test_a_lost_record_is_found_out() -> None:
    found = check(log()[:-1], accounts())
    assert found.mistakes == [
        "t: request 3 of producer 1 was acknowledged at offset 7 and is not there"
    ]


def test_a_lost_record_in_the_middle_is_found_out() -> None:
    values = log()
    del values[4]
    assert check(values, accounts(), [0, 1, 2, 3, 5, 6, 7]).wrong == 1


def test_a_doubled_record_is_found_out() -> None:
    values = [*log(), value(1, 3)]
    assert "does not follow" in check(values, accounts()).mistakes[0]


def test_records_out_of_their_producers_order_are_found_out() -> None:
    values = log()
    values[0], values[2] = values[2], values[0]
    assert check(values, accounts()).wrong


def test_a_damaged_record_is_found_out() -> None:
    values = log()
    values[5] = values[5][:-1] + b"!"
    assert "offset 5 is not what was sent" in check(values, accounts()).mistakes[0]


def test_a_record_at_another_offset_than_acknowledged_is_found_out() -> None:
    found = check(log(), accounts(), range(1, 9))
    assert found.wrong == 8
    assert "acknowledged at offset 0 is at 1" in found.mistakes[0]


def test_an_offset_that_comes_twice_is_found_out() -> None:
    found = check(log(), accounts(), [0, 1, 2, 3, 4, 5, 6, 6])
    assert any("offset 6 came again" in mistake for mistake in found.mistakes)


def test_a_record_of_a_producer_that_is_not_there_is_found_out() -> None:
    assert check([value(9, 0)], []).wrong == 1


def test_a_refused_request_that_was_stored_is_found_out() -> None:
    values = [*log(), value(1, 4)]
    assert check(values, accounts()).mistakes == [
        "t: request 4 of producer 1 is there and was refused"
    ]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_request_without_an_answer_may_be_there_or_not(is_there: bool) -> None:
    told = accounts()
    told[1].unknown.add(4)
    values = [*log(), value(1, 4)] if is_there else log()
    assert check(values, told).wrong == 0


def test_a_request_that_was_cut_short_is_found_out() -> None:
    topic = TopicCheck(TOPIC, "t", 3, 1)
    told = Account(0)
    told.acknowledge(TOPIC, 0, 0)
    topic.take([value(0, 0, place, 3) for place in (0, 1)], [0, 1])
    assert topic.requests_complete() == 0
    assert "cut short" in topic.settle([told]).mistakes[0]


def test_records_of_one_request_that_are_not_together_are_found_out() -> None:
    topic = TopicCheck(TOPIC, "t", 2, 1)
    topic.take([value(0, 0, place, 2) for place in (0, 1)], [0, 2])
    assert "not together" in topic.findings.mistakes[0]


def test_only_the_first_mistakes_are_told_in_words() -> None:
    found = check([b"x"] * 100, [])
    assert found.wrong == 100
    assert len(found.mistakes) == MISTAKES_SHOWN
