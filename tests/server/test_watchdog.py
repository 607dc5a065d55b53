"""The appliance below a service manager with a watchdog, as the unit of the Ansible role asks for:
the test speaks systemd's side of sd_notify."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.load import Connection
from tests.support.process import Bucket, SebProcess

pytestmark = pytest.mark.slow
WATCHDOG_S = 1.0
PATIENCE_S = 60.0
HANGING = ("tests.support.hanging",)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[socket.socket]:
    """The manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        yield manager


def watched(tmp_path: Path) -> Bucket:
    bucket = Bucket.directory(tmp_path / "bucket")
    given = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": f"{WATCHDOG_S * 1e6:.0f}"}
    return replace(bucket, environment=given)


async def hears(told: socket.socket, text: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while (left_s := until_s - time.monotonic()) > 0:
        told.settimeout(left_s)
        if (await asyncio.to_thread(told.recv, 1024)).decode() == text:
            return
    raise AssertionError(f"{text} was not said")


async def hears_nothing(told: socket.socket) -> None:
    """For so long that the watchdog bites."""
    until_s = time.monotonic() + PATIENCE_S
    told.settimeout(WATCHDOG_S)
    while time.monotonic() < until_s:
        try:
            await asyncio.to_thread(told.recv, 1024)
        except TimeoutError:
            return
    raise AssertionError("it is said to live")


async def test_a_hung_event_loop_is_ended_with_its_stacks_and_the_next_start_goes_on(
    told: socket.socket, tmp_path: Path
) -> None:
    seb = SebProcess(watched(tmp_path), tmp_path / "data", program=HANGING)
    try:
        await hears(told, "READY=1")
        for _ in range(2):
            await hears(told, "WATCHDOG=1")
        connection = Connection(seb.port, seb.admin_key)
        assert (await connection.request("POST", "/v1/topics/orders/records", b"1")).status == 201
        connection.close()
        seb.send(signal.SIGUSR1)
        await hears_nothing(told)
        seb.send(signal.SIGABRT)  # WatchdogSignal=
        assert await seb.ended() == -signal.SIGABRT
        assert "hanging.py" in seb.shown.partition("most recent call first")[2]
    finally:
        seb.kill()
    again = SebProcess(watched(tmp_path), tmp_path / "data")
    try:
        await again.ready()
        await hears(told, "READY=1")
        connection = Connection(again.port, again.admin_key)
        answer = await connection.request("GET", "/v1/topics/orders/records?offset=0")
        connection.close()
        assert [record["value"] for record in answer.json()["records"]] == ["1"]
        again.send(signal.SIGTERM)
        await hears(told, "STOPPING=1")
        assert await again.ended() == 0
    finally:
        again.kill()
