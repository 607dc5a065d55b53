"""What a record set of a producer holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from seb_appliance.broker.values import NewRecords

SEQUENCES: Final = 1 << 31  # sequences follow each other modulo this


@dataclass(frozen=True, slots=True)
class ProducerOf:
    """The idempotent producer of `count` records; the first one has `base_sequence`."""

    producer_id: int
    epoch: int
    base_sequence: int
    count: int

    def follows(self, before: ProducerOf) -> bool:
        """Whether these are the same producer's next records."""
        return (self.producer_id, self.epoch, self.base_sequence) == (
            before.producer_id,
            before.epoch,
            (before.base_sequence + before.count) % SEQUENCES,
        )

    def and_then(self, after: ProducerOf) -> ProducerOf:
        """Its records and those that follow."""
        return replace(self, count=self.count + after.count)


class Incoming(NamedTuple):
    """The records of one record set. `stamp` is None when the producer is not idempotent.
    `size_bytes`: of the records, inflated."""

    records: NewRecords
    stamp: ProducerOf | None
    is_transactional: bool
    size_bytes: int = 0
