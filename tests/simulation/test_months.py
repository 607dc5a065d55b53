"""What docs/COST.md says of months is what counted requests cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seb_appliance.ops.cost.competitors import COMPETITORS
from tests.simulation import months
from tests.simulation.months import COUNTS, SPANS

PAGE = (Path(__file__).parents[2] / "docs/COST.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def counts() -> months.Counts:
    found: months.Counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    return found


def test_the_table_of_the_page_is_what_the_counts_cost(counts: months.Counts) -> None:
    assert months.table(counts) in PAGE


def test_the_counts_are_of_everything_that_the_table_shows(counts: months.Counts) -> None:
    assert counts.keys() == {months.name_of(*one) for one in months.wanted()}


@pytest.mark.parametrize(
    ("mode", "rate"),
    [
        ("A", 0.0),
        pytest.param("A", 100.0, marks=pytest.mark.slow),
        pytest.param("B", 100.0, marks=pytest.mark.slow),
    ],
)
def test_counting_again_finds_the_same(counts: months.Counts, mode: str, rate: float) -> None:
    most = months.enough("aws" if mode == "A" else "gcs")
    assert most is not None
    found = months.counted(mode, most, rate, 1, SPANS[rate])
    assert found == pytest.approx(counts[months.name_of(mode, most, rate, 1)], rel=0.05)


def test_a_quiet_month_costs_a_cent_at_most_beside_its_entries(counts: months.Counts) -> None:
    assert months.upkeep(counts, 0.0) <= 0.01
    assert months.upkeep(counts, 1 / 60) <= 0.01


@pytest.mark.parametrize("provider", [name for name in months.MODES if months.enough(name)])
@pytest.mark.parametrize("topics", months.TOPICS)
def test_above_one_record_a_second_all_requests_cost_less_than_at_sqs_fifo(
    counts: months.Counts, provider: str, topics: int
) -> None:
    for rate in (1.0, 10.0, 100.0, 1_000.0, 10_000.0):
        load = months._load(rate, topics)
        assert months.requests_cost(counts, provider, rate, topics) < COMPETITORS["SQS FIFO"](load)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.95])
def test_below_it_the_longest_month_costs_half_a_dollar_on_aws(rate: float) -> None:
    """All of it: records, acknowledgements, and upkeep."""
    most = months.enough("aws")
    assert most is not None
    found = months.counted("A", most, rate, 1, (4 * months.HOUR_S, 2 * months.HOUR_S))
    assert months.bill_of(found, "aws", days=31).total <= 0.50
