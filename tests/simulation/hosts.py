"""What the processes of one machine share: its network and the speed of its disks.

Everywhere but in the class `doors`, the network is whole and the disks take no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Way = Literal["", "lost_request", "lost_answer"]
"""What is lost while a link is cut: nothing, all requests, or all answers, so that requests arrive
and take effect."""


@dataclass(slots=True)
class Host:
    """`to_bucket`: what is lost between this machine and the bucket; `to_clients`: between clients
    and this machine. `disk_s`: how long what is handed to a thread takes at most, 0 for as short as
    elsewhere, and `usual_disk_s` when nothing slows them."""

    name: str = ""
    to_bucket: Way = ""
    to_clients: Way = ""
    disk_s: float = 0.0
    usual_disk_s: float = 0.0

    def heal(self) -> None:
        self.to_bucket = self.to_clients = ""
        self.disk_s = self.usual_disk_s = 0.0
