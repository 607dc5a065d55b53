"""A mosquitto of our own, to measure beside."""

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

# Nothing is dropped or kept back, and nothing is stored: all of it is in memory.
_SETTINGS: Final = """\
listener {port} {host}
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
"""
_READY_S: Final = 10.0


@contextlib.asynccontextmanager
async def mosquitto() -> AsyncIterator[Broker]:
    """Ready; stopped at the end. Raises BenchError."""
    places = ("mosquitto", "/usr/sbin/mosquitto")
    program = next((found for place in places if (found := shutil.which(place))), None)
    if program is None:
        raise BenchError("--against mosquitto needs mosquitto, which is not installed")
    with tempfile.TemporaryDirectory(prefix="seb-bench-") as made:
        port, settings = free_port(), Path(made) / "mosquitto.conf"
        settings.write_text(_SETTINGS.format(port=port, host=HOST))
        async with running([program, "-c", str(settings)], Path(made) / "output") as process:
            await _until_ready(process, port)
            yield Broker("mosquitto", HOST, port, None)


async def _until_ready(process: subprocess.Popen[bytes], port: int) -> None:
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
    raise BenchError("mosquitto did not start")
