"""The command socket `<data>/control.sock`: what the machine's own `seb admin …` commands use.

Whoever may open the socket (mode 0600: the appliance's user, and root) may give commands; there is
no other check. On a connection the client sends one line of JSON, `{"command": NAME, "arguments":
{…}}` (texts by name; none is the same as no arguments), and gets one line: `{"ok": true, …members
of the answer}` or `{"error": {…members of a problem document}}`; then the appliance hangs up. Lines
have at most 64 KiB.

Commands: `reset-key` makes a new admin key and puts it into `<data>/admin.key`; the answer names
the file (`path`), never the key. Those for users of the admin page are in
ops/serve/control_users.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.problems import problem
from seb_appliance.errors import BadRequestError, ConfigurationError, InternalError, SebError

Answer = dict[str, Any]
Arguments = Mapping[str, str]
Handler = Callable[[Arguments], Awaitable[Answer]]
SOCKET_MODE: Final = 0o600
_LINE_S_MAX: Final = 10.0
_SOCKET_PATH_BYTES_MAX: Final = 107  # of sockaddr_un on Linux
_log = logging.getLogger("seb.control")


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    command: str
    arguments: dict[str, str] = {}


_decoder: Final = msgspec.json.Decoder(_Command)


async def serve_control(bound: socket.socket, handlers: Mapping[str, Handler]) -> asyncio.Server:
    """Serve the commands on a socket of `bind_control` until the server, which closes it, is
    closed."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_LINE_S_MAX):
                line = await reader.readline()
            answer = await _answer(line, handlers)
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # silent, too long a line, or gone: there is nobody to tell
        finally:
            writer.close()

    return await asyncio.start_unix_server(
        on_connection, sock=bound, limit=limits.CONTROL_LINE_BYTES_MAX
    )


def bind_control(path: Path) -> socket.socket:
    """A Unix socket at `path`.

    A socket file that an earlier process left is replaced: the data directory's lock says that
    nobody else uses it. Raises ConfigurationError when there can be no socket at this path.
    """
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
        raise ConfigurationError(
            f"{path} is too long for a socket ({_SOCKET_PATH_BYTES_MAX} bytes at most); choose a "
            "data directory with a shorter path"
        )
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove(path)
        before = os.umask(0o777 & ~SOCKET_MODE)  # never open to others, not even for a moment
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"cannot listen at {path} ({error})") from error
    listening.setblocking(False)
    return listening


def _remove(path: Path) -> None:
    """A file that is not a socket stays; binding then fails."""
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        path.unlink()


async def _answer(line: bytes, handlers: Mapping[str, Handler]) -> Answer:
    try:
        handler, arguments = _asked(line, handlers)
        return {"ok": True, **await handler(arguments)}
    except SebError as error:
        return {"error": problem(error, "control", to_admin=True)}
    except Exception as error:
        _log.exception("command failed")
        internal = InternalError(f"{type(error).__name__}: {error}")
        return {"error": problem(internal, "control", to_admin=True)}


def argument(arguments: Arguments, name: str) -> str:
    """Raises BadRequestError when it is not given."""
    if name not in arguments:
        raise BadRequestError(f"The command needs the argument {name!r}.")
    return arguments[name]


def _asked(line: bytes, handlers: Mapping[str, Handler]) -> tuple[Handler, Arguments]:
    try:
        asked = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f'Send one line such as {{"command": "NAME"}}: {error}') from error
    handler = handlers.get(asked.command)
    if handler is None:
        known = ", ".join(sorted(handlers))
        raise BadRequestError(f"Unknown command {asked.command!r}; known are: {known}.")
    return handler, asked.arguments
