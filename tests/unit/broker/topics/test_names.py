"""Names of topics and groups, and patterns over them."""

from collections.abc import Callable

import pytest

from seb_appliance import limits
from seb_appliance.broker.topics.names import check_group_name, check_pattern, check_topic_name
from seb_appliance.errors import BadNameError, BadParameterError
from tests.support.patterns import pattern_matches


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", ["orders"], ["orders.eu", "order", "Orders"]),
        ("orders.*", ["orders.eu"], ["orders", "orders.eu.de", "order.eu"]),
        ("*", ["orders"], ["orders.eu"]),
        ("**", ["orders", "orders.eu.de"], []),
        ("orders.**", ["orders", "orders.eu", "orders.eu.de"], ["order"]),
        ("**.eu", ["eu", "orders.eu", "a.b.eu"], ["eu.orders"]),
        ("a.**.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z", "a.z.b"]),
        ("*.**.*", ["a.b", "a.b.c"], ["a"]),
    ],
)
def test_star_is_one_word_and_two_stars_are_any_number(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    check_pattern(pattern)
    assert [name for name in matching if not pattern_matches(pattern, name)] == []
    assert [name for name in other if pattern_matches(pattern, name)] == []


LONGEST = "a" * limits.NAME_LENGTH_MAX


@pytest.mark.parametrize("check", [check_topic_name, check_group_name, check_pattern])
@pytest.mark.parametrize("name", ["a", "orders.eu", "A-b_0.1", LONGEST])
def test_what_may_be_a_name_is_given_back(check: Callable[[str], str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("check", [check_topic_name, check_group_name])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "name is empty"),
        (".", "empty word"),
        ("a..b", "empty word"),
        ("a.", "empty word"),
        ("a b", "character that is not allowed"),
        ("a\n", "character that is not allowed"),
        ("ä", "character that is not allowed"),
        ("a.*", "character that is not allowed"),
        (LONGEST + "a", f"The name has {limits.NAME_LENGTH_MAX + 1} characters"),
    ],
)
def test_what_is_no_name_is_refused_with_the_reason(
    check: Callable[[str], str], name: str, why: str
) -> None:
    with pytest.raises(BadNameError, match=why):
        check(name)


def test_an_empty_name_is_told_by_what_it_should_name() -> None:
    with pytest.raises(BadNameError, match="A topic name"):
        check_topic_name("")
    with pytest.raises(BadNameError, match="A group name"):
        check_group_name("")


@pytest.mark.parametrize("pattern", ["", "a..b", "a.***", "a*", "a b", "*\n", LONGEST + "a"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadParameterError, match="is not a pattern"):
        check_pattern(pattern)


def test_a_pattern_that_is_far_too_long_is_shown_in_part() -> None:
    with pytest.raises(BadParameterError) as refused:
        check_pattern("!" * 10_000)
    assert "!" * 200 in refused.value.detail
    assert "!" * 201 not in refused.value.detail
