"""The port of Jepsen's and Elle's rules finds nothing in good histories, the violations that sends
and polls can show, and each kind of cycle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.check_records import Evidence
from tests.proof.history import History
from tests.proof.judges.cycles import cycles
from tests.proof.judges.expected import MISSED
from tests.proof.judges.judging import kafka_rules
from tests.proof.judges.kafka_rules import Analysis, anomalies
from tests.proof.judges.transactions import Rows, Transaction, Value
from tests.proof.kafka_histories import transform
from tests.proof.queue_histories import look_at_a_queue
from tests.proof.test_checker import SEEDED, fenced_repeated, good, name_of, planted


@pytest.mark.parametrize("change", [look_at_a_queue, transform, fenced_repeated])
def test_a_good_history_has_no_anomaly(change: Callable[[History], None]) -> None:
    history = good()
    change(history)
    found = kafka_rules(Evidence(history))
    assert found.violations == ()
    assert found.operations > 20


@pytest.mark.parametrize(("law", "seed"), SEEDED, ids=name_of)
def test_a_violation_is_found_unless_sends_and_polls_cannot_show_it(
    law: str, seed: Callable[[History], None]
) -> None:
    found = kafka_rules(Evidence(planted(law, seed))).violations
    assert bool(found) != (seed.__name__ in MISSED["Jepsen's rules for Kafka"]), found


def sent(
    *values: tuple[str, Value],
    process: str = "p",
    at_s: tuple[float, float] = (0, 9),
    **rest: object,
) -> Transaction:
    """To the logs, in turn."""
    made = Transaction((process, 0), *at_s, **rest)  # type: ignore[arg-type]
    for log, value in values:
        made.sends.setdefault(log, []).append(value)
    return made


def polled(
    at_s: tuple[float, float] = (0, 9), process: str = "c", **logs: Rows | list[int]
) -> Transaction:
    """Whole logs from their beginnings: values, or rows."""
    made = Transaction((process, 0), *at_s)
    for log, values in logs.items():
        rows = [row if isinstance(row, tuple) else (i, row) for i, row in enumerate(values)]
        made.polls[log] = rows  # type: ignore[assignment]
        made.ends[log] = rows[-1][0] + 1 if rows else 0  # type: ignore[operator]
    return made


def both(sends: Transaction, polls: Transaction) -> Transaction:
    sends.polls, sends.ends = polls.polls, polls.ends
    return sends


CASES: dict[str, list[Transaction]] = {
    "G0": [sent(("x", 1), ("y", 2)), sent(("x", 3), ("y", 4), process="q"),
           polled(x=[1, 3], y=[4, 2])],
    "G1a": [sent(("x", 1), outcome="refused"), polled(x=[1])],
    "G1b": [sent(("x", 1), ("x", 2)), polled(x=[1]), polled(process="d", x=[1, 2])],
    "G1c": [both(sent(("x", 1)), polled(y=[2])), both(sent(("y", 2), process="q"), polled(x=[1]))],
    "G-single": [sent(("x", 1), ("y", 2)), polled(x=[1], y=[]), polled(process="d", x=[1], y=[2])],
    "G2": [sent(("x", 1)), sent(("y", 2), process="q"), polled(x=[1], y=[]),
           polled(process="d", x=[], y=[2]), polled(process="e", x=[1], y=[2])],
    "G-single-realtime": [sent(("x", 1), at_s=(0, 1)), polled((2, 3), x=[]),
                          polled((4, 5), "d", x=[1])],
    "G0-realtime": [sent(("x", 1), at_s=(2, 3)), sent(("x", 2), process="q", at_s=(0, 1)),
                    polled(x=[1, 2])],
    "inconsistent-offsets": [sent(("x", 1), ("x", 2)), polled(x=[1, 2]),
                             polled(process="d", x=[2])],
    "duplicate": [sent(("x", 1)), polled(x=[1, 1])],
    "no-writer": [polled(x=[1])],
    "lost-write": [sent(("x", 1)), polled(x=[])],
    "int-poll-skip": [sent(("x", 1)), sent(("x", 2), process="q"), sent(("x", 3), process="r"),
                      polled(x=[1, 2, 3]), polled(process="d", x=[(0, 1), (2, 3)])],
    "int-nonmonotonic-poll": [sent(("x", 1)), sent(("x", 2), process="q"), polled(x=[1, 2]),
                              polled(process="d", x=[(1, 2), (0, 1)])],
    "int-send-skip": [sent(("x", 1), ("x", 3)), sent(("x", 2), process="q"), polled(x=[1, 2, 3])],
    "int-nonmonotonic-send": [sent(("x", 2), ("x", 1)), polled(x=[1, 2])],
    "poll-skip": [sent(("x", 1)), sent(("x", 2), process="q"), sent(("x", 3), process="r"),
                  polled(x=[1]), polled(x=[(2, 3)]), polled(process="d", x=[1, 2, 3])],
    "nonmonotonic-poll": [sent(("x", 1)), polled(x=[1]), polled(x=[1])],
    "nonmonotonic-send": [sent(("x", 2)), sent(("x", 1)), polled(x=[1, 2])],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_anomaly_has_its_name(name: str) -> None:
    found = Analysis(CASES[name], set())
    assert name in {one.name for judge in (anomalies, cycles) for one in judge(found)}
