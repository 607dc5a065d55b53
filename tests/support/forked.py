"""`seb serve` as a fork of a process that has imported it: importing is two thirds of a start, and
the tests start thousands. What is forked has made the OpenAPI document and run nothing else; it is
a process with its own pid, files and memory, whose kill -9 is that of any other. Its limits are
those that the test process had at the first start.

Tests that measure starts or memory, and those with libraries between the process and the system,
start Python anew (tests/support/process.py).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from tests.support.servers.s3_server import die_with_parent

_MESSAGE_BYTES = 1 << 17
_IMPORTED = (
    "boto3.session",
    "uvloop",
    "seb_appliance.storage.stores.s3_requests",
    "seb_appliance.protocols.kafka.listening",
    "seb_appliance.cli.commands.serve",
    "seb_appliance.ops.serve.process",
    "seb_appliance.ops.serve.http_server",
)
_ROOT = Path(__file__).parents[2]


class ForkedProcess:
    """As much of subprocess.Popen as the tests use. `arguments` are those of `seb`; `sink` takes
    what it prints."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], sink: int) -> None:
        self.returncode: int | None = None
        self._report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = json.dumps([list(arguments), dict(environment)]).encode()
            assert len(message) < _MESSAGE_BYTES
            socket.send_fds(_parent(), [message], [sink, theirs.fileno()])

    @cached_property
    def pid(self) -> int:
        return self._told(None)

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("seb", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and we will hear of it
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, within_s: float | None) -> int | None:
        assert self.pid
        if self.returncode is None:
            with contextlib.suppress(TimeoutError, BlockingIOError):
                self.returncode = self._told(within_s)
                self._report.close()
        return self.returncode

    def _told(self, within_s: float | None) -> int:
        self._report.settimeout(within_s)
        told = self._report.recv(64)
        assert told, "the process that forks has ended"
        return int(told)

    def __del__(self) -> None:
        self._report.close()


@cache
def _parent() -> socket.socket:
    """The way to the process that forks, which begins now and ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("SEB_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        preexec_fn=die_with_parent,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _fork_when_asked(control: socket.socket) -> list[str]:
    """Returns in each child: its arguments. Its exit code is reported once it is reaped."""
    children: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of the process
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    parent = os.getpid()
    while True:
        for ready, _ in waiting.poll():
            if ready != control.fileno():
                waiting.unregister(ready)
                pid, report = children.pop(ready)
                _, status = os.waitpid(pid, 0)
                os.close(ready)
                with report, contextlib.suppress(OSError):  # nobody asks any more
                    report.send(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            message, received, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
            if not message:
                sys.exit()
            sink, told = received
            pid = os.fork()
            if pid == 0:
                for other, (_, report) in children.items():
                    os.close(other)
                    report.close()
                control.close()
                os.close(told)
                return _become(json.loads(message), sink, parent)
            os.close(sink)
            report = socket.socket(fileno=told)
            report.send(str(pid).encode())
            handle = os.pidfd_open(pid)
            children[handle] = pid, report
            waiting.register(handle, select.POLLIN)


def _become(asked: tuple[list[str], dict[str, str]], sink: int, parent: int) -> list[str]:
    die_with_parent()
    if os.getppid() != parent:
        sys.exit()  # it died before
    arguments, environment = asked
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number in (1, 2):
        os.dup2(sink, number)
    os.close(sink)
    random.seed()
    return arguments


def main() -> NoReturn:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in _IMPORTED:
        import_module(name)
    from seb_appliance import cli
    from seb_appliance.ops.serve.protocols import openapi_json

    openapi_json()  # each start would make the same document
    gc.collect()
    gc.freeze()  # a fork copies what its collections touch
    sys.argv = ["seb", *_fork_when_asked(control)]
    gc.unfreeze()
    cli.main()
    sys.exit()


if __name__ == "__main__":
    main()
