"""The tidier's child process, as its parent sees it: started when needed, ended with its pipe.

Both send frames of msgpack: a length (uint32, little-endian) and a value. The parent sends a
`Hello`, then jobs; the child sends an `Answer` to each.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from seb_appliance.broker.upkeep.rewrite_jobs import Asked, RewriteJob, Rewritten
from seb_appliance.errors import CorruptObjectError, StoreUncertainError
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings
from seb_appliance.storage.layout import Mode
from seb_appliance.tasks import start_child


class ChildRewriter:
    """Fulfils `broker.rewrite_jobs.Rewriter`. A child that died is replaced for a later job; its
    requests in the last job are not counted. `cache`: the folder of our cache of entries, which the
    child reads; None if there is none."""

    def __init__(self, settings: Settings, mode: Mode, cache: Path | None = None) -> None:
        self.asked = Asked()
        self._hello = Hello(settings, mode, cache)
        self._child: Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the child; None while there is none."""
        running = self._child is not None and self._child.returncode is None
        return self._child.pid if self._child is not None and running else None

    async def rewrite(self, job: RewriteJob) -> Rewritten:
        """See `Rewriter`."""
        try:
            answer = await self._asked(job)
        except BaseException as error:
            await self.close()  # whatever it is doing, nobody waits for it
            if isinstance(error, OSError | EOFError):
                raise StoreUncertainError("the tidier's process ended in the middle") from error
            raise
        self.asked.requests.update(answer.requests)
        self.asked.received_bytes += answer.received_bytes
        if answer.made is not None:
            return answer.made
        if answer.is_damage:
            raise CorruptObjectError(answer.failure)
        raise StoreUncertainError(answer.failure)

    async def close(self) -> None:
        """End the child, which ends by itself when its pipe is closed."""
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        await child.wait()

    async def _asked(self, job: RewriteJob) -> Answer:
        if self.pid is None:
            # It is told the settings through the pipe.
            self._child = await start_child(
                "seb_appliance.ops.jobs.tidier_child", environment_without_settings()
            )
            self._child.stdin.write(frame(self._hello))  # type: ignore[union-attr]
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(frame(job))
        await child.stdin.drain()
        return await read_frame(child.stdout, Answer)


_LENGTH: Final = struct.Struct("<I")
_T = TypeVar("_T")


class Hello(msgspec.Struct):
    """`settings`: of the appliance, with which the child makes its own store. `cache`: the folder
    where entries may lie on this machine; None if there is none."""

    settings: Settings
    mode: Mode
    cache: Path | None = None


class Answer(msgspec.Struct):
    """Either of the two; `is_damage`: an input cannot be read, whoever tries again. Either way
    `requests` to the bucket were made, by kind, and `received_bytes` came out of it."""

    made: Rewritten | None = None
    failure: str = ""
    is_damage: bool = False
    requests: dict[str, int] = {}
    received_bytes: int = 0


def frame(value: object) -> bytes:
    body = msgspec.msgpack.encode(value, enc_hook=_as_text)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader, kind: type[_T]) -> _T:
    """The next value. Raises IncompleteReadError when the pipe is closed."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
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


def send_frame(value: object) -> None:
    """In a child: to its parent."""
    sys.stdout.buffer.write(frame(value))
    sys.stdout.buffer.flush()


def _as_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))
