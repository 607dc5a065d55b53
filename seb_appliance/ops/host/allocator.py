"""How the C library keeps memory that was freed.

By default a block of some hundred KiB or more is given back to the kernel as soon as it is free.
Each window makes and frees several blocks of up to 8 MiB, and having the kernel clear their pages
anew took most of the time of sealing (docs/PERFORMANCE.md).
"""

from __future__ import annotations

import ctypes
from typing import Final

from seb_appliance import limits

# From glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_KEPT_BYTES: Final = 64 * limits.MIB
_MMAP_BYTES: Final = 32 * limits.MIB  # glibc's own upper limit

assert limits.WINDOW_BYTES_MAX < _MMAP_BYTES < _KEPT_BYTES


def keep_freed_memory() -> bool:
    """Blocks the size of windows are used again, and threads share one heap; at most 64 MiB of free
    memory are kept for it. False where the C library knows no such thing (musl, macOS)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(
        mallopt(option, value)
        for option, value in (
            (_M_MMAP_THRESHOLD, _MMAP_BYTES),
            (_M_TRIM_THRESHOLD, _KEPT_BYTES),
            (_M_ARENA_MAX, 1),
        )
    )
