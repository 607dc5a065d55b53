"""Large bodies are read in a child process, so that none of them holds the event loop.

Reading a body is one call of C code, or many small steps in Python: neither can be interrupted, and
a thread would hold the interpreter as long. Small bodies take less than 5 ms whatever is in them
(tests/http/test_adversarial.py) and are read at once.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from seb_appliance import limits
from seb_appliance.errors import OverloadedError, RequestTooLargeError

P = ParamSpec("P")
T = TypeVar("T")

_WRITTEN_BYTES: Final = 256 * limits.KIB  # at once; the transport copies what waits
FRAME: Final = struct.Struct("<II")  # bytes of the pickle, bytes of the body after it


class Parser:
    """One child process, started when it is first needed. It reads one body at a time; the API keys
    that have bodies waiting take turns."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: the variables of the child process; None: those of this one."""
        self._environment = environment
        self._child: Process | None = None
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._busy = False
        self.parsed = 0
        self.restarts = 0

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
        await self._turn(owner)
        try:
            async with asyncio.timeout(limits.PARSE_S_MAX):
                is_result, value = await self._ask((function, args, kwargs), body)
        except TimeoutError as error:
            await self._end()
            raise RequestTooLargeError(
                f"Reading the body took longer than {limits.PARSE_S_MAX} s; send smaller requests."
            ) from error
        except (OSError, EOFError) as error:
            await self._end()
            raise OverloadedError(
                "The process that reads large bodies has ended; nothing was stored, try again."
            ) from error
        except BaseException:
            await self._end()  # the client left: its answer must not be taken for the next one
            raise
        finally:
            self._next()
        self.parsed += 1
        if is_result:
            return value  # type: ignore[no-any-return]
        raise value

    async def close(self) -> None:
        """End the child process. Nobody may parse any more."""
        await self._end()

    async def _ask(self, what: object, body: bytes) -> tuple[bool, Any]:
        if self._child is None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "seb_appliance.api.parsing_child",
                stdin=PIPE,
                stdout=PIPE,
                env=self._environment,
                start_new_session=True,  # a terminal's Ctrl-C is for the parent, which ends it
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickled = pickle.dumps(what)
        self._child.stdin.write(FRAME.pack(len(pickled), len(body)) + pickled)
        for at in range(0, len(body), _WRITTEN_BYTES):
            await self._child.stdin.drain()
            self._child.stdin.write(body[at : at + _WRITTEN_BYTES])
        head = await self._child.stdout.readexactly(FRAME.size)
        answer = await self._child.stdout.readexactly(FRAME.unpack(head)[0])
        return pickle.loads(answer)  # type: ignore[no-any-return]  # noqa: S301 - our own child

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            self.restarts += 1
            assert child.stdin is not None
            child.stdin.close()
            if child.returncode is None:
                child.kill()
            await child.wait()

    async def _turn(self, owner: str) -> None:
        """Returns when the child is this caller's."""
        if not self._busy:
            self._busy = True
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
        """The next caller's turn: of the owner that has waited longest since its last one."""
        while self._waiting:
            owner, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
