"""The problems that a check may find: stable codes, severities and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from seb_appliance import limits

# damage: acknowledged records are lost, unreadable or at risk. leftover: nothing is lost, an object
# is superfluous. local: only files of this machine, which can be rebuilt from the bucket.
Severity = Literal["damage", "leftover", "local"]

_RESTORE: Final = "Restore this object from a copy of the bucket; then check again."
_REBUILD: Final = (
    "Nothing is lost: run with --repair while the appliance is stopped, or let its next start "
    "rebuild the file from the bucket."
)
_SET_BACK: Final = (
    "The bucket has lost its newest entries, or was set back: restore it before anything starts."
)
_SNAPSHOT: Final = (
    "Starts use an older snapshot, and a running appliance makes new ones: remove this one when "
    "there are three newer ones."
)
_TABLE_FILE: Final = (
    "Restore this object from a copy of the bucket. While the log has these offsets, a new table "
    "has them, too: set table=none, run seb tables drop, and set table again."
)
_TABLE_METADATA: Final = (
    "seb tables repair prints Iceberg's anew, without older snapshots. For Delta's, set the "
    "setting table to iceberg, and back."
)
_TELL_US: Final = "Keep a copy of the bucket, stop the tidier (--tidier off), and report this bug."

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
    "table_file_missing": ("damage", _TABLE_FILE),
    "table_file_damaged": ("damage", _TABLE_FILE),
    "table_metadata_missing": ("damage", _TABLE_METADATA),
    "table_metadata_differs": (
        "leftover",
        "The next commit, the next start, or seb tables repair prints it again.",
    ),
    "table_foreign": (
        "leftover",
        "Another program wrote this metadata of a table: stop it, and run seb tables repair.",
    ),
    "bucket_info_differs": ("leftover", "The next start repairs this copy of what the bases say."),
    "foreign_object": ("leftover", "No appliance made it: look at it, and remove it by hand."),
    "object_unreferenced": (
        "leftover",
        "A running tidier removes it: let the appliance run, and look at `tidier` in seb status.",
    ),
    "state_damaged": ("local", _REBUILD),
    "state_differs": ("local", _REBUILD),
    "key_index_damaged": ("local", _REBUILD),
    "key_index_differs": ("local", _REBUILD),
    "cache_damaged": ("local", _REBUILD),
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

    def as_data(self) -> dict[str, Any]:
        """For the terminal or JSON."""
        severity, advice = CODES[self.code]
        data: dict[str, Any] = {
            "code": self.code,
            "severity": severity,
            "object": self.subject,
            "detail": self.detail,
            "advice": advice,
        }
        if self.topic is not None:
            data["topic"] = self.topic
        if self.offsets is not None:
            data["first_offset"], data["last_offset"] = self.offsets
        return data


@dataclass(slots=True)
class Findings:
    """All problems are counted; the first `FSCK_PROBLEMS_MAX` are kept."""

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
        """Add problems; the same problem is counted once."""
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
