"""`seb bench mqtt`: messages a second by MQTT, beside other brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from seb_appliance import limits
from seb_appliance.addresses import parse_url
from seb_appliance.bench.plan import DURATION_MS_MAX, MQTT_OTHERS, MQTT_SHAPES
from seb_appliance.cli.connection import url_and_key
from seb_appliance.cli.errors import WRONG
from seb_appliance.cli.measuring import check_installed, run_load
from seb_appliance.cli.options import (
    CONNECTION,
    Quantity,
    json_option,
    with_settings,
)
from seb_appliance.cli.output import Progress, say, say_json, table, tell
from seb_appliance.setting_sources import environment_without_settings
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.bench.mqtt.measuring import MqttRow

_DURATION: Final = Quantity("DURATION", 100, DURATION_MS_MAX)
_SIZE: Final = Quantity("SIZE", 12, limits.MIB // 2)


@click.command("mqtt")
@click.option(
    "--shape",
    "shapes",
    type=click.Choice(tuple(MQTT_SHAPES)),
    multiple=True,
    help="Only these. [all]",
)
@click.option("--qos", "levels", type=click.IntRange(0, 1), multiple=True, help="Only this. [both]")
@click.option(
    "--connections", type=click.IntRange(1, 4_000), metavar="N", help="Publishers of in. [256]"
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 500),
    default=20,
    metavar="N",
    help="Messages of a publisher that are not done with. [20]",
)
@click.option("--payload-bytes", type=_SIZE, default="100B", metavar="SIZE", help="[100B]")
@click.option("--duration", type=_DURATION, default="5s", metavar="DURATION", help="Of a row. [5s]")
@click.option("--embedded", is_flag=True, help="Start an appliance, measure it, stop it.")
@click.option(
    "--port", type=click.IntRange(1, 65_535), default=1883, help="Its port of MQTT. [1883]"
)
@click.option(
    "--against",
    type=click.Choice(MQTT_OTHERS),
    multiple=True,
    help="Also start and measure this one, after each row.",
)
@json_option
@with_settings(*CONNECTION)
def bench_mqtt(settings: Settings, as_json: bool, **asked: Any) -> int:
    """Send and receive messages by MQTT, and check each.

    \b
    Publishers and subscribers, each of which gets all messages:
      in        256 and 0
      fan-in    100 and 1
      fan-out   1 and 100
      mesh      20 and 20
    """
    check_installed()
    rows = run_load(_measure(settings, asked))
    if as_json:
        say_json({"rows": msgspec.to_builtins(rows)})
    else:
        names = ("shape", "QoS", "broker", "in/s", "out/s", "p50", "p99", "wrong")
        say(table(names, map(_shown, rows), "nothing was measured"))
    if any(row.wrong for row in rows):
        tell("seb: messages are not what was sent")
        return WRONG
    return 0


def _shown(row: MqttRow) -> Sequence[Any]:
    from seb_appliance.bench.reports import duration

    curve = row.latency
    times = ["", ""] if curve is None else [duration(curve.value_us(p)) for p in (50.0, 99.0)]
    rates = (f"{row.in_per_s:,.0f}", f"{row.out_per_s:,.0f}")
    return (row.shape, row.qos, row.broker, *rates, *times, row.wrong)


async def _measure(settings: Settings, asked: dict[str, Any]) -> list[MqttRow]:
    """Raises BenchError."""
    from seb_appliance.bench.mqtt.measuring import Broker, measure, works
    from seb_appliance.bench.mqtt.others import other
    from seb_appliance.bench.session import HOST, EmbeddedOptions, embedded, free_port

    rows: list[MqttRow] = []
    async with contextlib.AsyncExitStack() as stack:
        if asked["embedded"]:
            port = free_port()
            flags = ["--mqtt-port", str(port)]
            options = EmbeddedOptions(flags=flags, environment=environment_without_settings())
            own = await stack.enter_async_context(embedded(options))
            brokers = [Broker("seb", HOST, port, own.token)]
        else:
            url, token = url_and_key(settings, ours=True)
            brokers = [Broker("seb", parse_url(url).hostname or "", asked["port"], token)]
        for name in asked["against"]:
            brokers.append(await stack.enter_async_context(other(name)))
        progress = stack.enter_context(Progress())
        wanted = works(
            asked["shapes"] or tuple(MQTT_SHAPES),
            asked["levels"] or (0, 1),
            publishers=asked["connections"],
            payload_bytes=asked["payload_bytes"],
            in_flight=asked["in_flight"],
            duration_s=asked["duration"] / 1_000,
        )
        for number, work in enumerate(wanted):
            for broker in brokers:
                progress.show(f"{work.shape}, QoS {work.qos}, {broker.name}", number / len(wanted))
                rows.append(await measure(work, broker))
    return rows
