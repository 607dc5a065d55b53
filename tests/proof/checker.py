"""The verdict on a history: every violation of P1 to P18, and P20."""

from __future__ import annotations

from tests.proof.check_kafka import check_kafka
from tests.proof.check_queues import check_queues
from tests.proof.check_records import Evidence, check_records
from tests.proof.check_state import check_state
from tests.proof.check_tables import check_tables
from tests.proof.history import History
from tests.proof.violations import Violation

_SHOWN_MAX = 10


def violations(history: History) -> list[Violation]:
    """None when all is well."""
    evidence = Evidence(history)
    return [
        violation
        for check in (check_records, check_state, check_tables, check_queues, check_kafka)
        for violation in check(evidence)
    ]


def require(history: History) -> None:
    """Raises AssertionError with a sentence for each violation, if there is any."""
    found = violations(history)
    shown = "\n".join(map(str, found[:_SHOWN_MAX]))
    assert not found, f"{len(found)} violations in {history.calls_made} calls:\n{shown}"
