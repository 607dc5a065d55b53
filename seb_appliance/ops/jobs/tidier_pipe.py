"""What the tidier's child process and its parent say to each other: frames of msgpack on pipes.

A frame is its length (uint32, little-endian) and a value. The parent sends a `Hello`, then jobs;
the child answers each with a `Rewritten` or a `Failed`.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from seb_appliance.broker.upkeep.rewrite_jobs import Rewritten
from seb_appliance.settings import Settings
from seb_appliance.storage.layout import Mode

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


def _as_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))
