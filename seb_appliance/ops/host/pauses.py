"""The pause before a start, remembered on this machine: a clock that was wrong at one start may be
wrong at the next one, which finds only what that start wrote."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.state.local import LocalFile

_DOCUMENT: Final = "pause"


class _Pause(msgspec.Struct, frozen=True):
    """`before_us`: `created` of the last entry before it; `until_us`: the log's time after it."""

    before_us: int
    until_us: int


async def last_before_pause(path: Path, before_us: int | None, now_us: int) -> int | None:
    """What `LogClock` needs for `before_us`. `before_us`: `created` of the last entry that this
    start found; `now_us`: the log's time. A start within the time of doubt of an earlier one has
    the pause of that. Raises ConfigurationError."""
    if before_us is None:
        return None
    file = LocalFile(path)
    known = None
    if stored := await file.load_document(_DOCUMENT):
        with contextlib.suppress(msgspec.DecodeError):  # damaged: it may be lost
            known = msgspec.json.decode(stored, type=_Pause)
    doubted_us = int(limits.START_BELIEVED_S * 1_000_000)
    if known and known.before_us < before_us < known.until_us + doubted_us:
        return known.before_us
    if now_us - before_us > limits.IDLE_US_BELIEVED:
        await file.save_document(_DOCUMENT, msgspec.json.encode(_Pause(before_us, now_us)))
    return before_us
