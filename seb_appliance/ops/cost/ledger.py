"""The usage of the bucket this month: counted each minute, and kept on this machine over restarts.

If the machine is lost, so are these numbers; `counted_since_us` says from when they are complete.
"""

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
        """All but the requests of a purpose."""
        kept = {
            name: count
            for name, count in self.requests.items()
            if not name.startswith(purpose + " ")
        }
        return msgspec.structs.replace(self, requests=kept)

    @property
    def by_purpose(self) -> dict[str, dict[str, int]]:
        """Requests by purpose, then by kind."""
        purposes: dict[str, dict[str, int]] = {}
        for name, count in sorted(self.requests.items()):
            purpose, _, kind = name.partition(" ")
            purposes.setdefault(purpose, {})[kind] = count
        return purposes

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
        """Only the requests of a purpose."""
        return Totals({f"{purpose} {k}": n for k, n in self.by_purpose.get(purpose, {}).items()})


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


_POINT_EVERY_US: Final = 3_600 * SECOND_US
_POINTS_REACH_US: Final = 24 * 3_600 * SECOND_US
_RATE_OVER_S_MIN: Final = 3_600.0  # a burst of a minute is no forecast


class TopicShare(msgspec.Struct):
    """`entries`: its share of journal entries, by its bytes in each. `byte_seconds`: of its records
    in force."""

    entries: float = 0.0
    byte_seconds: float = 0.0


class Point(msgspec.Struct):
    """How things were at some hour."""

    at_us: int
    totals: Totals
    stored_bytes: int


class Observed(msgspec.Struct):
    """What happened since the observation before it."""

    requests: dict[str, int]
    received_bytes: int
    open_seconds: float
    stored_bytes: int  # now
    entry_shares: Mapping[int, float]  # by topic id
    topic_bytes: Mapping[int, int]  # now


class Ledger(msgspec.Struct):
    """`totals` are never reset while the file exists; this month's are those since `month_start`.
    `until_us`: the last tick."""

    month: Month
    counted_since_us: int
    until_us: int
    stored_bytes: int = 0
    totals: Totals = msgspec.field(default_factory=Totals)
    month_start: Totals = msgspec.field(default_factory=Totals)
    points: list[Point] = []
    topics: dict[int, TopicShare] = {}

    @classmethod
    def begun(cls, now_us: int) -> Ledger:
        return cls(Month.of(now_us), now_us, now_us)

    @property
    def this_month(self) -> Totals:
        return self.totals.since(self.month_start)

    def note(self, now_us: int, seen: Observed) -> None:
        """Called about once a minute: what was seen belongs to the month of `now_us`."""
        self.pass_time(now_us, seen.topic_bytes)
        self.totals = self.totals.plus(
            Totals(seen.requests, seen.received_bytes, 0.0, seen.open_seconds)
        )
        for topic_id, share in seen.entry_shares.items():
            self._share(topic_id).entries += share
        self.stored_bytes = seen.stored_bytes
        self._mark(now_us)

    def rate(self, now_us: int) -> tuple[Totals, float, float]:
        """What was used in the last day (or since counting began), in how many seconds, and by how
        many bytes a second what is stored has grown. Requests of starts are left out."""
        oldest = self.points[0] if self.points else Point(now_us, self.totals, self.stored_bytes)
        seconds = max(_RATE_OVER_S_MIN, (now_us - oldest.at_us) / SECOND_US)
        used = self.totals.since(oldest.totals).without("start")
        return used, seconds, (self.stored_bytes - oldest.stored_bytes) / seconds

    def pass_time(self, now_us: int, topic_bytes: Mapping[int, int]) -> None:
        """Count what was stored until `now_us`, also over a pause of the process."""
        month = Month.of(now_us)
        if month.begin_us > self.month.begin_us:
            self._store_until(month.begin_us, {})
            self.month, self.counted_since_us = month, month.begin_us
            self.month_start, self.topics = self.totals, {}
        self._store_until(now_us, topic_bytes)

    def _store_until(self, now_us: int, topic_bytes: Mapping[int, int]) -> None:
        """A clock that went back adds nothing."""
        seconds = max(0, now_us - self.until_us) / SECOND_US
        self.until_us = now_us
        self.totals = self.totals.plus(Totals(byte_seconds=self.stored_bytes * seconds))
        for topic_id, size_bytes in topic_bytes.items():
            if size_bytes:
                self._share(topic_id).byte_seconds += size_bytes * seconds

    def _share(self, topic_id: int) -> TopicShare:
        return self.topics.setdefault(topic_id, TopicShare())

    def _mark(self, now_us: int) -> None:
        if not self.points or now_us - self.points[-1].at_us >= _POINT_EVERY_US:
            self.points.append(Point(now_us, self.totals, self.stored_bytes))
        # A clock that was set back leaves points of the future: they are of no use.
        self.points = [
            point for point in self.points if now_us - _POINTS_REACH_US <= point.at_us <= now_us
        ]


def forecast(ledger: Ledger, now_us: int) -> Totals:
    """The usage of the whole month, if usage and growth of storage stay as in the last day. Storage
    does not become negative."""
    rest_s = max(0.0, (ledger.month.end_us - now_us) / SECOND_US)
    used, seconds, growth = ledger.rate(now_us)
    stored = ledger.stored_bytes * rest_s
    grown = max(-stored, growth * rest_s * rest_s / 2)
    used = msgspec.structs.replace(used, byte_seconds=0.0)
    whole = ledger.this_month.plus(used, rest_s / seconds)
    return msgspec.structs.replace(whole, byte_seconds=whole.byte_seconds + stored + grown)
