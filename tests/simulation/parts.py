"""Many seeds, in one process or in several."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.seeds import Kind, Outcome, run_seed

# Seeds that a process takes.
AT_ONCE: dict[Kind, int] = {"plain": 50, "sqlite": 10, "streams": 50, "doors": 20}


def in_parts(
    seeds: range, jobs: int, kind: Kind = "plain"
) -> Iterator[tuple[list[Outcome], float]]:
    """Outcomes, some at a time, in order; and how long they took, in seconds of a processor."""
    at_once = AT_ONCE[kind]
    parts = [(seeds[at : at + at_once], kind) for at in range(0, len(seeds), at_once)]
    if jobs == 1:
        yield from map(_run_part, parts)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_run_part, parts)


def _run_part(part: tuple[range, Kind]) -> tuple[list[Outcome], float]:
    if not gc.get_freeze_count():  # once: what seeds leave behind is to be collected
        gc.freeze()  # what is imported is not looked at again after each seed
    began_s = time.process_time()
    seeds, kind = part
    outcomes = [run_seed(seed, kind=kind) for seed in seeds]
    return outcomes, time.process_time() - began_s
