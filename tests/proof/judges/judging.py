"""What judges of other projects say of a history, beside our own checker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.proof.check_records import Evidence
from tests.proof.history import History
from tests.proof.judges import jepsen, porcupine
from tests.proof.judges.cycles import cycles
from tests.proof.judges.kafka_rules import Analysis, anomalies
from tests.proof.judges.transactions import transactions_of
from tests.support.servers.s3_server import NotInstalledError

_SHOWN_MAX: Final = 5


@dataclass(frozen=True)
class Opinion:
    """`operations`: so many were judged; `undecided`: so many were too much for the judge.
    `absent`: why the judge is not there."""

    judge: str
    operations: int = 0
    undecided: int = 0
    violations: tuple[str, ...] = ()
    absent: str = ""


def _porcupine(evidence: Evidence) -> Opinion:
    try:
        found = porcupine.rule(evidence)
    except NotInstalledError as missing:
        return Opinion("Porcupine", absent=str(missing))
    undecided = sum(one.operations for one in found.undecided)
    return Opinion("Porcupine", found.operations, undecided, tuple(map(str, found.illegal)))


def kafka_rules(evidence: Evidence) -> Opinion:
    """It is always there."""
    transactions = transactions_of(evidence)
    found = Analysis(transactions, evidence.history.compacted)
    told = tuple(str(one) for judge in (anomalies, cycles) for one in judge(found))
    return Opinion("Jepsen's rules for Kafka", len(transactions), violations=told)


def _jepsen(evidence: Evidence) -> Opinion:
    transactions = transactions_of(evidence)
    try:
        found = jepsen.rule(transactions, evidence.history.compacted)
    except NotInstalledError as missing:
        return Opinion("Jepsen and Elle", absent=str(missing))
    return Opinion("Jepsen and Elle", len(transactions), violations=tuple(map(str, found)))


JUDGES: Final[tuple[Callable[[Evidence], Opinion], ...]] = (_porcupine, _jepsen, kafka_rules)


def opinions(history: History) -> list[Opinion]:
    """Of each judge that is there, and of the others why they are not."""
    evidence = Evidence(history)
    return [judge(evidence) for judge in JUDGES]


def require(found: list[Opinion]) -> None:
    """Raises AssertionError with what a judge found, if there is anything."""
    for one in found:
        shown = "\n".join(one.violations[:_SHOWN_MAX])
        assert not one.violations, f"{one.judge} found {len(one.violations)} violations:\n{shown}"
