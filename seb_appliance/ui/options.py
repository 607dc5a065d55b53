"""What the admin page is told when it is built."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from seb_appliance.broker.status import Telemetry
from seb_appliance.broker.values import ReadResult
from seb_appliance.clock import Clock
from seb_appliance.ui.history import History, LagHistory, TopicRates

# What the pages show of the appliance beside the broker; the composition root fills it in.


CheckKind = Literal["doctor", "fsck"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of an overview: its name, its value as a person reads it, and what it means."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class BillRow:
    """One line of the month's bill, as a person reads it; `forecast`: of the whole month."""

    what: str
    quantity: str
    so_far: str
    forecast: str


@dataclass(frozen=True, slots=True)
class Remark:
    """What a check did not like, and what to do about it."""

    title: str
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckShown:
    """Doctor, or fsck. `progress`: how far it is in words, "" while it does not run. The rest is of
    the last time; `finished_us` None: there was none since the start."""

    kind: CheckKind
    title: str
    about: str
    progress: str
    finished_us: int | None = None
    seconds: float = 0.0
    is_well: bool = False
    verdict: str = ""
    figures: Sequence[Figure] = ()
    remarks: Sequence[Remark] = ()


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in force. `source`: default, a file, a variable or a flag."""

    name: str
    value: str
    source: str
    help: str


TopicChanges = Mapping[str, int | bool | str | None]


class PasswordCheck(Protocol):
    async def hash(self, password: str) -> str:
        """Raises BadRequestError for one that is too short or too long, OverloadedError."""

    async def matches(self, password: str, password_hash: str | None) -> bool:
        """Whether it is the password of that hash; None is nobody's, and takes as long. Raises
        OverloadedError."""


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """`templates`, `static`: folders. `telemetry`: how the appliance is now; `history`: how
    it was, `lags`: how far groups were behind, `rates`: what comes into topics; `settings`: those
    in force. `ndjson`: records as the API gives them, one a line, in parts. `snapshot` makes one,
    and says up to which entry it reaches. `cost`: figures of money for the overview, none if it has
    none; `bill`: the month's, line by line. `setting_cost`: what changes of a topic's settings, as
    `Broker.change_topic` takes them, cost or save: words by setting. `checks`: doctor and fsck,
    none where they cannot run; `begin_check` begins one, and says whether it did: one at a time."""

    templates: Path
    static: Path
    telemetry: Callable[[], Telemetry]
    history: History
    lags: LagHistory
    rates: TopicRates
    settings: Callable[[], Sequence[SettingRow]]
    passwords: PasswordCheck
    clock: Clock
    random_bytes: Callable[[int], bytes]
    ndjson: Callable[[ReadResult], Iterable[bytes]]
    snapshot: Callable[[], Awaitable[int]]
    cost: Callable[[], Sequence[Figure]] = tuple
    bill: Callable[[], Sequence[BillRow]] = tuple
    setting_cost: Callable[[str, TopicChanges], Mapping[str, str]] = lambda _topic, _changes: {}
    checks: Callable[[], Sequence[CheckShown]] = tuple
    begin_check: Callable[[CheckKind], bool] = lambda _kind: False
