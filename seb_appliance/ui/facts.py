"""What the pages show of the appliance beside the broker; the composition root fills it in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
