"""A child process that works for a background job: started when needed, ended with its pipe.

Both sides send frames of msgpack: a length (uint32, little-endian) and a value. The parent sends a
greeting, then jobs; the child sends an answer to each.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from seb_appliance.errors import StoreUncertainError
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.tasks import Child

LENGTH: Final = struct.Struct("<I")
_T = TypeVar("_T")


class Hello(msgspec.Struct):
    """`settings`: of the appliance, with which the child makes its own store. `cache`: the folder
    where entries may lie on this machine; None if there is none."""

    settings: Settings
    mode: Mode
    cache: Path | None = None


class JobProcess:
    """The child that runs `module`. One that died is replaced for a later job."""

    def __init__(
        self, module: str, what: str, hello: Hello, environment: Mapping[str, str] | None = None
    ) -> None:
        """`what` it is, for a message: "the tidier". `environment`: variables that it has beside
        ours."""
        self._module = module
        self._what = what
        self._hello = hello
        self._environment = environment or {}
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Of the child; None while there is none."""
        child = self._child
        return child.pid if child is not None and child.is_running else None

    async def ask(self, job: object, answer: type[_T]) -> _T:
        """Raises StoreUncertainError if the child ended in the middle."""
        try:
            return await self._asked(job, answer)
        except BaseException as error:
            await self.close()  # whatever it is doing, nobody waits for it
            if isinstance(error, OSError | EOFError):
                raise StoreUncertainError(f"{self._what}'s process ended in the middle") from error
            raise

    async def close(self) -> None:
        """End the child, which ends by itself when its pipe is closed."""
        child, self._child = self._child, None
        if child is not None:
            child.stdin.close()
            await child.wait()

    async def _asked(self, job: object, answer: type[_T]) -> _T:
        if self.pid is None:
            # It is told the settings through the pipe.
            environment = {**environment_without_settings(), **self._environment}
            self._child = await Child.start(self._module, environment)
            self._child.stdin.write(frame(self._hello))
        child = self._child
        assert child is not None
        child.stdin.write(frame(job))
        await child.stdin.drain()
        return await read_frame(child.stdout, answer)


def frame(value: object) -> bytes:
    body = msgspec.msgpack.encode(value, enc_hook=_as_text)
    return LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader, kind: type[_T]) -> _T:
    """The next value. Raises IncompleteReadError when the pipe is closed."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return msgspec.msgpack.decode(
        await reader.readexactly(length), type=kind, dec_hook=lambda wanted, text: wanted(text)
    )


async def first_frame(kind: type[_T]) -> tuple[asyncio.StreamReader, _T]:
    """In a child: its standard input, and the first value there. The process ends here if its
    parent was killed before it sent one."""
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    try:
        return reader, await read_frame(reader, kind)
    except asyncio.IncompleteReadError:
        os._exit(0)


async def serve(
    reader: asyncio.StreamReader, kind: type[_T], work: Callable[[_T], Awaitable[object]]
) -> None:
    """In a child: answer jobs until the pipe is closed."""
    asking = asyncio.create_task(read_frame(reader, kind))
    while True:
        try:
            job = await asking
        except asyncio.IncompleteReadError:
            return
        # The next frame, or the end of the pipe, ends a job that nobody waits for any more.
        asking = asyncio.create_task(read_frame(reader, kind))
        working = asyncio.ensure_future(work(job))
        await asyncio.wait([asking, working], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            os._exit(0)  # threads of a store may hang on a request for long
        try:
            send_frame(working.result())
        except BrokenPipeError:
            os._exit(0)  # the parent was killed; Python would complain about what it cannot flush


def send_frame(value: object) -> None:
    """In a child: to its parent."""
    sys.stdout.buffer.write(frame(value))
    sys.stdout.buffer.flush()


def requests_of(store: CountedStore) -> Counter[str]:
    """That it made so far, by kind."""
    counts: Counter[str] = Counter()
    for row in store.counts.rows:
        counts[row.kind] += row.requests
    return counts


def _as_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))
