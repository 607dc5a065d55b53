"""An idempotent producer's numbers: what stays, and what is numbered anew."""

from __future__ import annotations

from seb_appliance.client.batching import Batch
from seb_appliance.client.producing import ON_THE_WAY_MAX, Numbers


def sent(count: int) -> tuple[Numbers, list[Batch]]:
    numbers = Numbers("p")
    batches = [Batch("t", 0.0) for _ in range(count)]
    for batch in batches:
        numbers.send(batch)
    return numbers, batches


def test_batches_are_numbered_as_they_are_sent() -> None:
    numbers, batches = sent(3)
    assert [numbers.of(batch) for batch in batches] == [(0, 0), (0, 1), (0, 2)]
    assert numbers.headers(batches[1]) == {
        "Producer-Id": "p",
        "Producer-Epoch": "0",
        "Producer-Seq": "1",
    }


def test_an_old_one_without_an_answer_holds_up_the_new_ones() -> None:
    """Else the appliance might not remember its offsets when it is asked again."""
    numbers, batches = sent(ON_THE_WAY_MAX)
    for batch in batches[1:]:
        numbers.stored(batch)
    assert not numbers.has_room
    numbers.stored(batches[0])
    assert numbers.has_room


def test_behind_a_refused_one_the_others_begin_a_new_epoch() -> None:
    numbers, batches = sent(4)
    numbers.stored(batches[0])
    numbers.refused(batches[1])
    assert [numbers.of(batch) for batch in batches[2:]] == [(1, 0), (1, 1)]
    later = Batch("t", 0.0)
    numbers.send(later)
    assert numbers.of(later) == (1, 2)


def test_with_one_in_doubt_all_behind_it_are_in_doubt() -> None:
    numbers, batches = sent(3)
    numbers.stored(batches[0])
    assert list(numbers.lost(batches[1])) == batches[1:]
    later = Batch("t", 0.0)
    numbers.send(later)
    assert numbers.of(later) == (1, 0)
