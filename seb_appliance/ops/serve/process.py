"""The process: what `seb serve` runs, from the lock on the data directory to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.status import Status

from seb_appliance import __version__, limits
from seb_appliance.api.server.accepting import duplicates
from seb_appliance.clock import Clock, SystemClock
from seb_appliance.errors import (
    BadRequestError,
    FencedError,
    FencedStartError,
    StartError,
    printable,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.ops.host.data_directory import FILE_NAME, own_data_directory, reset_admin_key
from seb_appliance.ops.host.runtime import FIELDS, configure_logs, keep_freed_memory
from seb_appliance.ops.host.service_manager import READY, STOPPING, ServiceManager
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.listening import check_ports, listening
from seb_appliance.quantities import counted
from seb_appliance.setting_sources import service_manager_of
from seb_appliance.settings import Settings
from seb_appliance.storage.journal.replay import Progress, ReplayError
from seb_appliance.storage.stores.counted import CountedStore

if TYPE_CHECKING:
    from seb_appliance.api.server.control import Answer, Handler
    from seb_appliance.ops.serve.protocols import Ports


class Promotion:
    """The promotion of a standby. `asked` resolves at the first command; all commands wait until
    the promotion is `done` or `failed`, and get the same answer."""

    def __init__(self, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[None] = loop.create_future()
        self._clock = clock
        self._answer: asyncio.Future[Answer] = loop.create_future()
        self._asked_s = 0.0

    async def ask(self, _arguments: Mapping[str, str]) -> Answer:
        """The command. Raises StartError if it stays a standby."""
        if not self.asked.done():
            self._asked_s = self._clock.monotonic_s()
            self.asked.set_result(None)
        return dict(await asyncio.shield(self._answer))

    def done(self, appliance: Appliance) -> None:
        """`appliance` is the writer now."""
        seconds = self._clock.monotonic_s() - self._asked_s
        journal = appliance.journal
        self._answer.set_result(
            {"epoch": journal.epoch, "seq": journal.position.seq, "seconds": seconds}
        )

    def failed(self, error: StartError) -> None:
        self._answer.set_exception(error)


async def refuse_promotion(_arguments: Mapping[str, str]) -> Answer:
    raise BadRequestError("This appliance is already the writer: there is nothing to promote.")


_Opened = TypeVar("_Opened")
_Open = Callable[[Settings, CountedStore, Failpoints, Progress], Coroutine[Any, Any, _Opened]]

_log = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_UNFINISHED = 71
EXIT_FENCED = 75
# A window of a thousand appends becomes garbage at once, without cycles: the default thresholds
# took a tenth of the time. The second generation has some 60,000 objects at most.
_GC_THRESHOLDS = (10_000, 5, 20)
_TRY_PATH = "/v1/topics/greetings/records"
_WORTH = {
    "s3": "as durable as that bucket",
    "disk": "as durable as this disk; use s3://… for more",
    "memory": "lost when the process ends; for tests only",
}

_OPEN = (
    "--durable-streams-open: every program on this machine may read, write and DELETE every topic "
    "through /v1/stream, without an API key"
)
_FILES_BESIDE_CONNECTIONS = 1_000  # for the bucket, SQLite and the cache


def serve(settings: Settings, console: Console) -> int:
    """Run until stopped; the exit code. Raises StartError when it cannot start."""
    import uvloop

    from seb_appliance.api.server.control import bind_control

    configure_logs(settings.log_level, settings.log_format)
    if sys.__stderr__ is not None:
        faulthandler.enable(2)  # a watchdog's SIGABRT shows where the threads are
    keep_freed_memory()
    _allow_many_files(settings)
    with (
        own_data_directory(settings.data),
        listening(settings) as listener,
        contextlib.closing(bind_control(settings.data / "control.sock")) as control,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(settings, listener, control, console))


@dataclass(frozen=True, slots=True)
class _Process:
    """`stop` resolves at a signal. `manager`: who watches the process."""

    settings: Settings
    listener: socket.socket
    control: socket.socket
    console: Console
    failpoints: Failpoints
    stop: asyncio.Future[None]
    manager: ServiceManager


async def _serve(
    settings: Settings, listener: socket.socket, control: socket.socket, console: Console
) -> int:
    manager = ServiceManager(*service_manager_of(), SystemClock())
    stop, failpoints = _stop_signal(), Failpoints(settings.fail)
    stop.add_done_callback(lambda _: manager.tell(STOPPING))
    async with manager.watching():
        return await _run(_Process(settings, listener, control, console, failpoints, stop, manager))


async def _run(process: _Process) -> int:
    settings = process.settings
    if not settings.follow:
        check_ports(settings)
        return await _write(process, settings)
    while True:
        promotion = await _follow(process)
        if process.stop.done():
            return EXIT_STOPPED
        take_over = promotion is not None
        try:
            writing = replace(settings, follow=False, take_over=take_over)
            return await _write(process, writing, promotion)
        except StartError as error:
            if promotion is None:
                raise
            promotion.failed(error)  # continue as a standby, if it still is one


async def _write(process: _Process, settings: Settings, promotion: Promotion | None = None) -> int:
    """Run as the writer until stopped or fenced; the exit code."""
    console = process.console
    appliance = await _opened(process, settings, Appliance.open)
    if appliance is None:
        return EXIT_STOPPED
    drained = False
    try:
        from seb_appliance.ops.serve.protocols import Ports

        with _starting():
            writer = await appliance.start()
        ports = Ports()
        await ports.start(settings, appliance.broker, appliance.beside)
        async with _servers(
            appliance, process.listener, process.control, {"promote": refuse_promotion}, ports
        ) as http:
            await _say_started(process, appliance)
            if promotion is not None:
                promotion.done(appliance)
            gc.collect()
            gc.freeze()  # the objects of the start stay until the end: collections skip them
            gc.set_threshold(*_GC_THRESHOLDS)
            waited_for: set[asyncio.Future[None]] = {writer, process.stop, http}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            appliance.broker.stop_stretching()  # or those who stop would wait for a window
            await ports.stop()
            drained = await appliance.drain()
    finally:
        await appliance.close()
    exit_code = _exit_code(appliance, writer, drained, console)
    _log.info("stopped", extra={FIELDS: {"exit_code": exit_code}})
    return exit_code


async def _follow(process: _Process) -> Promotion | None:
    """Run as a standby until a promotion is asked for; return it. None when stopped, or when this
    data directory wrote last, so that there is no other writer to follow."""
    settings = process.settings
    while True:
        standby = await _opened(process, settings, Appliance.open_standby)
        if standby is None:
            return None
        promotion = Promotion(standby.clock)
        try:
            following = await standby.start()
            # A duplicate: connections made while no server runs wait in the listener for the next.
            listener = process.listener.dup()
            commands = {"promote": promotion.ask}
            async with _servers(standby, listener, process.control, commands) as http:
                await _say_started(process, standby)
                waited_for = {following, process.stop, promotion.asked, http}
                await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
                await standby.drain()
        finally:
            await standby.close()
        if promotion.asked.done():
            return promotion
        if process.stop.done():
            return None
        error = following.exception()
        if not isinstance(error, ReplayError):
            assert error is not None
            raise error
        _log.warning("the journal cannot be followed any more (%s): starting again", error)


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """Whoever is taken over before it serves has not started. Raises FencedStartError."""
    try:
        yield
    except FencedError as error:
        raise FencedStartError(error.detail) from error


async def _opened(process: _Process, settings: Settings, open_it: _Open[_Opened]) -> _Opened | None:
    """The result of `open_it`; None if a signal to stop came first."""
    store = make_store(settings, process.failpoints)
    opened: _Opened | None = None
    try:
        with start_progress(process.console) as progress:
            opening = asyncio.ensure_future(open_it(settings, store, process.failpoints, progress))
            either: set[asyncio.Future[Any]] = {opening, process.stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                with _starting():
                    opened = opening.result()
            else:
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
    finally:
        if opened is None:
            await store.close()
    return opened


async def _say_started(process: _Process, appliance: Appliance) -> None:
    """Tell the service manager; print a screen for people, or log a line for programs."""
    settings, journal = appliance.settings, appliance.journal
    port = process.listener.getsockname()[1]
    process.manager.tell(READY)
    if settings.log_format == "text":
        await _show_started(process.console, appliance, port)
        return
    fields = {
        "standby": appliance.standby is not None,
        "version": __version__,
        "host": settings.host,
        "port": port,
        "bucket": appliance.store.description,
        "seq": journal.position.seq,
        "epoch": journal.epoch,
        "fencing_mode": journal.mode,
        "entries_replayed": appliance.report.entries_replayed,
    }
    _log.info("serving", extra={FIELDS: fields})


def _exit_code(
    appliance: Appliance, writer: asyncio.Task[None], drained: bool, console: Console
) -> int:
    failure = appliance.broker.failure
    if isinstance(failure, FencedError):
        console.print(
            f"seb: fenced: {printable(failure.detail)}", style="red", highlight=False, markup=False
        )
        return EXIT_FENCED
    if writer.done() and not writer.cancelled() and (error := writer.exception()) is not None:
        raise error
    if not drained:
        console.print(
            "seb: the bucket did not answer within the grace time; what was not acknowledged may "
            "be stored or not",
            style="red",
        )
        return EXIT_UNFINISHED
    return EXIT_STOPPED


@contextlib.asynccontextmanager
async def _servers(
    appliance: Appliance,
    listener: socket.socket,
    bound: socket.socket,
    more: Mapping[str, Handler],
    ports: Ports | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    """Serve HTTP and the command socket, `bound`, with `more` commands, inside the block. Closes
    `listener`.
    Yields the task that serves HTTP; if it fails, the end of the block raises its error."""
    from seb_appliance.api.server.control import serve_control
    from seb_appliance.ops.serve import control_users as users_at_the_machine
    from seb_appliance.ops.serve.http_server import HttpServer
    from seb_appliance.ops.serve.protocols import openapi_json

    # Takes some 100 ms, for which the first GET of it held the loop.
    await asyncio.to_thread(openapi_json)
    settings, broker = appliance.settings, appliance.broker

    resetting = asyncio.Lock()

    async def reset_key(_arguments: Mapping[str, str]) -> dict[str, object]:
        return {"path": str(await reset_admin_key(broker, settings.data, resetting))}

    if ports is None:
        server = HttpServer(appliance)
    else:
        server = HttpServer(appliance, more_samples=ports.samples, upgrades=ports.upgrades)
    of_users = users_at_the_machine.handlers(broker, appliance.passwords)
    commands = {"reset-key": reset_key, **of_users, **more}
    control = await serve_control(bound.dup(), commands)
    listeners = [listener, *duplicates(listener.fileno())]
    running = asyncio.create_task(server.serve(sockets=listeners), name="http")
    try:
        yield running
    finally:
        control.close()
        server.should_exit = True
        await running


def _allow_many_files(settings: Settings) -> None:
    """Raise the limit of open files (1,024 by default), as far as the hard limit allows."""
    has_mqtt = settings.mqtt_port is not None or settings.mqtt_websocket
    of_mqtt = limits.MQTT_CONNECTIONS_MAX if has_mqtt else 0
    of_kafka = 0 if settings.kafka_port is None else limits.KAFKA_CONNECTIONS_MAX
    wanted = limits.CONNECTIONS_MAX + of_mqtt + of_kafka + _FILES_BESIDE_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _stop_signal() -> asyncio.Future[None]:
    """Resolves at the first SIGTERM or SIGINT; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    def stopped(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        # Python's own way at Ctrl-C raises an error wherever the event loop is.
        signal.signal(number, signal.SIG_DFL)
        if not stop.done():
            stop.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped, number)
    return stop


@contextlib.contextmanager
def start_progress(console: Console) -> Iterator[Progress]:
    """A progress callback; it shows a status line on a terminal, elsewhere nothing."""
    status = Status("starting", console=console) if console.is_terminal else None

    def show_progress(done: int, total: int, phase: str) -> None:
        if status is not None:
            status.update(f"{phase}  {done:,} of {total:,}" if total else phase)

    with status or contextlib.nullcontext():
        yield show_progress


async def _show_started(console: Console, appliance: Appliance, port: int) -> None:
    settings, report = appliance.settings, appliance.report
    role = f"epoch {report.epoch}, fencing mode {report.mode}"
    if appliance.standby is not None:
        role = f"follows the writer ({role}); seb promote makes it the writer"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{port}"
    page = f"{url}/ui"
    if not appliance.broker.accounts.all():
        from seb_appliance.ops.serve.control_users import set_password_command

        page += f"  no user exists yet: {set_password_command(settings.data)}"
    key_file = settings.data / FILE_NAME
    rows = [
        ("bucket", f"{appliance.store.description}  {_WORTH[appliance.journal.durability]}"),
        ("writer" if appliance.standby is None else "standby", role),
        ("recovery", await _recovery(appliance)),
        ("admin page", page),
        ("API", f"{url}/schema"),
        ("admin key", f"in {key_file}"),
        (
            "try it",
            f'curl -H "Authorization: Bearer $(cat {key_file})" -d hello {url}{_TRY_PATH}',
        ),
    ]
    if appliance.standby is not None:
        rows[5:] = [("admin key", "the same as at the writer; all API keys work here")]
    elif not key_file.exists():
        rows[5:] = [("admin key", f"not in {key_file}; seb admin reset-key makes a new one")]
    console.print(f"Seb Appliance {__version__}", highlight=False)
    for name, text in rows:
        console.print(f"  {name:<11} {text}", highlight=False, markup=False, soft_wrap=True)
    if settings.durable_streams_open:
        console.print(f"  {'WARNING':<11} {_OPEN}", style="bold red", soft_wrap=True)
    for warning in (*report.warnings, appliance.database.set_aside):
        if warning:
            text = f"  {'warning':<11} {printable(warning)}"  # the bucket may have named something
            console.print(text, style="yellow", markup=False, soft_wrap=True)


async def _recovery(appliance: Appliance) -> str:
    report, broker = appliance.report, appliance.broker
    totals = await broker.topics.totals()
    began = {"local": "local state", "empty": "an empty state"}.get(
        report.began_from, f"snapshot {report.began_seq}"
    )
    return (
        f"{began} + {counted(report.entries_replayed, 'entry')} → "
        f"{counted(totals.records, 'record')}, {counted(totals.topics, 'topic')}, "
        f"{counted(len(broker.access.all()), 'API key')}, ready in {report.seconds:.1f} s"
    )
