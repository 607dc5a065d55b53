"""What the handlers of all APIs share."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from seb_appliance.broker.broker import Broker

NODE_ID: Final = 1  # of the only broker


class Server:
    """`advertised`: host and port that clients connect to. `partitions`: of a topic that is made
    on first use."""

    def __init__(
        self,
        broker: Broker,
        *,
        advertised: tuple[str, int],
        partitions: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.broker = broker
        self.advertised = advertised
        self.partitions = partitions
        self.cluster_id = base64.urlsafe_b64encode(broker.bucket_id).decode().rstrip("=")
        self.random_bytes = random_bytes
