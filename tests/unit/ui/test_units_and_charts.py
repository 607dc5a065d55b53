"""Numbers as people read them, and the lines drawn of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from seb_appliance.ui import units
from seb_appliance.ui.history import Sample
from seb_appliance.ui.units import HEIGHT, WIDTH, Chart, chart

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


SAMPLE = Sample(0, 15.0, 150, 1500, 10, 0, 0, 0, 10, None, None, 0)


def drawn(samples: list[Sample]) -> Chart:
    series = {"": [(s.at_us, s.records_in / s.seconds) for s in samples]}
    return chart("Records in", series, units.rate, from_us=0, until_us=900_000_000)


def at(second: int, records: int) -> Sample:
    return replace(SAMPLE, at_us=second * 1_000_000, records_in=records)


def test_a_chart_reaches_from_its_largest_value_to_its_foot() -> None:
    (line,) = drawn([at(15, 0), at(30, 150)]).lines
    assert line.paths == [f"{WIDTH / 60:.1f},{HEIGHT - 2:.1f} {WIDTH / 30:.1f},2.0"]
    assert line.latest == "10/s"


def test_a_time_without_samples_is_a_gap_and_no_line() -> None:
    (line,) = drawn([at(15, 1), at(30, 1), at(600, 1), at(615, 1)]).lines
    assert [len(path.split()) for path in line.paths] == [2, 2]


def test_a_chart_of_nothing_says_so() -> None:
    empty = drawn([])
    assert (empty.lines[0].paths, empty.lines[0].latest) == ([], "-")
    assert empty.label == "Records in: now -; at most 0/s"


def test_a_day_of_samples_becomes_as_many_points_as_a_chart_is_wide() -> None:
    samples = [at(second, second % 7) for second in range(1, 900)]
    (line,) = drawn(samples).lines
    assert len(line.paths[0].split()) <= 151
