"""`seb bench WORKLOAD`: load, latency, and whether every record was right."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from seb_appliance import limits
from seb_appliance.addresses import parse_url
from seb_appliance.bench.plan import (
    BODY_KINDS,
    CONNECTIONS_AT_A_RATE,
    CONNECTIONS_MAX,
    DURATION_MS_MAX,
    PRESETS,
    TOPOLOGIES,
    WORKLOADS,
    Plan,
)
from seb_appliance.cli import INTERRUPTED
from seb_appliance.cli.commands.protocols.bench_mqtt import bench_mqtt
from seb_appliance.cli.connection import url_and_key
from seb_appliance.cli.errors import REFUSED, UNAVAILABLE, WRONG, CommandError
from seb_appliance.cli.measuring import check_installed, run_load
from seb_appliance.cli.options import (
    CONNECTION,
    Quantity,
    file_option,
    json_option,
    with_settings,
)
from seb_appliance.cli.output import Progress, say, say_json, tell
from seb_appliance.errors import ConfigurationError
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.bench.result import Result
    from seb_appliance.bench.session import Session

_MOST: Final = CONNECTIONS_MAX
_DURATION: Final = Quantity("DURATION", 100, DURATION_MS_MAX)
_WARM_UP: Final = Quantity("DURATION", 0, DURATION_MS_MAX)
_SIZE: Final = Quantity("SIZE", 1, limits.RECORD_BYTES_MAX)


def _number(flag: str, largest: int, text: str) -> Callable[..., Any]:
    return click.option(flag, type=click.IntRange(1, largest), metavar="N", help=text)


class _Bench(click.Command):
    """Its workload `mqtt` is a command with options of its own."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args[:1] == ["mqtt"]:
            return bench_mqtt.make_context(f"{info_name} mqtt", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_Bench)
@click.argument("workload", type=click.Choice(WORKLOADS), metavar="WORKLOAD")
@click.option("--preset", type=click.Choice(tuple(PRESETS)), help="Record size at a fixed rate.")
@click.option(
    "--topology", type=click.Choice(tuple(TOPOLOGIES)), help="Of fan: producers and consumers."
)
@click.option("--body", type=click.Choice(BODY_KINDS), help="How records travel. [single]")
@click.option("--record-bytes", type=_SIZE, metavar="SIZE", help="Value of a record. [1KiB]")
@_number("--records-per-request", limits.RECORDS_PER_REQUEST_MAX, "[1]")
@_number("--connections", _MOST, "Producers, or readers of consume. [16, at a rate 256]")
@_number("--consumers", _MOST, "Of e2e, mixed, fan; each reads everything. [1]")
@_number("--topics", limits.TOPICS_MAX, "Number of topics that are used. [1]")
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 10_000_000),
    metavar="N",
    help="Records a second, sent when they are due, even if answers are late. "
    "[each connection waits for its last answer]",
)
@click.option("--duration", type=_DURATION, metavar="DURATION", help="[10s]")
@click.option("--warm-up", type=_WARM_UP, metavar="DURATION", help="Not measured. [1s]")
@click.option("--target", type=click.Choice(("seb", "seb-go")), default="seb", help="API to use.")
@click.option("--embedded", is_flag=True, help="Start an appliance, measure it, stop it.")
@click.option(
    "--store",
    metavar="STORE",
    help="Its bucket: disk, memory, or s3://BUCKET/PREFIX (its objects stay), with this command's "
    "variables SEB_S3_... and AWS_... [disk]",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Directory for its bucket. [the system's temporary directory]",
)
@click.option("--linger", metavar="DURATION", help="Its linger. [10ms]")
@click.option("--store-latency", metavar="DURATION", help="Delay of its bucket's requests. [0ms]")
@click.option("--against", type=click.Choice(("null",)), help="Also measure a no-op server.")
@click.option("--keep", is_flag=True, help="Do not delete the topics afterwards.")
@file_option("--report", "Also write a page (HTML) with the latency curve.", metavar="FILE")
@json_option
@with_settings(*CONNECTION)
def bench(settings: Settings, as_json: bool, report: Path | None, **asked: Any) -> int:
    """Measure an appliance, and check every record.

    \b
    WORKLOAD is one of
      produce   send records
      consume   read records that exist
      e2e       send records and wait for them at the other end
      mixed     send records, while others are read
      fan       e2e with several producers and consumers of one topic
      mqtt      messages by MQTT: `seb bench mqtt --help`

    It uses topics of its own, and deletes them. The exit code is 65 when a record was lost,
    duplicated, out of order or damaged.
    """
    result = _run(settings, asked)
    from seb_appliance.bench import reports

    if report is not None:
        try:
            report.write_text(reports.page(result), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"cannot write {report} ({error.strerror})") from error
    if as_json:
        say_json(msgspec.to_builtins(result))
    else:
        say(reports.report(result))
    if not result.is_right:
        tell("seb: records are not what was sent")
        return WRONG
    if result.failure is not None:
        tell(f"seb: {result.failure}")
        return UNAVAILABLE
    if not result.is_whole:
        return INTERRUPTED
    return 0 if any(row.latency is not None for row in result.rows) else REFUSED


def _plan(asked: dict[str, Any]) -> Plan:
    """The options that are given win over a preset and a topology. Raises ConfigurationError."""
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
            raise ConfigurationError(
                "--consumers cannot be used with consume: its readers are --connections"
            )
        chosen.pop("rate", None)
        if asked["rate"] is not None:
            raise ConfigurationError(
                "--rate cannot be used with consume, which reads as fast as it can"
            )
    if workload == "produce" and asked["consumers"] is not None:
        raise ConfigurationError(
            "--consumers cannot be used with produce, only with mixed, e2e and fan"
        )
    if "rate" in chosen:
        chosen.setdefault("connections", CONNECTIONS_AT_A_RATE)
    return Plan(workload=workload, **chosen).check()


def _store(store: str) -> str:
    """Raises ConfigurationError."""
    if store in ("disk", "memory") or store.startswith("s3://"):
        return store
    raise ConfigurationError(f"--store is disk, memory or s3://BUCKET/PREFIX, not {store[:100]!r}")


def _session(settings: Settings, asked: dict[str, Any]) -> Session:
    """What is to be measured. Raises StartError, ConfigurationError."""
    check_installed()
    from seb_appliance.bench.machine import this_machine
    from seb_appliance.bench.session import EmbeddedOptions, Session
    from seb_appliance.bench.targets import Address, GoTarget, SebTarget

    plan = _plan(asked)
    if asked["against"] and (plan.workload not in ("produce", "consume") or plan.rate is not None):
        raise ConfigurationError("--against is for produce and consume without --rate")
    if asked["embedded"] and asked["target"] != "seb":
        raise ConfigurationError("--embedded starts an appliance; it cannot be used with seb-go")
    measure = partial(
        Session, plan=plan, against_null=asked["against"] is not None, keep_topics=asked["keep"]
    )
    if asked["embedded"]:
        flags = ["--linger", asked["linger"] or "10ms"]
        if asked["store_latency"] is not None:
            flags += ["--store-latency", asked["store_latency"]]
        own = EmbeddedOptions(
            store=_store(asked["store"] or "disk"),
            ready_bytes=min(plan.stored_bytes_max, (this_machine().memory_bytes or 0) // 4),
            directory=asked["directory"],
            flags=flags,
            environment=environment_without_settings(but=("SEB_S3_",)),
        )
        return measure(target=None, embedded=own)
    for name in ("store", "directory", "linger", "store_latency"):
        if asked[name] is not None:
            raise ConfigurationError(
                f"{_flag(name)} needs --embedded; a running appliance has its own setting"
            )
    is_ours = asked["target"] == "seb"
    url, token = url_and_key(settings, ours=is_ours)
    parts = parse_url(url)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    address = Address(parts.hostname or "", port, parts.path.rstrip("/"), is_secure)
    target = SebTarget(address, token) if is_ours else GoTarget(address, token)
    return measure(target=target, embedded=None)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _run(settings: Settings, asked: dict[str, Any]) -> Result:
    """Raises CommandError, StartError, ConfigurationError."""
    session = _session(settings, asked)
    from seb_appliance.bench.session import run_session

    async def until_stopped() -> Result:
        """The first interrupt ends the load and leaves a report; the second one ends it all."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupted() -> None:
            stop.set()
            loop.remove_signal_handler(signal.SIGINT)

        loop.add_signal_handler(signal.SIGINT, interrupted)
        with Progress() as progress:
            return await run_session(session, stop, progress.show)

    return run_load(until_stopped())
