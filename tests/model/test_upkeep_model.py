"""No interleaving of upkeep and take-over loses a record, and each of its rules is needed."""

import pytest

from tests.model.explorer import explore
from tests.model.upkeep_bounds import BROKEN, BROKEN_LARGER, SOUND, SOUND_LARGER

STATES_MAX = 100_000


@pytest.mark.parametrize("title", SOUND)
def test_no_interleaving_of_upkeep_loses_a_record(title):
    outcome = explore(SOUND[title], states_max=STATES_MAX)
    assert outcome.violation == "", "\n".join(outcome.path)
    assert outcome.states > 1_000


@pytest.mark.parametrize("title", BROKEN)
def test_without_this_rule_of_upkeep_a_record_is_lost(title):
    assert explore(BROKEN[title], states_max=STATES_MAX).violation != ""


@pytest.mark.slow
@pytest.mark.parametrize("title", SOUND_LARGER)
def test_no_interleaving_within_a_larger_bound_loses_a_record(title):
    outcome = explore(SOUND_LARGER[title], states_max=STATES_MAX)
    assert outcome.violation == "", "\n".join(outcome.path)


@pytest.mark.slow
@pytest.mark.parametrize("title", BROKEN_LARGER)
def test_without_this_rule_a_record_is_lost_within_a_larger_bound(title):
    assert explore(BROKEN_LARGER[title], states_max=STATES_MAX).violation != ""
