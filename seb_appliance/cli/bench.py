"""`seb bench WORKLOAD`: load, latency, and whether every record was right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance import limits
from seb_appliance.bench.plan import BODY_KINDS, PRESETS, TOPOLOGIES, WORKLOADS
from seb_appliance.cli.failures import REFUSED, UNAVAILABLE, WRONG, CommandError
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.output import say, tell
from seb_appliance.cli.quantity import Quantity

if TYPE_CHECKING:
    from seb_appliance.bench.result import Result

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
@click.option("--against", type=click.Choice(("null",)), help="Also a server that only answers.")
@click.option("--keep", is_flag=True, help="Do not delete the topics afterwards.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page (HTML) with the latency curve, too.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
@with_settings("url", "key_file", "profile")
def bench(
    config: Path | None,
    url: str | None,
    key_file: str | None,
    profile: str | None,
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
    from seb_appliance.cli.bench_asked import make_session
    from seb_appliance.cli.bench_running import run

    settings = settings_from(config, {"url": url, "key_file": key_file, "profile": profile})
    result = run(make_session(settings, asked))
    if report is not None:
        _write_report(report, result)
    if as_json:
        import msgspec

        say(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        from seb_appliance.bench.report_text import report as words

        say(words(result))
    return _exit_code(result)


def _write_report(path: Path, result: Result) -> None:
    """Raises CommandError."""
    from seb_appliance.bench.report_html import page

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
