"""What the service manager is told: that the appliance serves, that it stops, and that its event
loop lives. The protocol is sd_notify(3): lines in a datagram to the socket in NOTIFY_SOCKET."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Final

from seb_appliance.clock import Clock

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
_ALIVE: Final = "WATCHDOG=1"


class ServiceManager:
    """`address` of its socket, "" if there is no manager. `watchdog_s`: it restarts a process that
    says nothing for so long; None if it does not watch."""

    def __init__(self, address: str, watchdog_s: float | None, clock: Clock) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._clock = clock

    def tell(self, text: str) -> None:
        """Never waits. What cannot be sent is lost: a manager that hears nothing decides itself."""
        if not self._address:
            return
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
            contextlib.suppress(OSError),
        ):
            sender.sendto(text.encode(), self._address)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Inside the block it hears twice in `watchdog_s` that the event loop lives."""
        if self._watchdog_s is None:
            yield
            return
        task = asyncio.create_task(self._say_alive(self._watchdog_s / 2), name="watchdog")
        try:
            yield
        finally:
            task.cancel()

    async def _say_alive(self, pause_s: float) -> None:
        while True:
            self.tell(_ALIVE)
            await self._clock.sleep(pause_s)
