"""How much memory a process that reads Parquet may take: a file of 14 KB may hold rows of 5 GB."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from seb_appliance import limits
from seb_appliance.formats.lake.tables import TableFile

# For Arrow, whose own pool keeps what it has freed (300 MB instead of 210 for a file of 64 MiB) and
# reserves 1 GiB, which would count.
ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system"}

# For groups of rows, of which ours have 32 MiB, or one batch; and for threads and their stacks.
_FLOOR_BYTES: Final = 1024 * limits.MIB
_OF_STORED: Final = 4  # the bytes of a file, those of the next one, and copies on their way
_RECORD_BYTES: Final = 32  # offsets


def needed_bytes(files: Iterable[TableFile]) -> int:
    """By a job that reads these data files, if they are as we wrote them."""
    return _FLOOR_BYTES + sum(
        _OF_STORED * one.length + _RECORD_BYTES * one.records for one in files
    )


def take_no_more(more_bytes: int | None) -> None:
    """Of memory than this process has now, until the next call; None: as much as there is. It is
    for Linux, and does nothing elsewhere."""
    with contextlib.suppress(OSError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = most
        if more_bytes is not None:
            statm = Path("/proc/self/statm").read_text(encoding="ascii")
            wanted = int(statm.split()[5]) * resource.getpagesize() + more_bytes
            wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))
