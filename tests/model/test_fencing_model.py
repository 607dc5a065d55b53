"""The fencing protocol holds in every interleaving, and each of its rules is needed."""

import pytest

from tests.model.explorer import explore
from tests.model.fencing_model import BROKEN, SMALL_STATES_MAX, SOUND

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("title", SOUND)
def test_no_interleaving_loses_an_acknowledged_entry(title):
    outcome = explore(SOUND[title], states_max=SMALL_STATES_MAX)
    assert outcome.violation == "", "\n".join(outcome.path)
    assert outcome.states > 10_000


@pytest.mark.parametrize("title", BROKEN)
def test_without_this_rule_the_log_is_damaged(title):
    assert explore(BROKEN[title], states_max=SMALL_STATES_MAX).violation != ""
