"""`ApiOptions`: what the API needs from the process that builds it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from seb_appliance import limits
from seb_appliance.api.encoding.answers import new_request_id
from seb_appliance.api.server.auth import Network
from seb_appliance.api.server.parsing import Parser
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.traces import Traces


def new_boundary() -> str:
    """128 random bits, so that no stored record can contain them."""
    return f"seb-{os.urandom(16).hex()}"


def random_up_to(most: int) -> int:
    return random.SystemRandom().randint(1, most)


class SecretBox(Protocol):
    """Encrypts secrets that are stored in the journal."""

    def __hash__(self) -> int:
        """What it has decrypted is remembered."""

    def seal(self, secret: str) -> str:
        """Raises ConfigurationError if there is no usable key."""

    def open(self, sealed: str) -> str:
        """Raises NotReadyError if it was sealed with another key."""


@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """`pages`: folder of the page templates; `static`: folder of the files that pages load;
    `streams_open`: Durable Streams need no API key, and the appliance listens on loopback only;
    `table_store`: how readers of tables reach the bucket, as properties of Iceberg;
    `table_reader_key`: access key id and secret that they are handed, None for none; `traces`: None
    if no collector is set; `parser`: parses large bodies, and is closed by its creator;
    `random_up_to` returns a random whole number from 1 on; `beside`: what protocols run beside the
    API, by its class."""

    pages: Path
    static: Path
    secret_box: SecretBox
    max_request_bytes: int = limits.REQUEST_BYTES_MAX
    metrics_public: bool = False
    cors_origins: frozenset[str] = frozenset()
    trusted_proxies: tuple[Network, ...] = ()
    failpoints: Failpoints = NO_FAILPOINTS
    traces: Traces | None = None
    streams_open: bool = False
    table_store: Mapping[str, str] = field(default_factory=dict)
    table_reader_key: tuple[str, str] | None = field(default=None, repr=False)
    parser: Parser = field(default_factory=Parser)
    new_request_id: Callable[[], str] = field(default=new_request_id)
    new_boundary: Callable[[], str] = field(default=new_boundary)
    now_s: Callable[[], float] = field(default=time.time)
    random_up_to: Callable[[int], int] = field(default=random_up_to)
    beside: Mapping[type, Any] = field(default_factory=dict)
