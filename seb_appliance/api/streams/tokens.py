"""What a reader hands back: offsets, cursors, and tags of what it has."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadParameterError

_TOKEN: Final = re.compile(r"([0-9]{16})_0{16}")
_CURSOR: Final = re.compile(r"[0-9]{1,15}")
_EPOCH_S: Final = 1_728_432_000  # 2024-10-09, from which the protocol counts intervals


def offset_token(offset: int) -> bytes:
    """Sorts as offsets do. The second half is zeros: a place within a record has no name."""
    return b"%016d_0000000000000000" % offset


def parse_offset(token: str) -> int:
    """Raises BadParameterError."""
    found = _TOKEN.fullmatch(token)
    if found is None or int(found[1]) > limits.OFFSET_MAX:
        raise BadParameterError(
            "This is no offset of a stream: send one that an answer gave, -1 for the beginning or "
            "now for the end."
        )
    return int(found[1])


def etag(topic_id: int, begin: int, end: int, *, closed: bool) -> bytes:
    """Tells what a read gave: offsets `begin` to `end` (exclusive), and whether it is all there
    ever will be. A topic made anew has another id."""
    return b'"%d-%d-%d%b"' % (topic_id, begin, end, b"-c" if closed else b"")


@dataclass(frozen=True, slots=True)
class Cursors:
    """Numbers of intervals of 20 s, by which caches gather readers who wait for the same.
    `random_up_to` draws a whole number from 1 to what it is given."""

    now_s: Callable[[], float]
    random_up_to: Callable[[int], int]

    def after(self, given: str | None) -> int:
        """The cursor of now, or one ahead of what the reader sent: it never gets that again, nor
        what a cache keeps under it."""
        now = (int(self.now_s()) - _EPOCH_S) // limits.CURSOR_INTERVAL_S
        if given is None or not _CURSOR.fullmatch(given) or int(given) < now:
            return now
        jitter_s = self.random_up_to(limits.CURSOR_JITTER_S_MAX)
        return int(given) + -(-jitter_s // limits.CURSOR_INTERVAL_S)
