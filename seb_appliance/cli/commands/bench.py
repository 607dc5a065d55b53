"""`seb bench WORKLOAD`: load, latency, and whether every record was right."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance import limits
from seb_appliance.bench.plan import (
    BODY_KINDS,
    CONNECTIONS_AT_A_RATE,
    PRESETS,
    TOPOLOGIES,
    WORKLOADS,
    Plan,
)
from seb_appliance.cli.errors import REFUSED, UNAVAILABLE, WRONG, CommandError
from seb_appliance.cli.options import (
    CONNECTION,
    Quantity,
    file_option,
    json_option,
    settings_from,
    with_settings,
)
from seb_appliance.cli.output import Progress, say, say_json, tell
from seb_appliance.errors import ConfigurationError, StartError
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.bench.result import Result
    from seb_appliance.bench.session import EmbeddedOptions, Session
    from seb_appliance.bench.targets import Target


# From the options of `seb bench` to what is measured.


def make_session(settings: Settings, asked: dict[str, Any]) -> Session:
    """What is to be measured. Raises StartError, ConfigurationError."""
    _need_parts()
    from seb_appliance.bench.session import Session

    plan = make_plan(asked)
    if asked["against"] and (plan.workload not in ("produce", "consume") or plan.rate is not None):
        raise ConfigurationError("--against is for produce and consume without --rate")
    own = None
    if asked["embedded"]:
        if asked["target"] != "seb":
            raise ConfigurationError("--embedded starts an appliance, no seb-go")
        own = _embedded(asked, plan)
    else:
        for name in ("store", "directory", "linger", "store_latency"):
            if asked[name] is not None:
                flag = name.replace("_", "-")
                raise ConfigurationError(f"--{flag} is for --embedded; a running one has its own")
    return Session(
        plan=plan,
        target=None if own is not None else _target(settings, asked["target"]),
        embedded=own,
        against_null=asked["against"] is not None,
        keep_topics=asked["keep"],
    )


def make_plan(asked: dict[str, Any]) -> Plan:
    """What the options say; those that are given win over a preset and a topology.

    Raises ConfigurationError."""
    workload = asked["workload"]
    chosen: dict[str, Any] = {}
    if asked["preset"] is not None:
        chosen |= PRESETS[asked["preset"]]
    if asked["topology"] is not None and workload != "fan":
        raise ConfigurationError("--topology is for fan")
    if workload == "fan":
        chosen["connections"], chosen["consumers"] = TOPOLOGIES[asked["topology"] or "1:1"]
    names = ("body", "record_bytes", "records_per_request", "connections", "consumers")
    chosen |= {n: asked[n] for n in (*names, "topics", "rate") if asked[n] is not None}
    for name in ("duration", "warm_up"):
        if asked[name] is not None:
            chosen[f"{name}_s"] = asked[name] / 1000
    if workload == "consume":
        if asked["consumers"] is not None:
            raise ConfigurationError("the readers of consume are its --connections")
        chosen.pop("rate", None)
        if asked["rate"] is not None:
            raise ConfigurationError("consume reads as fast as it goes: leave --rate out")
    if workload == "produce" and asked["consumers"] is not None:
        raise ConfigurationError("produce has no --consumers; mixed, e2e and fan have")
    if "rate" in chosen:
        chosen.setdefault("connections", CONNECTIONS_AT_A_RATE)
    return Plan(workload=workload, **chosen).check()


def _embedded(asked: dict[str, Any], plan: Plan) -> EmbeddedOptions:
    from seb_appliance.bench.machine import this_machine
    from seb_appliance.bench.session import EmbeddedOptions

    flags: list[str] = []
    for name in ("linger", "store_latency"):
        if asked[name] is not None:
            flags += [f"--{name.replace('_', '-')}", asked[name]]
    memory_bytes = this_machine().memory_bytes or 0
    return EmbeddedOptions(
        store=asked["store"] or "disk",
        ready_bytes=min(plan.stored_bytes_max, memory_bytes // 4),
        directory=asked["directory"],
        flags=tuple(flags),
        environment=environment_without_settings(),
    )


def _target(settings: Settings, kind: str) -> Target:
    from seb_appliance.addresses import parse_url
    from seb_appliance.bench.targets import Address, GoTarget, SebTarget
    from seb_appliance.cli.connection import url_and_key

    url, token = url_and_key(settings, ours=kind == "seb")
    parts = parse_url(url)
    secured = parts.scheme == "https"
    assert parts.hostname is not None
    address = Address(
        parts.hostname, parts.port or (443 if secured else 80), parts.path.rstrip("/"), secured
    )
    return SebTarget(address, token) if kind == "seb" else GoTarget(address, token)


def _need_parts() -> None:
    """Raises StartError when the extra is not installed."""
    try:
        import hdrh.histogram  # noqa: F401
    except ModuleNotFoundError as error:
        raise StartError(
            f"this needs {error.name}, which is not installed: pip install 'seb-appliance[bench]'"
        ) from error


# Running a measurement: its event loop, interrupts, and the line that moves.


def run(session: Session) -> Result:
    """Raises CommandError."""
    from seb_appliance.bench.connecting import BenchError
    from seb_appliance.bench.machine import allow_many_files

    allow_many_files()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_until_stopped(session))
    except BenchError as error:
        code = REFUSED if error.reachable else UNAVAILABLE
        raise CommandError(str(error), code) from error


async def _until_stopped(session: Session) -> Result:
    """The first interrupt ends the load and leaves a report; the second one ends it all."""
    from seb_appliance.bench.session import run_session

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupted)
    with Progress() as progress:
        return await run_session(session, stop, progress.show)


def _loop_factory() -> Any:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


INTERRUPTED: Final = 130

_COUNT: Final = click.IntRange(1, limits.BENCH_CONNECTIONS_MAX)


_DURATION: Final = Quantity("DURATION", 100, limits.BENCH_DURATION_MS_MAX)
_WARM_UP: Final = Quantity("DURATION", 0, limits.BENCH_DURATION_MS_MAX)
_SIZE: Final = Quantity("SIZE", 1, limits.RECORD_BYTES_MAX)


@click.command
@click.argument("workload", type=click.Choice(WORKLOADS), metavar="WORKLOAD")
@click.option("--preset", type=click.Choice(tuple(PRESETS)), help="Record size at a fixed rate.")
@click.option(
    "--topology", type=click.Choice(tuple(TOPOLOGIES)), help="Of fan: producers and consumers."
)
@click.option("--body", type=click.Choice(BODY_KINDS), help="How records travel. [single]")
@click.option("--record-bytes", type=_SIZE, metavar="SIZE", help="Value of a record. [1KiB]")
@click.option(
    "--records-per-request",
    type=click.IntRange(1, limits.RECORDS_PER_REQUEST_MAX),
    metavar="N",
    help="[1]",
)
@click.option(
    "--connections",
    type=_COUNT,
    metavar="N",
    help="Producers (consume: readers). [16, at a rate 256]",
)
@click.option(
    "--consumers", type=_COUNT, metavar="N", help="Of e2e, mixed, fan; each gets everything. [1]"
)
@click.option(
    "--topics",
    type=click.IntRange(1, limits.TOPICS_MAX),
    metavar="N",
    help="Spread over so many. [1]",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 10_000_000),
    metavar="N",
    help="Records a second, sent when they are due, however late answers come. "
    "[each connection sends when it was answered]",
)
@click.option("--duration", type=_DURATION, metavar="DURATION", help="[10s]")
@click.option("--warm-up", type=_WARM_UP, metavar="DURATION", help="Not measured. [1s]")
@click.option("--target", type=click.Choice(("seb", "seb-go")), default="seb", help="Whose API.")
@click.option("--embedded", is_flag=True, help="Start an appliance for this, and stop it.")
@click.option("--store", type=click.Choice(("disk", "memory")), help="Its bucket. [disk]")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="On whose disk its bucket is. [the system's temporary directory]",
)
@click.option("--linger", metavar="DURATION", help="Its linger. [10ms]")
@click.option("--store-latency", metavar="DURATION", help="How far away its bucket is. [0ms]")
@click.option("--against", type=click.Choice(("null",)), help="Also measure a no-op server.")
@click.option("--keep", is_flag=True, help="Do not delete the topics afterwards.")
@file_option("--report", "Also write a page (HTML) with the latency curve.", metavar="FILE")
@json_option
@with_settings(*CONNECTION)
def bench(
    config: Path | None,
    as_json: bool,
    report: Path | None,
    **asked: Any,
) -> int:
    """Measure an appliance, and check every record.

    \b
    WORKLOAD is one of
      produce   send records
      consume   read records that are there already
      e2e       send records and wait for them at the other end
      mixed     send records, while others are read
      fan       e2e with several producers and consumers of one topic

    It works on topics of its own, and deletes them. Ends with 65 when a record was lost, doubled,
    out of order or damaged.
    """
    settings = settings_from(config, {name: asked.pop(name) for name in CONNECTION})
    result = run(make_session(settings, asked))
    if report is not None:
        _write_report(report, result)
    if as_json:
        import msgspec

        say_json(msgspec.to_builtins(result))
    else:
        from seb_appliance.bench.reports import report as words

        say(words(result))
    return _exit_code(result)


def _write_report(path: Path, result: Result) -> None:
    """Raises CommandError."""
    from seb_appliance.bench.reports import page

    try:
        path.write_text(page(result), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path} ({error.strerror})") from error


def _exit_code(result: Result) -> int:
    if not result.is_right:
        tell("seb: records are not what was sent")
        return WRONG
    if result.failure is not None:
        tell(f"seb: {result.failure}")
        return UNAVAILABLE
    if not result.is_whole:
        return INTERRUPTED
    return 0 if any(row.latency is not None for row in result.rows) else REFUSED
