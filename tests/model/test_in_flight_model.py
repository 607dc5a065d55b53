"""What several entries in flight would need: docs/decisions/append.md, "One entry in flight"."""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.in_flight_model import InFlightModel

pytestmark = pytest.mark.slow

STATES_MAX = 1_000_000


@pytest.mark.parametrize(("in_flight", "appends"), [(1, (2, 2)), (2, (4, 2)), (3, (3, 2))])
def test_no_interleaving_loses_an_acknowledged_entry(in_flight: int, appends: tuple[int, ...]):
    model = InFlightModel(in_flight=in_flight, appends=appends)
    outcome = explore(model, states_max=STATES_MAX)
    assert outcome.violation == "", "\n".join(outcome.path)
    assert outcome.states > 500


@pytest.mark.parametrize(
    ("rule", "damage"),
    [
        ("acknowledges_in_order", "LOST"),
        ("passes_over_orphans", "cannot be followed"),
        ("fills_after_its_epoch", "cannot be followed"),
    ],
)
def test_without_this_rule_the_log_is_damaged(rule: str, damage: str):
    outcome = explore(InFlightModel(**{rule: False}), states_max=STATES_MAX)
    assert damage in outcome.violation
