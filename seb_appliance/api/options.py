"""What the API is told when it is built."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from seb_appliance import limits
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints


def random_request_id() -> str:
    return os.urandom(8).hex()


@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """`pages`: folder of the page templates; `static`: folder of the files that pages load."""

    pages: Path
    static: Path
    max_request_bytes: int = limits.REQUEST_BYTES_MAX
    metrics_public: bool = False
    failpoints: Failpoints = NO_FAILPOINTS
    new_request_id: Callable[[], str] = field(default=random_request_id)
