"""Large bodies are read in a child process, so that none of them holds the event loop.

Reading a body is one call of C code, or many small steps in Python: neither can be interrupted, and
a thread would hold the interpreter as long. Small bodies take less than 5 ms whatever is in them
(tests/adversarial/) and are read at once.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from seb_appliance import limits
from seb_appliance.errors import OverloadedError, RequestTooLargeError
from seb_appliance.tasks import Child

P = ParamSpec("P")
T = TypeVar("T")
_WRITTEN_BYTES: Final = 256 * limits.KIB  # at once; the transport copies what waits
_FRAME: Final = struct.Struct("<II")  # bytes of the pickle, bytes of the body after it


class Parser:
    """Two child processes, started on first use: one for bodies up to a mebibyte, so that these do
    not wait for larger ones, and one for the others."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: the variables of the child processes; None: those of this one."""
        self._short = _Reader(environment)
        self._long = _Reader(environment)
        self.parsed = 0

    @property
    def restarts(self) -> int:
        """How often a child process was ended, or had died."""
        return self._short.restarts + self._long.restarts

    async def parse(
        self,
        owner: str,
        function: Callable[Concatenate[bytes, P], T],
        body: bytes,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """`function(body, *args, **kwargs)`, a function of a module; the body belongs to the API
        key `owner`.

        Raises what the function raises, RequestTooLargeError when it takes longer than
        PARSE_S_MAX, OverloadedError when the child process has died.
        """
        if len(body) <= limits.PARSED_AT_ONCE_BYTES:
            return function(body, *args, **kwargs)
        return await self.parse_apart(owner, function, body, *args, **kwargs)

    async def parse_apart(
        self,
        owner: str,
        function: Callable[Concatenate[bytes, P], T],
        body: bytes,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As `parse`, for small bodies, too, that take long or need large packages."""
        child = self._short if len(body) <= limits.PARSED_SOON_BYTES else self._long
        is_result, value = await child.ask(owner, (function, args, kwargs), body)
        self.parsed += 1
        if is_result:
            return value  # type: ignore[no-any-return]
        raise value

    async def close(self) -> None:
        """End the child processes. `parse` must not be called afterwards."""
        await self._short.end()
        await self._long.end()


class _Reader:
    """One child process. It reads one body at a time; the API keys that have bodies waiting take
    turns."""

    def __init__(self, environment: Mapping[str, str] | None) -> None:
        self.restarts = 0
        self._environment = environment
        self._child: Child | None = None
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._serving: str | None = None  # whose turn it is

    async def ask(self, owner: str, what: object, body: bytes) -> tuple[bool, Any]:
        """Whether there is a result, and the result or the error. Raises as `Parser.parse`."""
        await self._turn(owner)
        try:
            async with asyncio.timeout(limits.PARSE_S_MAX):
                return await self._ask(what, body)
        except TimeoutError as error:
            await self.end()
            raise RequestTooLargeError(
                f"Reading the body took longer than {limits.PARSE_S_MAX} s; send smaller requests."
            ) from error
        except (OSError, EOFError) as error:
            await self.end()
            raise OverloadedError(
                "The process that reads large bodies has ended; nothing was stored, try again."
            ) from error
        except BaseException:
            await self.end()  # its answer must not be taken for that of the next body
            raise
        finally:
            self._next()

    async def _ask(self, what: object, body: bytes) -> tuple[bool, Any]:
        if self._child is None:
            self._child = await Child.start(__name__, self._environment)
        pickled = pickle.dumps(what)
        self._child.stdin.write(_FRAME.pack(len(pickled), len(body)) + pickled)
        for at in range(0, len(body), _WRITTEN_BYTES):
            await self._child.stdin.drain()
            self._child.stdin.write(body[at : at + _WRITTEN_BYTES])
        head = await self._child.stdout.readexactly(_FRAME.size)
        answer = await self._child.stdout.readexactly(_FRAME.unpack(head)[0])
        return pickle.loads(answer)  # type: ignore[no-any-return]  # noqa: S301 - our own child

    async def end(self) -> None:
        """The next body starts another one."""
        child, self._child = self._child, None
        if child is not None:
            self.restarts += 1
            child.kill()
            await child.wait()

    async def _turn(self, owner: str) -> None:
        """Returns when the child is this caller's."""
        if self._serving is None:
            self._serving = owner
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._next()
            raise

    def _next(self) -> None:
        """The next caller's turn: of the API key that has waited longest since its last one, and
        of the same one again only when no other waits."""
        before, self._serving = self._serving, None
        while self._waiting:
            owner = next((one for one in self._waiting if one != before), before)
            assert owner is not None
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.done():
                self._serving = owner
                turn.set_result(None)
                return


NICE: Final = 5


def main() -> None:
    os.nice(NICE)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(_FRAME.size)) == _FRAME.size:
        pickled_bytes, body_bytes = _FRAME.unpack(head)
        function, args, kwargs = pickle.loads(source.read(pickled_bytes))  # noqa: S301 - our parent
        body = source.read(body_bytes)
        try:
            answer = (True, function(body, *args, **kwargs))
        except Exception as error:  # whatever it is: the parent raises it
            answer = (False, error)
        pickled = pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            sink.write(_FRAME.pack(len(pickled), 0))
            sink.write(pickled)
            sink.flush()
        except BrokenPipeError:
            os._exit(0)  # the parent was killed; Python would complain about what it cannot flush


if __name__ == "__main__":
    main()
