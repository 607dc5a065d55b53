"""What a part of the proof found: one small JSON file for each, from which the report is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".state" / "proof"
"""Where a run keeps its results and the state of parts that go on later."""
PIECES: Final = Path(__file__).with_name("pieces")
"""What was noted of each unit of the scale `long`, on whichever machine: it is in git."""

Verdict = Literal["passed", "failed", "cut short"]
"""`cut short`: less than what was asked for was done (there was no more time, or a program is not
on this machine), and nothing was wrong with that."""


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One part of the proof. `asked` and `got` are for people.

    Of `details` the report knows `operations` (int), `faults` (kind: int), `latencies_ms`
    (quantile: float), `memory_mib` ([[second, MiB], …]) and `findings` ([text]); numbers, texts
    and flat objects under any other name become rows of a table.
    """

    name: str
    what: str
    asked: str
    got: str
    verdict: Verdict
    seconds: float
    seed: str = ""
    details: dict[str, Any] = msgspec.field(default_factory=dict)


def write_result(folder: Path, result: Result) -> None:
    """To `NAME.json` in `folder`, in the place of what was there."""
    folder.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(result), indent=2)
    (folder / f"{result.name}.json").write_bytes(text + b"\n")


def read_results(folder: Path) -> list[Result]:
    """All of `folder`, by name. Raises ValueError for a file that is none."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Result))
        except msgspec.DecodeError as error:
            raise ValueError(f"{path.name} is no result of a part: {error}") from error
    return found
