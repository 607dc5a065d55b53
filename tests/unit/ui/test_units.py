"""Numbers as people read them."""

from __future__ import annotations

import pytest

from seb_appliance.ui import units

NOW_US = 1_763_719_200_000_123


@pytest.mark.parametrize(
    ("filtered", "words"),
    [
        (units.count(1234567), "1,234,567"),
        (units.count(3.14), "3.1"),
        (units.count(None), "-"),
        (units.size(0), "0 B"),
        (units.size(1536), "1.5 KiB"),
        (units.size(5 * 2**40), "5.0 TiB"),
        (units.rate(12.0), "12/s"),
        (units.size_rate(2048), "2.0 KiB/s"),
        (units.span(0.0054), "5.4 ms"),
        (units.span(-0.00004), "0.0 ms"),
        (units.span(0.038), "38 ms"),
        (units.span(1.24), "1.2 s"),
        (units.span(90), "90 s"),
        (units.span(7200), "2 h"),
        (units.span(3 * 86400), "3 d"),
        (units.share(0.9995), "100.0 %"),
        (units.money(1234.5), "1,234.50 $"),
        (units.money(0.00004, "€"), "0.00004 €"),
        (units.moment(NOW_US), "2025-11-21 10:00:00Z"),
    ],
)
def test_a_number_is_told_with_its_unit(filtered: str, words: str) -> None:
    assert filtered == words


def test_a_relative_time_has_the_absolute_one_as_its_title() -> None:
    said = units.ago(NOW_US - 180_000_000, NOW_US)
    assert said == (
        '<time datetime="2025-11-21T09:57:00.000123Z" title="2025-11-21T09:57:00.000123Z">'
        "3 min ago</time>"
    )
    assert units.ago(None, NOW_US) == "-"
