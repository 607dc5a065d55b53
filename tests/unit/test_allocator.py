"""Memory that a window has used is used again by the next one."""

from __future__ import annotations

import subprocess
import sys

_COUNT = """
import resource
from seb_appliance.ops.host.runtime import keep_freed_memory
if {keep}:
    keep_freed_memory()
bytes(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    [b"x" * (1 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(*, keep: bool) -> int:
    code = _COUNT.format(keep=keep)
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def test_blocks_the_size_of_a_window_are_not_given_back_to_the_kernel() -> None:
    assert _page_faults(keep=True) < _page_faults(keep=False) / 5
