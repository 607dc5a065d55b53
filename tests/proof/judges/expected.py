"""Which of the violations that tests/proof/test_checker.py plants each judge does not find, and why
no judge can find some of them."""

from __future__ import annotations

from typing import Final

UNSEEN: Final = {
    "too_early": "when the bucket had a record is in no client's call",
    "served_early": "when the bucket had a record is in no client's call",
    "fenced_spoke": "a log does not say which appliance may still write to it",
    "fenced_repeated": "a log does not say which appliance may still write to it",
    "stuck": "a history in which nothing happens any more can be ordered",
    "rebuilt_otherwise": "digests of the state are in no client's call",
    "table_cannot_be_read": "a read that fails says nothing about the log",
}
"""Found by our own checker only."""

_NO_LOG_SHOWS: Final = frozenset({
    *UNSEEN,
    "gap",  # Kafka's logs may have gaps
    "row_beyond_its_end",
    # They know neither resets of groups nor compaction, API keys and queues.
    "commit_went_back", "newest_removed", "brought_back", "newest_not_in_the_table", "let_in",
    "taken_after_it_was_settled", "taken_by_two", "settled_twice", "never_taken",
    "told_too_early_that_a_lease_has_ended", "out_of_the_order_of_its_key",
    "came_again_behind_the_next_of_its_key",
    "without_its_dead_letter", "dead_letter_twice", "dead_letter_of_what_was_acknowledged",
})  # fmt: skip
"""By logs that clients write to and read."""

MISSED: Final[dict[str, frozenset[str]]] = {
    "Porcupine": frozenset({
        *UNSEEN,
        "sent_in_flight_and_exchanged",  # requests in flight may be stored in any order
        "backwards",  # a read may begin anywhere
        # A register is about one topic or one offset, not about what is stored with what.
        "doubled_by_a_transaction", "stored_without_its_offset", "out_of_order_by_a_transaction",
    }),
    "Jepsen's rules for Kafka": _NO_LOG_SHOWS,
    "Jepsen and Elle": frozenset({
        *_NO_LOG_SHOWS,
        "sent_in_flight_and_exchanged",  # a process has one operation at a time
        # They are not shown logs that are compacted: all that is missing would be lost to them.
        "nobody_sent_a_row", "compacted_row_differs",
    }),
}  # fmt: skip


def as_markdown(law_of: dict[str, str]) -> str:
    """The rows as docs/PROOF.md has them; `law_of`: the property that each violates."""
    lines = ["| violation | of | why no judge finds it |", "|---|---|---|"]
    lines += [f"| `{name}` | {law_of[name]} | {why} |" for name, why in UNSEEN.items()]
    return "\n".join(lines) + "\n"
