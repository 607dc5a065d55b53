"""Topic patterns."""

import pytest

from seb_appliance.broker.names import check_pattern
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
