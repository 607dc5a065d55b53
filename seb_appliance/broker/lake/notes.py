"""What the commits of lake tables remember of a table, and are told of the place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from seb_appliance.broker.lake.jobs import BadRow
from seb_appliance.broker.ports import EntryRef, ObjectRef

_BAD_ROWS_KEPT: Final = 20  # of each table


class CommitRefusedError(Exception):
    """The result of a job does not fit the table any more; its objects are strays."""


@dataclass(slots=True)
class TableNotes:
    """What is remembered of a table since the start. `failure`: of its last job; "" for none.
    `looked_s`: when its metadata in the bucket was looked at. `rests_until_s`: after a failure.
    `unmerged`: files that could not be merged, whoever tries again. `kept_up`: what stood when no
    upkeep was due, which holds until the time `keep_up_s`."""

    failure: str = ""
    rests_until_s: float = 0.0
    looked_s: float = 0.0
    unmerged: set[str] = field(default_factory=set)
    kept_up: tuple[object, ...] = ()
    keep_up_s: float = 0.0
    bad_rows: deque[BadRow] = field(default_factory=lambda: deque(maxlen=_BAD_ROWS_KEPT))


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where tables lie. `address`: the absolute URI of the store. `key_of`: of an object of the
    log."""

    address: str
    key_of: Callable[[EntryRef | ObjectRef], str]
