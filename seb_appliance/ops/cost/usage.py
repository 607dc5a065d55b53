"""What was used of a bucket: totals that only grow, and what of them a month has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

SECOND_US: Final = 1_000_000
_JOURNAL_PUT: Final = "journal PUT"


class Totals(msgspec.Struct):
    """Since some moment. `requests`: by purpose and kind, as `journal PUT`. `received_bytes`: out
    of the bucket. `byte_seconds`: bytes stored, times how long. `open_seconds`: about how long
    windows were open that became journal entries."""

    requests: dict[str, int] = {}
    received_bytes: int = 0
    byte_seconds: float = 0.0
    open_seconds: float = 0.0

    def plus(self, other: Totals, times: float = 1.0) -> Totals:
        """This and `times` of another."""
        requests = Counter(self.requests)
        for name, count in other.requests.items():
            requests[name] += round(count * times)
        return Totals(
            {name: count for name, count in requests.items() if count},
            self.received_bytes + round(other.received_bytes * times),
            self.byte_seconds + other.byte_seconds * times,
            self.open_seconds + other.open_seconds * times,
        )

    def since(self, before: Totals) -> Totals:
        """What was added after `before`."""
        return self.plus(before, -1.0)

    def without(self, purpose: str) -> Totals:
        """The same without the requests of a purpose."""
        kept = {
            name: count
            for name, count in self.requests.items()
            if not name.startswith(purpose + " ")
        }
        return msgspec.structs.replace(self, requests=kept)

    @property
    def by_kind(self) -> Counter[str]:
        """Requests by kind, whatever they were for."""
        counts: Counter[str] = Counter()
        for name, count in self.requests.items():
            counts[name.partition(" ")[2]] += count
        return counts

    @property
    def journal_puts(self) -> int:
        return self.requests.get(_JOURNAL_PUT, 0)

    def only(self, purpose: str) -> Totals:
        """Nothing but the requests of a purpose."""
        kept = {
            name: count for name, count in self.requests.items() if name.startswith(purpose + " ")
        }
        return Totals(kept)


def requests_of(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """By purpose and kind, named as in `Totals`."""
    return {f"{purpose} {kind}": count for (purpose, kind), count in counts.items()}


class Month(msgspec.Struct, frozen=True):
    """A calendar month in UTC; begin and end (exclusive) in µs since the epoch."""

    name: str  # 2026-11
    begin_us: int
    end_us: int

    @classmethod
    def of(cls, now_us: int) -> Month:
        now = datetime.fromtimestamp(now_us / SECOND_US, UTC)
        begin = datetime(now.year, now.month, 1, tzinfo=UTC)
        end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
        return cls(f"{begin:%Y-%m}", _us(begin), _us(end))

    @property
    def seconds(self) -> float:
        return (self.end_us - self.begin_us) / SECOND_US


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND_US
