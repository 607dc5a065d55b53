"""What the API is told when it is built."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from seb_appliance import limits
from seb_appliance.api.server.parsing import Parser
from seb_appliance.api.server.peers import Network
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.protocols.durable_streams.options import StreamOptions
from seb_appliance.traces import Traces

_PROCESS: Final = os.urandom(4).hex()
_requests: Final = count()


def new_boundary() -> str:
    """128 random bits: no record that is stored already has them."""
    return f"seb-{os.urandom(16).hex()}"


def new_request_id() -> str:
    """16 hexadecimal digits: half of them the process's, half a count."""
    return f"{_PROCESS}{next(_requests) & 0xFFFFFFFF:08x}"


@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """`pages`: folder of the page templates; `static`: folder of the files that pages load;
    `streams`: the door of Durable Streams; `traces`: None when nobody collects any;
    `parser`: reads large bodies, and is closed by whoever made it."""

    pages: Path
    static: Path
    max_request_bytes: int = limits.REQUEST_BYTES_MAX
    metrics_public: bool = False
    cors_origins: frozenset[str] = frozenset()
    trusted_proxies: tuple[Network, ...] = ()
    failpoints: Failpoints = NO_FAILPOINTS
    traces: Traces | None = None
    streams: StreamOptions = field(default_factory=StreamOptions)
    parser: Parser = field(default_factory=Parser)
    new_request_id: Callable[[], str] = field(default=new_request_id)
    new_boundary: Callable[[], str] = field(default=new_boundary)
