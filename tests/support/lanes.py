"""One connection of a running appliance without a socket: what is given to it, and what it says."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from typing import Any, Final

from tests.support.appliance import RunningAppliance

_QUIET_TURNS: Final = 30  # of the loop, in which a request that lacks bytes is refused, or is not
_VARIES = re.compile(
    rb"(?<=date: )[^\r]*|(?<=seb-request-id: )[^\r]*|(?<=urn:seb:request:)[0-9a-f]*"
    rb"|(?<=server-timing: )[^\r]*|(?<=\"timestamp\":\")[^\"]*"
    rb"|(?<=,)20[0-9-]{8}T[0-9:.]*Z(?=,)"  # a timestamp in CSV
    rb"|(?<=seb-)[0-9a-f]{32}"  # a boundary
    rb"|(?<=The API key )[a-z2-7]{8}|(?<=seb!).{68}",  # the header of a batch
    re.DOTALL,
)


def masked(answer: bytes) -> bytes:
    """An answer without what differs from one time to the next."""
    return _VARIES.sub(b"*", answer)


class Lane(asyncio.Transport):
    """The transport of one connection; `said` is all that the server wrote."""

    def __init__(self, seb: RunningAppliance) -> None:
        super().__init__()
        self.said = b""
        self.closed = self.paused = self._bodiless = False
        self._socket = socket.socket()
        config, state = seb.server.config, seb.server.server_state
        kind: Any = config.http_protocol_class
        self.protocol = kind(config=config, server_state=state, app_state={})
        self.protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        addresses = {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}
        return self._socket if name == "socket" else addresses.get(name, default)

    def write(self, data: Any) -> None:
        self.said += bytes(data)

    def write_eof(self) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    async def answers(self, *pieces: bytes, count: int = 1) -> bytes:
        """Give it the pieces, one by one as it reads, until it gave so many answers or hung up."""
        self._bodiless = pieces[0].startswith(b"H")  # HEAD
        async with asyncio.timeout(60):
            await self._give(pieces)
            while not self.closed and self._complete() < count:
                await asyncio.sleep(0)
        return self.said

    async def all_answers(self, *pieces: bytes) -> bytes:
        """Give it the pieces, whatever they are, until it hung up or waits for more of them."""
        async with asyncio.timeout(60):
            await self._give(pieces)
            quiet = 0
            while not self.closed and quiet < _QUIET_TURNS:
                said = len(self.said)
                await asyncio.sleep(0)
                quiet = quiet + 1 if self._waits_for_more and len(self.said) == said else 0
        return self.said

    async def _give(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            while self.paused and not self.closed:
                await asyncio.sleep(0)
            if piece and not self.closed:
                self.protocol.data_received(piece)

    @property
    def _waits_for_more(self) -> bool:
        """Whether nothing is being answered but, perhaps, a request whose body is not complete."""
        protocol = self.protocol
        if getattr(protocol, "_busy", False) or protocol.pipeline:
            return False
        cycle = protocol.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def _complete(self) -> int:
        """How many whole answers were given (none of them is chunked)."""
        at = complete = 0
        while (end := self.said.find(b"\r\n\r\n", at)) >= 0:
            length = re.search(rb"content-length: (\d+)", self.said[at:end])
            is_interim = self.said.startswith(b"HTTP/1.1 100", at)
            at = end + 4 + (int(length[1]) if length and not self._bodiless else 0)
            complete += not is_interim and at <= len(self.said)
        return complete

    def leave(self) -> None:
        """The client hangs up."""
        self.closed = True
        self.protocol.connection_lost(None)
        self._socket.close()
