"""Histories of a queue, and what violates its property in them."""

from __future__ import annotations

from dataclasses import replace

from tests.proof.history import History, QueueCall

SECOND = 1002  # the port of the second appliance


def look_at_a_queue(history: History) -> None:
    """A worker takes all that is in `t` and `u`, rejects the first record and acknowledges the
    others."""
    now_s = 900.0
    history.queue_calls.clear()
    history.dead_letters = [("t", 0)]
    history.gone_home.add("w")
    places = [(topic, offset) for topic in ("t", "u") for offset, _ in history.logs[topic]]
    for n, (topic, offset) in enumerate(places):
        place = ((topic, offset, None),)
        kind = "ack" if n else "reject"
        for what, results in (("take", ()), (kind, ("ok",))):
            call = QueueCall("w", SECOND, now_s, now_s + 1, "ok", "200", what, place, results)  # type: ignore[arg-type]
            history.queue_calls.append(call)
            now_s += 2


def queue_call(history: History, n: int, **changed: object) -> None:
    """Once more the call number `n`, with these changes."""
    history.queue_calls.append(replace(history.queue_calls[n], **changed))  # type: ignore[arg-type]


def taken_after_it_was_settled(history: History) -> None:
    look_at_a_queue(history)
    queue_call(history, 0, sent_s=990.0, answered_s=991.0)


def taken_by_two(history: History) -> None:
    look_at_a_queue(history)
    history.queue_calls[1].sent_s, history.queue_calls[1].answered_s = 990.0, 991.0
    queue_call(history, 0, sent_s=903.0, answered_s=904.0)


def told_too_early_that_a_lease_has_ended(history: History) -> None:
    look_at_a_queue(history)
    history.gone_home.add("v")
    end = history.queue_calls[3]
    later = replace(end, sent_s=end.sent_s + 1.2, answered_s=end.answered_s + 1, worker="v")
    end.results = ("lease_ended",)
    history.queue_calls.insert(4, later)


def settled_twice(history: History) -> None:
    look_at_a_queue(history)
    queue_call(history, 3)


def never_taken(history: History) -> None:
    look_at_a_queue(history)
    del history.queue_calls[2:4]


def out_of_the_order_of_its_key(history: History) -> None:
    look_at_a_queue(history)
    first, second = (("t", 0, "k"),), (("t", 1, "k"),)
    for call in history.queue_calls[:2]:
        call.records = first
    for call in history.queue_calls[2:4]:
        call.records = second
    history.queue_calls[2].sent_s, history.queue_calls[2].answered_s = 900.0, 901.0


def came_again_behind_the_next_of_its_key(history: History) -> None:
    """The first acknowledgement has no answer, and was forgotten."""
    look_at_a_queue(history)
    for call in history.queue_calls[2:6]:
        ((topic, offset, _),) = call.records
        call.records = ((topic, offset, "k"),)
    history.queue_calls[3].outcome, history.queue_calls[3].results = "unknown", ()
    queue_call(history, 2, sent_s=990.0, answered_s=991.0)
    queue_call(history, 3, sent_s=992.0, answered_s=993.0, outcome="ok", results=("ok",))


def without_its_dead_letter(history: History) -> None:
    look_at_a_queue(history)
    history.dead_letters.clear()


def dead_letter_twice(history: History) -> None:
    look_at_a_queue(history)
    history.dead_letters *= 2


def dead_letter_of_what_was_acknowledged(history: History) -> None:
    look_at_a_queue(history)
    history.dead_letters.append(("t", 1))
