"""Work queues as the journal stores them: their settings, and what became of records.

A queue shares the records of its topics among many workers. Leases are in no entry: after a restart
what was out is handed out again. The events are in operations.py. Each setting is declared in one
place: commands, the file of `seb apply` and the form of the admin page ask here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from seb_appliance import limits
from seb_appliance.formats.declared import Declared, declared
from seb_appliance.formats.numbers import Whole

Ordering = Literal["none", "key"]
Start = Literal["earliest", "latest"]

LeaseMs = Annotated[int, Meta(ge=limits.QUEUE_LEASE_MS_MIN, le=limits.QUEUE_LEASE_MS_MAX)]
DelayMs = Annotated[int, Meta(ge=0, le=limits.QUEUE_DELAY_MS_MAX)]

_LEASE_MS: Final = (limits.QUEUE_LEASE_MS_MIN, limits.QUEUE_LEASE_MS_MAX)
_DELAY_MS: Final = limits.QUEUE_DELAY_MS_MAX


class RetryRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long a record waits after it failed: `min_ms` after the first time, `factor` times as
    long after each further time, at most `max_ms`. `jitter`: the part of that by which the time is
    shortened at random."""

    min_ms: Annotated[
        DelayMs,
        Declared("duration", "Pause after the first failure", "", (0, _DELAY_MS), 1_000),
    ] = 1_000
    max_ms: Annotated[
        DelayMs, Declared("duration", "The longest pause", "", (0, _DELAY_MS), 300_000)
    ] = 300_000
    factor: Annotated[
        float,
        Meta(ge=1, le=100),
        Declared("ratio", "Each further pause is longer by", "", (1, 100), 2.0),
    ] = 2.0
    jitter: Annotated[
        float,
        Meta(ge=0, le=1),
        Declared("ratio", "Part of a pause that is random", "", (0, 1), 0.2),
    ] = 0.2

    def delay_ms(self, attempts: int, chance: float) -> int:
        """After so many failed deliveries, at least 1. `chance`: 0 ≤ chance < 1."""
        # More than 64 doublings would only make floats infinite.
        longest = min(self.max_ms, self.min_ms * self.factor ** min(attempts - 1, 64))
        return int(longest * (1 - self.jitter * chance))


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`topics`: names and patterns. `ordering` `key`: a record is handed out only when all earlier
    ones of its topic and record key are done. `max_deliveries`: a record that failed so often goes
    to the topic `dead_letter`, or is dropped if that is null. `max_in_flight`: records that are out
    at one time. `start`: where to begin in the topics that exist when the queue first reads them;
    later topics are read from their beginning."""

    topics: Annotated[
        tuple[str, ...],
        Meta(min_length=1, max_length=limits.QUEUE_PATTERNS_MAX),
        Declared("names", "Topics and patterns, separated by commas", "What the queue reads."),
    ]
    ordering: Annotated[
        Ordering,
        Declared("choice", "Order by record key", "Order by record key?", default="none"),
    ] = "none"
    lease_ms: Annotated[
        LeaseMs,
        Declared("duration", "Lease", "How long a record is a worker's.", _LEASE_MS, 30_000),
    ] = 30_000
    max_deliveries: Annotated[
        int,
        Meta(ge=1, le=limits.QUEUE_DELIVERIES_MAX),
        Declared(
            "number",
            "Deliveries, after which a record is a dead letter",
            "After so many, a record is a dead letter.",
            (1, limits.QUEUE_DELIVERIES_MAX),
            5,
        ),
    ] = 5
    retry: RetryRule = RetryRule()
    dead_letter: Annotated[
        str | None,
        Declared("text", "Topic of dead letters (empty: drop them)", "Topic of dead letters."),
    ] = None
    max_in_flight: Annotated[
        int,
        Meta(ge=1, le=limits.QUEUE_IN_FLIGHT_MAX),
        Declared(
            "number",
            "Most records that are out",
            "Most records that are out.",
            (1, limits.QUEUE_IN_FLIGHT_MAX),
            10_000,
        ),
    ] = 10_000
    start: Annotated[
        Start,
        Declared("choice", "Begin at", "Where to begin in topics.", default="earliest"),
    ] = "earliest"


_RETRY: Final = "retry_"


def _flat() -> dict[str, Declared]:
    retry = {
        _RETRY + name: replace(one, name=_RETRY + name, help=f"{one.label}.")
        for name, one in declared(RetryRule).items()
    }
    return declared(QueueSettings) | retry


# Also those of the retry rule: `retry_min_ms`.
SETTINGS: Final = _flat()


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as in JSON, with the members of `retry` beside the others."""
    retry = settings.get("retry", {})
    others = {name: value for name, value in settings.items() if name != "retry"}
    return others | {_RETRY + name: value for name, value in retry.items()}


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """The opposite of `flat`."""
    retry = {n.removeprefix(_RETRY): v for n, v in values.items() if n.startswith(_RETRY)}
    others = {name: value for name, value in values.items() if not name.startswith(_RETRY)}
    return others | ({"retry": retry} if retry else {})


class _Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    pass


class QueueStart(_Row, frozen=True):
    """The queue reads this topic from this offset on."""

    topic_id: Whole
    offset: Whole


class OffsetRange(_Row, frozen=True):
    """Offsets from `begin` up to `end` (exclusive)."""

    begin: Whole
    end: Whole


class FailedDelivery(_Row, frozen=True):
    """The record at `offset` has failed `attempts` times, was first handed out at `first_us`, and
    waits until `due_us`."""

    offset: Whole
    attempts: Whole
    due_us: Whole
    first_us: Whole


class Delay(_Row, frozen=True):
    """`count` records from `offset` on are not handed out before `due_us`."""

    offset: Whole
    count: Whole
    due_us: Whole


DELIVER_AT_HEADER: Final = "seb-deliver-at-us"  # tells readers when a delayed record is due
DEAD_LETTER_HEADERS: Final = "seb-dead-"  # what the names of added headers begin with
