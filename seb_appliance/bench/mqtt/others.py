"""Brokers of others, started to measure beside."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from seb_appliance.bench.connecting import BenchError
from seb_appliance.bench.mqtt.measuring import Broker
from seb_appliance.bench.session import HOST, free_port, running

# What the file of settings of each of MQTT_OTHERS says. Nothing is dropped or kept back.
_SETTINGS: Final = {
    # All of it is in memory.
    "mosquitto": """\
listener {port} {host}
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
""",
    # JetStream stores messages of QoS 1, each on the disk before it is acknowledged.
    "nats-server": """\
server_name: bench
listen: "{host}:-1"
jetstream {{ store_dir: "{folder}", sync_interval: always }}
mqtt {{ listen: "{host}:{port}", max_ack_pending: 65535 }}
""",
}
_READY_S: Final = 10.0


@contextlib.asynccontextmanager
async def other(name: str) -> AsyncIterator[Broker]:
    """The program `name`, ready; stopped at the end. Raises BenchError."""
    places = (name, f"/usr/sbin/{name}")
    program = next((found for place in places if (found := shutil.which(place))), None)
    if program is None:
        raise BenchError(f"--against {name} needs {name}, which is not installed")
    with tempfile.TemporaryDirectory(prefix="seb-bench-") as made:
        port, settings = free_port(), Path(made) / "settings"
        settings.write_text(_SETTINGS[name].format(port=port, host=HOST, folder=made))
        async with running([program, "-c", str(settings)], Path(made) / "output") as process:
            await _until_ready(name, process, port)
            yield Broker(name, HOST, port, None)


async def _until_ready(name: str, process: subprocess.Popen[bytes], port: int) -> None:
    async def connects() -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            return False
        writer.close()
        return True

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READY_S):
            while process.poll() is None:
                if await connects():
                    return
                await asyncio.sleep(0.02)
    raise BenchError(f"{name} did not start")
