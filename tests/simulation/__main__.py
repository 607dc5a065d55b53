"""`python -m tests.simulation --seeds 1000`: runs seeds, and replays one that fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.mutations import MUTATIONS, found_by, run_mutated
from tests.simulation.parts import in_parts
from tests.simulation.seeds import KINDS, Kind, Outcome, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument(
        "--class",
        choices=KINDS,
        default="plain",
        dest="kind",
        help="of seeds: with local state in plain Python, or in SQLite (slower); with streams; or "
        "with other clients, cut networks and slow disks (doors)",
    )
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--mutation", choices=MUTATIONS, help="with this bug planted")
    parser.add_argument(
        "--mutations", action="store_true", help="the first seed that finds each planted bug"
    )
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    if asked.mutation is not None and asked.seed is None:
        parser.error("--mutation needs --seed; --mutations looks for the seeds that find them")
    if asked.mutations:
        return _find_all(seeds)
    if asked.seed is not None and asked.mutation is not None:
        return _tell(run_mutated(asked.mutation, asked.seed, keep_trace=asked.trace))
    if asked.seed is not None:
        return _tell(run_seed(asked.seed, keep_trace=asked.trace, kind=asked.kind), asked.kind)
    return _run_many(seeds, asked.jobs, asked.kind)


def _run_many(seeds: range, jobs: int, kind: Kind) -> int:
    began_s = time.monotonic()
    done = failed = calls = 0
    cpu_s = 0.0
    faults: Counter[str] = Counter()
    for outcomes, took_s in in_parts(seeds, jobs, kind):
        cpu_s += took_s
        for outcome in outcomes:
            faults, calls = faults + outcome.faults, calls + outcome.calls
            failed += _tell(outcome, kind) if outcome.violations else 0
        done += len(outcomes)
        _say_how_far(done, len(outcomes), len(seeds), failed)
    print(
        f"{len(seeds)} seeds, {failed} failed; {calls} appends, {faults.total()} faults; "
        f"{time.monotonic() - began_s:.0f} s, {cpu_s:.0f} s of a processor: "
        f"{60 * len(seeds) / cpu_s:.0f} seeds in a minute of it"
    )
    return 1 if failed else 0


def _say_how_far(done: int, more: int, of: int, failed: int) -> None:
    """On a terminal as it goes; to a file at each tenth."""
    text = f"{done:,} of {of:,} seeds, {failed} failed"
    if sys.stderr.isatty():
        print(f"\r{text}", end="\n" if done == of else "", file=sys.stderr, flush=True)
    elif done * 10 // of > (done - more) * 10 // of:
        print(text, file=sys.stderr, flush=True)


def _find_all(seeds: range) -> int:
    missed = 0
    for name in MUTATIONS:
        found = found_by(name, seeds)
        missed += found is None
        told = "not found" if found is None else f"seed {found[0]}: {found[1].splitlines()[0]}"
        print(f"{name}: {told}", flush=True)
    return 1 if missed else 0


def _tell(outcome: Outcome, kind: Kind = "plain") -> int:
    for line in outcome.trace:
        print(line)
    print(
        f"seed {outcome.seed}: {outcome.digest}, {outcome.callbacks} callbacks, "
        f"{outcome.requests} requests, {outcome.faults.total()} faults, {outcome.starts} starts, "
        f"{outcome.calls} appends, {outcome.virtual_s:.0f} s of virtual time"
    )
    for violation in outcome.violations:
        print(f"  {violation}")
    if outcome.violations:
        of_kind = "" if kind == "plain" else f" --class {kind}"
        print(f"  replay: python -m tests.simulation{of_kind} --seed {outcome.seed} --trace")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
