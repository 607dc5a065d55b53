"""Ask the running appliance for something through the socket in its data directory.

One line of JSON each way: {"command": …, "arguments": {…}} and {"ok": true, …} or {"error":
{problem members}}.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Final

from seb_appliance.errors import StartError

SOCKET_NAME: Final = "control.sock"
ANSWER_BYTES_MAX: Final = 64 * 1024


def ask(
    data: Path, command: str, arguments: dict[str, str] | None = None, *, timeout_s: float = 60.0
) -> dict[str, Any]:
    """The answer's members. Raises StartError: nobody is there, no right, or a refusal."""
    path = data / SOCKET_NAME
    try:
        answer = _exchange(path, _line(command, arguments), timeout_s)
    except FileNotFoundError as error:
        raise StartError(f"no appliance runs on {data} ({path} is not there)") from error
    except ConnectionRefusedError as error:
        raise StartError(f"no appliance runs on {data} (nobody listens at {path})") from error
    except PermissionError as error:
        raise StartError(f"no right to use {path}; run this as the appliance's user") from error
    except TimeoutError as error:
        raise StartError(
            f"the appliance on {data} did not answer in {timeout_s:.0f} s; it may still do it"
        ) from error
    except OSError as error:
        raise StartError(f"cannot talk to the appliance at {path} ({error})") from error
    if "error" in answer:
        raise StartError(f"the appliance says: {answer['error'].get('detail', answer['error'])}")
    return answer


def _line(command: str, arguments: dict[str, str] | None) -> bytes:
    asked: dict[str, Any] = {"command": command}
    if arguments:
        asked["arguments"] = arguments
    return json.dumps(asked).encode() + b"\n"


def _exchange(path: Path, request: bytes, timeout_s: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        connection.sendall(request)
        with connection.makefile("rb") as lines:
            line = lines.readline(ANSWER_BYTES_MAX)
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise ConnectionError("it hung up without an answer") from error
    if not isinstance(answer, dict):
        raise ConnectionError("its answer is not an object")
    return answer
