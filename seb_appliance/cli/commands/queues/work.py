"""`seb work`: a command for each record of a queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from pathlib import Path
from typing import Final

import click

from seb_appliance import limits
from seb_appliance.cli.connection import tell_wait, url_and_key
from seb_appliance.cli.errors import REFUSED, UNAVAILABLE, CommandError, in_our_words
from seb_appliance.cli.options import CONNECTION, Quantity, json_option, with_settings
from seb_appliance.cli.output import say, tell
from seb_appliance.client.failures import ApplianceError, ClientError
from seb_appliance.client.working import AsyncWorker, Delivery, Reject, RetryLater
from seb_appliance.setting_sources import whole_environment
from seb_appliance.settings import Settings

RETRY_CODE: Final = 75  # EX_TEMPFAIL of sysexits.h
_PATH: Final = "{}"
_CHUNK_BYTES: Final = 4 * limits.KIB
_VARIABLE_BYTES_MAX: Final = 32 * limits.KIB  # Linux takes 128 KiB
_COUNTS: Final = ("acknowledged", "to_retry", "rejected")
_LEASE: Final = Quantity("DURATION", limits.QUEUE_LEASE_MS_MIN, limits.QUEUE_LEASE_MS_MAX)
_TIMEOUT: Final = Quantity("DURATION", 1, limits.QUEUE_LEASE_MS_MAX)


class CommandHandler:
    """Runs `command` with each record: its value as stdin, or in a file whose path stands for `{}`.
    Exit code 0 acknowledges the record, RETRY_CODE hands it out again later, any other rejects it
    with the last line of stderr as the reason."""

    def __init__(self, command: tuple[str, ...], timeout_s: float | None) -> None:
        self.counts: Counter[str] = Counter()
        self._command = command
        self._timeout_s = timeout_s
        self._environment = whole_environment()
        self._running: set[Process] = set()

    async def __call__(self, delivery: Delivery) -> None:
        """Raises RetryLater, Reject."""
        with tempfile.TemporaryDirectory(prefix="seb-work-") as folder:
            path, value = Path(folder) / "value", delivery.value or b""
            takes_path = any(_PATH in word for word in self._command)
            if takes_path:
                path.write_bytes(value)
            words = [word.replace(_PATH, str(path)) for word in self._command]
            try:
                code, said = await self._run(words, None if takes_path else value, delivery)
            except OSError as error:
                tell(f"cannot run {words[0]} ({error.strerror})")
                code, said = RETRY_CODE, ""
        if code == 0:
            self.counts["acknowledged"] += 1
        elif code == RETRY_CODE:
            self.counts["to_retry"] += 1
            raise RetryLater
        else:
            self.counts["rejected"] += 1
            raise Reject(said or f"exit code {code}")

    async def _run(
        self, words: list[str], value: bytes | None, delivery: Delivery
    ) -> tuple[int, str]:
        """The exit code, and the last line of stderr. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=DEVNULL if value is None else PIPE,
            stderr=PIPE,
            env=self._environment | variables(delivery),
            start_new_session=True,  # Ctrl-C is for us; and all of it can be killed
        )
        self._running.add(process)
        try:
            async with asyncio.timeout(self._timeout_s):
                said, _ = await asyncio.gather(_pass_on(process), _feed(process, value))
                code = await process.wait()
        except TimeoutError:
            tell(f"{delivery.topic} {delivery.offset}: no end after {self._timeout_s:g} s")
            return RETRY_CODE, ""
        finally:
            self._running.discard(process)
            kill(process)
            await process.wait()
        # A handler that was killed says nothing of the record.
        return (RETRY_CODE if code < 0 else code), said

    def kill_all(self) -> None:
        for process in self._running:
            kill(process)


def kill(process: Process) -> None:
    """With whatever it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _feed(process: Process, value: bytes | None) -> None:
    if process.stdin is None or value is None:
        return
    with contextlib.suppress(ConnectionError):  # it need not read its input
        process.stdin.write(value)
        await process.stdin.drain()
    process.stdin.close()


async def _pass_on(process: Process) -> str:
    """Its stderr to ours; the last line that is not empty."""
    assert process.stderr is not None
    end = b""
    while data := await process.stderr.read(_CHUNK_BYTES):
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        end = (end + data)[-_CHUNK_BYTES:]
    lines = [line.strip() for line in end.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def variables(delivery: Delivery) -> dict[str, str]:
    """What the command is told of the record. What no variable can hold is left out."""
    members = {
        "QUEUE": delivery.queue,
        "TOPIC": delivery.topic,
        "OFFSET": str(delivery.offset),
        "TIMESTAMP": delivery.timestamp,
        "ATTEMPT": str(delivery.attempt),
    }
    if delivery.value is None:
        members["TOMBSTONE"] = "1"
    if delivery.key is not None:
        members["KEY"] = os.fsdecode(delivery.key)
    for name, content in delivery.headers.items():
        word = "".join(one if one.isascii() and one.isalnum() else "_" for one in name)
        members[f"HEADER_{word.upper()}"] = os.fsdecode(content)
    return {
        f"RECORD_{name}": text
        for name, text in members.items()
        if "\0" not in text and len(text) <= _VARIABLE_BYTES_MAX
    }


@click.command()
@click.argument("queue")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=1, help="Commands at one time. [1]"
)
@click.option("--timeout", type=_TIMEOUT, help="Kill a command after this time.")
@click.option("--lease", type=_LEASE, default="30s", help="Of each record; it is renewed. [30s]")
@click.option("--until-empty", is_flag=True, help="End when nothing waits.")
@json_option
@with_settings(*CONNECTION)
def work(
    settings: Settings,
    queue: str,
    command: tuple[str, ...],
    concurrency: int,
    timeout: int | None,
    lease: int,
    until_empty: bool,
    as_json: bool,
) -> None:
    """Run COMMAND for each record of QUEUE, until it is stopped.

    The value is its stdin, or a file whose path replaces {}; RECORD_TOPIC, RECORD_OFFSET,
    RECORD_KEY, RECORD_ATTEMPT and RECORD_HEADER_… tell the rest. Exit code 0 acknowledges the
    record, 75 hands it out again later, any other rejects it; the last line of stderr is the
    reason.
    """
    if shutil.which(command[0]) is None:
        raise CommandError(f"there is no command {command[0]}", REFUSED)
    handler = CommandHandler(command, None if timeout is None else timeout / 1_000)
    url, api_key = url_and_key(settings)
    try:
        asyncio.run(
            _work(
                AsyncWorker(
                    url,
                    api_key,
                    queue,
                    handler,
                    concurrency=concurrency,
                    lease_ms=lease,
                    follow=not until_empty,
                    on_wait=tell_wait,
                ),
                handler,
            )
        )
    except ClientError as error:
        refused = isinstance(error, ApplianceError) and not error.retryable
        raise CommandError(in_our_words(str(error)), REFUSED if refused else UNAVAILABLE) from error
    counts = {name: handler.counts[name] for name in _COUNTS}
    words = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())
    say(json.dumps(counts) if as_json else words)


async def _work(worker: AsyncWorker, handler: CommandHandler) -> None:
    """The first SIGTERM or SIGINT lets the commands end; the second one kills them."""
    loop, signals = asyncio.get_running_loop(), 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        worker.stop()
        if signals > 1:
            handler.kill_all()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await worker.run()
