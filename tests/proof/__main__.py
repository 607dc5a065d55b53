"""`python -m tests.proof`: run the proof, go on with one that was broken off, show what it found.

    run [--scale S] [--anew] [--seed S] [--only PART …] [--minutes M]   all parts, or some
    replay SEED [--show]                                    one schedule of faults again
    judge FILE                        the history.pickle of a failed unit, by all judges again
    report [--results DIR] [--out FILE]                     the page over all results

Units that were done with the same seed are not done again, unless `--anew` says so. Of the scale
`long` each run does a piece: what is noted of its units lies in tests/proof/pieces, in git. Results
lie in .state/proof/results, or where `--results DIR` says.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from tests.proof import schedules
from tests.proof.away import AWAY
from tests.proof.checker import violations
from tests.proof.failpoints import FAILPOINTS
from tests.proof.fuzzing import FUZZING
from tests.proof.judges import judging
from tests.proof.kills import KILLS
from tests.proof.real_stores import REAL_STORES
from tests.proof.recovery import RECOVERY
from tests.proof.report import write_report
from tests.proof.results import FOLDER, PIECES, Result, write_result
from tests.proof.seeds import SIMULATION
from tests.proof.soak import SOAK
from tests.proof.stalled import STALLED
from tests.proof.units import PartOfProof, Scale, run_parts
from tests.support.process import Starting

PARTS = [
    *(FAILPOINTS, KILLS, schedules.PUTS, schedules.SCHEDULES, STALLED),
    *(AWAY, RECOVERY, REAL_STORES, SOAK, SIMULATION, FUZZING),
]
"""Those with the longest units first."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    doing = parser.add_subparsers(dest="doing", required=True)
    run = doing.add_parser("run")
    run.add_argument("--scale", choices=get_args(Scale), default="quick")
    run.add_argument("--seed", default="1")
    run.add_argument("--only", nargs="+", choices=[part.name for part in PARTS])
    run.add_argument("--anew", action="store_true")
    run.add_argument("--minutes", type=float)
    again = doing.add_parser("replay")
    again.add_argument("schedule")
    again.add_argument("--show", action="store_true")
    judge = doing.add_parser("judge")
    judge.add_argument("history", type=Path)
    report = doing.add_parser("report")
    report.add_argument("--out", type=Path, default=FOLDER / "report.html")
    return parser.parse_args()


class _Telling:
    """Says on the terminal how far a run is, and writes down each result. `findings` of
    those that failed."""

    def __init__(self, scale: Scale, results: Path) -> None:
        self.findings: list[str] = []
        self._scale = scale
        self._results = results

    def begins(self, parts: Sequence[PartOfProof]) -> None:
        for part in parts:
            print(f"{part.name}: {part.asked[self._scale]} …", flush=True)

    def ended(self, found: Result) -> None:
        write_result(self._results, found)
        print(f"  {found.name} {found.verdict}: {found.got} ({found.seconds:.0f} s)")
        self.findings += [f"! {found.name} {text}" for text in found.details.get("findings", ())]
        for unit, why in found.details.get("skipped", {}).items():
            print(f"  skipped {unit}: {why}")
        sys.stdout.flush()


def _run(
    parts: list[PartOfProof], scale: Scale, seed: str, results: Path, minutes: float | None
) -> int:
    """The exit code: 1 if anything did not hold."""
    began_s = time.monotonic()
    until_s = None if minutes is None else began_s + 60 * minutes
    telling = _Telling(scale, results)
    notes = PIECES if scale == "long" else FOLDER / "units"
    asyncio.run(run_parts(parts, scale, seed, FOLDER, telling, notes, until_s))
    print(f"the page: {write_report(results, FOLDER / 'report.html')}")
    print(f"{len(parts)} parts in {time.monotonic() - began_s:.0f} s")
    # Last, so that the end of a long output tells what failed.
    print("\n".join(telling.findings) or "none failed", flush=True)
    return 1 if telling.findings else 0


def _replay(seed: str, *, show: bool) -> int:
    schedule = schedules.plan(seed)
    print(f"schedule {seed}, fencing mode {schedule.mode}"
          f"{', with lake tables' if schedule.tables else ''}")  # fmt: skip
    print("\n".join(map(str, schedule.steps)), flush=True)
    if not show:
        done = asyncio.run(schedules.replay(seed, FOLDER / "ground" / f"replay-{seed}"))
        print(f"all properties hold: {done.calls:,} calls, {done.acknowledged:,} acknowledged, "
              f"faults {done.faults}")  # fmt: skip
    return 0


def _judge(file: Path) -> int:
    history = pickle.loads(file.read_bytes())
    found = [str(one) for one in violations(history)]
    found += [text for one in judging.opinions(history) for text in one.violations]
    print("\n".join(found) or "all properties hold")
    return 1 if found else 0


def main() -> int:
    given = _arguments()
    if given.doing == "replay":
        return _replay(given.schedule, show=given.show)
    if given.doing == "judge":
        return _judge(given.history)
    if given.doing == "report":
        print(write_report(given.results, given.out))
        return 0
    if given.anew:
        shutil.rmtree(FOLDER / "units", ignore_errors=True)
    Starting.anew = given.scale != "quick"
    asked = [part for part in PARTS if given.only is None or part.name in given.only]
    parts = [part for part in asked if given.scale in part.units]
    return _run(parts, given.scale, given.seed, given.results, given.minutes)


if __name__ == "__main__":
    sys.exit(main())
