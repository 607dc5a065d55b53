"""Fuzz the decoders: `python -m tests.fuzz --runs 1000000 [--only NAME] [--seed N] [--keep]`.

It goes on where it was ended (`--folder`, `.state/fuzz` unless said) and prints a line for each
target. Exit code 1 when something was found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.registry import TARGETS


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=20_000, help="executions of each target")
    options.add_argument("--only", action="append", choices=TARGETS, help="may be repeated")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--folder", type=Path, default=Path(".state/fuzz"))
    options.add_argument("--plain", action="store_true", help="without atheris")
    options.add_argument("--keep", action="store_true", help="add what is new to the corpus")
    given = options.parse_args()
    campaign = Campaign(given.folder, seed=given.seed, guided=False if given.plain else None)
    found = 0
    for name in given.only or TARGETS:
        done = campaign.run(TARGETS[name], given.runs)
        print(f"{name:16} {done.executions:>10,} executions {done.seconds:>8.1f} s", flush=True)
        found += len(done.findings)
        for finding in done.findings:
            print(f"  {finding}", flush=True)
        if given.keep:
            print(f"  {campaign.keep(TARGETS[name])} inputs in the corpus", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
