"""`seb promote`: asked for through the command socket, answered when this appliance writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from seb_appliance.app.assembly import Appliance
from seb_appliance.clock import Clock
from seb_appliance.errors import BadRequestError
from seb_appliance.start_errors import StartError

if TYPE_CHECKING:
    from seb_appliance.api.manage.control import Answer


class Promotion:
    """Of one standby. `asked` resolves when somebody asks for it; who asked waits until it is
    `done` or `failed`. Once is enough: more who ask get the same answer."""

    def __init__(self, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[None] = loop.create_future()
        self._clock = clock
        self._answer: asyncio.Future[Answer] = loop.create_future()
        self._asked_s = 0.0

    async def ask(self, _arguments: Mapping[str, str]) -> Answer:
        """The command. Raises StartError: why it is still a standby."""
        if not self.asked.done():
            self._asked_s = self._clock.monotonic_s()
            self.asked.set_result(None)
        return dict(await asyncio.shield(self._answer))

    def done(self, appliance: Appliance) -> None:
        """`appliance` writes, and answers."""
        seconds = self._clock.monotonic_s() - self._asked_s
        journal = appliance.journal
        self._answer.set_result(
            {"epoch": journal.epoch, "seq": journal.position.seq, "seconds": seconds}
        )

    def failed(self, error: StartError) -> None:
        self._answer.set_exception(error)


async def refuse_promotion(_arguments: Mapping[str, str]) -> Answer:
    """The command, where nobody is a standby."""
    raise BadRequestError("This appliance is the writer already: there is nothing to promote.")
