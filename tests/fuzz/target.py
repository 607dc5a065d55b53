"""What is fuzzed, and what every execution must keep to.

A target's `check` gives bytes to one decoder of the appliance. It returns when they were decoded,
and what was decoded survived being encoded and decoded again; it raises one of `refusals`, which
the decoder promises, when they were refused. Anything else is a finding: another exception, more
than a second of processor time, more than 64 MiB of memory at once.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import RefusedError

SECONDS_MAX: Final = 1.0  # of this thread: a busy machine is no finding
# A body may inflate to so much by its format; what is around it stays small.
MEMORY_BYTES_MAX: Final = limits.BATCH_BODY_BYTES_MAX + 8 * limits.MIB


class Finding(Exception):  # noqa: N818 - it is what we look for
    """The decoder broke its promise."""


@dataclass(frozen=True)
class Target:
    """`seeds`: inputs that get far. `words`: what its inputs are made of."""

    name: str
    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    refusals: tuple[type[Exception], ...] = (RefusedError,)
    is_slow: bool = False  # some tenths of a millisecond each: the tests run a tenth as many

    def execute(self, data: bytes) -> None:
        """Raises Finding."""
        peak_bytes = _peak_bytes()
        took_s = self._taken_s(data)
        if took_s > SECONDS_MAX:  # what the collector or a neighbour took comes once
            took_s = min(took_s, self._taken_s(data))
        if took_s > SECONDS_MAX:
            raise Finding(f"took {took_s:.2f} s")
        grown_bytes = _peak_bytes() - peak_bytes
        if grown_bytes > MEMORY_BYTES_MAX:
            raise Finding(f"took {grown_bytes / limits.MIB:.0f} MiB")

    def _taken_s(self, data: bytes) -> float:
        """Of this thread's processor time. Raises Finding."""
        started_s = time.thread_time()
        try:
            self.check(data)
        except self.refusals:
            pass
        except Exception as error:
            raise Finding(f"{type(error).__name__}: {error}"[:500]) from error
        return time.thread_time() - started_s


def tried(decode: Callable[[bytes], None], inputs: Iterable[bytes]) -> None:
    """Decode each of them; raises what the last refusal was, if all were refused."""
    refusal: RefusedError | None = None
    for data in inputs:
        try:
            decode(data)
        except RefusedError as error:
            refusal = error
    if refusal is not None:
        raise refusal


def _peak_bytes() -> int:
    """The most that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * limits.KIB
