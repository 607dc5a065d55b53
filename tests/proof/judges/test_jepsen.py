"""Jepsen's workload for Kafka and Elle's checker for lists find nothing in good histories, and what
the port of their rules finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.check_records import Evidence
from tests.proof.history import History
from tests.proof.judges import jepsen
from tests.proof.judges.expected import MISSED
from tests.proof.judges.transactions import transactions_of
from tests.proof.kafka_histories import transform
from tests.proof.queue_histories import look_at_a_queue
from tests.proof.test_checker import SEEDED, fenced_repeated, good, name_of, planted
from tests.support.servers.s3_server import NotInstalledError

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]  # a JVM for each history


def judged(history: History) -> list[jepsen.Finding]:
    try:
        return jepsen.rule(transactions_of(Evidence(history)), history.compacted)
    except NotInstalledError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("change", [look_at_a_queue, transform, fenced_repeated])
def test_a_good_history_has_no_anomaly(change: Callable[[History], None]) -> None:
    history = good()
    change(history)
    assert judged(history) == []


@pytest.mark.parametrize(("law", "seed"), SEEDED, ids=name_of)
def test_a_violation_is_found_unless_sends_and_polls_cannot_show_it(
    law: str, seed: Callable[[History], None]
) -> None:
    found = judged(planted(law, seed))
    assert bool(found) != (seed.__name__ in MISSED["Jepsen and Elle"]), found
