"""What the door of Durable Streams is told when it is built."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Final

from seb_appliance.protocols.durable_streams.headers import Cursors

_random: Final = random.SystemRandom()


def cursors() -> Cursors:
    """By the wall clock."""
    return Cursors(time.time, lambda most: _random.randint(1, most))


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """`is_open`: nobody needs an API key here. The appliance then listens on loopback only."""

    is_open: bool = False
    cursors: Cursors = field(default_factory=cursors)
