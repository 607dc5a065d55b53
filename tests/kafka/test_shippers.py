"""Log shippers that have an output for Kafka."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker, kafka_broker
from tests.senders.shippers import installed, listens, log, running
from tests.support.servers.s3_server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]
RSYSLOG = """
global(workDirectory="{folder}")
module(load="imptcp")
module(load="omkafka")
input(type="imptcp" address="127.0.0.1" port="{port}")
template(name="number" type="string" string="%msg%")
action(type="omkafka" broker=["{brokers}"] topic="lines" key="web" template="number"
       confParam=["security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=PLAIN",
                  "sasl.username=any", "sasl.password={password}", "acks=all"]
       resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{folder}/failed"
       action.resumeRetryCount="-1" queue.type="LinkedList")
"""


async def test_rsyslog_delivers_each_line_over_kill_9(tmp_path: Path):
    program = shutil.which("rsyslogd", path="/usr/sbin")
    installed(program and any(Path("/usr/lib").glob("*/rsyslog/omkafka.so")), "rsyslog-kafka")
    async with kafka_broker(tmp_path) as broker:
        await broker.create("lines", 1)
        port, main = free_port(), tmp_path / "rsyslog.conf"
        main.write_text(RSYSLOG.format(folder=tmp_path, port=port, **broker.options))
        command: list[str | Path] = [str(program), "-n", "-f", main, "-i", tmp_path / "pid"]
        with running(tmp_path, command, listens(port)):
            await ship(port, 0)
            await broker.holds("lines", 1, 100)
            broker.seb.kill()
            await ship(port, 100)
            await broker.start()
            await ship(port, 200)
            await arrived(broker, 300)


async def ship(port: int, first: int) -> None:
    """100 numbers as lines of syslog."""
    await asyncio.to_thread(log, port, [str(n) for n in range(first, first + 100)])


async def arrived(broker: KafkaBroker, count: int) -> None:
    """All numbers below `count`; rsyslog may repeat some."""
    async with asyncio.timeout(120):
        while set((await broker.values("lines", 1))[0]) != set(range(count)):
            await asyncio.sleep(0.1)
