"""Fuzz the decoders: `python -m tests.fuzz --runs 1000000 [--only NAME] [--seed N] [--keep]`.

It goes on where it was ended (`--folder`, `.state/fuzz` unless said) and prints a line for each
target. `--results` names the folder of the proof's results, for its report. Exit code 1 when
something was found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import Campaign, Progress
from tests.fuzz.registry import TARGETS
from tests.fuzz.results import write_result


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=20_000, help="executions of each target")
    options.add_argument("--only", action="append", choices=TARGETS, help="may be repeated")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--folder", type=Path, default=Path(".state/fuzz"))
    options.add_argument("--plain", action="store_true", help="without atheris")
    options.add_argument("--keep", action="store_true", help="add what is new to the corpus")
    options.add_argument("--results", type=Path)
    given = options.parse_args()
    campaign = Campaign(given.folder, seed=given.seed, guided=False if given.plain else None)
    for name in given.only or TARGETS:
        done = campaign.run(TARGETS[name], given.runs)
        print(f"{name:16} {done.executions:>10,} executions {done.seconds:>8.1f} s", flush=True)
        for finding in done.findings:
            print(f"  {finding}", flush=True)
        if given.keep:
            print(f"  {campaign.keep(TARGETS[name])} inputs in the corpus", flush=True)
    result = told({name: campaign.progress(name) for name in TARGETS}, given.runs, given.seed)
    if given.results:
        write_result(given.results, result)
    return 1 if result["verdict"] == "failed" else 0


def told(progress: dict[str, Progress], runs: int, seed: int) -> dict[str, Any]:
    """The result, of all that the folder holds."""
    executions = {name: done.executions for name, done in progress.items()}
    findings = [finding for done in progress.values() for finding in done.findings]
    enough = min(executions.values()) >= runs
    return {
        "name": "fuzz",
        "what": "executions of each decoder",
        "asked": f"{runs:,} each",
        "got": f"{min(executions.values()):,} to {max(executions.values()):,} of "
        f"{len(executions)} decoders, {len(findings)} findings",
        "verdict": "failed" if findings else "passed" if enough else "cut short",
        "seconds": round(sum(done.seconds for done in progress.values()), 1),
        "seed": str(seed),
        "details": {
            "operations": sum(executions.values()),
            "executions": executions,
            "findings": findings,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
