"""What a transaction asks for, and what it stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from seb_appliance.broker.append.deduplication import RequestStamp
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.values import NewBatches, NewRecords
from seb_appliance.formats.contents import Produced


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records to topics, offsets of one group and acknowledgements of one queue, in one entry or
    not at all. Every offset must go forward, whatever `commit` allows, so that a blind retry is
    refused."""

    produce: Mapping[str, NewRecords | NewBatches]
    commit: Commit | None = None
    request: RequestStamp | None = None
    ack: Acknowledging | None = None


class Acknowledging(Protocol):
    """Deliveries of a queue that are acknowledged with other things, all or none."""

    def check(self) -> None:
        """Raises Refusal if one of them cannot be."""

    def admit(self, window: Window) -> None:
        """After `check`, without a break in between."""


@dataclass(frozen=True, slots=True)
class Transacted:
    """`produced` in the order of the request; `committed` by topic name."""

    produced: dict[str, Produced]
    committed: dict[str, int]
    durability: str
    replayed: bool = False
