"""Calling those who wait, one after the other: one that raises keeps no other from being told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def tell(callback: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call it. An exception is a bug of ours, and what is told has happened all the same: the
    event loop's handler counts, logs and shows it."""
    try:
        callback(*args, **kwargs)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{callback!r} raised when it was told", "exception": error}
        )
