"""Porcupine finds nothing in good histories, and the violations that registers can show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.check_records import Evidence
from tests.proof.history import Commit, History, RegisterCall, TakeOver
from tests.proof.judges import judging, porcupine
from tests.proof.judges.expected import MISSED
from tests.proof.judges.registers import END_NS, Operation, Register
from tests.proof.kafka_histories import transform
from tests.proof.queue_histories import look_at_a_queue
from tests.proof.test_checker import SEEDED, fenced_repeated, good, name_of, planted
from tests.support.servers.s3_server import NotInstalledError

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]  # Go compiles half a minute at first


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    try:
        porcupine.program()
    except NotInstalledError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("change", [look_at_a_queue, transform, fenced_repeated])
def test_the_operations_of_a_good_history_can_be_ordered(
    change: Callable[[History], None],
) -> None:
    history = good()
    change(history)
    found = judging.opinions(history)
    judging.require(found)
    assert all(one.operations for one in found if not one.absent)
    assert not found[0].absent


@pytest.mark.parametrize(("law", "seed"), SEEDED, ids=name_of)
def test_a_violation_is_found_unless_a_register_cannot_show_it(
    law: str, seed: Callable[[History], None]
) -> None:
    ruling = porcupine.rule(Evidence(planted(law, seed)))
    assert bool(ruling.illegal) != (seed.__name__ in MISSED["Porcupine"])
    assert not ruling.undecided
    sizes = [one.operations for one in ruling.illegal]
    assert sizes == sorted(sizes)


def contended(*calls: tuple[str, str, int, str]) -> History:
    """Calls one after the other: who, what, the number that was told or given, and the answer."""
    history = History()
    for n, (who, kind, number, answer) in enumerate(calls):
        outcome = "ok" if answer.isdigit() else "unknown" if answer == "lost" else "refused"
        times = n, n + 0.5 if outcome != "unknown" else float("inf"), outcome, answer
        if kind in {"commit", "look"}:
            expected = number - 1 if kind == "commit" else None
            history.commits.append(Commit(who, 1001, *times, "g", "t", number, kind, expected))  # type: ignore[arg-type]
        else:
            register = "lease" if kind in {"take", "release"} else "topic"
            call = RegisterCall(who, 1001, *times, register, kind, number)  # type: ignore[arg-type]
            history.register_calls.append(call)
    return history


ABSENT = "topic_not_found"
ORDERED = {
    "topic": (("a", "show", 0, ABSENT), ("a", "create", 3, "201"), ("b", "create", 3, "200"),
              ("b", "delete", 0, "lost"), ("a", "show", 3, "200"), ("a", "show", 0, ABSENT),
              ("b", "create", 0, "lost"), ("a", "show", 7, "200"), ("a", "delete", 0, "204")),
    "lease": (("a", "take", 5, "200"), ("b", "take", 0, "lease_held"), ("a", "take", 5, "200"),
              ("a", "release", 5, "204"), ("b", "take", 6, "200"), ("a", "take", 0, "lease_held"),
              ("a", "release", 5, "stale_generation"), ("b", "release", 6, "lost"),
              ("a", "take", 9, "200")),
    "lease that ends": (("a", "take", 5, "200"), ("b", "take", 0, "lease_held"),
                        ("b", "take", 6, "200")),
    "lease that a restart brings back": (("a", "take", 5, "200"), ("b", "take", 0, "lease_held"),
                                         ("a", "release", 5, "stale_generation"),
                                         ("b", "take", 0, "lease_held")),
    "compare and set": (("a", "commit", 1, "200"), ("b", "commit", 1, "offset_conflict"),
                        ("b", "commit", 2, "lost"), ("a", "commit", 2, "offset_conflict"),
                        ("a", "look", 2, "200")),
}  # fmt: skip
NOT_ORDERED = {
    "created twice": (("a", "create", 3, "201"), ("b", "create", 4, "201")),
    "an id twice": (("a", "create", 3, "201"), ("a", "delete", 0, "204"),
                    ("b", "create", 3, "201")),
    "shown after it was deleted": (("a", "create", 3, "201"), ("a", "delete", 0, "204"),
                                   ("b", "show", 3, "200")),
    "absent after it was created": (("a", "create", 3, "201"), ("b", "show", 0, ABSENT)),
    "deleted though absent": (("a", "delete", 0, "204"),),
    "a lease of two": (("a", "take", 5, "200"), ("b", "take", 6, "200")),
    "a generation twice": (("a", "take", 5, "200"), ("a", "release", 5, "204"),
                           ("b", "take", 5, "200")),
    "held by nobody": (("a", "take", 0, "lease_held"),),
    "stale though it holds it": (("a", "take", 5, "200"), ("a", "release", 5, "stale_generation")),
    "set by two": (("a", "commit", 1, "200"), ("b", "commit", 1, "200")),
    "a conflict of one": (("a", "commit", 1, "offset_conflict"),),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERED)
def test_what_contenders_may_be_told_can_be_ordered(name: str) -> None:
    assert porcupine.rule(Evidence(contended(*ORDERED[name]))).illegal == []


@pytest.mark.parametrize("name", NOT_ORDERED)
def test_what_contenders_may_not_be_told_cannot_be_ordered(name: str) -> None:
    assert len(porcupine.rule(Evidence(contended(*NOT_ORDERED[name]))).illegal) == 1


@pytest.mark.parametrize(
    ("name", "may_be_old"),
    [
        ("shown after it was deleted", True),
        ("absent after it was created", True),
        ("held by nobody", True),
        ("created twice", False),
        ("a lease of two", False),
    ],
)
def test_who_is_taken_over_may_show_what_is_old_but_not_grant_it(
    name: str, may_be_old: bool
) -> None:
    history = contended(*NOT_ORDERED[name])
    last = history.register_calls[-1]
    history.take_overs.append(TakeOver(last.port, last.sent_s, last.answered_s))
    assert (porcupine.rule(Evidence(history)).illegal == []) is may_be_old


def test_a_record_may_not_come_again_when_the_next_one_of_its_key_was_handed_out() -> None:
    """The end of the first delivery has no answer: a kill may have undone it."""
    operations = [
        Operation(1, 2, "take", take=1, who="one", port=1),
        Operation(3, END_NS, "ack", True, take=2, who="one", port=1),
        Operation(4, 5, "take", place=1, take=3, who="two", port=1),
        Operation(6, 7, "take", take=4, who="one", port=2),
        Operation(8, 9, "ack", take=5, who="one", port=2, result="ok"),
        Operation(10, 11, "ack", place=1, take=6, who="two", port=2, result="ok"),
    ]
    register = Register("queue", "queue", operations)
    assert len(porcupine.rule_on([register]).illegal) == 1
