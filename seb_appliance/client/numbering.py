"""An idempotent producer's numbers for one topic (docs/GUARANTEES.md: once and in order, by seqs).

Batches get seqs in the order in which they are sent, several may be on their way, and each keeps
its number until it is settled, however often it is sent. What becomes of the others when one fails
is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.client.batching import Batch

ON_THE_WAY_MAX: Final = 4

# The answer to any seq that is still on its way again must be remembered.
assert ON_THE_WAY_MAX < limits.PRODUCER_SEQS_REMEMBERED


class Numbers:
    """`producer_id`: of nobody else, so that epoch 0 is free. A batch is settled by whoever
    calls, after asking here."""

    def __init__(self, producer_id: str) -> None:
        self.producer_id = producer_id
        self._epoch = 0
        self._next_seq = 0
        self._on_the_way: dict[Batch, int] = {}  # in the order of their seqs

    @property
    def has_room(self) -> bool:
        """Counted from the oldest that has no answer: what follows it may be stored already."""
        oldest = next(iter(self._on_the_way.values()), self._next_seq)
        return self._next_seq - oldest < ON_THE_WAY_MAX

    @property
    def on_the_way(self) -> Sequence[Batch]:
        return tuple(self._on_the_way)

    def send(self, batch: Batch) -> None:
        """It gets the next seq."""
        assert self.has_room, self._on_the_way.values()
        self._on_the_way[batch] = self._next_seq
        self._next_seq += 1

    def of(self, batch: Batch) -> tuple[int, int]:
        """Its epoch and seq of now."""
        return self._epoch, self._on_the_way[batch]

    def headers(self, batch: Batch) -> dict[str, str]:
        epoch, seq = self.of(batch)
        return {
            "Producer-Id": self.producer_id,
            "Producer-Epoch": str(epoch),
            "Producer-Seq": str(seq),
        }

    def is_first(self, batch: Batch) -> bool:
        """Whether everything before it is settled."""
        return next(iter(self._on_the_way)) is batch

    def stored(self, batch: Batch) -> None:
        del self._on_the_way[batch]

    def refused(self, batch: Batch) -> None:
        """The first one is not stored and will not be: nothing behind it in this epoch can be,
        since nothing is stored past a hole. So the others go on, renumbered, in the next epoch, and
        what of them is still under way with its old number comes to nothing."""
        assert self.is_first(batch)
        del self._on_the_way[batch]
        self.begin_again()

    def begin_again(self) -> None:
        """The next epoch, with what is on the way from seq 0 on. Only when none of it is stored."""
        self._epoch += 1
        self._on_the_way = {other: seq for seq, other in enumerate(self._on_the_way)}
        self._next_seq = len(self._on_the_way)

    def lost(self, batch: Batch) -> Sequence[Batch]:
        """The first one may be stored, and so may what is behind it: all these, which nobody can
        number anew. What comes next begins the next epoch."""
        assert self.is_first(batch)
        lost = self.on_the_way
        self._on_the_way = {}
        self.begin_again()
        return lost
