"""`UiOptions`: everything that the admin page shows and the broker does not provide.

`ops/serve/http_server.py` fills it in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.status import Telemetry
from seb_appliance.broker.values import ReadResult
from seb_appliance.clock import Clock
from seb_appliance.ui.history import History, LagHistory, TopicRates

CheckKind = Literal["doctor", "fsck"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of an overview: a name, a formatted value and an explanation."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class CostShown:
    """This month's cost so far, the forecast for the whole month, and the budget (None: there is
    none), as amounts and in words. `notes`: sentences about the window and other services."""

    so_far: float
    forecast: float
    budget: float | None
    so_far_words: str
    forecast_words: str
    budget_words: str
    notes: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.budget is not None and self.forecast > self.budget

    def share(self, amount: float) -> str:
        """As the width of a bar that has room for the budget and the forecast."""
        whole = max(self.budget or 0.0, self.forecast, self.so_far) or 1.0
        return f"{100 * amount / whole:.2f}%"


@dataclass(frozen=True, slots=True)
class BillRow:
    """One line of the month's bill, formatted. `forecast`: the amount for the whole month."""

    what: str
    quantity: str
    so_far: str
    forecast: str


@dataclass(frozen=True, slots=True)
class TopicCost:
    """Amounts are in the currency of the price list, which `money` writes."""

    amount: float
    requests_amount: float
    money: Callable[[float], str]

    @property
    def words(self) -> str:
        return self.money(self.amount)

    @property
    def note(self) -> str:
        return f"{self.money(self.requests_amount)} of it for requests"


@dataclass(frozen=True, slots=True)
class Remark:
    """A problem that a check found, and what to do about it."""

    title: str
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckShown:
    """A check (doctor or fsck) as the page shows it. `progress`: a sentence while the check runs,
    otherwise "". The members after it describe the last completed run; `finished_us` is None if
    there was none since the start."""

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
    """The value of one setting. `source`: default, a file, a variable or a flag."""

    name: str
    value: str
    source: str
    help: str


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """`kind`: topic, group, queue, …; `members`: name, before and after, formatted."""

    action: Literal["create", "change", "delete"]
    kind: str
    name: str
    members: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class PlanShown:
    """What a file of definitions would change, and the kind and name of what it does not name and
    would stay. `stood`: differs if the changes do."""

    changes: Sequence[PlannedChange]
    extra: Sequence[tuple[str, str]]
    stood: str


@dataclass(frozen=True, slots=True)
class Applied:
    """How many changes of `planned` were made; `secrets`: name and secret of what is new;
    `failure`: why the next one was not made, or ""."""

    done: int
    planned: int
    secrets: Sequence[tuple[str, str]]
    failure: str


class Definitions(Protocol):
    """The file of `seb apply`. All raise BadRequestError."""

    async def export(self, by: Actor) -> str: ...

    async def plan(self, by: Actor, text: str) -> PlanShown: ...

    async def apply(self, by: Actor, text: str, stood: str) -> Applied:
        """`stood`: of the plan that was agreed to."""


TopicChanges = Mapping[str, int | bool | str | None]


class PasswordCheck(Protocol):
    async def hash(self, password: str) -> str:
        """Raises BadRequestError if the password is too short or too long, and OverloadedError."""

    async def matches(self, password: str, password_hash: str | None) -> bool:
        """Whether the password has this hash. None (no such user) never matches, and takes the same
        time. Raises OverloadedError."""


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """`templates` and `static` are folders. Every callable returns the current state."""

    templates: Path
    static: Path
    telemetry: Callable[[], Awaitable[Telemetry]]
    history: History
    lags: LagHistory
    rates: TopicRates
    settings: Callable[[], Sequence[SettingRow]]
    passwords: PasswordCheck
    clock: Clock
    random_bytes: Callable[[int], bytes]
    # Records as NDJSON in the format of the API, in parts.
    ndjson: Callable[[ReadResult], Iterable[bytes]]
    # Writes a snapshot; returns the number of the last entry in it.
    snapshot: Callable[[], Awaitable[int]]
    # The command that sets the first password, in a shell of this machine.
    first_log_in: str = "seb admin set-password"
    # This month's cost, and the lines of its bill.
    cost: Callable[[], CostShown]
    bill: Callable[[], Sequence[BillRow]] = tuple
    # What topics have cost this month, by topic id. Call it once for all topics of a page.
    topic_costs: Callable[[], Callable[[int], TopicCost]]
    # What a change of a topic's settings will cost or save: a sentence for each setting.
    setting_cost: Callable[[str, TopicChanges], Mapping[str, str]] = lambda _topic, _changes: {}
    # Doctor and fsck; empty if checks cannot run here.
    checks: Callable[[], Sequence[CheckShown]] = tuple
    # Starts a check. False if one is already running.
    begin_check: Callable[[CheckKind], bool] = lambda _kind: False
    # None: the page has no definitions.
    definitions: Definitions | None = None
    # The path of the page of the subscription that works on this queue; None if there is none.
    subscription_page: Callable[[str], str | None] = lambda _queue: None
