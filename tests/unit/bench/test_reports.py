"""What people read: nothing wrong is said quietly."""

from __future__ import annotations

import re

import msgspec
import pytest

from seb_appliance.bench.accounts import Findings
from seb_appliance.bench.machine import Machine
from seb_appliance.bench.meters import Curve, Latencies, Mark, Meter
from seb_appliance.bench.reports import duration, latency_chart, page, report, throughput_chart
from seb_appliance.bench.result import Result, row_of, verified_of


def meter(*marks: tuple[float, int]) -> Meter:
    made = Meter("acknowledged")
    made.marks = [Mark(at_s, records, records, 10 * records) for at_s, records in marks]
    made.latencies.add(0.0015)
    return made


def result(**more: object) -> Result:
    row = row_of([meter((5.0, 100), (6.0, 300))])
    assert row is not None
    made = Result(
        workload="produce",
        title="a <title>",
        target="seb",
        started="2026-11-21T10:00:00+00:00",
        is_whole=True,
        configuration={"rate": None, "body": "single"},
        machine=Machine(
            processor="p", cores=2, memory_bytes=None, system="s", python="3", uvloop=True
        ),
        rows=[row],
        refused={},
        lost=0,
        late=0,
        generator_late=0,
        not_sent=0,
        failure=None,
        generator_cpu=0.1,
        verified=verified_of(Findings(records=300)),
    )
    return msgspec.structs.replace(made, **more)


def test_a_row_counts_what_lies_between_its_first_and_last_mark() -> None:
    row = row_of([meter((5.0, 100), (5.5, 150), (6.0, 300))])
    assert row is not None
    assert (row.records, row.seconds, row.records_per_s) == (200, 1.0, 200.0)
    assert row.over_time == [(0.5, 100.0), (1.0, 300.0)]


def test_slices_are_counted_one_after_the_other() -> None:
    row = row_of([meter((5.0, 100), (6.0, 300)), meter((9.0, 0), (10.0, 100)), Meter("read")])
    assert row is not None
    assert (row.records, row.seconds, row.records_per_s) == (300, 2.0, 150.0)
    assert row.over_time == [(1.0, 200.0), (2.0, 100.0)]


def test_without_marks_there_is_no_row() -> None:
    assert row_of([Meter("read")]) is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"verified": verified_of(Findings(300, 1, ["offset 7 is lost"]))}, "offset 7 is lost"),
        ({"refused": {"503 overloaded": 12}}, "12 refused (503 overloaded)"),
        ({"lost": 3}, "3 without an answer"),
        ({"late": 3}, "3 sent late (no connection was free)"),
        ({"generator_late": 3}, "3 sent late (the load generator had no processor)"),
        ({"not_sent": 3}, "3 were due and never sent"),
        ({"generator_cpu": 0.99}, "it was busy"),
        ({"is_whole": False, "failure": "it went away"}, "it went away"),
    ],
)
def test_what_was_not_right_stands_in_both_reports(more: dict[str, object], words: str) -> None:
    assert words in report(result(**more))
    assert words in page(result(**more))
    assert words not in report(result())
    assert words not in page(result())


def test_what_was_not_verified_is_not_called_right() -> None:
    text = report(result(verified=None))
    assert "right" not in text
    assert re.search(r"verified +no$", text)


def test_a_page_shows_names_as_text() -> None:
    assert "a &lt;title&gt;" in page(result())


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [(0, "0 µs"), (999, "999 µs"), (1_500, "1.5 ms"), (999_999, "1 s"), (12_345_678, "12.3 s")],
)
def test_a_duration_has_the_unit_that_a_person_would_take(microseconds: int, words: str) -> None:
    assert duration(microseconds) == words


@pytest.mark.parametrize("samples", [1, 2, 10, 100_000, 10**7])
def test_a_chart_can_be_drawn_of_any_number_of_samples(samples: int) -> None:
    latencies = Latencies()
    latencies.add(0.0)
    curve = latencies.curve()
    assert curve is not None
    many = Curve(samples=samples, mean_us=1.0, at=curve.at)
    chart = latency_chart([("read", many)])
    coordinates = [
        float(n) for n in re.findall(r'points="([^"]*)"', chart)[0].replace(",", " ").split()
    ]
    assert all(0 <= n <= 900 for n in coordinates)


def test_a_chart_can_be_drawn_of_nothing_happening() -> None:
    assert "polyline" in throughput_chart([("read", [(0.25, 0.0)]), ("idle", [])])
