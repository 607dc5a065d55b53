"""Limits of time, for the speed of the machine that runs the test."""

from __future__ import annotations

import functools
import resource
import subprocess
import sys

_USUAL_S = 0.2
"""What `_once` takes on the two quiet cores of 2026 on which the figures were set."""


def _once() -> float:
    """Processor time of a process that imports a large package: like a start, a request and a
    replay, it makes many small things and follows many pointers. Arithmetic alone says little."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import litestar"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@functools.cache
def slowness() -> float:
    """How many times longer than usual this machine takes for the same Python; 1.0 at least, and
    5.0 at most: what is slower than that measures nothing."""
    return min(max(min(_once() for _ in range(3)) / _USUAL_S, 1.0), 5.0)


def at_this_speed(limit: float) -> float:
    """`limit` in any unit of time, which a quiet machine of 2026 keeps, for this machine."""
    return limit * slowness()
