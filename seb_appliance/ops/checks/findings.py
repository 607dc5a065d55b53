"""What a check has found: problems with stable codes, and what to do about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from seb_appliance import limits

# damage: something acknowledged is lost, unreadable, or hangs by a thread. leftover: nothing is
# lost, something lies about. local: of this machine's files only, which the bucket gives again.
Severity = Literal["damage", "leftover", "local"]

_RESTORE: Final = "Restore this object from a copy of the bucket; then check again."
_START_MAKES_ANEW: Final = (
    "Nothing is lost: run with --repair while the appliance is stopped, or let its next start "
    "make the file anew from the bucket."
)
_SET_BACK: Final = (
    "The bucket has lost its newest entries, or was set back: restore it before anything starts."
)
_SNAPSHOT: Final = (
    "Starts use an older snapshot, and a running appliance makes new ones: remove this one once "
    "three newer ones are there."
)
_TELL_US: Final = (
    "Keep a copy of the bucket, stop the tidier (--tidier off), and report this: it should not be "
    "possible."
)

CODES: Final[dict[str, tuple[Severity, str]]] = {
    "bucket_info_damaged": ("damage", _RESTORE),
    "bucket_info_missing": ("damage", _RESTORE),
    "log_broken": ("damage", _RESTORE),
    "log_cut_short": ("damage", _SET_BACK),
    "epoch_entry_missing": ("damage", _RESTORE),
    "entry_damaged": ("damage", _RESTORE),
    "segment_damaged": ("damage", _RESTORE),
    "records_lost": ("damage", _RESTORE),
    "offsets_missing": ("damage", _TELL_US),
    "offsets_twice": ("damage", _TELL_US),
    "condemned_in_force": ("damage", _TELL_US),
    "snapshot_damaged": ("damage", _SNAPSHOT),
    "snapshot_differs": ("damage", _TELL_US),
    "bucket_info_differs": ("leftover", "The next start mends this copy of what the bases say."),
    "foreign_object": ("leftover", "It is nobody's here: look at it, and remove it by hand."),
    "object_unreferenced": (
        "leftover",
        "A running tidier removes it: let the appliance run, and look at `tidier` in seb status.",
    ),
    "state_damaged": ("local", _START_MAKES_ANEW),
    "state_differs": ("local", _START_MAKES_ANEW),
    "key_index_damaged": ("local", _START_MAKES_ANEW),
    "key_index_differs": ("local", _START_MAKES_ANEW),
    "cache_damaged": ("local", _START_MAKES_ANEW),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """`subject`: a key in the bucket, or the name of a local file; `offsets` are inclusive."""

    code: str
    subject: str
    detail: str
    topic: str | None = None
    offsets: tuple[int, int] | None = None

    @property
    def severity(self) -> Severity:
        return CODES[self.code][0]

    @property
    def advice(self) -> str:
        return CODES[self.code][1]


@dataclass(slots=True)
class Findings:
    """The first `FSCK_PROBLEMS_MAX` problems; all are counted."""

    problems: list[Problem] = field(default_factory=list)
    by_severity: Counter[Severity] = field(default_factory=Counter)
    _known: set[Problem] = field(default_factory=set)

    def add(
        self,
        code: str,
        subject: str,
        detail: str,
        *,
        topic: str | None = None,
        offsets: tuple[int, int] | None = None,
    ) -> None:
        self.add_all([Problem(code, subject, detail, topic, offsets)])

    def add_all(self, problems: Sequence[Problem]) -> None:
        """Take problems; one that is known already is the same one."""
        for problem in problems:
            if problem in self._known:
                continue
            self.by_severity[problem.severity] += 1
            if len(self.problems) < limits.FSCK_PROBLEMS_MAX:
                self.problems.append(problem)
                self._known.add(problem)

    @property
    def total(self) -> int:
        return sum(self.by_severity.values())
